"""A file of schema version 7 (payloads in snake_case) becomes camelCase: no user data changes, and its runs go on."""

import contextlib
import gzip
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.data.runs_7 import AGENTS, ORDER
from tests.support.runs import events_of

import greenroom as gr
from greenroom.actors.contract.casing import camel
from greenroom.actors.contract.catalogue import CATALOGUE
from greenroom.actors.contract.envelope import EVENT_VERSION
from greenroom.actors.stores.common._recased import _NAMES, recased
from greenroom.actors.stores.sqlite._schema import MIGRATIONS

from ..contract.strategies import JSON, TEXT

FILE = Path(__file__).parents[2] / "data" / "runs_7.db.gz"
ENDED = ("done", "crawls", "ends")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "runs.db"
    found.write_bytes(gzip.decompress(FILE.read_bytes()))
    return found


def frames(path: Path) -> dict[tuple[str, int], bytes]:
    with contextlib.closing(sqlite3.connect(path)) as file:
        rows = file.execute("SELECT run_id, seq, frame FROM events JOIN runs ON runs.number = run ORDER BY run, seq")
        return {(run, sequence): bytes(frame) for run, sequence, frame in rows}


def test_the_file_is_of_the_release_before() -> None:
    """Else it would show nothing: it holds the schema version, every kind of key and an excerpted event."""
    content = gzip.decompress(FILE.read_bytes())
    assert int.from_bytes(content[60:64], "big") == 7
    assert b'"excerpted":["response_schema"]' in content
    assert b'"call_id":"mine"' in content


async def test_fields_are_renamed_and_everything_else_keeps_its_bytes(path: Path) -> None:
    before = frames(path)
    async with gr.open_runtime(path, agents=AGENTS):
        pass
    after = frames(path)
    for place, frame in before.items():
        old, new = json.loads(frame), json.loads(after[place])
        assert new.pop("version") == old.pop("version") + 1 == EVENT_VERSION
        payload = {camel(key): value for key, value in old.pop("payload").items()}
        assert (list(new["payload"]), new.pop("payload")) == (list(payload), payload)
        assert new.pop("excerpted", []) == [camel(name) for name in old.pop("excerpted", [])]
        assert old == new
    schema = CATALOGUE["run.tool.call"]
    (called,) = [json.loads(frame)["payload"] for frame in after.values() if b'"run.tool.call"' in frame][:1]
    assert called["arguments"] == {"order": ORDER}
    assert schema.__name__


@pytest.mark.parametrize("run_id", [one.key for one in AGENTS])
async def test_a_run_that_was_recorded_before_replays_to_the_same_bytes(path: Path, run_id: str) -> None:
    async with gr.open_runtime(path, agents=AGENTS) as runtime:
        report = await runtime.replay(run_id)
    assert report.equal, report.difference


async def test_runs_that_wait_go_on(path: Path) -> None:
    async with gr.open_runtime(path, agents=AGENTS) as runtime:
        for run_id, result in (("ships", None), ("asks", {"expires_at": "today"})):
            run = await runtime.get(run_id)
            (ticket,) = (await run.view()).tickets
            assert (await run.decide(ticket.approve(result))).ok
            assert (await run.result()).output == {"ships": "shipped", "asks": "asked"}[run_id]
            events = await events_of(run)
            assert [event.sequence for event in events] == list(range(1, len(events) + 1))
            assert {event.version for event in events} == {EVENT_VERSION}
            named = [event.payload["callId"] for event in events if event.type.startswith("run.tool.")]
            assert set(named) == {"c1"}
            report = await runtime.replay(run_id)
            assert report.equal, report.difference


async def test_a_reader_of_a_file_of_before_is_told_what_to_do(path: Path) -> None:
    with pytest.raises(gr.StoreOpenError, match=rf"schema version 7, needed is {len(MIGRATIONS)}; open it for writing"):
        async with gr.open_runtime(gr.SQLiteStore(path, read_only=True), agents=AGENTS):
            pass


# --- one frame -------------------------------------------------------------------------------------------------------

NAMES = sorted([*_NAMES, "text", "result", "from"])
"""Those of version 1: a field that an event has received since has never stood in an old file."""


def encoded(version: int, payload: dict[str, Any], excerpted: list[str]) -> bytes:
    more = {"excerpted": excerpted} if excerpted else {}
    event = {"id": "r-1", "sequence": 1, "version": version, "payload": payload, **more}
    return json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode()


@given(st.dictionaries(st.sampled_from(NAMES), JSON | st.dictionaries(st.sampled_from(NAMES), JSON)), st.data())
def test_only_the_keys_of_the_payload_itself_change(payload: dict[str, Any], data: st.DataObject) -> None:
    cut = data.draw(st.lists(st.sampled_from(sorted(payload)), unique=True)) if payload else []
    reported = {camel(name): value for name, value in payload.items()}
    wanted = json.loads(encoded(2, reported, [camel(name) for name in cut]))
    found = recased(encoded(1, payload, cut))
    assert json.loads(found) == wanted
    assert list(json.loads(found)["payload"]) == list(reported)
    assert recased(found) == found


@given(st.binary(max_size=40) | TEXT.map(str.encode) | JSON.map(lambda value: json.dumps(value).encode()))
def test_bytes_that_are_no_event_stay_as_they_are(content: bytes) -> None:
    assert recased(content) == content


@pytest.mark.parametrize("content", [None, 5, 1.5], ids=repr)
def test_a_damaged_row_of_any_type_stays_as_it_is(content: Any) -> None:
    """SQLite keeps any type in any column, and an exception would keep the whole file from opening."""
    assert recased(content) == content


@pytest.mark.parametrize("usage", [None, {"requests": 1}, {"output": 2, "requests": 1, "more": 3}], ids=repr)
def test_a_usage_with_other_counts_keeps_no_event_in_version_1(usage: dict[str, int] | None) -> None:
    found = json.loads(recased(encoded(1, {"delay_ms": 5, "usage": usage}, [])))
    assert (found["version"], found["payload"]) == (2, {"delayMs": 5, "usage": usage})
