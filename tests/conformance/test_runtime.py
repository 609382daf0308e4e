"""The facade's runs: starting, finding, following, seeing, forking and joining them, as the facade's page says."""

from datetime import UTC, datetime, timedelta

import attrs
import pytest
import trio

import greenroom as gr
from greenroom.testing import ScriptedModel, call, delay, text

from ..support.runs import agent, events_of, home, payloads, types


@gr.tool
async def add(a: int, b: int) -> int:
    return a + b


@gr.tool(needs_approval=True, effect="write")
async def refund(ctx: gr.ToolContext, order: str, cents: int) -> str:
    return f"refunded {cents} for {order}"


# --- start -----------------------------------------------------------------------------------------------------------


async def test_a_run_goes_from_start_to_completed(shelf, autojump_clock):
    helper = agent([text("adding"), call("add", a=1, b=2, id="c1")], "3", tools=[add])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "1 + 2?")
        outcome = await run.result()
        view = await run.view()
    assert isinstance(outcome, gr.Completed)
    assert outcome.output == "3"
    assert outcome.termination.kind == "natural_end"
    assert outcome.usage == view.usage
    assert outcome.usage.requests == 2
    assert [message.role for message in view.messages] == ["user", "assistant", "tool", "assistant"]
    assert [message.content for message in view.messages] == ["1 + 2?", "adding", "3", "3"]
    helper.model.assert_complete()


async def test_an_agent_can_be_started_by_its_key(shelf, autojump_clock):
    async with home(shelf, agents=[agent("hello", key="support")]) as runtime:
        run = await runtime.start("support", "hi")
        assert (await run.result()).output == "hello"


async def test_an_agent_that_the_runtime_does_not_know_yet_can_be_started(shelf, autojump_clock):
    async with home(shelf) as runtime:
        first = await runtime.start(agent("hello", key="support"), "hi")
        assert (await first.result()).output == "hello"
        again = await runtime.start("support", "hi")
        assert (await again.result()).output == "hello"


async def test_an_equal_agent_is_used_as_it_was_given(shelf, autojump_clock):
    known, equal = agent("known"), agent("equal")
    async with home(shelf, agents=[known]) as runtime:
        assert (await (await runtime.start(equal, "hi")).result()).output == "equal"
        assert (await (await runtime.start("helper", "hi")).result()).output == "known"


async def test_another_agent_under_a_known_key_is_refused(shelf, autojump_clock):
    known, other = agent("known"), agent("other", instructions="something else")
    async with home(shelf, agents=[known]) as runtime:
        with pytest.raises(gr.UsageError, match="'helper'"):
            await runtime.start(other, "hi")
        run = await runtime.start(known, "hi")
        assert (await run.result()).output == "known"


async def test_start_returns_when_the_creation_is_durable(shelf, autojump_clock):
    async with home(shelf) as runtime:
        run = await runtime.start(agent(), "hi", run_id="r1")
        record = await runtime.store.load("r1")
        (first, *_) = await runtime.store.events("r1")
    assert record is not None
    assert b'"run.created"' in first
    assert run.id == "r1"


@pytest.mark.rule("L-95")
async def test_the_run_id_makes_start_idempotent(shelf, autojump_clock):
    helper = agent("done")
    async with home(shelf, agents=[helper]) as runtime:
        options = {"run_id": "r1", "session_id": "s", "by": "ada", "workspace": "w", "thread_id": "t"}
        first = await runtime.start(helper, "hi", **options)
        second = await runtime.start(helper, "hi", **options)
        assert first == second
        await first.result()
        third = await runtime.start("helper", "hi", **options)
        assert third == first
        assert (await third.result()).output == "done"
        assert len((await runtime.runs()).runs) == 1
    assert len(helper.model.requests) == 1


async def test_two_tasks_that_start_the_same_run_get_one_run(shelf, autojump_clock):
    helper = agent("done")
    runs = []

    async def starter():
        runs.append(await runtime.start(helper, "hi", run_id="r1"))

    async with home(shelf, agents=[helper]) as runtime:
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(starter)
        await runs[0].result()
    assert set(runs) == {runs[0]}
    assert len(helper.model.requests) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"text": "bye"},
        {"session_id": "s2"},
        {"by": "bob"},
        {"workspace": "elsewhere"},
        {"thread_id": "t2"},
        {"execution": "parallel_streaming"},
        {"deadline": datetime(2100, 1, 1, tzinfo=UTC)},
    ],
    ids=lambda other: next(iter(other)),
)
async def test_a_taken_run_id_with_other_content_is_run_exists(shelf, autojump_clock, other):
    helper = agent("done")
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi", run_id="r1")
        options = {"text": "hi", **other}
        with pytest.raises(gr.RunExists, match="'r1'"):
            await runtime.start(helper, options.pop("text"), run_id="r1", **options)
        assert (await run.result()).output == "done"


@pytest.mark.rule("L-95")
async def test_a_run_id_is_still_taken_after_a_restart(shelf, autojump_clock):
    helper = agent("done")
    async with home(shelf, agents=[helper]) as runtime:
        await (await runtime.start(helper, "hi", run_id="r1")).result()
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi", run_id="r1")
        assert (await run.result()).output == "done"
        with pytest.raises(gr.RunExists):
            await runtime.start(helper, "other", run_id="r1")
    assert len(helper.model.requests) == 1


async def test_start_records_who_asked_and_where(shelf, autojump_clock):
    helper = agent("done")
    deadline = datetime.now(UTC) + timedelta(days=1)
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(
            helper, "hi", session_id="s1", by="ada", workspace="/srv/shop", thread_id="t1", deadline=deadline
        )
        events = await events_of(run)
        view = await run.view()
    created = events[0].payload
    assert (created["by"], created["workspace"], created["threadId"], created["input"]) == (
        "ada",
        "shop",  # the folder's name: where it is on this machine is nothing for a log that others read
        "t1",
        "hi",
    )
    assert created["deadline"].startswith(deadline.strftime("%Y-%m-%dT%H:%M:%S"))
    assert {event.session_id for event in events} == {"s1"}
    assert {event.agent_id for event in events} == {"helper"}
    assert (view.by, view.thread_id, view.agent) == ("ada", "t1", "helper")


async def test_a_run_without_names_gets_fresh_ones(shelf, autojump_clock):
    helper = agent("done")
    async with home(shelf, agents=[helper]) as runtime:
        first, second = await runtime.start(helper, "hi"), await runtime.start(helper, "hi")
        assert first.id != second.id
        assert first.thread_id != second.thread_id
        await runtime.join()


# --- deadline --------------------------------------------------------------------------------------------------------


async def test_a_deadline_ends_a_run_that_waits_for_a_slot(shelf, autojump_clock):
    busy, late = agent([delay(100), "done"]), agent("late", key="late")
    async with home(shelf, agents=[busy, late], max_running=1) as runtime:
        first = await runtime.start(busy, "hi")
        second = await runtime.start(late, "hi", deadline=datetime.now(UTC) + timedelta(seconds=10))
        outcome = await second.result()
        assert isinstance(outcome, gr.Failed)
        assert outcome.code == "run_timeout"
        assert trio.current_time() < 50
        assert (await first.result()).output == "done"
    assert late.model.requests == ()


async def test_a_deadline_that_has_passed_ends_the_run_at_once(shelf, autojump_clock):
    helper = agent([delay(5), "done"])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi", deadline=datetime.now(UTC) - timedelta(seconds=10))
        outcome = await run.result()
        assert trio.current_time() < 1
    assert isinstance(outcome, gr.Failed)
    assert outcome.code == "run_timeout"


# --- events ----------------------------------------------------------------------------------------------------------


async def test_events_are_numbered_from_one_without_gaps_and_carry_the_envelope(shelf, autojump_clock):
    helper = agent([text("adding"), call("add", a=1, b=2, id="c1")], "3", tools=[add])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi", run_id="r1")
        events = await events_of(run)
        view = await run.view()
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert [event.id for event in events] == [f"r1-{event.sequence}" for event in events]
    assert {event.run_id for event in events} == {"r1"}
    assert all(event.timestamp.tzinfo is not None for event in events)
    assert events == sorted(events, key=lambda event: event.timestamp)
    assert events[-1].type == "run.completed"
    assert view.last_sequence == len(events) == events[-1].payload["lastSequence"]
    assert types(events)[:5] == ["created", "planned", "accepted", "preparing", "started"]
    assert len(payloads(events, "completed", "failed", "cancelled")) == 1


async def test_events_after_a_sequence_are_the_rest(shelf, autojump_clock):
    helper = agent("done")
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        everything = await events_of(run)
        for after in range(len(everything) + 2):
            assert await events_of(run, after=after) == everything[after:]


async def test_events_until_rest_end_when_the_run_waits_and_can_be_followed_on(shelf, autojump_clock):
    helper = agent(call("refund", order="7", cents=5, id="c1"), "done", tools=[refund])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        first = await events_of(run, until="rest")
        assert first[-1].type == "run.waiting"
        outcome = await run.wait()
        await run.decide(outcome.tickets[0].approve())
        rest = await events_of(run, until="rest", after=first[-1].sequence)
        assert rest[-1].type == "run.completed"
        assert await events_of(run) == first + rest


async def test_events_until_rest_after_a_decision_do_not_end_at_the_old_rest(shelf, autojump_clock):
    helper = agent(call("refund", order="7", cents=5, id="c1"), "done", tools=[refund])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        outcome = await run.wait()
        await run.decide(outcome.tickets[0].approve())
        assert (await events_of(run, until="rest"))[-1].type == "run.completed"


@pytest.mark.slow
async def test_more_events_than_a_page_come_all_and_in_order(shelf, autojump_clock):
    helper = gr.Agent("helper", model=ScriptedModel(["word " * 1200], chunk=5))
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        await run.result()
        events = await events_of(run)
    assert len(events) > 500
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))


# --- wait, result, outcomes ------------------------------------------------------------------------------------------


async def test_wait_returns_at_rest_and_result_only_at_the_end(shelf, autojump_clock):
    helper = agent(call("refund", order="7", cents=5, id="c1"), "done", tools=[refund])
    finals = []

    async def hear_the_end():
        finals.append(await run.result())

    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hear_the_end)
            outcome = await run.wait()
            assert isinstance(outcome, gr.Waiting)
            assert outcome == await run.wait()
            await trio.sleep(1000)
            assert finals == []
            await run.decide(outcome.tickets[0].approve())
            assert (await run.wait()).output == "done"
        assert finals[0].output == "done"


@pytest.mark.rule("L-4")
async def test_nothing_of_a_run_is_alive_when_result_returns(shelf, autojump_clock):
    ended = []

    @gr.tool
    async def slow() -> str:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(2)
            ended.append(True)

    helper = agent(call("slow", id="c1"), "done", tools=[slow])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        await trio.sleep(1)
        await run.cancel()
        await run.result()
        assert ended == [True]


async def test_a_typed_output_is_an_object_of_its_type_also_after_a_restart(shelf, autojump_clock):
    @attrs.frozen
    class Report:
        title: str
        pages: int = 1

    helper = agent('{"title": "Q3"}', output_type=Report)
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi", run_id="r1")
        assert (await run.result()).output == Report("Q3")
        assert payloads(await events_of(run), "completed")[0]["output"] == {"title": "Q3", "pages": 1}
    async with home(shelf, agents=[helper]) as runtime:
        assert (await (await runtime.get("r1")).result()).output == Report("Q3")


async def test_gr_run_runs_an_agent_once(autojump_clock):
    seen = []

    @gr.tool
    async def peek(ctx: gr.ToolContext[dict]) -> str:
        seen.append(ctx.deps)
        return "ok"

    outcome = await gr.run(agent(call("peek", id="c1"), "done", tools=[peek]), "hi", deps={"key": 1})
    assert isinstance(outcome, gr.Completed)
    assert outcome.output == "done"
    assert seen == [{"key": 1}]


async def test_gr_run_returns_every_kind_of_outcome(autojump_clock):
    waiting = await gr.run(agent(call("refund", order="7", cents=5, id="c1"), tools=[refund]), "hi")
    assert isinstance(waiting, gr.Waiting)
    assert waiting.tickets[0].tool == "refund"
    failed = await gr.run(agent(call("nothing", id="c1"), on_unknown_tool="raise"), "hi")
    assert isinstance(failed, gr.Failed)
    stopped = await gr.run(agent(call("add", a=1, b=1, id="c1"), tools=[add], stop=[gr.stop.MaxRounds(1)]), "hi")
    assert isinstance(stopped, gr.Stopped)
    assert isinstance(stopped, gr.Completed)


async def test_gr_run_can_be_cancelled_from_outside_quickly(autojump_clock):
    began = trio.current_time()
    with trio.move_on_after(5) as scope:
        await gr.run(agent([delay(1000), "late"]), "hi")
    assert scope.cancelled_caught
    assert trio.current_time() - began < 6


# --- view ------------------------------------------------------------------------------------------------------------


async def test_a_view_of_a_waiting_run_shows_all_that_the_page_promises(shelf, autojump_clock):
    script = ([text("both"), call("add", a=1, b=2, id="c1"), call("refund", order="7", cents=5, id="c2")], "done")
    helper = agent(*script, tools=[add, refund])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        outcome = await run.wait()
        view = await run.view()
        events = await events_of(run, until="rest")
    assert (view.stage, view.status, view.termination) == ("needs_approval", "waiting", None)
    assert view.calls == {"c1": "succeeded", "c2": "suspended"}
    assert view.tickets == outcome.tickets
    assert (view.step, view.last_sequence, view.pending, view.degraded) == (1, len(events), 0, None)
    assert view.usage.requests == 1
    assert view.state == {}
    assert [message.role for message in view.messages] == ["user", "assistant", "tool"]
    assert view.messages[-1].call_id == "c1"
    assert [request.call_id for request in view.messages[1].calls] == ["c1", "c2"]


async def test_a_view_of_a_finished_run_holds_the_calls_of_all_steps_in_order(shelf, autojump_clock):
    calls = [call("add", a=1, b=2, id="x"), call("add", a=1, b=2, id="a"), call("add", a=1, b=2, id="m")]
    helper = agent(*calls, "done", tools=[add])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        await run.result()
        view = await run.view()
    assert list(view.calls) == ["x", "a", "m"]
    assert view.termination is not None
    assert (view.stage, view.status, view.step) == ("completed", "done", 4)


# --- get, runs -------------------------------------------------------------------------------------------------------


async def test_get_gives_the_address_that_start_gave(shelf, autojump_clock):
    helper = agent("done")
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi", thread_id="t1")
        assert await runtime.get(run.id) == run
        await run.result()


async def test_runs_are_listed_newest_first_by_status_agent_and_thread(shelf, autojump_clock):
    done, waits = agent("done"), agent(call("refund", order="7", cents=5, id="c1"), key="waits", tools=[refund])
    async with home(shelf, agents=[done, waits]) as runtime:
        for number in range(3):
            await (await runtime.start(done, "hi", run_id=f"d{number}", thread_id=f"t{number}")).result()
        await (await runtime.start(waits, "hi", run_id="w")).wait()

        async def ids(**query):
            return [summary.info.run_id for summary in (await runtime.runs(**query)).runs]

        assert await ids() == ["w", "d2", "d1", "d0"]
        assert await ids(status="waiting") == ["w"]
        assert await ids(status=gr.RunStatus.DONE) == ["d2", "d1", "d0"]
        assert await ids(agent="waits") == ["w"]
        assert await ids(thread_id="t1") == ["d1"]
        assert await ids(status="running") == []


async def test_pages_of_runs_hold_each_run_once(shelf, autojump_clock):
    helper = agent("done")
    async with home(shelf, agents=[helper]) as runtime:
        names = [f"r{number}" for number in range(7)]
        for name in names:
            await runtime.start(helper, "hi", run_id=name)
        await runtime.join()
        seen, cursor = [], None
        while True:
            page = await runtime.runs(limit=3, cursor=cursor)
            seen += [summary.info.run_id for summary in page.runs]
            cursor = page.cursor
            if cursor is None:
                break
    assert seen == names[::-1]


# --- join ------------------------------------------------------------------------------------------------------------


async def test_join_waits_until_no_run_is_running(shelf, autojump_clock):
    slow = agent([delay(10), "done"], key="slow")
    waits = agent(call("refund", order="7", cents=5, id="c1"), key="waits", tools=[refund])
    async with home(shelf, agents=[slow, waits]) as runtime:
        await runtime.join()
        first, second = await runtime.start(slow, "hi"), await runtime.start(waits, "hi")
        await runtime.join()
        assert trio.current_time() >= 10
        assert (await first.view()).status == "done"
        assert (await second.view()).status == "waiting"


async def test_join_does_not_wait_for_runs_that_waited_already_at_the_start(shelf, autojump_clock):
    waits = agent(call("refund", order="7", cents=5, id="c1"), "done", tools=[refund])
    async with home(shelf, agents=[waits]) as runtime:
        await (await runtime.start(waits, "hi", run_id="r1")).wait()
    async with home(shelf, agents=[waits]) as runtime:
        await runtime.join()
        run = await runtime.get("r1")
        assert isinstance(await run.wait(), gr.Waiting)
        await run.decide("c1", "resume")
        await runtime.join()
        assert (await run.view()).status == "done"


async def test_join_waits_for_what_an_accepted_decision_leads_to(tmp_path):
    """In real time, with a store that writes in a thread: the decision acts a moment after it was accepted."""
    helper = agent(call("refund", order="7", cents=5, id="c1"), "done", tools=[refund])
    async with gr.open_runtime(tmp_path / "runs.db", agents=[helper]) as runtime:
        for _ in range(5):
            run = await runtime.start(helper, "hi")
            await run.wait()
            await run.decide("c1", "resume")
            await runtime.join()
            assert (await run.view()).status == "done"


# --- fork ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [0, 1, 2])
async def test_a_fork_has_exactly_the_history_up_to_its_step(shelf, autojump_clock, step):
    model = ScriptedModel([call("add", a=1, b=2, id="c1"), "first"])
    helper = gr.Agent("helper", model=model, tools=[add])
    async with home(shelf, agents=[helper]) as runtime:
        first = await runtime.start(helper, "one", run_id="r1", thread_id="t")
        await first.result()
        second = await runtime.start(helper, "two", run_id="r2", thread_id="t")
        await second.result()
        await (await runtime.fork("r1", step=step, new_run_id="f1")).result()
        await (await runtime.fork("r2", step=step, new_run_id="f2")).result()
        whole = (await second.view()).messages
    asked = {request.run_id: request.messages for request in reversed(model.requests)}
    lengths = {0: 1, 1: 3, 2: 4}
    assert asked["f1"] == whole[: lengths[step]]
    assert asked["f2"] == whole[: 4 + lengths[step]]


async def test_a_fork_of_a_fork_keeps_input_and_history(shelf, autojump_clock):
    helper = agent(call("add", a=1, b=2, id="c1"), "done", tools=[add])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        await run.result()
        child = await runtime.fork(run.id, step=1)
        await child.result()
        grandchild = await runtime.fork(child.id, step=0)
        await grandchild.result()
        events = await events_of(grandchild)
        messages = (await grandchild.view()).messages
    assert events[0].payload["input"] == "hi"
    assert [message.role for message in messages[:3]] == ["user", "assistant", "tool"]


@pytest.mark.parametrize("thread_id", [None, "t"])
async def test_a_fork_of_a_run_that_has_not_begun_is_asked_the_same(shelf, autojump_clock, thread_id):
    """It waits for its slot or for its thread; its input is in the row, and not in the thread yet."""
    helper, busy = agent("done"), agent([delay(50), "x"], key="busy")
    async with home(shelf, agents=[helper, busy], max_running=None if thread_id else 1) as runtime:
        await runtime.start(busy, "first", thread_id=thread_id)
        run = await runtime.start(helper, "my question", run_id="r", thread_id=thread_id)
        await run.send("and this")
        fork = await runtime.fork("r", step=0, new_run_id="f")
        assert [await one.result() for one in (run, fork)]
        asked = [message.content for message in (await fork.view()).messages if message.content != "first"]
        assert asked == ["my question", "and this", "done"]
        assert (await runtime.replay("f")).equal


async def test_a_fork_under_a_new_id_is_idempotent(shelf, autojump_clock):
    helper = agent("done")
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        await run.result()
        first = await runtime.fork(run.id, step=0, new_run_id="f")
        assert await runtime.fork(run.id, step=0, new_run_id="f") == first
        with pytest.raises(gr.RunExists):
            await runtime.fork(run.id, step=1, new_run_id="f")
        await runtime.join()


# --- cancel ----------------------------------------------------------------------------------------------------------


async def test_who_does_not_say_who_they_are_is_local_in_every_event(shelf, autojump_clock):
    @gr.tool(needs_approval=True)
    async def act() -> str:
        return "acted"

    helper = agent(call("act", id="c1"), delay(100), "done", tools=[act])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        await run.wait()
        assert (await run.decide("c1", "resume")).ok
        await trio.sleep(1)
        assert (await run.send("more")).ok
        assert (await run.cancel()).ok
        outcome = await run.result()
        events = await events_of(run)
    assert outcome == gr.Cancelled(reason=None, by="local")
    for name in ("created", "approval.resolved", "input.received", "cancel.requested", "cancelled"):
        assert [payload["by"] for payload in payloads(events, name)] == ["local"], name


@pytest.mark.rule("L-103")
async def test_a_fork_names_who_asked_for_it_and_not_who_started_its_parent(shelf, autojump_clock):
    helper = agent("one", "two", "three")
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi", run_id="r", by="ann")
        await run.result()
        mine = await runtime.fork("r", step=0, new_run_id="f", by="bob")
        assert (await mine.view()).by == "bob"
        assert (await (await runtime.fork("r", step=0)).view()).by == "local"
        assert await runtime.fork("r", step=0, new_run_id="f", by="bob") == mine
        with pytest.raises(gr.RunExists):
            await runtime.fork("r", step=0, new_run_id="f", by="eve")
        with pytest.raises(gr.UsageError, match="by=3: give a str"):
            await runtime.fork("r", step=0, by=3)  # type: ignore[arg-type]
