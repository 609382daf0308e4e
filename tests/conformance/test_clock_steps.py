"""Deadlines and expiries mean wall time: the machine may sleep, and its clock may be set, in whatever state a run is.

The clock steps by -1 h and by +8 h in each state in which a run waits. Forward, the timer fires within two seconds;
back, no sooner than the wall says. The times in a log never go back.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.testing import Clock, FakeWall, call, delay, fail

from ..support.runs import agent, events_of, home

FORWARD, BACK = 8 * 3600.0, -3600.0
FAR = 80_000.0
LONG = 60.0
"""Seconds from the start of a run to its deadline, and from a question to its expiry."""
SOON = 2.0
"""Seconds within which a timer fires that the clock has jumped over."""

PATIENT = [gr.IdleTimeout(idle=None, first=None)]
"""For models that say nothing for hours."""

STEPS = pytest.mark.parametrize("step", [pytest.param(BACK, id="-1h"), pytest.param(FORWARD, id="+8h")])


@gr.tool(name="ask")
async def asks(ctx: gr.ToolContext[Any]) -> Any:
    """Ask, for a minute."""
    return ctx.decision or gr.Suspend(expires_after=LONG)


@gr.tool(needs_approval=True)
async def pay() -> str:
    """Pay."""
    return "paid"


@gr.tool(background=True)
async def crawl() -> str:
    """Work for long in the background."""
    await trio.sleep(FAR)
    return "crawled"


@gr.tool
async def work() -> str:
    """Work for long."""
    await trio.sleep(FAR)
    return "worked"


Begin = Callable[[gr.Runtime, datetime], Any]


async def in_the_model(runtime: gr.Runtime, deadline: datetime) -> gr.Run[Any]:
    return await runtime.start(agent([delay(FAR), "x"], key="slow", plugins=PATIENT), "hi", deadline=deadline)


async def in_a_tool(runtime: gr.Runtime, deadline: datetime) -> gr.Run[Any]:
    return await runtime.start(agent(call("work"), "x", key="works", tools=[work]), "hi", deadline=deadline)


async def at_an_approval(runtime: gr.Runtime, deadline: datetime) -> gr.Run[Any]:
    return await runtime.start(agent(call("pay"), "x", key="pays", tools=[pay]), "hi", deadline=deadline)


async def out_of_memory(runtime: gr.Runtime, deadline: datetime) -> gr.Run[Any]:
    run = await runtime.start("helper", "hi", deadline=deadline)
    await run.wait()
    await trio.sleep(5)
    assert len(runtime._parts.registry) == 0
    return run


async def queued(runtime: gr.Runtime, deadline: datetime) -> gr.Run[Any]:
    slow = agent([delay(FAR), "x"], key="slow", plugins=PATIENT)
    await runtime.start(slow, "hi", thread_id="t")
    return await runtime.start(slow, "hi", thread_id="t", deadline=deadline)


async def paused(runtime: gr.Runtime, deadline: datetime) -> gr.Run[Any]:
    run = await runtime.start(agent([delay(1), call("pay")], "x", key="paused", tools=[pay]), "hi", deadline=deadline)
    await run.pause()
    await run.wait()
    return run


async def beside_a_task(runtime: gr.Runtime, deadline: datetime) -> gr.Run[Any]:
    return await runtime.start(agent(call("crawl"), "x", key="crawls", tools=[crawl]), "hi", deadline=deadline)


async def before_a_retry(runtime: gr.Runtime, deadline: datetime) -> gr.Run[Any]:
    overloaded = agent(fail("overloaded"), [delay(FAR), "x"], key="overloaded", plugins=PATIENT)
    return await runtime.start(overloaded, "hi", deadline=deadline)


WAITING: dict[str, Begin] = {
    name.__name__: name
    for name in (in_the_model, in_a_tool, at_an_approval, out_of_memory, queued, paused, beside_a_task, before_a_retry)
}


@asynccontextmanager
async def opened(shelf: Any, wall: FakeWall, **options: Any) -> AsyncIterator[gr.Runtime]:
    helper = agent(call("ask", id="c1"), "done", tools=[asks])
    async with home(shelf, **({"agents": [helper], "clock": Clock(wall), "passivate_after": 1.0} | options)) as runtime:
        yield runtime


async def ordered(run: gr.Run[Any]) -> list[gr.Event]:
    """The events of a run that is done, whose times never go back."""
    events = await events_of(run)
    times = [event.timestamp for event in events]
    assert times == sorted(times)
    return events


@STEPS
@pytest.mark.slow
@pytest.mark.parametrize("state", WAITING)
async def test_a_deadline_is_a_moment_of_wall_time(shelf, autojump_clock, state, step):
    """After 8 h of sleep it fires at once; after the clock was set back by 1 h it fires when the wall says so."""
    wall = FakeWall()
    async with opened(shelf, wall) as runtime:
        deadline = runtime.clock.now() + timedelta(seconds=LONG)
        run = await WAITING[state](runtime, deadline)
        await trio.sleep(0.1 if state == "before_a_retry" else 2)
        before = trio.current_time()
        wall.step(step)
        if step < 0:
            await trio.sleep(LONG + 10)
            assert (await run.view()).termination is None, "the wall has not reached it"
        with trio.fail_after(SOON - min(step, 0) + (LONG if step < 0 else 0)):
            outcome = await run.result()
        assert isinstance(outcome, gr.Failed)
        assert outcome.code == "run_timeout"
        if step < 0:
            assert trio.current_time() - before > -step
        assert wall() >= deadline
        await ordered(run)


@STEPS
@pytest.mark.slow
@pytest.mark.parametrize("asleep", [False, True], ids=["in memory", "out of memory"])
async def test_an_expiry_is_a_moment_of_wall_time(shelf, autojump_clock, step, asleep):
    """A ticket that expired while the machine slept is refused before anything has looked at the clock."""
    wall = FakeWall()
    async with opened(shelf, wall) as runtime:
        run = await runtime.start("helper", "hi")
        (ticket,) = (await run.wait()).tickets
        await trio.sleep(10 if asleep else 0.1)
        assert len(runtime._parts.registry) == (0 if asleep else 1)
        wall.step(step)
        if step > 0:
            answer = await run.decide(ticket.approve("yes"))
            assert (answer.status, answer.code) == ("rejected", "expired")
            with trio.fail_after(SOON):
                await run.result()
        else:
            await trio.sleep(LONG + 10)
            assert (await run.decide(ticket.approve("yes"))).ok, "by the wall it has not expired"
            assert (await run.result()).output == "done"
        await ordered(run)


@STEPS
async def test_a_run_whose_deps_do_not_come_ends_at_its_deadline(shelf, autojump_clock, step):
    wall = FakeWall()

    async def never(_: gr.RunInfo) -> Any:
        await trio.sleep_forever()

    slow = agent([delay(FAR), "x"], key="slow", plugins=PATIENT)
    async with home(shelf, agents=[slow], clock=Clock(wall), drain=0) as runtime:
        deadline = runtime.clock.now() + timedelta(seconds=LONG)
        await runtime.start(slow, "hi", run_id="r1", deadline=deadline, deps="own")
        await trio.sleep(1)
    async with home(shelf, agents=[slow], clock=Clock(wall), deps=never) as runtime:
        run = await runtime.get("r1")
        await trio.sleep(1)
        wall.step(step)
        with trio.fail_after(10 - min(step, 0) + (LONG if step < 0 else 0)):
            assert (await run.result()).code == "run_timeout"
        assert wall() >= deadline


@STEPS
async def test_a_run_that_drains_is_in_order_for_the_next_start(shelf, autojump_clock, step):
    wall = FakeWall()
    async with opened(shelf, wall, drain=5.0) as runtime:
        slow = agent([delay(FAR), "x"], key="slow", plugins=PATIENT)
        deadline = runtime.clock.now() + timedelta(seconds=LONG)
        await runtime.start(slow, "hi", run_id="r1", deadline=deadline)
        await trio.sleep(2)
        before = trio.current_time()
        wall.step(step)
    assert trio.current_time() - before < 10, "a drain is a length of time"
    async with opened(shelf, wall) as runtime:
        run = await runtime.get("r1")
        runtime.agents["slow"] = slow
        await runtime.resume("r1")
        with trio.fail_after(SOON - min(step, 0) + LONG):
            assert (await run.result()).code == "run_timeout"
        assert wall() >= deadline
        await ordered(run)


@STEPS
async def test_time_without_work_is_not_active_time(shelf, autojump_clock, step):
    """A stop after an hour of activity is not met by a machine that slept, nor put off by a clock that was set back."""
    wall = FakeWall()
    agents = [
        agent([delay(600), call("ask", id="c1")], "done", tools=[asks], stop=[gr.stop.Timeout(3600)], plugins=PATIENT)
    ]
    async with opened(shelf, wall, agents=agents) as runtime:
        run = await runtime.start(agents[0], "hi")
        await trio.sleep(300)
        wall.step(step)
        await run.wait()
        record = await runtime.store.load(run.id)
        assert record is not None
        assert 590_000 < record.row.counters.active_ms < 610_000
        (ticket,) = (await run.wait()).tickets
        assert (await run.decide(ticket.approve("yes"))).ok
        assert (await run.result()).output == "done"
        await ordered(run)
        report = await runtime.replay(run.id)
        assert report.equal, report


@STEPS
async def test_the_times_of_a_log_continue_after_a_restart(shelf, autojump_clock, step):
    """The clock is set between two processes: the next one continues where the log is."""
    wall = FakeWall()
    async with opened(shelf, wall) as runtime:
        run = await runtime.start("helper", "hi", run_id="r1")
        (ticket,) = (await run.wait()).tickets
    wall.step(min(step, 30.0))
    async with opened(shelf, wall) as runtime:
        run = await runtime.get("r1")
        assert (await run.decide(ticket.approve("yes"))).ok
        assert (await run.result()).output == "done"
        await ordered(run)


async def test_event_times_are_those_of_the_wall_after_a_sleep(shelf, autojump_clock):
    wall = FakeWall()
    async with opened(shelf, wall) as runtime:
        run = await runtime.start(agent([delay(100), "x"], key="slow"), "hi")
        await trio.sleep(50)
        wall.step(FORWARD)
        await run.result()
        last = (await ordered(run))[-1]
        assert abs((last.timestamp - wall()).total_seconds()) < 1


async def test_a_process_without_timers_stays_idle(shelf, autojump_clock):
    """The clocks are looked at only while a task waits for a moment."""
    asked = 0
    start = datetime.now(UTC)

    def wall() -> datetime:
        nonlocal asked
        asked += 1
        return start + timedelta(seconds=trio.current_time())

    async with opened(shelf, wall) as runtime:  # type: ignore[arg-type]
        run = await runtime.start(agent([delay(500), "x"], key="slow", plugins=PATIENT), "hi")
        before = asked
        await trio.sleep(400)
        assert asked - before < 5
        await run.result()
        before = asked
        await trio.sleep(4000)
        assert asked == before


async def test_real_time_is_asked_under_the_systems_clock_alone(autojump_clock):
    assert not Clock().jumps
    assert not Clock(datetime.now(UTC)).jumps
    assert Clock(lambda: datetime.now(UTC)).jumps


async def test_the_systems_clock_is_the_wall():
    clock = Clock()
    assert clock.jumps
    assert abs((clock.now() - datetime.now(UTC)).total_seconds()) < 1
    assert repr(clock).startswith("<Clock: 20")
