"""A waiting run leaves memory after a while: then it costs its rows and no task, and whatever concerns it wakes it."""

from datetime import timedelta

import pytest
import trio
import trio.testing
from tests.support.runs import agent, events_of, home

import greenroom as gr
from greenroom.testing import call, delay


@gr.tool(needs_approval=True)
async def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


@gr.tool
async def hold(ctx: gr.ToolContext) -> str | gr.Suspend:
    """Waits for an answer, for ten minutes at most."""
    if ctx.decision is None:
        return gr.Suspend(expires_after=600.0, on_expiry=gr.SetResult("nobody answered"))
    return "answered"


def payer(**options):
    return agent(call("pay", cents=5, id="c1"), "done", tools=[pay, hold], **options)


def tasks() -> int:
    return trio.lowlevel.current_statistics().tasks_living


@pytest.mark.rule("L-85")
async def test_a_run_that_waits_costs_no_task_after_its_time(shelf, autojump_clock):
    async with home(shelf, agents=[helper := payer()], passivate_after=60.0) as runtime:
        before = tasks()
        runs = [await runtime.start(helper, "hi") for _ in range(20)]
        for run in runs:
            await run.wait()
        await trio.sleep(59)
        assert len(runtime._parts.registry) == 20
        assert tasks() > before
        await trio.sleep(2)
        assert len(runtime._parts.registry) == 0
        assert tasks() == before
        for run in runs:
            assert (await run.view()).stage == "needs_approval"
            assert isinstance(await run.wait(), gr.Waiting)


async def test_what_a_body_asks_that_was_given_up_keeps_no_run_in_memory(shelf, autojump_clock):
    @gr.tool(timeout=5.0, grace=2.0)
    async def hides() -> str:
        with trio.CancelScope(shield=True):
            await trio.sleep(30)
        raise gr.Suspend(message="too late")

    helper = agent([call("hides", id="c0")], [call("pay", cents=5, id="c1")], "done", tools=[hides, pay])
    async with home(shelf, agents=[helper], passivate_after=60.0) as runtime:
        before = tasks()
        run = await runtime.start(helper, "hi")
        await run.wait()
        await trio.sleep(100)
        assert len(runtime._parts.registry) == 0
        assert tasks() == before
        assert [ticket.call_id for ticket in (await run.view()).tickets] == ["c1"]


@pytest.mark.rule("L-85")
async def test_a_decision_wakes_it_and_nothing_tells_that_it_was_away(shelf, autojump_clock):
    async with home(shelf, agents=[helper := payer()]) as runtime:
        away = await runtime.start(helper, "hi", run_id="away")
        await away.wait()
        await trio.sleep(100)
        assert len(runtime._parts.registry) == 0
        assert (await away.decide("c1", "resume")).status == "accepted"
        outcome = await away.result()
        assert outcome.output == "done"
        there = await runtime.start(helper, "hi", run_id="there")
        await there.wait()
        await there.decide("c1", "resume")
        await there.result()
        seen = [[event.type for event in await events_of(run)] for run in (away, there)]
        reported = [[name for name in types if not name.endswith(".delta")] for types in seen]  # deltas may be merged
        assert reported[0] == reported[1]


async def test_who_waits_for_its_result_and_who_follows_it_learn_of_it_again(shelf, autojump_clock):
    async with home(shelf, agents=[helper := payer()]) as runtime:
        run = await runtime.start(helper, "hi")
        received = []

        async def listen():
            received.append([event.type for event in await events_of(run)])

        async def wait():
            received.append((await run.result()).output)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen)
            nursery.start_soon(wait)
            await trio.sleep(500)
            assert len(runtime._parts.registry) == 0
            assert received == []
            await run.decide("c1", "resume")
        assert "done" in received
        assert any(found[-1] == "run.completed" for found in received if isinstance(found, list))


async def test_its_ticket_expires_while_it_is_away(shelf, autojump_clock):
    helper = agent(call("hold", id="c1"), "done", tools=[hold])
    async with home(shelf, agents=[helper], passivate_after=5.0) as runtime:
        run = await runtime.start(helper, "hi")
        await run.wait()
        await trio.sleep(300)
        assert len(runtime._parts.registry) == 0
        with trio.fail_after(400):
            assert (await run.result()).output == "done"
        assert helper.model.requests[-1].messages[-1].content == "nobody answered"


@pytest.mark.parametrize("offset", [n * 0.000137 for n in range(20)])
async def test_a_run_that_ends_when_it_was_to_leave_ends(shelf, autojump_clock, offset):
    """Its ticket expires in the moment in which it would leave memory, and that cancels the run."""

    @gr.tool
    async def brief(ctx: gr.ToolContext) -> str | gr.Suspend:
        """Ask."""
        return "yes" if ctx.decision else gr.Suspend(expires_after=60.0, on_expiry="cancel_run")

    await trio.sleep(offset)
    helper = agent(call("brief", id="c1"), "done", tools=[brief])
    async with home(shelf, agents=[helper], passivate_after=60.0) as runtime:
        run = await runtime.start(helper, "hi")
        await run.wait()
        with trio.fail_after(1000):
            assert isinstance(await run.result(), gr.Cancelled)


async def test_its_deadline_passes_while_it_is_away(shelf, autojump_clock):
    async with home(shelf, agents=[helper := payer()], passivate_after=5.0) as runtime:
        run = await runtime.start(helper, "hi", deadline=runtime.clock.now() + timedelta(seconds=1000))
        await run.wait()
        await trio.sleep(900)
        assert len(runtime._parts.registry) == 0
        with trio.fail_after(200):
            outcome = await run.result()
        assert (outcome.code, type(outcome)) == ("run_timeout", gr.Failed)


async def test_timers_of_runs_that_were_waiting_before_the_process_began_are_kept(shelf, autojump_clock):
    helper = agent(*[call("hold", id="c1"), "done"] * 1, tools=[hold])
    async with home(shelf, agents=[helper]) as runtime:
        for number in range(150):  # more than are woken at once
            await (await runtime.start(helper, "hi", run_id=f"r{number}")).wait()
    async with home(shelf, agents=[helper]) as runtime:
        assert len(runtime._parts.registry) == 0
        await trio.sleep(700)
        for number in range(150):
            assert (await (await runtime.get(f"r{number}")).result()).output == "done"


async def test_a_cancel_and_more_input_reach_it(shelf, autojump_clock):
    async with home(shelf, agents=[helper := payer()], passivate_after=5.0) as runtime:
        first, second = await runtime.start(helper, "hi"), await runtime.start(helper, "hi")
        for run in (first, second):
            await run.wait()
        await trio.sleep(10)
        assert len(runtime._parts.registry) == 0
        assert (await first.cancel(reason="enough")).ok
        assert isinstance(await first.result(), gr.Cancelled)
        assert (await second.send("and hurry")).ok
        assert isinstance(await second.wait(), gr.Waiting)
        await trio.sleep(10)
        await second.decide("c1", "resume")
        await second.result()
        assert "and hurry" in [message.content for message in helper.model.requests[-1].messages]


async def test_a_command_in_the_moment_of_leaving_is_not_lost(shelf, autojump_clock):
    """Decisions at every moment around the leaving, one tick apart."""
    helper = payer()
    async with home(shelf, agents=[helper], passivate_after=1.0) as runtime:
        for ticks in range(12):
            run = await runtime.start(helper, "hi")
            await run.wait()
            await trio.sleep(1.0)
            for _ in range(ticks):
                await trio.lowlevel.checkpoint()
            assert (await run.decide("c1", "resume")).status == "accepted"
            with trio.fail_after(60):
                assert (await run.result()).output == "done"


async def test_a_run_whose_deps_no_other_process_has_stays_in_memory(shelf, autojump_clock):
    @gr.tool(needs_approval=True)
    async def look(ctx: gr.ToolContext) -> str:
        """Look."""
        return ctx.deps

    helper = agent(call("look", id="c1"), "done", tools=[look])
    async with home(shelf, agents=[helper], passivate_after=1.0) as runtime:
        run = await runtime.start(helper, "hi", deps="mine")
        await run.wait()
        await trio.sleep(100)
        assert len(runtime._parts.registry) == 1
        await run.decide("c1", "resume")
        await run.result()
        assert helper.model.requests[-1].messages[-1].content == "mine"
    async with home(shelf, agents=[helper], passivate_after=1.0, deps=lambda info: f"for {info.run_id}") as runtime:
        run = await runtime.start(helper, "hi", run_id="r2", deps="mine")
        await run.wait()
        await trio.sleep(100)
        assert len(runtime._parts.registry) == 0
        await run.decide("c1", "resume")
        await run.result()
        assert helper.model.requests[-1].messages[-1].content == "for r2"


async def test_a_fork_with_deps_of_its_own_keeps_them(shelf, autojump_clock):
    @gr.tool(needs_approval=True)
    async def look(ctx: gr.ToolContext) -> str:
        return str(ctx.deps)

    helper = agent(call("look", id="c1"), "done", tools=[look])
    async with home(shelf, agents=[helper], passivate_after=1.0) as runtime:
        run = await runtime.start(helper, "hi")
        await run.wait()
        fork, other = [await runtime.fork(run.id, step=0, new_run_id=name, deps="mine") for name in ("f", "g")]
        await fork.wait()
        await other.wait()
        await trio.sleep(100)
        await fork.decide("c1", "resume")
        await fork.result()
        assert (await fork.view()).messages[-2].content == "mine"
    async with home(shelf, agents=[helper]) as runtime:
        assert (await (await runtime.get("g")).view()).degraded == "deps_missing"
        with pytest.raises(gr.RunDegradedError, match="deps_missing"):
            await (await runtime.get("g")).result()


async def test_a_busy_slot_is_not_needed_to_wait_and_a_woken_run_takes_one(shelf, autojump_clock):
    async with home(shelf, agents=[helper := payer()], max_running=1, passivate_after=1.0) as runtime:
        runs = [await runtime.start(helper, "hi") for _ in range(5)]
        for run in runs:
            assert isinstance(await run.wait(), gr.Waiting)
        await trio.sleep(10)
        assert len(runtime._parts.registry) == 0
        for run in runs:
            await run.decide("c1", "resume")
        for run in runs:
            assert (await run.result()).output == "done"


async def test_no_new_run_begins_on_the_slot_that_a_woken_run_has_taken(shelf, autojump_clock):
    helper = agent(call("pay", cents=5, id="c1"), [delay(100), "done"], tools=[pay])
    busy, late = agent([delay(50), "x"], key="busy"), agent("x", key="late")
    async with home(shelf, agents=[helper, busy, late], max_running=1, passivate_after=1.0) as runtime:
        woken = await runtime.start(helper, "hi")
        await woken.wait()
        await trio.sleep(10)
        assert len(runtime._parts.registry) == 0
        first, second = await runtime.start(busy, "hi"), await runtime.start(late, "hi")
        await woken.decide("c1", "resume")
        await first.result()
        await trio.sleep(10)
        assert [(await run.view()).stage for run in (woken, second)] == ["running", "planned"]
        await woken.result()
        assert (await second.result()).output == "x"


async def test_opening_makes_no_actor_for_what_waits(shelf, autojump_clock):
    helper = payer()
    async with home(shelf, agents=[helper]) as runtime:
        for _ in range(10):
            await (await runtime.start(helper, "hi")).wait()
    async with home(shelf, agents=[helper]) as runtime:
        assert len(runtime._parts.registry) == 0
        page = await runtime.runs(status="waiting")
        for summary in page.runs:
            run = await runtime.get(summary.info.run_id)
            assert (await run.decide("c1", "resume")).ok
            assert (await run.result()).output == "done"


@pytest.mark.parametrize("value", [-1, "soon", True])
async def test_the_time_must_be_seconds(value):
    with pytest.raises(gr.UsageError, match="passivate_after"):
        async with gr.open_runtime(passivate_after=value):
            pass


async def test_none_keeps_it_in_memory(shelf, autojump_clock):
    async with home(shelf, agents=[helper := payer()], passivate_after=None) as runtime:
        run = await runtime.start(helper, "hi")
        await run.wait()
        await trio.sleep(50_000)
        assert len(runtime._parts.registry) == 1
