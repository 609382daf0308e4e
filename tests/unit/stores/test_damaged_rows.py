"""A row that holds anything at all: a StoreError for each reader of its run, and no other run is disturbed.

SQLite keeps any type in any column, so a damaged file, or another program, may put anything there. Each column with
encoded data of one run gets each kind of damage; the runtime opens, the run behind it works on.
"""

import contextlib
import shutil
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trio
from tests.support.runs import events_of

import greenroom as gr
from greenroom.testing import ScriptedModel, call

DAMAGE: dict[str, Any] = {
    "list": b"[]",
    "object": b'{"v":4,"d":{}}',
    "older": b'{"v":2,"d":{"counters":5,"tasks":7}}',
    "newer": b'{"v":99,"d":{}}',
    "bytes": b"\xff\xfe",
    "deep": b"[" * 5_000,
    "text": "text",
    "whole": 5,
}
COLUMNS = {
    "runs.info": "number",
    "runs.row": "number",
    "events.frame": "run",
    "calls.body": "run",
    "tickets.body": "run",
    "tickets.brief": "run",
    "inbox.body": "run",
    "inbox.answer": "run",
    "state.value": "run",
    "record.body": "run",
    "messages.body": "run",
}
"""Column with encoded data -> the column beside it that names the run."""
HURT = ("waits", "done")

kept = gr.StateKey("kept", dict[str, str], default={})


@gr.tool(needs_approval=True)
async def pay(n: int) -> str:
    """Pay."""
    return f"paid {n}"


@gr.tool
async def keep(ctx: gr.ToolContext) -> str:
    """Write to state."""
    ctx.state.set(kept, {"a": "b"})
    return "kept"


def payer() -> gr.Agent[str]:
    model = ScriptedModel([[call("keep"), call("pay", n=1)], "done"])
    return gr.Agent("payer", tools=[pay, keep], state=[kept], model=model)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with two runs to damage and one that works on."""
    path = tmp_path_factory.mktemp("sound") / "runs.db"

    async def fill() -> None:
        async with gr.open_runtime(gr.SQLiteStore(path, writer="inline"), agents=[payer()]) as runtime:
            for run_id in (*HURT, "other"):
                await (await runtime.start("payer", "go", run_id=run_id, thread_id=f"of-{run_id}")).wait()
            run = await runtime.get("done")
            (ticket,) = (await run.view()).tickets
            await run.decide(ticket.approve())
            await run.result()

    trio.run(fill)
    return path


def damaged(sound: Path, path: Path, column: str, value: object) -> int:
    """Write a copy of the file in which a column of two runs holds the value; how many rows that were."""
    shutil.copy(sound, path)
    table, name = column.split(".")
    with contextlib.closing(sqlite3.connect(path)) as file, file:
        runs = "SELECT number FROM runs WHERE run_id IN ('waits', 'done')"
        hurt = file.execute(f"UPDATE {table} SET {name} = ? WHERE {COLUMNS[column]} IN ({runs})", (value,))  # noqa: S608
        return hurt.rowcount


async def asked(runtime: gr.Runtime, run_id: str) -> None:
    """Ask everything about a run, and for everything; each answers, or raises an error of Greenroom, in time."""
    run, reader = gr.Run(run_id, f"of-{run_id}", runtime.reader, runtime.commands), runtime.reader
    for question in (
        run.view,
        lambda: reader.outline(run_id),
        lambda: reader.record(run_id, calls="all"),
        lambda: reader.ticket(run_id, f"{run_id}.t1"),
        lambda: events_of(run, until="rest"),
        lambda: runtime.replay(run_id),
        lambda: runtime.fork(run_id, step=0),
        lambda: runtime.start("payer", "go", run_id=run_id),
        lambda: run.decide(f"{run_id}.t1", "approve"),
        lambda: run.send("more"),
        run.pause,
        run.wait,
        run.cancel,
        run.result,
    ):
        with trio.fail_after(600), contextlib.suppress(gr.GreenroomError):
            await question()


@pytest.mark.parametrize("value", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize("column", COLUMNS)
async def test_a_damaged_row_is_a_store_error_of_its_run_only(sound, tmp_path, autojump_clock, column, value):
    path = tmp_path / "runs.db"
    assert damaged(sound, path, column, value)
    async with gr.open_runtime(gr.SQLiteStore(path, writer="inline"), agents=[payer()]) as runtime:
        for run_id in HURT:
            await asked(runtime, run_id)
        pages = [await runtime.runs(counts=True), await runtime.runs(order="waiting_longest")]
        assert all("other" in {line.info.run_id for line in page.runs} for page in pages)
        other = await runtime.get("other")
        (ticket,) = (await other.view()).tickets
        assert (await other.decide(ticket.approve())).ok
        assert (await other.result()).output == "done"
        assert (await runtime.replay("other")).difference is None
        await runtime.store.prune(datetime(2100, 1, 1, tzinfo=UTC))
    async with gr.open_runtime(gr.SQLiteStore(path, writer="inline"), agents=[payer()]) as runtime:
        await runtime.runs()


async def test_a_command_to_a_run_with_a_damaged_ticket_is_a_store_error_that_names_the_run(sound, tmp_path):
    damaged(sound, tmp_path / "runs.db", "tickets.body", b"{}")
    async with gr.open_runtime(gr.SQLiteStore(tmp_path / "runs.db", writer="inline"), agents=[payer()]) as runtime:
        with pytest.raises(gr.StoreError, match=r"a row of .* cannot be read: Ticket: this is not a row of Greenroom"):
            await runtime.commands.decide("waits", gr.Decision(target="waits.t1", action="approve"))


async def test_a_row_that_contradicts_the_column_beside_it_keeps_no_waiter(sound, tmp_path, autojump_clock):
    """Such a row was waited for without an end: its owner does not work, and its reader saw a run that works."""
    damaged(sound, tmp_path / "runs.db", "runs.row", DAMAGE["object"])
    async with gr.open_runtime(gr.SQLiteStore(tmp_path / "runs.db", writer="inline"), agents=[payer()]) as runtime:
        for run_id, stage in (("waits", "needs_approval"), ("done", "completed")):
            run = await runtime.get(run_id)
            with (
                trio.fail_after(600),
                pytest.raises(gr.GreenroomError, match=f"created in its row, and {stage} in the"),
            ):
                await run.wait()
