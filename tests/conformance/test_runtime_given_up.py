"""A run that was given up can be cancelled whatever is wrong with it, and never blocks its thread."""

import sqlite3
from contextlib import closing

import pytest
import trio
from msgspec.structs import replace

import greenroom as gr
from greenroom.actors.contract.decisions import Command
from greenroom.actors.contract.envelope import decode_event
from greenroom.actors.testing.store_kit._tools import create, message, new_run, opened
from greenroom.testing import call

from ..support.runs import Shelf, agent, events_of, home


@gr.tool(needs_approval=True)
async def pay() -> str:
    """Needs an approval."""
    return "paid"


def payer(*more):
    return agent(call("pay", id="c1"), "done", *more, tools=[pay])


@pytest.fixture
def shelf(tmp_path):
    return Shelf("sqlite", tmp_path)


def poison(path, sql):
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        assert file.execute(sql).rowcount > 0, sql


POISONS = {
    "its row": "UPDATE runs SET row = x'00' WHERE run_id = 'r1'",
    "its row, half written": "UPDATE runs SET row = substr(row, 1, length(row) / 2) WHERE run_id = 'r1'",
    "its facts": "UPDATE runs SET info = x'00' WHERE run_id = 'r1'",
    "a call": "UPDATE calls SET body = x'00' WHERE run = 1",
    "a ticket": "UPDATE tickets SET body = x'00' WHERE run = 1",
    "a newer row": """UPDATE calls SET body = CAST('{"v":99,"d":{}}' AS BLOB) WHERE run = 1""",
    "a message": "UPDATE messages SET body = x'00'",
    "a command": "UPDATE inbox SET body = x'00' WHERE run = 1",
}


async def waiting(shelf, *, decided=False):
    """A run that waits for an approval in a thread, not in memory; or that has got its decision a moment ago."""
    async with home(shelf, agents=[payer()], drain=0) as runtime:
        run = await runtime.start("helper", "pay", run_id="r1", thread_id="t")
        await run.wait()
    if decided:
        async with home(shelf, agents=[]) as runtime:
            run = await runtime.get("r1")
            assert (await run.decide("c1", "resume")).ok


@pytest.mark.rule("L-93")
@pytest.mark.parametrize("what", POISONS)
async def test_a_run_whose_rows_cannot_be_read_is_cancelled_all_the_same(shelf, what, autojump_clock):
    await waiting(shelf, decided=what == "a command")
    poison(shelf.path, POISONS[what])
    async with home(shelf, agents=[payer("done")]) as runtime:
        thread = "other" if "message" in what else "t"
        behind = await runtime.start("helper", "and then?", run_id="r2", thread_id=thread)
        assert (await runtime.commands.post("r1", cancel())).ok
        await ended(runtime, "r1")
        last = decode_event((await runtime.store.events("r1"))[-1])
        assert last.type in ("run.cancelled", "run.failed"), last
        assert last.type == "run.cancelled" or what == "a command"  # which is the cancel, for all that can be known
        await behind.wait()
        assert (await behind.view()).status != "created"


async def ended(runtime, run_id):
    with trio.fail_after(600):
        while (await runtime.store.outline(run_id)).status != "done":  # noqa: ASYNC110 - of rows that waiters cannot read
            await trio.sleep(1)


def cancel():
    return Command(command_id="enough", kind="cancel", mode="now", by="ann", reason="enough")


async def clashing(shelf):
    """The thread t has a message with the id that the first message of the run `r` will have."""
    store = shelf.open()
    async with opened(store):
        author = await create(store, new_run("before", "t", messages=(message("r.m1"),), agent="helper"))
        await author.end()


@pytest.mark.rule("L-93")
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_run_that_can_write_nothing_is_ended_for_the_one_behind_it(tmp_path, kind, autojump_clock):
    shelf = Shelf(kind, tmp_path)
    await clashing(shelf)
    async with home(shelf, agents=[agent("one", "two")]) as runtime:
        run = await runtime.start("helper", "x", run_id="r", thread_id="t")
        behind = await runtime.start("helper", "y", run_id="next", thread_id="t")
        assert isinstance(await behind.result(), gr.Completed)
        outcome = await run.result()
        assert isinstance(outcome, gr.Failed)
        assert outcome.code == "internal_error"
        assert (await events_of(run))[-1].type == "run.failed"


@pytest.mark.rule("L-92")
@pytest.mark.parametrize("need", ["a cancel", "a run that queues", "a run that does not"])
async def test_a_run_that_was_given_up_stays_until_its_end_is_needed(shelf, need, autojump_clock):
    await waiting(shelf, decided=True)
    poison(shelf.path, POISONS["a call"])
    async with home(shelf, agents=[agent("one", "two")]) as runtime:
        run = await runtime.get("r1")
        with pytest.raises(gr.RunDegradedError, match="gave_up"):
            await run.result()
        assert [name for name, _ in await runtime.store.open_runs()] == ["r1"]
        if need == "a cancel":
            assert (await run.cancel(by="ann", reason="enough")).ok
            assert await run.result() == gr.Cancelled(reason="enough", by="ann")
            refused = [event for event in await events_of(run) if event.type == "run.decision.refused"]
            assert [event.payload["code"] for event in refused] == ["run_done"]  # the accepted decision does not act
        else:
            busy = "queue" if need == "a run that queues" else "refuse"
            behind = await runtime.start("helper", "y", thread_id="t", on_busy=busy)
            assert isinstance(await behind.result(), gr.Completed)
            assert isinstance(await run.result(), gr.Failed)
        assert not await runtime.store.open_runs()


@pytest.mark.rule("L-92")
async def test_two_starts_wait_for_one_end_and_the_second_is_refused_for_the_first(shelf, autojump_clock):
    """It is not refused for the run that was given up, which cannot be waited for."""
    await waiting(shelf, decided=True)
    poison(shelf.path, POISONS["a call"])
    async with home(shelf, agents=[agent("one", "two")]) as runtime:
        with pytest.raises(gr.RunDegradedError, match="gave_up"):
            await (await runtime.get("r1")).result()
        refused = []

        async def start(name):
            try:
                await runtime.start("helper", "y", run_id=name, thread_id="t", on_busy="refuse")
            except gr.ThreadBusy as error:
                refused.append((name, error.active))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(start, "r2")
            nursery.start_soon(start, "r3")
        assert refused in ([("r2", "r3")], [("r3", "r2")])


async def test_a_run_that_was_given_up_frees_its_thread_at_the_next_start_too(shelf, autojump_clock):
    """Another process has given it up, with a run behind it."""
    await waiting(shelf)
    async with home(shelf, agents=[]) as runtime:
        assert (await (await runtime.get("r1")).decide("c1", "resume")).ok
        store = runtime.store
        held = new_run("r2", "t", agent="helper", on_busy="queue")
        held = replace(held, info=replace(held.info, agent="helper"))
        assert (await store.create_run(held, b"{}")).behind == "r1"
    poison(shelf.path, POISONS["a call"])
    async with home(shelf, agents=[payer("done")]) as runtime:
        await ended(runtime, "r1")
        await (await runtime.get("r2")).wait()


@pytest.mark.rule("CR-29")
@pytest.mark.parametrize("sql", [POISONS["a call"], "UPDATE tickets SET body = x'00' WHERE run = 1"])
async def test_the_child_runs_of_a_run_that_was_given_up_are_cancelled(shelf, sql, autojump_clock):
    def boss():
        clerk = agent(call("pay", id="c1"), "done", key="clerk", tools=[pay])
        return agent(call("clerk", input="pay", id="k1"), "done", key="boss", tools=[clerk.as_tool()])

    async with home(shelf, agents=[boss()], drain=0) as runtime:
        run = await runtime.start("boss", "pay", run_id="r1")
        (ticket,) = (await run.wait()).tickets
    poison(shelf.path, sql)
    async with home(shelf, agents=[boss()]) as runtime:
        assert (await runtime.commands.post("r1", cancel())).ok
        await ended(runtime, "r1")
        child = await runtime.get(ticket.child_run_id)
        assert isinstance(await child.result(), gr.Cancelled)
