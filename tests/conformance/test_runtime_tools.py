"""The facade's tools: options, contexts, threads, suspensions with all resume modes, execution modes."""

import threading

import pytest
import trio
import trio.testing

import greenroom as gr
from greenroom.testing import ScriptedModel, call

from ..support.runs import agent, events_of, home, payloads, types


def seen_by_model(helper: gr.Agent, request: int = -1) -> list[str]:
    """The tool messages of one of the requests that the agent's model got."""
    return [message.content for message in helper.model.requests[request].messages if message.role == "tool"]


# --- contexts --------------------------------------------------------------------------------------------------------


async def test_a_context_tells_where_the_body_is(shelf, autojump_clock):
    seen = []

    @gr.tool
    async def look(ctx: gr.ToolContext[str]) -> str:
        seen.append(ctx)
        return "ok"

    helper = agent(call("look", id="c1"), "done", tools=[look])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi", run_id="r1", thread_id="t1", deps="deps")
        await run.result()
    (ctx,) = seen
    assert (ctx.deps, ctx.run_id, ctx.thread_id, ctx.call_id) == ("deps", "r1", "t1", "c1")
    assert (ctx.attempt, ctx.decision, ctx.idempotency_key) == (1, None, "r1/c1")


async def test_deps_of_the_runtime_reach_every_run_and_a_runs_own_win(shelf, autojump_clock):
    seen = []

    @gr.tool
    async def look(ctx: gr.ToolContext[str]) -> str:
        seen.append(ctx.deps)
        return "ok"

    helper = agent(call("look", id="c1"), "done", tools=[look])
    async with home(shelf, agents=[helper], deps="common") as runtime:
        await (await runtime.start(helper, "hi")).result()
        await (await runtime.start(helper, "hi", deps="own")).result()
    assert seen == ["common", "own"]


async def test_progress_and_output_of_an_async_tool_are_events_in_order(shelf, autojump_clock):
    @gr.tool
    async def work(ctx: gr.ToolContext) -> str:
        await ctx.progress(0.5, "half")
        await trio.sleep(1)
        await ctx.output("a")
        await ctx.output("b")
        await trio.sleep(1)
        await ctx.output("c")
        await ctx.progress(1.0)
        return "ok"

    helper = agent(call("work", id="c1"), "done", tools=[work])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        await run.result()
        events = await events_of(run)
    progress = payloads(events, "tool.progress")
    output = payloads(events, "tool.output.delta")
    assert progress[0] == {"callId": "c1", "attempt": 1, "fraction": 0.5, "text": "half"}
    assert progress[-1]["fraction"] == 1.0
    assert "".join(entry["text"] for entry in output) == "abc"
    assert [entry["index"] for entry in output] == list(range(len(output)))
    names = types(events)
    last_report = max(i for i, name in enumerate(names) if name in ("tool.progress", "tool.output.delta"))
    assert last_report < names.index("tool.result")


async def test_a_sync_tool_runs_in_a_thread_with_plain_functions(tmp_path):
    seen = []

    @gr.tool
    def work(ctx: gr.SyncToolContext[str], n: int) -> str:
        seen.append((threading.current_thread() is threading.main_thread(), ctx.deps, ctx.idempotency_key))
        ctx.progress(0.5, "half")
        ctx.output("some ")
        ctx.output("output")
        return f"got {n}"

    helper = agent(call("work", n=3, id="c1"), "done", tools=[work])
    with trio.fail_after(120):
        async with gr.open_runtime(tmp_path / "runs.db", agents=[helper]) as runtime:
            run = await runtime.start(helper, "hi", run_id="r1", deps="deps")
            assert (await run.result()).output == "done"
            events = await events_of(run)
    assert seen == [(False, "deps", "r1/c1")]
    assert "".join(entry["text"] for entry in payloads(events, "tool.output.delta")) == "some output"
    assert payloads(events, "tool.progress")[-1]["fraction"] == 0.5
    assert seen_by_model(helper) == ["got 3"]


async def test_at_most_thirty_two_threads_work_at_once_in_a_runtime(tmp_path):
    lock, full, running, peaks = threading.Lock(), threading.Event(), set(), []

    @gr.tool
    def work(n: int) -> int:
        with lock:
            running.add(n)
            peaks.append(len(running))
            if len(running) == 32:
                full.set()
        full.wait(60)
        with lock:
            running.discard(n)
        return n

    calls = [call("work", n=n, id=f"c{n}") for n in range(40)]
    helper = agent(calls, "done", tools=[work], execution="parallel_streaming", max_bodies=40)
    with trio.fail_after(120):
        async with gr.open_runtime(agents=[helper]) as runtime:
            assert (await (await runtime.start(helper, "hi")).result()).output == "done"
    assert max(peaks) == 32
    assert seen_by_model(helper) == [str(n) for n in range(40)]


async def test_a_page_0_context_annotation_works_for_sync_tools(tmp_path):
    @gr.tool
    def work(ctx: gr.ToolContext) -> str:
        ctx.output("x")
        return ctx.call_id

    helper = agent(call("work", id="c1"), "done", tools=[work])
    with trio.fail_after(120):
        async with gr.open_runtime(agents=[helper]) as runtime:
            assert (await (await runtime.start(helper, "hi")).result()).output == "done"
    assert seen_by_model(helper) == ["c1"]


async def test_a_thread_that_ignores_its_cancel_is_named_and_does_not_hold_the_run(tmp_path):
    started, release = threading.Event(), threading.Event()

    @gr.tool(grace=0.05)
    def stuck() -> str:
        started.set()
        release.wait(120)
        return "late"

    helper = agent(call("stuck", id="c1"), "done", tools=[stuck])
    with trio.fail_after(120):
        async with gr.open_runtime(agents=[helper], drain=0) as runtime:
            run = await runtime.start(helper, "hi")
            assert await trio.to_thread.run_sync(started.wait, 60)
            await run.cancel()
            outcome = await run.result()
            events = await events_of(run)
        release.set()
    assert isinstance(outcome, gr.Cancelled)
    (overrun,) = payloads(events, "cleanup.overrun")
    assert (overrun["callId"], overrun["tool"], overrun["graceSeconds"]) == ("c1", "stuck", 0.05)
    assert payloads(events, "cancelled")[0]["stubborn"] == ["c1"]


# --- options ---------------------------------------------------------------------------------------------------------


async def test_name_and_description_are_what_the_model_reads(shelf, autojump_clock):
    @gr.tool(name="sum_up", description="Adds two numbers.")
    async def add(a: int, b: int = 1) -> int:
        return a + b

    helper = agent(call("sum_up", a=1, id="c1"), "done", tools=[add])
    async with home(shelf, agents=[helper]) as runtime:
        await (await runtime.start(helper, "hi")).result()
    (info,) = helper.model.requests[0].tools
    assert (info.name, info.description) == ("sum_up", "Adds two numbers.")
    assert info.schema["required"] == ["a"]
    assert seen_by_model(helper) == ["2"]


async def test_a_predicate_that_fails_means_approval(shelf, autojump_clock):
    async def broken(ctx, arguments):
        raise RuntimeError("no idea")

    @gr.tool(needs_approval=broken)
    async def refund() -> str:
        return "refunded"

    helper = agent(call("refund", id="c1"), "done", tools=[refund])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        waiting = await run.wait()
        assert waiting.tickets[0].reason == "tool_permission"
        await run.decide("c1", "resume")
        assert (await run.result()).output == "done"


@pytest.mark.rule("L-40")
async def test_on_error_return_tells_the_model_and_raise_ends_the_run(shelf, autojump_clock):
    @gr.tool
    async def soft() -> str:
        raise gr.ToolError("try another order")

    @gr.tool(on_error="raise")
    async def hard() -> str:
        raise ValueError("boom")

    softly = agent(call("soft", id="c1"), "done", tools=[soft], key="softly")
    harshly = agent(call("hard", id="c1"), "done", tools=[hard], key="harshly")
    async with home(shelf, agents=[softly, harshly]) as runtime:
        assert (await (await runtime.start(softly, "hi")).result()).output == "done"
        failed = await (await runtime.start(harshly, "hi")).result()
    assert seen_by_model(softly) == ["try another order"]
    assert isinstance(failed, gr.Failed)
    assert failed.code == "tool_error"
    assert "boom" in failed.message
    assert "Traceback" not in failed.message


# --- suspensions -----------------------------------------------------------------------------------------------------


def asking(how: str, **options):
    """A tool that suspends once, and what each of its attempts saw."""
    seen = []

    @gr.tool
    async def ask(ctx: gr.ToolContext, question: str = "?") -> str:
        seen.append((ctx.attempt, question, ctx.decision and ctx.decision.result))
        if ctx.decision is not None:
            return f"{question} -> {ctx.decision.result}"
        suspend = gr.Suspend(action="ask", message="please", parameters={"q": question}, **options)
        if how == "returned":
            return suspend
        if how == "raised":
            raise suspend
        async with trio.open_nursery() as nursery:  # noqa: ASYNC112 - the nursery is what is tested
            nursery.start_soon(raising, suspend)
        return "never"

    return ask, seen


async def raising(error):
    await trio.lowlevel.checkpoint()
    raise error


@pytest.mark.rule("A-3")
@pytest.mark.parametrize("how", ["returned", "raised", "grouped"])
async def test_a_tool_suspends_by_returning_or_raising_also_in_a_group(shelf, autojump_clock, how):
    ask, seen = asking(how)
    helper = agent(call("ask", question="name?", id="c1"), "done", tools=[ask])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi", run_id="r1")
        (ticket,) = (await run.wait()).tickets
        assert (ticket.action, ticket.message, ticket.parameters) == ("ask", "please", {"q": "name?"})
        assert (ticket.call_id, ticket.tool, ticket.arguments) == ("c1", "ask", {"question": "name?"})
        assert (ticket.resume_mode, ticket.reason, ticket.run_id) == ("replay_tool_call", "user_input", "r1")
        assert (await run.decide(ticket.approve("Ada"))).status == "accepted"
        await run.result()
    assert seen == [(1, "name?", None), (2, "name?", "Ada")]
    assert seen_by_model(helper) == ["name? -> Ada"]


# --- decisions -------------------------------------------------------------------------------------------------------


async def test_decide_then_wait_never_shows_the_decided_ticket(shelf, autojump_clock):
    ask, _ = asking("raised")
    helper = agent([call("ask", id="c1"), call("ask", id="c2")], "done", tools=[ask], execution="parallel_streaming")
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        first = await run.wait()
        assert [ticket.call_id for ticket in first.tickets] == ["c1", "c2"]
        await run.decide(first.tickets[0].approve("x"))
        assert [ticket.call_id for ticket in (await run.wait()).tickets] == ["c2"]


# --- tools that end the run ------------------------------------------------------------------------------------------


async def test_one_script_serves_many_runs_at_once(shelf, autojump_clock):
    @gr.tool
    async def add(a: int, b: int) -> int:
        await trio.sleep(1)
        return a + b

    model = ScriptedModel([call("add", a=1, b=2), "done"])
    helper = gr.Agent("helper", model=model, tools=[add])
    async with home(shelf, agents=[helper]) as runtime:
        runs = [await runtime.start(helper, "hi") for _ in range(20)]
        assert [(await run.result()).output for run in runs] == ["done"] * 20
    model.assert_complete()


async def test_a_large_decision_result_is_shown_as_an_excerpt_and_kept_whole(shelf, autojump_clock):
    @gr.tool
    async def ask() -> str:
        raise gr.Suspend(resume_mode="use_decision_as_tool_result")

    helper = agent(call("ask", id="c1"), "done", tools=[ask])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        await run.wait()
        assert (await run.decide("c1", "resume", result="y" * 400_000)).ok
        await run.result()
        (result,) = payloads(await events_of(run), "tool.result")
        assert len(result["result"]) < 10_000
        assert len(helper.model.requests[1].messages[-1].content) < 10_000
        record = await runtime.store.load(run.id, calls="all")
    assert record.calls[0].result == "y" * 400_000


@pytest.mark.parametrize("ends_first", [False, True])
async def test_a_thread_given_up_by_its_time_limit_is_reported_and_named_only_while_it_lives(ends_first, mock_clock):
    """The overrun is reported at once; the terminal event names the thread if it still works then."""
    started, go = threading.Event(), threading.Event()

    @gr.tool(timeout=5.0, grace=2.0)
    def deaf() -> str:
        started.set()
        go.wait(120)
        return "too late"

    @gr.tool
    async def settle() -> str:
        if ends_first:
            go.set()
            while any("deaf" in one.name for one in threading.enumerate()):  # noqa: ASYNC110 - a thread reports nothing
                await trio.lowlevel.checkpoint()
            await trio.testing.wait_all_tasks_blocked()
        return "settled"

    helper = agent(call("deaf", id="c1"), call("settle", id="c2"), "done", tools=[deaf, settle])
    try:
        async with gr.open_runtime(agents=[helper]) as runtime:
            run = await runtime.start(helper, "hi")
            assert await trio.to_thread.run_sync(started.wait, 60)
            for seconds in (5.0, 2.0):
                mock_clock.jump(seconds)
                await trio.testing.wait_all_tasks_blocked()
            assert isinstance(await run.result(), gr.Completed)
            events = await events_of(run)
            go.set()
    finally:
        go.set()
    (overrun,) = payloads(events, "cleanup.overrun")
    assert (overrun["callId"], overrun["tool"], overrun["graceSeconds"]) == ("c1", "deaf", 2.0)
    assert "deaf" in overrun["stack"]
    assert list(payloads(events, "completed")[0].get("stubborn", ())) == ([] if ends_first else ["c1"])


@pytest.mark.parametrize("lasts", [6.5, 50.0])
@pytest.mark.parametrize("background", [False, True], ids=["call", "task"])
async def test_an_async_body_that_hides_from_its_time_limit_is_given_up_after_its_grace(
    shelf, autojump_clock, lasts, background
):
    """As a thread would be: the call fails, the run continues, and what still lives at its end is named."""

    @gr.tool(timeout=5.0, grace=2.0, background=background)
    async def hides(ctx: gr.ToolContext) -> str:
        with trio.CancelScope(shield=True):
            await trio.sleep(lasts)
        await ctx.output("too late")
        return "too late"

    helper = agent(call("hides", id="c1"), *["done"] * (1 + background), tools=[hides])
    name = "c1.task1" if background else "c1"
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi", run_id="r1")
        assert isinstance(await run.result(), gr.Completed)
        assert trio.current_time() < 20
        events = await events_of(run)
        text = (await run.view()).messages[-2].content
        reported, _, doubt = text.partition("The tool 'hides' timed out after 5 s.")
        assert reported or not background
        assert ("may or may not have taken effect" in doubt) is (lasts == 50)
        overrun = [(payload["callId"], payload["graceSeconds"]) for payload in payloads(events, "cleanup.overrun")]
        assert overrun == ([(name, 2.0)] if lasts == 50 else [])
        assert list(payloads(events, "completed")[0].get("stubborn", ())) == ([name] if lasts == 50 else [])
        await trio.sleep(100)
        assert await events_of(run) == events
        assert (await runtime.replay("r1")).equal
