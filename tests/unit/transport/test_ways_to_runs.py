"""Whatever a program can ask of runs, people and strangers can ask, too: by HTTP, and on the command line."""

import typing

import pytest

import greenroom as gr
from greenroom.actors.contract.casing import camel
from greenroom.actors.contract.run_lists import RunSummary
from greenroom.actors.runtime.run_access import ListLine
from greenroom.transport.cli.commands import COMMANDS
from greenroom.transport.cli.inspect import _plain
from greenroom.transport.protocol import up
from greenroom.transport.protocol.lines import RunLine
from greenroom.transport.server.routes import ROUTES

from ...support.runs import agent, home

WAYS = {
    "runs": ("GET /v1/runs", "runs"),
    # conversations are read in the console and by programs; `greenroom show` and `follow` have the runs of one
    "threads": ("GET /v1/threads", None),
    "messages": ("GET /v1/threads/{thread}/messages", None),
    "view": ("GET /v1/runs/{run}", "show"),
    "artifact": ("GET /v1/runs/{run}/artifacts/{artifact}", "artifacts"),
    "follow": ("GET /v1/runs/{run}/events", "follow"),
    "decide": ("command decide", "approve"),
    "cancel": ("command cancel", "cancel"),
    "pause": ("command pause", "pause"),
    "send": ("command send", "send"),
    "fork": ("POST /v1/runs/{run}/fork", None),  # a fork needs an agent in the process: the console and programs do it
    "revive_run": ("POST /v1/runs/{run}/revive", "runs"),
    "rules": ("GET /v1/rules", "rules"),
    "revoke_rule": ("POST /v1/rules/{rule}/revoke", "rules"),
    "queues": ("GET /v1/queues", "queues"),
    "set_queue": ("POST /v1/queues/{queue}", "queues"),
    "prune": ("POST /v1/prune", "prune"),
}
"""Method of `RunAccess` -> its operation of HTTP (or its command), and its command of the terminal."""


def members(protocol: type) -> set[str]:
    """The public names that a protocol declares."""
    return {name for name in vars(protocol) if not name.startswith("_")}


def test_each_method_of_run_access_has_a_way_by_http_and_one_on_the_command_line():
    assert set(WAYS) == members(gr.RunAccess) - {"principal"}
    operations = {f"{route.method} {route.template}" for route in ROUTES} | {f"command {name}" for name in up.COMMANDS}
    assert {http for http, _ in WAYS.values()} <= operations
    assert {words for _, words in WAYS.values() if words is not None} <= set(COMMANDS)


@pytest.mark.parametrize("command", up.COMMANDS)
def test_each_command_of_the_wire_is_a_method_of_run_access(command: str):
    assert command in WAYS


async def test_each_field_of_a_list_is_in_the_output_of_runs_and_in_the_lists_of_the_gateway():
    helper = agent("done")
    async with home(agents=[helper]) as runtime:
        await (await runtime.start(helper, "hi")).result()
        (line,) = (await runtime.runs()).runs
    assert isinstance(line, RunSummary)
    assert {camel(name) for name in members(ListLine)} <= set(_plain(line))
    assert members(ListLine) <= set(typing.get_type_hints(RunLine))
