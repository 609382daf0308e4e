"""No task waits for ever: not for a run that cannot even be given up, not behind a store that was away for a moment."""

import contextlib
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.actors.contract.decisions import Command
from greenroom.actors.run.run_loop import RunLoop
from greenroom.supervision import chaos
from greenroom.testing import FunctionModel, ScriptedModel, call, delay


@gr.tool(needs_approval=True)
async def pay() -> str:
    """Needs an approval."""
    return "paid"


def agent(*tools: Any, key: str = "a") -> gr.Agent:
    """Calls its one tool and is done."""
    (tool,) = tools or (pay,)
    return gr.Agent(key, tools=[tool], model=ScriptedModel([call(tool.name, id="c"), "done"]))


class Away:
    """A store that does not answer for its next so many writes."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, point: str) -> None:
        if self.times and point == "before_commit":
            self.times -= 1
            raise OSError("disk full")


async def test_who_waits_for_a_run_that_cannot_even_be_given_up_gets_an_error(autojump_clock, monkeypatch):
    def poisoned(self, message):
        raise ZeroDivisionError("poison")

    async with gr.open_runtime(agents=[agent()]) as runtime:
        run = await runtime.start("a", "x")
        await run.wait()
        with monkeypatch.context() as patch:
            patch.setattr(RunLoop, "feed", poisoned)
            await run.decide("c", "resume")
            with trio.fail_after(60), pytest.raises(gr.RunDegradedError, match="poison") as caught:
                await run.result()
            assert caught.value.reason == "gave_up"
            assert (await run.view()).degraded == "gave_up"
        await runtime.resume(run.id)  # a person has found out why; the accepted decision is still there
        with trio.fail_after(60):
            assert isinstance(await run.result(), gr.Completed)


@pytest.mark.parametrize("times", range(1, 12))
async def test_a_store_that_is_away_while_runs_are_taken_up_costs_no_run_its_life(autojump_clock, times):
    @gr.tool(needs_approval=True, replay="safe")
    async def slowly() -> str:
        """Takes its time."""
        await trio.sleep(30)
        return "done"

    away = Away()
    store = gr.MemoryStore(faults=away)
    async with gr.open_runtime(store, agents=[agent(slowly)], drain=0) as runtime:
        names = [(await runtime.start("a", "x")).id for _ in range(3)]
        for name in names:
            run = await runtime.get(name)
            await run.wait()
            assert (await run.decide("c", "resume")).status == "accepted"
    away.times = times
    async with gr.open_runtime(store, agents=[agent(slowly)]) as runtime:
        await trio.sleep(25)
        assert away.times == 0
        assert len(runtime._parts.registry) == 3  # all have their owner again, without a command that wakes them
        for name in names:
            with trio.fail_after(60):
                assert isinstance(await (await runtime.get(name)).result(), gr.Completed)


@pytest.mark.parametrize("writes", range(4))
async def test_a_waiting_run_whose_end_is_cut_off_is_taken_up_and_ends(autojump_clock, writes):
    """Its cancel is consumed, and the store goes away before its terminal event is written, or any other time."""

    class Gone:
        def __init__(self) -> None:
            self.left: int | None = None

        def __call__(self, point: str) -> None:
            if self.left is not None and point == "before_commit":
                self.left -= 1
                if self.left < 0:
                    raise OSError("disk full")

    removed = Gone()
    store = gr.MemoryStore(faults=removed, patience=0.1)
    with contextlib.suppress(gr.RuntimeFailed):
        async with gr.open_runtime(store, agents=[agent()], drain=0) as runtime:
            run = await runtime.start("a", "x")
            await run.wait()
            removed.left = 1 + writes  # the command itself is journaled
            assert (await run.cancel(reason="enough")).ok
            await trio.sleep(10)
    removed.left = None
    async with gr.open_runtime(store, agents=[agent()]) as runtime:
        with trio.fail_after(60):
            assert isinstance(await (await runtime.get(run.id)).result(), gr.Cancelled)


def test_an_actor_that_crashes_beside_a_stubborn_call_begins_again_after_the_grace():
    @gr.tool(grace=1.0)
    async def stubborn(ctx: gr.ToolContext[trio.Event]) -> str:
        """Notices no cancel."""
        with trio.CancelScope(shield=True):
            await ctx.deps.wait()
        return "too late"

    async def scenario():
        go = trio.Event()
        async with gr.open_runtime(agents=[agent(stubborn)], deps=go, drain=0) as runtime:
            run = await runtime.start("a", "x")
            await trio.sleep(1)
            crash = chaos.CrashAt(0, lambda task: task.name == f"runtime/{run.id}", ZeroDivisionError())
            for task in chaos.program_tasks():
                crash.before_task_step(task)
            outcome = None
            with trio.move_on_after(60):
                outcome = await run.wait()
            go.set()
            return outcome

    assert isinstance(chaos.run(scenario), gr.Waiting)  # outcome_unknown: the body may still take effect


def test_a_cancellation_that_a_tool_lets_out_hurts_its_own_call_and_no_other_run():
    kept = []

    @gr.tool
    async def leaky() -> str:
        """Raises the Cancelled of another scope, as a cached future does."""
        if not kept:
            with trio.CancelScope() as scope:
                scope.cancel()
                try:
                    await trio.sleep_forever()
                except trio.Cancelled as error:
                    kept.append(error)
                    raise
        raise kept[0]

    @gr.tool(needs_approval=True)
    async def ask() -> str:
        return "asked"

    async def scenario():
        async with gr.open_runtime(drain=0) as runtime:
            waiting = await runtime.start(
                gr.Agent("w", tools=[ask], model=ScriptedModel([call("ask", id="c"), "done"])), "x"
            )
            await waiting.wait()
            bad = gr.Agent("b", tools=[leaky], model=ScriptedModel([call("leaky", id="c"), "done"]))
            for _ in range(5):
                run = await runtime.start(bad, "x")
                with trio.fail_after(60):
                    assert isinstance(await run.result(), gr.Completed)
            assert (await waiting.decide("c", "resume")).ok
            return await waiting.result()

    assert isinstance(chaos.run(scenario), gr.Completed)


def test_a_clean_up_that_prints_a_lot_ends_although_no_task_reads_its_output():
    @gr.tool
    async def chatty(ctx: gr.ToolContext) -> str:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                for _ in range(20):
                    await ctx.output("x" * 10_000)
        return "never"

    async def scenario():
        async with gr.open_runtime(drain=0) as runtime:
            run = await runtime.start(
                gr.Agent("a", tools=[chatty], model=ScriptedModel([call("chatty", id="c"), "done"])), "x"
            )
            await trio.sleep(1)
            await run.cancel()
            with trio.fail_after(60):
                outcome = await run.result()
            return outcome, (await runtime.store.load(run.id)).row.stubborn

    outcome, stubborn = chaos.run(scenario)
    assert isinstance(outcome, gr.Cancelled)
    assert stubborn == ()


def test_a_command_that_meets_a_run_in_its_birth_does_not_disturb_the_start():
    async def scenario():
        async with gr.open_runtime(drain=0) as runtime:
            helper = gr.Agent("a", model=ScriptedModel(["done"]))
            for number in range(40):
                answers = []

                async def post(name: str, into: list) -> None:
                    with contextlib.suppress(gr.UnknownRun):
                        into.append(
                            await runtime.commands.post(name, Command(command_id="c", kind="send", text="more"))
                        )

                async with trio.open_nursery() as nursery:
                    nursery.start_soon(post, f"r{number}", answers)
                    run = await runtime.start(helper, "x", run_id=f"r{number}")
                with trio.fail_after(60):
                    await run.result()

    for seed in range(5):
        chaos.run(scenario, seed=seed)


@pytest.mark.parametrize("max_running", [None, 2])
def test_a_command_that_meets_a_run_in_its_birth_does_not_let_it_work_before_its_turn(max_running):
    """Its thread is busy: it knows what the run before it has answered."""

    async def scenario():
        model = FunctionModel(lambda request: [delay(1), f"heard {request.messages[-1].content}"])
        helper, orders = gr.Agent("a", model=model), []
        async with gr.open_runtime(drain=0, max_running=max_running) as runtime:
            for number in range(20):
                thread, name = f"t{number}", f"r{number}"

                async def post(name: str = name) -> None:
                    with contextlib.suppress(gr.UnknownRun):
                        await runtime.commands.post(name, Command(command_id="c", kind="send", text="more"))

                await runtime.start(helper, "one", thread_id=thread)
                await trio.sleep(0.5)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(post)
                    run = await runtime.start(helper, "two", thread_id=thread, run_id=name)
                with trio.fail_after(60):
                    await run.result()
                orders.append([message.content for message in (await run.view()).messages][:3])
        assert orders == [["one", "heard one", "two"]] * 20

    for seed in range(3):
        chaos.run(scenario, seed=seed)


@pytest.mark.parametrize("waits", ["paused queue", "behind a run"])
def test_a_cancel_that_meets_an_owner_that_leaves_again_ends_the_run(waits):
    """A command of a run that waits for its turn gives the run an owner with nothing to do."""

    async def scenario():
        helper = gr.Agent("a", model=FunctionModel(lambda _: [delay(100), "done"]))
        async with gr.open_runtime(agents=[helper], drain=0) as runtime:
            await runtime.store.set_queue("q", paused=True)
            await runtime.start(helper, "one", thread_id="t")
            for number in range(20):
                thread = "t" if waits == "behind a run" else None
                run = await runtime.start(helper, "two", thread_id=thread, queue="q", run_id=f"r{number}")
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(run.send, "more")
                    nursery.start_soon(run.cancel)
                with trio.fail_after(60):
                    assert isinstance(await run.result(), gr.Cancelled)

    for seed in range(5):
        chaos.run(scenario, seed=seed)


def test_a_turn_that_meets_an_owner_that_leaves_again_lets_the_run_begin():
    async def scenario():
        helper = gr.Agent("a", model=FunctionModel(lambda _: "done"))
        async with gr.open_runtime(agents=[helper], drain=0) as runtime:
            for number in range(20):
                await runtime.store.set_queue("q", paused=True)
                run = await runtime.start(helper, "two", queue="q", run_id=f"r{number}")
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(run.send, "more")
                    nursery.start_soon(runtime.store.set_queue, "q")
                with trio.fail_after(60):
                    assert isinstance(await run.result(), gr.Completed)

    for seed in range(20):
        chaos.run(scenario, seed=seed)


def test_a_later_attempt_waits_for_an_older_body_that_hides_from_its_cancel():
    running = []
    most = []

    @gr.tool(replay="safe", grace=0.5)
    async def hidden() -> str:
        running.append(1)
        most.append(len(running))
        try:
            with trio.CancelScope(shield=True):
                await trio.sleep(5)
        finally:
            running.pop()
        return "done"

    async def scenario():
        async with gr.open_runtime(drain=0) as runtime:
            run = await runtime.start(
                gr.Agent("a", tools=[hidden], model=ScriptedModel([call("hidden", id="c"), "done"])), "x"
            )
            await trio.sleep(1)
            crash = chaos.CrashAt(0, lambda task: task.name == f"runtime/{run.id}", ZeroDivisionError())
            for task in chaos.program_tasks():
                crash.before_task_step(task)
            with trio.fail_after(60):
                return await run.result()

    assert isinstance(chaos.run(scenario), gr.Completed)
    assert max(most) == 1
    assert len(most) == 2


def test_a_body_left_behind_by_a_crash_is_named_by_the_run_that_ends_before_it():
    @gr.tool(grace=0.5)
    async def hidden() -> str:
        with trio.CancelScope(shield=True):
            await trio.sleep(500)
        return "too late"

    async def scenario():
        async with gr.open_runtime(drain=0) as runtime:
            run = await runtime.start(agent(hidden), "x")
            await trio.sleep(1)
            crash = chaos.CrashAt(0, lambda task: task.name == f"runtime/{run.id}", ZeroDivisionError())
            for task in chaos.program_tasks():
                crash.before_task_step(task)
            with trio.fail_after(60):
                waiting = await run.wait()
                assert (await run.decide(waiting.tickets[0].deny("enough"))).ok
                outcome = await run.result()
            async with run.events() as events:
                return outcome, [event async for event in events]

    outcome, events = chaos.run(scenario)
    assert isinstance(outcome, gr.Completed)
    (overrun,) = [event.payload for event in events if event.type == "run.cleanup.overrun"]
    assert (overrun["callId"], overrun["tool"], overrun["graceSeconds"]) == ("c", "hidden", 0.5)
    assert events[-1].type == "run.completed"
    assert list(events[-1].payload["stubborn"]) == ["c"]


def test_a_tool_does_not_begin_when_its_run_is_cancelled_in_the_turn_that_starts_it():
    effects, started = [], []

    @gr.tool(needs_approval=True)
    async def act() -> str:
        effects.append("before the first checkpoint")
        return "acted"

    async def scenario():
        async with gr.open_runtime(drain=0) as runtime:
            run = await runtime.start(agent(act), "x")
            await run.wait()
            async with trio.open_nursery() as nursery:  # both are durable, and hinted, before the run's actor wakes
                nursery.start_soon(run.decide, "c", "resume")
                nursery.start_soon(run.cancel)
            assert isinstance(await run.result(), gr.Cancelled)
            async with run.events() as events:
                started.append("run.tool.started" in [event.type async for event in events])

    for seed in range(10):
        chaos.run(scenario, seed=seed)
    assert effects == []
    assert any(started)  # else the cancel always came first, and nothing was shown


def test_a_cancel_that_comes_while_the_deps_provider_thinks_is_obeyed():
    calls = []

    async def provider(info: gr.RunInfo) -> None:
        calls.append(info.run_id)
        await trio.sleep(1)
        raise LookupError("there are none")

    async def scenario():
        store = gr.MemoryStore()
        async with gr.open_runtime(store, agents=[agent()], deps="live", drain=0) as runtime:
            run = await runtime.start("a", "x")
            await run.wait()
        async with gr.open_runtime(store, agents=[agent()], deps=provider, drain=0) as runtime:
            again = await runtime.get(run.id)
            assert calls == []  # no person is asked for what only waits
            assert (await again.send("look")).ok
            await trio.sleep(0.5)
            assert len(calls) == 1
            assert (await again.cancel(by="ann")).ok
            with trio.fail_after(60):
                return await again.result()

    outcome = chaos.run(scenario)
    assert isinstance(outcome, gr.Cancelled)
    assert outcome.by == "ann"
