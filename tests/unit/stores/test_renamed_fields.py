"""Rows of version 2 are read with the names of version 3, and the runs of a file of schema version 8 continue."""

import contextlib
import gzip
import json
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.data.runs_8 import AGENTS

import greenroom as gr
from greenroom.actors.contract import codec
from greenroom.actors.contract.calls import CallPosition
from greenroom.actors.contract.phases import RunPosition
from greenroom.actors.contract.renamed_fields import renamed
from greenroom.actors.contract.rows import CallRow, Counters, JudgedRow, RunRow

from ..contract.strategies import JSON

FILE = Path(__file__).parents[2] / "data" / "runs_8.db.gz"
OLD_NAMES = ("told", "asked", "weighed", "lost", "begun", "unheard", "holds", "answers")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "runs.db"
    file.write_bytes(gzip.decompress(FILE.read_bytes()))
    return file


def blobs(path: Path) -> bytes:
    """All rows and records of the file."""
    with contextlib.closing(sqlite3.connect(path)) as file:
        queries = ("SELECT row FROM runs", "SELECT body FROM calls", "SELECT body FROM record")
        return b"\n".join(bytes(body) for sql in queries for (body,) in file.execute(sql))


def test_the_file_has_each_renamed_field_in_rows_of_version_2(path: Path) -> None:
    """Otherwise the tests below would show nothing."""
    content = blobs(path)
    assert [name for name in OLD_NAMES if f'"{name}":'.encode() not in content] == []
    assert b'"at":"held"' in content
    assert b'{"v":4' not in content


async def test_rows_are_read_with_their_new_names(path: Path) -> None:
    async with gr.open_runtime(gr.SQLiteStore(path), agents=AGENTS) as runtime:
        records = {agent.key: await runtime.reader.record(agent.key, calls="all") for agent in AGENTS}
    rows: dict[str, RunRow] = {key: record.row for key, record in records.items() if record is not None}
    calls: dict[str, tuple[CallRow, ...]] = {key: record.calls for key, record in records.items() if record is not None}
    assert all(row.hooks_started and row.counters.model_attempts >= 1 for row in rows.values())
    assert [ticket.message for ticket in rows["held"].run_tickets] == ["has the parcel come?"]
    assert rows["sent"].unread_input_by == "bob"
    assert calls["asked"][0].body_question
    assert calls["told"][0].body_decision is not None
    assert calls["told"][0].body_decision.result == "yes"
    assert [call.at for call in calls["decided"]] == [CallPosition.DECIDED, CallPosition.PARKED]
    assert [call.settled_at_gate for call in calls["weighed"]] == [None, 0]
    assert calls["lost"][0].unknown_cause == "process"


@pytest.mark.parametrize(
    ("run_id", "target", "output"),
    [
        ("asked", "c1", "asked"),
        ("held", "held.t1", "came"),
        ("decided", "c2", "shipped"),
        ("sent", "c1", "sent"),
        ("weighed", "c1", "known"),
    ],
)
async def test_runs_that_wait_continue_and_replay(path: Path, run_id: str, target: str, output: str) -> None:
    """The record has entries of both versions."""
    async with gr.open_runtime(path, agents=AGENTS) as runtime:
        run = await runtime.get(run_id)
        assert (await run.decide(target, "approve", by="ada")).ok
        assert (await run.result()).output == output
        report = await runtime.replay(run_id)
    assert report.equal, report.difference


async def test_a_body_whose_process_ended_is_still_asked_about(path: Path) -> None:
    async with gr.open_runtime(path, agents=AGENTS) as runtime:
        run = await runtime.get("lost")
        (ticket,) = (await run.view()).tickets
        assert ticket.reason == "outcome_unknown"
        assert (await run.decide(ticket.approve("charged 5"))).ok
        assert (await run.result()).output == "charged"


@pytest.mark.parametrize("run_id", ["done", "told"])
async def test_a_run_that_was_recorded_before_replays_to_the_same_bytes(path: Path, run_id: str) -> None:
    async with gr.open_runtime(path, agents=AGENTS) as runtime:
        report = await runtime.replay(run_id)
    assert report.equal, report.difference


def test_rows_inside_rows_are_renamed() -> None:
    """Tasks and counters in a run row, and the row in the first entry of a record."""
    task = {"task_id": "t", "call_id": "c", "tool": "x", "arguments": {"lost": 1}, "started_at": "2026-01-01T00:00:00Z"}
    data = {"tasks": [task | {"lost": "grace"}], "counters": {"answers": 3}, "begun": True}
    row = codec.load(RunRow, json.dumps({"v": 2, "d": data}).encode())
    assert (row.tasks[0].unknown_cause, row.tasks[0].arguments) == ("grace", {"lost": 1})
    assert row.tasks[0].started_at == datetime(2026, 1, 1, tzinfo=UTC)
    assert (row.counters, row.hooks_started) == (Counters(model_attempts=3), True)
    entries = [[1, "Born", {"row": data}], [2, "PhaseDone", {"holds": []}, []], [3, "CallReturned", {"result": data}]]
    ((_, _, born), (_, _, phase, _), untouched) = renamed("list", entries)
    assert born["row"]["counters"] == {"model_attempts": 3}
    assert phase == {"ticket_requests": []}
    assert untouched == entries[2]


def test_the_position_of_a_run_is_stored_under_its_first_name() -> None:
    """Rows of before are read without an upgrade, and new rows have the bytes that older releases read."""
    blob = b'{"v":4,"d":{"stage":"running","cursor":"tools","step":1}}'
    row = codec.load(RunRow, blob)
    assert (row.position, codec.glance(JudgedRow, blob).position) == (RunPosition.TOOLS, RunPosition.TOOLS)
    assert codec.dump(row) == blob


NAMES = st.sampled_from([*OLD_NAMES, "row", "tasks", "counters", "at"])


@given(st.sampled_from(["RunRow", "CallRow", "list", "Ticket"]), JSON | st.dictionaries(NAMES, JSON))
def test_data_of_another_form_comes_back_for_its_reader_to_refuse(name: str, data: Any) -> None:
    changed = renamed(name, data)
    assert changed == data or isinstance(data, (dict, list))
