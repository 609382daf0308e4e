"""The parts of a runtime that front ends are made of: they say and do by ids what `Run` says and does."""

from typing import Any

import attrs
import pytest

import greenroom as gr
from greenroom.testing import call

from ..support.runs import Shelf, agent, events_of, home


@gr.tool(needs_approval=True)
async def pay(cents: int) -> str:
    return f"paid {cents}"


def payer() -> gr.Agent[Any]:
    return agent(call("pay", id="c1", cents=5), "done", tools=[pay])


async def test_the_reader_sees_what_a_run_sees(shelf: Shelf, autojump_clock: Any) -> None:
    async with home(shelf, agents=[payer()]) as runtime:
        run, reader = await runtime.start("helper", "hi", run_id="r"), runtime.reader
        assert await reader.outcome("r", final=False) == await run.wait()
        assert await reader.view("r") == await run.view()
        (line,) = (await reader.page(gr.RunQuery())).runs
        assert (await reader.summaries(["r", "nowhere"])).runs == (line,)
        record = await reader.record("r", calls="all")
        assert (record.info, record.row.last_sequence) == (await reader.info("r"), line.row.last_sequence)
        (ticket,) = (await run.wait()).tickets
        assert (await reader.ticket("r", "c1")).ticket_id == ticket.ticket_id
        assert len(await reader.events("r")) == len(await events_of(run, until="rest"))
        for missing in (reader.info, reader.outline, reader.record):
            assert await missing("nowhere") is None
        with pytest.raises(gr.UnknownRun):
            await reader.view("nowhere")
    with pytest.raises(gr.RuntimeClosed):
        await reader.info("r")


async def test_a_check_answers_as_the_decision_will_and_leaves_no_trace(shelf: Shelf, autojump_clock: Any) -> None:
    async with home(shelf, agents=[payer()]) as runtime:
        run, commands = await runtime.start("helper", "hi"), runtime.commands
        (ticket,) = (await run.wait()).tickets
        record, head = await runtime.reader.record(run.id, calls="all"), (await run.view()).last_sequence
        wrong = [
            ticket.approve(edited_arguments={"cents": "five"}),
            attrs.evolve(ticket.approve(), target="nowhere"),
            attrs.evolve(ticket.approve(), fingerprint="0" * 32),
        ]
        codes = [commands.check(record, decision).code for decision in wrong]
        assert codes == ["invalid_arguments", "unknown_target", "fingerprint_mismatch"]
        by_call = attrs.evolve(ticket.approve(), target="c1")
        assert commands.check(record, by_call).ok
        assert commands.check(record, ticket.approve()).ok
        assert ((await run.view()).last_sequence, (await run.view()).pending) == (head, 0)
        assert codes == [(await commands.decide(run.id, decision)).code for decision in wrong]
        assert (await commands.decide(run.id, ticket.approve())).ok
        assert (await run.result()).output == "done"


async def test_commands_by_id_are_those_of_the_run(shelf: Shelf, autojump_clock: Any) -> None:
    async with home(shelf, agents=[payer()]) as runtime:
        run, commands = await runtime.start("helper", "hi"), runtime.commands
        await run.wait()
        for command in (commands.pause(run.id, command_id="p"), commands.send(run.id, "more", command_id="s")):
            assert (await command).status == "accepted"
        assert (await run.pause(command_id="p")).status == "duplicate"
        assert (await run.send("more", command_id="s")).status == "duplicate"
        assert (await run.send("less", command_id="s")).code == "decision_id_conflict"
        with pytest.raises(gr.UsageError, match="'soon'"):
            await commands.cancel(run.id, mode="soon")
        assert (await commands.cancel(run.id, command_id="x")).status == "accepted"
        assert isinstance(await run.result(), gr.Cancelled)
        assert (await run.cancel(command_id="x")).status == "duplicate"
        assert not commands.closing
    assert commands.closing
    assert (await commands.cancel(run.id)).code == "store_unavailable"


async def test_changes_are_reported_until_the_end_is_asked_for(shelf: Shelf, autojump_clock: Any) -> None:
    async with home(shelf, agents=[payer()]) as runtime:
        changed, pruned = list[str](), list[bool]()
        end = runtime.reader.on_change(lambda run_id, _: changed.append(run_id), lambda: pruned.append(True))
        run = await runtime.start("helper", "hi", run_id="r")
        await run.wait()
        assert set(changed) == {"r"}
        end()
        end()
        changed.clear()
        await run.cancel()
        await run.result()
        assert (changed, pruned) == ([], [])
        statistics = runtime.reader.statistics()
        assert (statistics.live, statistics.followed) == (0, 0)
