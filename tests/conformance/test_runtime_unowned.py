"""Rules of runs without an owner: a cancel and their deadline end them all the same."""

from datetime import timedelta
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.actors.services.clock import Clock
from greenroom.testing import call, delay

from ..support.runs import agent, events_of, home, types
from ..support.scene_plugins import scripted, slow


@gr.tool(needs_approval=True)
async def ask() -> str:
    """Ask."""
    return "yes"


@gr.tool(name="ask")
async def asks_in_a_minute(ctx: gr.ToolContext[Any]) -> Any:
    """Ask."""
    return ctx.decision or gr.Suspend(expires_after=60)


STAGES: dict[str, Any] = {"needs_approval": call("ask", id="c1"), "running": [delay(100), "x"], "planned": "x"}


async def never(info: Any) -> Any:
    """A provider that does not answer."""
    await trio.sleep_forever()


def fails(info: Any) -> Any:
    """A provider that cannot."""
    raise ConnectionError("no database")


NOBODY: dict[str, dict[str, Any]] = {
    "no agent": {"agents": []},
    "no deps": {},
    "a provider that fails": {"deps": fails},
    "a provider that does not answer": {"deps": never},
}


@pytest.mark.rule("L-91")
@pytest.mark.parametrize("missing", NOBODY)
@pytest.mark.parametrize("stage", STAGES)
async def test_the_deadline_of_a_run_without_an_owner_ends_it(shelf, autojump_clock, stage, missing):
    clock = Clock()
    helper = agent(STAGES[stage], "done", tools=[ask])
    busy = agent([delay(1000), "x"], key="busy")
    deadline = clock.now() + timedelta(seconds=60)
    async with home(shelf, agents=[helper, busy], clock=clock, drain=0, max_running=1) as runtime:
        if stage == "planned":
            await runtime.start(busy, "hi", deps="own")
        await runtime.start(helper, "hi", run_id="r1", deadline=deadline, deps="own")
        await trio.sleep(10)
    async with home(shelf, **({"agents": [helper], "clock": clock, "drain": 0} | NOBODY[missing])) as runtime:
        run = await runtime.get("r1")
        assert (await run.view()).stage == stage
        await trio.sleep(40)
        assert (await run.view()).stage == stage
        with trio.fail_after(20):
            outcome = await _ended(run)
        assert isinstance(outcome, gr.Failed)
        assert outcome.code == "run_timeout"
        assert set((await run.view()).calls.values()) <= {"cancelled"}
        assert runtime._parts.registry.degraded("r1") is None
        assert [name for name in types(await events_of(run)) if name in ("completed", "failed")] == ["failed"]
    async with home(shelf, agents=[helper]) as runtime:
        assert (await runtime.replay("r1")).equal


async def _ended(run: gr.Run[Any]) -> Any:
    """Return the outcome; until then the waiter reads that the run has no owner."""
    while True:
        try:
            return await run.result()
        except gr.RunDegradedError:
            await trio.sleep(1)


async def test_a_deadline_that_passed_while_no_process_ran_ends_a_run_at_the_next_start(shelf, autojump_clock):
    clock = Clock()
    helper = agent(call("ask", id="c1"), "done", tools=[ask])
    async with home(shelf, agents=[helper], clock=clock) as runtime:
        run = await runtime.start(helper, "hi", run_id="r1", deadline=clock.now() + timedelta(seconds=60))
        await run.wait()
    await trio.sleep(100)
    async with home(shelf, clock=clock) as runtime:
        with trio.fail_after(5):
            assert isinstance(await _ended(await runtime.get("r1")), gr.Failed)


@pytest.mark.rule("L-91")
async def test_a_cancel_does_not_wait_for_a_provider_that_does_not_answer(shelf, autojump_clock):
    helper = agent("done")
    async with home(shelf, agents=[helper], deps=never, drain=0) as runtime:
        run = await runtime.start(helper, "hi")
        await trio.sleep(100)
        assert (await run.cancel(reason="enough", by="ada")).ok
        with trio.fail_after(5.1):
            assert await run.result() == gr.Cancelled(reason="enough", by="ada")


async def test_a_provider_that_answers_soon_after_a_cancel_is_waited_for(shelf, autojump_clock):
    """The hooks that tidy up get the deps, as if the cancel had come a little later."""
    seen = []

    async def slow(info: Any) -> Any:
        await trio.sleep(3)
        return "deps"

    plugin = scripted("x", run_end=lambda ctx: seen.append(ctx.deps))
    helper = agent([delay(100), "x"], plugins=[plugin])
    async with home(shelf, agents=[helper], deps=slow, drain=0) as runtime:
        await runtime.start(helper, "hi", run_id="r1")
        await trio.sleep(50)
    async with home(shelf, agents=[helper], deps=slow, drain=0) as runtime:
        run = await runtime.get("r1")
        await run.cancel()
        assert isinstance(await run.result(), gr.Cancelled)
    assert seen == ["deps"]


async def test_deps_that_a_run_is_resumed_with_are_taken_while_the_provider_does_not_answer(shelf, autojump_clock):
    helper = agent("done")
    async with home(shelf, agents=[helper], deps=never, drain=0) as runtime:
        run = await runtime.start(helper, "hi")
        await trio.sleep(100)
        await runtime.resume(run.id, deps="own")
        with trio.fail_after(1):
            assert (await run.result()).output == "done"


class Database:
    """A provider of deps that fails until it is up, and counts how often it was asked."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error: Exception | None = error or ConnectionError("no database")
        self.asked: list[float] = []

    async def __call__(self, info: gr.RunInfo) -> str:
        self.asked.append(trio.current_time())
        await trio.sleep(0.01)
        if self.error is not None:
            raise self.error
        return "deps"


@pytest.mark.rule("L-89")
async def test_a_provider_that_has_failed_is_asked_again_and_the_run_continues_by_itself(shelf, autojump_clock):
    helper, provider = agent("done"), Database()
    async with home(shelf, agents=[helper], deps=provider) as runtime:
        run = await runtime.start(helper, "hi", run_id="r1")
        with pytest.raises(gr.RunDegradedError, match="no database"):
            await run.result()
        before = await runtime.store.events("r1")
        await trio.sleep(600.5)  # it is asked at whole seconds
        view = await run.view()
        assert (view.degraded, view.stage) == ("deps_missing", "created")
        assert await runtime.store.events("r1") == before, "a failure of this process is none of the run's events"
        provider.error = None
        await trio.sleep(80)
        assert (await run.result()).output == "done"
    pauses = [later - earlier for earlier, later in zip(provider.asked, provider.asked[1:], strict=False)]
    assert 0.7 < pauses[0] < 2.5
    assert max(pauses) > 40
    assert all(pause < 77 for pause in pauses)
    assert len(pauses) < 25
    async with home(shelf, agents=[helper]) as runtime:
        assert (await runtime.replay("r1")).equal


@pytest.mark.rule("L-90")
async def test_what_came_while_a_provider_failed_acts_when_it_answers_again(shelf, autojump_clock):
    ran = []

    @gr.tool(needs_approval=True)
    async def pay(ctx: gr.ToolContext[str]) -> str:
        """Pay."""
        ran.append(ctx.deps)
        return "paid"

    helper, provider = agent(call("pay", id="c1"), "done", tools=[pay]), Database()
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi", run_id="r1", deps="own")
        (ticket,) = (await run.wait()).tickets
    async with home(shelf, agents=[helper], deps=provider) as runtime:
        run = await runtime.get("r1")
        assert (await run.decide(ticket.approve(by="ada"))).ok
        with pytest.raises(gr.RunDegradedError):
            await run.result()
        await trio.sleep(20)
        assert ran == []
        provider.error = None
        await trio.sleep(40)
        assert (await run.result()).output == "done"
        assert ran == ["deps"]


async def test_a_ticket_whose_time_is_over_while_a_provider_fails_expires_when_it_answers(shelf, autojump_clock):
    helper, provider = agent(call("ask", id="c1"), "done", tools=[asks_in_a_minute]), Database()
    clock = Clock()
    async with home(shelf, agents=[helper], clock=clock) as runtime:
        run = await runtime.start(helper, "hi", run_id="r1", deps="own")
        await run.wait()
    async with home(shelf, agents=[helper], clock=clock, deps=provider) as runtime:
        run = await runtime.get("r1")
        await trio.sleep(100.5)  # it is asked at whole seconds
        assert (await run.view()).degraded == "deps_missing"
        provider.error = None
        await trio.sleep(80)
        assert (await run.result()).output == "done"
        assert "approval.resolved" in types(await events_of(run))


@pytest.mark.rule("L-88")
async def test_a_provider_that_has_no_deps_for_a_run_is_not_asked_again_by_itself(shelf, autojump_clock):
    helper, provider = agent("done"), Database(LookupError("nobody knows them"))
    async with home(shelf, agents=[helper], deps=provider) as runtime:
        run = await runtime.start(helper, "hi", run_id="r1")
        await trio.sleep(3600)
        assert len(provider.asked) == 1
        provider.error = None
        await runtime.resume("r1")
        assert (await run.result()).output == "done"


async def test_many_runs_of_a_failing_provider_do_not_hold_up_the_alarm(shelf, autojump_clock):
    """Expiries of other runs come in time, and all runs continue when it answers."""
    provider, clock = Database(), Clock()

    async def some(info: gr.RunInfo) -> str:
        return "deps" if info.agent == "other" else await provider(info)

    helper = agent("done")
    other = agent(call("ask", id="c1"), "done", tools=[asks_in_a_minute], key="other")
    async with home(shelf, agents=[helper, other], deps=some, passivate_after=0, clock=clock) as runtime:
        for number in range(40):
            await runtime.start(helper, "hi", run_id=f"r{number}")
        await trio.sleep(20)
        run = await runtime.start(other, "hi", run_id="other")
        started_at = trio.current_time()
        assert (await run.result()).output == "done"
        assert 60 <= trio.current_time() - started_at < 61
        provider.error = None
        await trio.sleep(80)
        assert {(await (await runtime.get(f"r{number}")).view()).status for number in range(40)} == {"done"}


@gr.tool(grace=20.0)
async def tidies() -> str:
    """Clean up for a while when cancelled."""
    try:
        await trio.sleep_forever()
    finally:
        with trio.CancelScope(shield=True):
            await trio.sleep(15)
    return "never"


@pytest.mark.rule("L-91")
@pytest.mark.parametrize("missing", NOBODY)
@pytest.mark.parametrize("why", ["cancel", "deadline"])
@pytest.mark.parametrize("at", ["body", "run_end"])
async def test_an_end_that_has_begun_is_completed_without_an_owner(shelf, autojump_clock, why, at, missing):
    """The process ends while the work stops, or while a hook of run_end is asked."""
    clock = Clock()
    ending: dict[str, Any] = {"plugins": [scripted("x", run_end=slow(15))]} if at == "run_end" else {}
    script = call("tidies", id="c1") if at == "body" else [delay(100), "x"]
    helper = agent(script, "done", tools=[tidies], **ending)
    deadline = clock.now() + timedelta(seconds=10) if why == "deadline" else None
    async with home(shelf, agents=[helper], clock=clock, drain=0) as runtime:
        run = await runtime.start(helper, "hi", run_id="r1", deadline=deadline, deps="own")
        await trio.sleep(10)
        if why == "cancel":
            await run.cancel(by="ada")
        await trio.sleep(5)
        assert (await run.view()).status == "running"
    async with home(shelf, **({"agents": [helper], "clock": clock, "drain": 0} | NOBODY[missing])) as runtime:
        with trio.fail_after(20):
            outcome = await _ended(await runtime.get("r1"))
        assert isinstance(outcome, gr.Cancelled if why == "cancel" else gr.Failed)
        assert outcome.outcome_unknown == (("c1",) if at == "body" else ())
    async with home(shelf, agents=[helper]) as runtime:
        assert (await runtime.replay("r1")).equal
