"""A cancel in every stage of a run: one terminal event, nothing left running, a valid history, usage kept."""

import threading
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

import greenroom as gr
from greenroom.supervision import chaos, cleanup
from greenroom.testing import ScriptedModel, call, delay, text

from .stage import TERMINAL, broken_calls, broken_log


class Hand:
    """What a test knows of the bodies, and how it holds them up."""

    def __init__(self) -> None:
        self.running: set[str] = set()
        self.log: list[str] = []
        self.started = trio.Event()
        self.go = trio.Event()

    def enter(self, name: str) -> None:
        self.running.add(name)
        self.started.set()

    def leave(self, name: str) -> None:
        self.running.discard(name)


@gr.tool(needs_approval=True)
async def gated(ctx: gr.ToolContext[Hand]) -> str:
    """Needs an approval."""
    return "approved"


@gr.tool
async def endless(ctx: gr.ToolContext[Hand]) -> str:
    """Runs until it is cancelled."""
    ctx.deps.enter("endless")
    try:
        await trio.sleep_forever()
    finally:
        ctx.deps.leave("endless")
    return "never"


@gr.tool(grace=3.0)
async def tidy(ctx: gr.ToolContext[Hand]) -> str:
    """Needs two seconds to clean up."""
    ctx.deps.enter("tidy")
    try:
        await trio.sleep_forever()
    finally:
        with cleanup(2.5):
            await trio.sleep(2.0)  # noqa: ASYNC102 - cleanup() is the shield with the limit
        ctx.deps.log.append(f"tidied up at {trio.current_time()}")
        ctx.deps.leave("tidy")
    return "never"


@gr.tool
async def quick(ctx: gr.ToolContext[Hand]) -> str:
    """Ends at once."""
    return "done"


@gr.tool(grace=1.0)
async def stubborn(ctx: gr.ToolContext[Hand]) -> str:
    """Notices no cancel until the test lets it go."""
    ctx.deps.enter("stubborn")
    with trio.CancelScope(shield=True):
        await ctx.deps.go.wait()
    ctx.deps.leave("stubborn")
    return "too late"


async def slow_gate(ctx: gr.ToolContext[Hand], arguments: Any) -> bool:
    """A predicate that takes its time."""
    ctx.deps.enter("gate")
    try:
        await trio.sleep_forever()
    finally:
        ctx.deps.leave("gate")
    return True


@gr.tool(needs_approval=slow_gate)
async def judged(ctx: gr.ToolContext[Hand]) -> str:
    """Its gate never answers."""
    return "never"


TOOLS = [gated, endless, tidy, quick, stubborn, judged]


def agent(*steps: Any, key: str = "a", **options: Any) -> gr.Agent:
    """An agent that plays these steps."""
    options.setdefault("execution", "parallel_streaming")
    return gr.Agent(key, tools=TOOLS, model=ScriptedModel([*steps, "done"], chunk=4), **options)


async def came_to(run: gr.Run[Any], hand: Hand, kind: type = gr.Cancelled) -> list[gr.Event]:
    """The run's events, once it has ended as it should and everything that must hold does."""
    with trio.fail_after(60):
        outcome = await run.result()
    assert isinstance(outcome, kind), outcome
    store = run._reader._services.store
    frames = await store.events(run.id)
    record = await store.load(run.id, calls="all")
    async with run.events() as following:
        events = [event async for event in following]
    assert not [*broken_log(events, frames, {})]
    assert not [*broken_calls(events, record, await store.messages(run.thread_id))]
    if not record.row.stubborn:
        assert not hand.running
        assert not [task.name for task in chaos.program_tasks() if task.name.startswith(("call:", "model:", "gate:"))]
    spent = sum(event.payload.get("usage", {}).get("requests", 0) for event in events if ".inference." in event.type)
    assert (await run.view()).usage.requests == spent == events[-1].payload["usage"]["requests"]
    answer = await run.cancel()
    assert (answer.status, answer.code) == ("rejected", "run_done")
    return events


async def test_a_run_that_waits_for_its_slot_is_cancelled_before_it_has_worked(autojump_clock):
    hand = Hand()
    async with gr.open_runtime(agents=[agent(call("endless"))], deps=hand, max_running=1) as runtime:
        first = await runtime.start("a", "x")
        second = await runtime.start("a", "x")
        third = await runtime.start("a", "x")
        await hand.started.wait()
        assert (await second.view()).stage in (gr.Stage.CREATED, gr.Stage.PLANNED)
        assert (await second.cancel(by="me", reason="no more")).status == "accepted"
        events = await ended(second)
        assert [event.type for event in events if event.type.startswith("run.inf")] == []
        await first.cancel()
        await ended(first)
        hand.started = trio.Event()
        with trio.fail_after(60):
            await hand.started.wait()  # the third one got the slot
        await third.cancel()
        await came_to(third, hand)


async def ended(run: gr.Run[Any]) -> list[gr.Event]:
    """The run's events, while other runs continue."""
    with trio.fail_after(60):
        assert isinstance(await run.result(), gr.Cancelled)
    async with run.events() as following:
        events = [event async for event in following]
    assert sum(event.type in TERMINAL for event in events) == 1
    return events


async def test_a_model_stream_is_cancelled_and_its_text_stays(autojump_clock):
    hand = Hand()
    async with gr.open_runtime(
        agents=[agent([text("half an answer"), delay(100), text("more")])], deps=hand
    ) as runtime:
        run = await runtime.start("a", "x")
        async with run.events() as events:
            async for event in events:
                if event.type == "run.message.delta":
                    break
        await wait_all_tasks_blocked()  # the rest of the text arrives
        await run.cancel()
        events = await came_to(run, hand)
        (completed,) = [event.payload for event in events if event.type == "run.message.completed"]
        assert (completed["text"], completed["cut"]) == ("half an answer", True)


async def test_a_gate_that_is_being_asked_is_cancelled(autojump_clock):
    hand = Hand()
    async with gr.open_runtime(agents=[agent([call("judged"), call("quick")])], deps=hand) as runtime:
        run = await runtime.start("a", "x")
        await hand.started.wait()
        await run.cancel()
        events = await came_to(run, hand)
        assert "run.tool.started" not in [event.type for event in events]


async def test_a_tool_is_cancelled_and_its_finished_sibling_keeps_its_result(autojump_clock):
    hand = Hand()
    async with gr.open_runtime(agents=[agent([call("endless", id="e"), call("quick", id="q")])], deps=hand) as runtime:
        run = await runtime.start("a", "x")
        await hand.started.wait()
        await wait_all_tasks_blocked()
        await run.cancel(by="me", reason="enough")
        await came_to(run, hand)
        view = await run.view()
        assert dict(view.calls) == {"e": gr.CallStatus.CANCELLED, "q": gr.CallStatus.SUCCEEDED}
        assert await run.result() == gr.Cancelled(reason="enough", by="me")


async def test_a_waiting_run_is_cancelled_and_its_ticket_withdrawn(autojump_clock):
    hand = Hand()
    for mode in ("now", "after_step"):
        async with gr.open_runtime(agents=[agent(call("gated"))], deps=hand) as runtime:
            run = await runtime.start("a", "x")
            waiting = await run.wait()
            await run.cancel(mode=mode)
            events = await came_to(run, hand)
            resolved = [event.payload["resolution"] for event in events if event.type == "run.approval.resolved"]
            assert resolved == ["withdrawn"]
            late = await run.decide(waiting.tickets[0].approve())
            assert (late.status, late.code) == ("rejected", "run_done")


async def test_the_terminal_event_comes_after_the_clean_up_and_a_second_cancel_does_not_cut_it_short(autojump_clock):
    hand = Hand()
    async with gr.open_runtime(agents=[agent([call("tidy"), call("endless")])], deps=hand) as runtime:
        run = await runtime.start("a", "x")
        await hand.started.wait()
        await wait_all_tasks_blocked()
        started_at = trio.current_time()
        await run.cancel(reason="first")
        await trio.sleep(1.0)
        assert hand.running == {"tidy"}
        assert (await run.cancel(reason="second")).status == "accepted"
        events = await came_to(run, hand)
        assert hand.log == [f"tidied up at {started_at + 2.0}"]
        assert trio.current_time() - started_at < 2.1
        assert (await run.result()).reason == "first"
        assert [event.type for event in events].count("run.cancel.requested") == 2
        assert "run.cleanup.overrun" not in [event.type for event in events]


async def test_after_step_lets_the_step_end_and_asks_the_model_no_more(autojump_clock):
    hand = Hand()

    @gr.tool
    async def held(ctx: gr.ToolContext[Hand]) -> str:
        """Ends when the test says so."""
        ctx.deps.enter("held")
        await ctx.deps.go.wait()
        ctx.deps.leave("held")
        return "kept"

    one = gr.Agent("a", tools=[held], model=ScriptedModel([call("held", id="h"), "done"]))
    async with gr.open_runtime(agents=[one], deps=hand) as runtime:
        run = await runtime.start("a", "x")
        await hand.started.wait()
        await run.cancel(mode="after_step")
        await wait_all_tasks_blocked()
        assert hand.running == {"held"}
        hand.go.set()
        events = await came_to(run, hand)
        assert dict((await run.view()).calls) == {"h": gr.CallStatus.SUCCEEDED}
        assert [event.type for event in events].count("run.inference.started") == 1


@pytest.mark.slow
def test_a_cancel_that_races_the_natural_end_loses_or_wins_but_ends_the_run_once():
    """The run's last second, step by step."""
    outcomes = set()
    steps = 200
    k = 0
    while k < steps:

        async def scenario(k=k):
            hand = Hand()
            async with gr.open_runtime(agents=[agent(call("quick"))], deps=hand) as runtime:
                run = await runtime.start("a", "x", run_id="r")
                for _ in range(k):
                    await trio.lowlevel.checkpoint()
                answer = await run.cancel()
                with trio.fail_after(60):
                    outcome = await run.result()
                won = isinstance(outcome, gr.Cancelled)
                assert won == (answer.status == "accepted"), (k, answer, outcome)
                await came_to(run, hand, type(outcome))
                return won

        outcomes.add(won := chaos.run(scenario, seed=k))
        k += 1 if won else 20
    assert outcomes == {True, False}


async def test_an_endless_shield_is_named_with_its_stack_and_its_late_result_dropped(autojump_clock):
    hand = Hand()
    async with gr.open_runtime(
        agents=[agent([call("stubborn", id="s"), call("quick", id="q")]), agent("fine", key="b")], deps=hand
    ) as runtime:
        run = await runtime.start("a", "x")
        await hand.started.wait()
        await run.cancel()
        events = await came_to(run, hand)
        (overrun,) = [event.payload for event in events if event.type == "run.cleanup.overrun"]
        assert (overrun["callId"], overrun["tool"], overrun["graceSeconds"]) == ("s", "stubborn", 1.0)
        assert "test_cancel_everywhere.py" in overrun["stack"]
        assert list(events[-1].payload["stubborn"]) == ["s"]
        assert isinstance(await (await runtime.start("b", "x")).result(), gr.Completed)  # others continue
        hand.go.set()
        await wait_all_tasks_blocked()
        assert len(await runtime.store.events(run.id)) == len(events)
        assert dict((await run.view()).calls)["s"] is gr.CallStatus.CANCELLED
        assert not [task.name for task in chaos.program_tasks() if task.name.startswith("call:")]


# --- threads: real time ----------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_thread_that_listens_ends_in_time_and_one_that_does_not_is_named(tmp_path):
    started, go, late = threading.Event(), threading.Event(), threading.Event()

    @gr.tool
    def polite(ctx: gr.SyncToolContext[None]) -> str:
        """Reports now and then."""
        started.set()
        while True:
            ctx.progress(0.5)
            threading.Event().wait(0.01)

    @gr.tool(grace=0.2)
    def deaf(ctx: gr.SyncToolContext[None]) -> str:
        """Reports nothing until it is over."""
        started.set()
        go.wait(120)
        late.set()
        return "too late"

    def one(key: str, tool: Any) -> gr.Agent:
        return gr.Agent(key, tools=[tool], model=ScriptedModel([call(key, id="c"), "done"]))

    with trio.fail_after(120):
        async with gr.open_runtime(tmp_path / "r.db", agents=[one("polite", polite), one("deaf", deaf)]) as runtime:
            for name in ("polite", "deaf"):
                started.clear()
                run = await runtime.start(name, "x")
                await trio.to_thread.run_sync(started.wait)
                await run.cancel()
                events = await came_to(run, Hand())
                overruns = [event.payload for event in events if event.type == "run.cleanup.overrun"]
                if name == "polite":
                    assert not overruns
                    continue
                assert [item["callId"] for item in overruns] == ["c"]
                assert "test_cancel_everywhere.py" in overruns[0]["stack"]
                assert list(events[-1].payload["stubborn"]) == ["c"]
                go.set()
                await trio.to_thread.run_sync(late.wait)
                assert len(await runtime.store.events(run.id)) == len(events)
