"""The facade's tools: options, contexts, threads, suspensions with all resume modes, execution modes."""

import threading

import pytest
import trio
import trio.testing

import greenroom as gr
from greenroom.testing import ScriptedModel, call, text

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


async def test_a_predicate_decides_which_calls_need_an_approval(shelf, autojump_clock):
    shown = []

    def large(ctx, arguments):
        shown.append(dict(arguments))
        return arguments["cents"] > 100

    @gr.tool(needs_approval=large)
    async def refund(cents: int, currency: str = "EUR") -> str:
        return f"{cents} {currency}"

    helper = agent([call("refund", cents=1, id="c1"), call("refund", cents=500, id="c2")], "done", tools=[refund])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        waiting = await run.wait()
        assert [ticket.call_id for ticket in waiting.tickets] == ["c2"]
        await run.decide(waiting.tickets[0].approve())
        await run.result()
    assert shown == [{"cents": 1, "currency": "EUR"}, {"cents": 500, "currency": "EUR"}]


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


async def test_a_timeout_ends_the_body_and_the_model_reads_why(shelf, autojump_clock):
    @gr.tool(timeout=30.0)
    async def slow() -> str:
        await trio.sleep(1000)
        return "late"

    helper = agent(call("slow", id="c1"), "done", tools=[slow])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        await run.result()
        assert 30 <= trio.current_time() < 35
        (result,) = payloads(await events_of(run), "tool.result")
    assert (result["status"], result["code"]) == ("failed", "tool_timeout")
    assert "30 s" in seen_by_model(helper)[0]


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


async def test_a_bad_argument_is_reported_to_the_model_with_its_path_and_the_body_does_not_run(shelf, autojump_clock):
    ran = []

    @gr.tool
    async def add(a: int) -> int:
        ran.append(a)
        return a

    helper = agent(call("add", a="x", id="c1"), call("add", a=2, id="c2"), "done", tools=[add])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        await run.result()
        results = payloads(await events_of(run), "tool.result")
    assert ran == [2]
    assert [result.get("code") for result in results] == ["invalid_arguments", None]
    assert "a" in seen_by_model(helper, 1)[0]


async def test_an_unknown_tool_is_reported_to_the_model_or_fails_the_run(shelf, autojump_clock):
    tells = agent(call("nothing", id="c1"), "done", key="tells")
    raises = agent(call("nothing", id="c1"), key="raises", on_unknown_tool="raise")
    async with home(shelf, agents=[tells, raises]) as runtime:
        assert (await (await runtime.start(tells, "hi")).result()).output == "done"
        failed = await (await runtime.start(raises, "hi")).result()
    assert "'nothing'" in seen_by_model(tells)[0]
    assert (failed.code, "'nothing'" in failed.message) == ("model_behavior_error", True)


async def test_an_applying_effect_shows_as_stage_applying(shelf, autojump_clock):
    stages = []

    @gr.tool(effect="write")
    async def write() -> str:
        stages.append((await run.view()).stage)
        return "ok"

    helper = agent(call("write", id="c1"), "done", tools=[write])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        await run.result()
        events = await events_of(run)
    assert stages == ["applying"]
    assert "applying" in types(events)
    assert payloads(events, "tool.call")[0]["effect"] == "write"


@pytest.mark.parametrize(
    ("concurrency", "most"), [("shared", 3), ("ordered", 1), ("exclusive", 1)], ids=["shared", "ordered", "exclusive"]
)
async def test_concurrency_says_how_many_bodies_of_a_tool_run_at_once(shelf, autojump_clock, concurrency, most):
    running, peaks, order = set(), [], []

    @gr.tool(concurrency=concurrency)
    async def work(n: int) -> int:
        running.add(n)
        order.append(n)
        peaks.append(len(running))
        await trio.sleep(10)
        running.discard(n)
        return n

    calls = [call("work", n=n, id=f"c{n}") for n in range(3)]
    helper = agent(calls, "done", tools=[work], execution="parallel_streaming")
    async with home(shelf, agents=[helper]) as runtime:
        await (await runtime.start(helper, "hi")).result()
    assert max(peaks) == most
    if most == 1:
        assert order == [0, 1, 2]
    assert seen_by_model(helper) == ["0", "1", "2"]


# --- execution modes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["sequential", "parallel_batch_approval", "parallel_streaming"])
@pytest.mark.parametrize("where", ["agent", "run"])
async def test_the_mode_of_agent_or_run_decides_how_calls_run(shelf, autojump_clock, mode, where):
    log = []

    @gr.tool
    async def work(n: int) -> int:
        log.append(f"start {n}")
        await trio.sleep(10 - n)
        log.append(f"end {n}")
        return n

    calls = [call("work", n=n, id=f"c{n}") for n in range(3)]
    options = {"execution": mode} if where == "agent" else {}
    helper = agent(calls, "done", tools=[work], **options)
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi", execution=None if where == "agent" else mode)
        await run.result()
    if mode == "sequential":
        assert log == [f"{what} {n}" for n in range(3) for what in ("start", "end")]
    else:
        assert set(log[:3]) == {"start 0", "start 1", "start 2"}
        assert log[3:] == ["end 2", "end 1", "end 0"]
    assert seen_by_model(helper) == ["0", "1", "2"]


async def test_batch_approval_holds_a_decision_until_all_are_decided_and_streaming_does_not(shelf, autojump_clock):
    ran = []

    @gr.tool(needs_approval=True)
    async def act(n: int) -> int:
        ran.append(n)
        return n

    calls = [call("act", n=n, id=f"c{n}") for n in range(2)]
    for mode, after_first in (("parallel_batch_approval", []), ("parallel_streaming", [1]), ("sequential", [1])):
        ran.clear()
        helper = agent(calls, "done", tools=[act], key=mode)
        async with home(shelf) as runtime:
            run = await runtime.start(helper, "hi", run_id=mode, execution=mode)
            waiting = await run.wait()
            assert [ticket.call_id for ticket in waiting.tickets] == ["c0", "c1"]
            assert (await run.decide("c1", "resume")).ok
            waiting = await run.wait()
            assert [ticket.call_id for ticket in waiting.tickets] == ["c0"]
            assert ran == after_first
            assert (await run.decide("c0", "resume")).ok
            assert (await run.result()).output == "done"
            assert sorted(ran) == [0, 1]


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


async def test_use_decision_as_tool_result_does_not_run_the_body_again(shelf, autojump_clock):
    ask, seen = asking("raised", resume_mode="use_decision_as_tool_result")
    helper = agent(call("ask", question="name?", id="c1"), "done", tools=[ask])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        await run.wait()
        await run.decide("c1", "resume", result={"name": "Ada"})
        await run.result()
        (result,) = payloads(await events_of(run), "tool.result")
    assert len(seen) == 1
    assert result["result"] == {"name": "Ada"}
    assert seen_by_model(helper) == ['{"name":"Ada"}']


async def test_pass_decision_to_tool_runs_the_body_with_the_result_as_its_arguments(shelf, autojump_clock):
    ask, seen = asking("raised", resume_mode="pass_decision_to_tool")
    helper = agent(call("ask", question="name?", id="c1"), "done", tools=[ask])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        await run.wait()
        await run.decide("c1", "resume", result={"question": "age?"})
        await run.result()
    assert [entry[:2] for entry in seen] == [(1, "name?"), (2, "age?")]


async def test_edited_arguments_are_used_and_the_model_reads_why(shelf, autojump_clock):
    ask, seen = asking("raised")
    helper = agent(call("ask", question="name?", id="c1"), "done", tools=[ask])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        await run.wait()
        answer = await run.decide("c1", "resume", edited_arguments={"question": "first name?"}, result="Ada")
        await run.result()
    assert answer.ok
    assert seen[1][:2] == (2, "first name?")
    assert "first name?" in seen_by_model(helper)[0]
    assert helper.model.requests[1].messages[1].calls[0].arguments == {"question": "name?"}


async def test_a_call_may_suspend_many_times_each_time_with_a_new_ticket(shelf, autojump_clock):
    @gr.tool
    async def twice(ctx: gr.ToolContext) -> str:
        if ctx.attempt < 3:
            raise gr.Suspend(message=f"question {ctx.attempt}")
        return "settled"

    helper = agent(call("twice", id="c1"), "done", tools=[twice])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        (first,) = (await run.wait()).tickets
        await run.decide(first.approve())
        (second,) = (await run.wait()).tickets
        assert (first.message, second.message) == ("question 1", "question 2")
        assert first.ticket_id != second.ticket_id
        old = await run.decide(first.approve())
        assert (old.status, old.code) == ("rejected", "already_decided")
        await run.decide("c1", "resume")
        assert (await run.result()).output == "done"
    assert seen_by_model(helper) == ["settled"]


@pytest.mark.rule("L-14")
async def test_a_denied_call_is_reported_to_the_model_or_cancels_the_run(shelf, autojump_clock):
    ask, _ = asking("raised")
    goes_on = agent(call("ask", id="c1"), "done", tools=[ask], key="goes_on")
    ends = agent(call("ask", id="c1"), "done", tools=[ask], key="ends", on_deny="cancel_run")
    async with home(shelf, agents=[goes_on, ends]) as runtime:
        first = await runtime.start(goes_on, "hi")
        await first.decide((await first.wait()).tickets[0].deny("not today", by="ada"))
        assert (await first.result()).output == "done"
        assert (await first.view()).calls == {"c1": "cancelled"}
        second = await runtime.start(ends, "hi")
        await second.decide((await second.wait()).tickets[0].deny("no", by="ada"))
        assert await second.result() == gr.Cancelled(reason="no", by="ada", code="approval_rejected")
    assert "not today" in seen_by_model(goes_on)[0]


@pytest.mark.parametrize("what", ["deny", "cancel_run", "result"])
async def test_a_ticket_without_a_decision_expires_as_it_says(shelf, autojump_clock, what):
    ask, seen = asking("raised", expires_after=60, on_expiry=gr.SetResult("default") if what == "result" else what)
    helper = agent(call("ask", id="c1"), "done", tools=[ask])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        (ticket,) = (await run.wait()).tickets
        assert ticket.expires_at is not None
        began = trio.current_time()
        outcome = await run.result()
        assert 55 < trio.current_time() - began < 70
        late = await run.decide(ticket.approve())
        (resolved,) = payloads(await events_of(run), "approval.resolved")
    assert resolved["resolution"] == "expired"
    assert late.status == "rejected"
    assert len(seen) == 1
    if what == "cancel_run":
        assert isinstance(outcome, gr.Cancelled)
        assert outcome.code == "approval_rejected"
    else:
        assert outcome.output == "done"
        (message,) = seen_by_model(helper)
        assert message == "default" if what == "result" else "expired" in message


async def test_a_decision_before_the_expiry_wins(shelf, autojump_clock):
    ask, _ = asking("raised", expires_after=60)
    helper = agent(call("ask", id="c1"), "done", tools=[ask])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        await run.wait()
        await trio.sleep(59)
        assert (await run.decide("c1", "resume", result="just in time")).ok
        assert (await run.result()).output == "done"
        await trio.sleep(100)
    assert "just in time" in seen_by_model(helper)[0]


async def test_waiting_is_outside_of_the_active_time(shelf, autojump_clock):
    ask, _ = asking("raised")
    helper = agent(call("ask", id="c1"), call("ask", id="c2"), "done", tools=[ask], stop=[gr.stop.Timeout(50)])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        for call_id in ("c1", "c2"):
            await run.wait()
            await trio.sleep(1000)
            await run.decide(call_id, "resume", result="x")
        assert (await run.result()).output == "done"
        (completed,) = payloads(await events_of(run), "completed")
    assert completed["activeSeconds"] < 1


async def test_only_named_reviewers_may_decide(shelf, autojump_clock):
    ask, _ = asking("raised", reviewers=("ada",))
    helper = agent(call("ask", id="c1"), "done", tools=[ask])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        await run.wait()
        assert (await run.decide("c1", "resume", by="bob")).code == "not_allowed"
        assert (await run.decide("c1", "resume")).code == "not_allowed"
        assert (await run.decide("c1", "resume", by="ada", result="x")).ok
        assert (await run.result()).output == "done"


async def test_the_three_modes_of_text_next_to_a_call_never_end_the_run(shelf, autojump_clock):
    ask, _ = asking("raised")
    helper = agent([text("I shall ask."), call("ask", id="c1")], "the end", tools=[ask])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        assert isinstance(await run.wait(), gr.Waiting)
        await run.decide("c1", "resume", result="x")
        assert (await run.result()).output == "the end"


# --- decisions -------------------------------------------------------------------------------------------------------


async def test_the_same_decision_twice_has_one_effect_and_one_answer(shelf, autojump_clock):
    ask, seen = asking("raised")
    helper = agent(call("ask", id="c1"), "done", tools=[ask])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        await run.wait()
        answers = [await run.decide("c1", "resume", result="x", decision_id="d1") for _ in range(3)]
        await run.result()
        answers.append(await run.decide("c1", "resume", result="x", decision_id="d1"))
        other = await run.decide("c1", "cancel", decision_id="d1")
    assert [answer.status for answer in answers] == ["accepted", "duplicate", "duplicate", "duplicate"]
    assert other.code == "decision_id_conflict"
    assert len(seen) == 2


async def test_decide_all_gives_each_decision_its_own_answer(shelf, autojump_clock):
    ask, _ = asking("raised")
    calls = [call("ask", id=f"c{n}") for n in range(3)]
    helper = agent(calls, "done", tools=[ask], execution="parallel_streaming")
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        tickets = (await run.wait()).tickets
        answers = await run.decide_all(
            [
                tickets[0].approve("a"),
                gr.Decision(target="nothing", action="resume"),
                tickets[1].deny(),
                tickets[2].approve(),
            ]
        )
        await run.result()
        view = await run.view()
    assert [(answer.status, answer.code) for answer in answers] == [
        ("accepted", None),
        ("rejected", "unknown_target"),
        ("accepted", None),
        ("accepted", None),
    ]
    assert view.calls == {"c0": "succeeded", "c1": "cancelled", "c2": "succeeded"}


async def test_a_decision_by_call_id_may_come_before_the_ticket(shelf, autojump_clock):
    @gr.tool
    async def slow(ctx: gr.ToolContext) -> str:
        if ctx.decision is None:
            await trio.sleep(10)
            raise gr.Suspend(message="?")
        return f"told {ctx.decision.result}"

    helper = agent(call("slow", id="c1"), "done", tools=[slow])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        await trio.sleep(1)
        answer = await run.decide("c1", "resume", result="early bird")
        assert (answer.status, answer.code) == ("accepted", "early")
        assert (await run.wait()).output == "done"
    assert seen_by_model(helper) == ["told early bird"]


async def test_an_early_decision_that_is_not_used_is_recorded(shelf, autojump_clock):
    @gr.tool
    async def slow() -> str:
        await trio.sleep(10)
        return "needed nobody"

    helper = agent(call("slow", id="c1"), "done", tools=[slow])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        await trio.sleep(1)
        assert (await run.decide("c1", "resume")).code == "early"
        await run.result()
        (refused,) = payloads(await events_of(run), "decision.refused")
    assert (refused["target"], refused["code"]) == ("c1", "unused")


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


async def test_tool_use_may_make_a_tools_result_the_output(shelf, autojump_clock):
    @gr.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @gr.tool
    async def look() -> str:
        return "seen"

    first = agent(call("add", a=1, b=2, id="c1"), tools=[add], key="first", tool_use="stop_on_first_tool")
    named = agent(
        call("look", id="c1"),
        call("add", a=1, b=2, id="c2"),
        tools=[add, look],
        key="named",
        tool_use=gr.stop_at_tools("add"),
    )
    async with home(shelf, agents=[first, named]) as runtime:
        for helper in (first, named):
            outcome = await (await runtime.start(helper, "hi")).result()
            assert isinstance(outcome, gr.Completed)
            assert outcome.output == 3
            assert outcome.termination.kind == "natural_end"
            helper.model.assert_complete()


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
