"""The filters of lists of runs are the same at every door: store, gateway, client, command line and console."""

import argparse
import re
from pathlib import Path

import attrs
import pytest

import greenroom as gr
from greenroom.actors.contract.run_lists import RunFilters, RunQuery, WatchFilters
from greenroom.actors.runtime.listing import query_of
from greenroom.transport.cli import options
from greenroom.transport.client.arguments import filter_fields
from greenroom.transport.gateway.run_routes import ROUTES
from greenroom.transport.protocol import up

NAMES = set(RunFilters.__annotations__)


def test_a_query_of_the_store_has_each_filter():
    assert {field.name for field in attrs.fields(RunQuery)} == NAMES


def test_the_frame_and_the_route_have_each_filter_under_its_name_on_the_wire():
    watched = {up.FILTERS[name] for name in WatchFilters.__annotations__}
    assert {field.name for field in attrs.fields(up.Watch)} - {"id"} == watched
    (route,) = (route for route in ROUTES if (route.method, route.template) == ("GET", "/v1/runs"))
    assert set(route.query) == set(up.FILTERS.values())


def test_the_command_line_has_the_filters_of_people():
    (commands,) = (one for one in options.parser()._actions if isinstance(one, argparse._SubParsersAction))
    taken = {action.dest for action in commands.choices["runs"]._actions} & NAMES
    assert taken == NAMES - {"thread_id", "prefix", "counts"}


def test_the_console_sends_no_filter_that_the_gateway_does_not_know(root: Path):
    script = (root / "transport" / "console" / "runs.js").read_text(encoding="utf-8")
    (listed,) = re.findall(r"#query = {}; // (.*)", script)
    assert set(listed.split(", ")) <= set(up.FILTERS.values())


def test_a_filter_that_is_none_is_left_out():
    assert query_of(agent=None, prefix=None, status=None) == RunQuery()
    assert filter_fields("runs", {"agent": None, "thread_id": "t"}, RunFilters) == {"thread": "t"}


def test_a_list_that_is_watched_has_no_pages():
    with pytest.raises(gr.UsageError, match="watch_runs\\(\\) has no option 'cursor'; it has status, agent"):
        filter_fields("watch_runs", {"cursor": "c"}, WatchFilters)
