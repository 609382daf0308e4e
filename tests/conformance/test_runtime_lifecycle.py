"""The life of a runtime: leaving and reopening, errors on the way, stores that fail, runs without an owner."""

# ruff: noqa: PT012 - what a block raises at its end is the point here

import os
from datetime import UTC, datetime
from functools import partial

import attrs
import pytest
import trio

import greenroom as gr
from greenroom.actors.services.clock import Clock
from greenroom.testing import FunctionModel, call, delay, text

from ..support.runs import Outages, agent, events_of, home, payloads, types
from ..support.stray_cancels import foreign_cancellation, to_its_end


@gr.tool(needs_approval=True)
async def ask() -> str:
    return "asked"


class Boom(Exception):
    """What a test's body raises."""


# --- leaving ---------------------------------------------------------------------------------------------------------


async def test_leaving_with_nothing_to_do_takes_no_time(shelf, autojump_clock):
    waits = agent(call("ask", id="c1"), "done", tools=[ask], key="waits")
    async with home(shelf, agents=[waits]) as runtime:
        await (await runtime.start(agent(), "hi")).result()
        await (await runtime.start(waits, "hi")).wait()
        began = trio.current_time()
    assert trio.current_time() - began < 0.1


@pytest.mark.rule("L-84")
async def test_leaving_stops_a_running_run_without_a_terminal_event_and_a_new_runtime_continues(shelf, autojump_clock):
    helper = agent([text("so"), delay(60), text("long")])
    async with home(shelf, agents=[helper]) as runtime:
        await runtime.start(helper, "hi", run_id="r1")
        await trio.sleep(1)
        began = trio.current_time()
    assert 4.9 < trio.current_time() - began < 5.5  # the drain
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.get("r1")
        assert (await run.result()).output == "long"
        events = await events_of(run)
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert len(payloads(events, "completed", "failed", "cancelled")) == 1
    (retried,) = payloads(events, "inference.retried")
    assert retried["code"] == "interrupted"


@pytest.mark.rule("L-84")
async def test_a_run_that_ends_within_the_drain_is_completed(shelf, autojump_clock):
    @gr.tool
    async def slow() -> str:
        await trio.sleep(3)
        return "finished"

    helper = agent(call("slow", id="c1"), "done", tools=[slow])
    async with home(shelf, agents=[helper]) as runtime:
        await runtime.start(helper, "hi", run_id="r1")
        await trio.sleep(1)
    assert trio.current_time() < 4  # the call's end is a durable point, and no new request is made
    assert len(helper.model.requests) == 1
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.get("r1")
        assert (await run.result()).output == "done"
        assert payloads(await events_of(run), "tool.result")[0]["result"] == "finished"


async def test_a_run_that_is_stored_while_the_runtime_drains_begins_nothing(autojump_clock):
    """It was asked for in time, so it exists; but a body would only begin to be cut."""

    started, store = [], Slow()

    @gr.tool
    async def work() -> str:
        started.append(trio.current_time())
        await trio.sleep(100)
        return "worked"

    helper = agent(call("work", id="c1"), "done", tools=[work])
    async with trio.open_nursery() as nursery:
        async with home(store, agents=[helper, agent([delay(100), "late"], key="busy")]) as runtime:
            await runtime.start("busy", "hi")
            await trio.sleep(1)
            store.slow = "start"
            nursery.start_soon(partial(runtime.start, helper, "hi", run_id="r1"))  # noqa: ASYNC111 - it is what is tested
            await trio.sleep(0.5)
    assert not started
    assert not helper.model.requests
    async with home(store, agents=[helper]) as runtime:
        assert (await (await runtime.get("r1")).result()).output == "done"
    assert len(started) == 1


async def test_an_approved_body_gets_the_drain_too(shelf, autojump_clock):
    """A call that was parked keeps its mailbox while its body runs: it works nevertheless, and is waited for."""

    @gr.tool(needs_approval=True)
    async def slow() -> str:
        await trio.sleep(3)
        return "finished"

    helper = agent(call("slow", id="c1"), "done", tools=[slow])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi", run_id="r1")
        await run.wait()
        await run.decide("c1", "resume")
        await trio.sleep(1)
    assert 2.9 < trio.current_time() < 4
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.get("r1")
        assert (await run.result()).output == "done"
        assert payloads(await events_of(run), "tool.result")[0]["result"] == "finished"


async def test_a_body_that_does_not_end_within_the_drain_is_a_question_at_the_next_start(shelf, autojump_clock):
    ran = []

    @gr.tool
    async def slow() -> str:
        ran.append(True)
        await trio.sleep(60)
        return "finished"

    helper = agent(call("slow", id="c1"), "done", tools=[slow])
    async with home(shelf, agents=[helper]) as runtime:
        await runtime.start(helper, "hi", run_id="r1")
        await trio.sleep(1)
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.get("r1")
        (ticket,) = (await run.wait()).tickets
        assert ticket.reason == "outcome_unknown"
        await run.decide(ticket.approve("I looked: it is finished"))
        assert (await run.result()).output == "done"
    assert ran == [True]
    assert helper.model.requests[-1].messages[-1].content == "I looked: it is finished"


async def test_runs_are_not_lost_over_many_restarts(shelf, autojump_clock):
    @gr.tool(replay="safe")
    async def slow(n: int) -> int:
        await trio.sleep(2)
        return n

    helper = agent(*[call("slow", n=n, id=f"c{n}") for n in range(5)], "done", tools=[slow])
    for start in range(12):
        async with home(shelf, agents=[helper], drain=0) as runtime:
            run = await (runtime.get("r1") if start else runtime.start(helper, "hi", run_id="r1"))
            with trio.move_on_after(3):
                await run.result()
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.get("r1")
        assert (await run.result()).output == "done"
        events = await events_of(run)
        assert [event.sequence for event in events] == list(range(1, len(events) + 1))
        assert (await run.view()).calls == {f"c{n}": "succeeded" for n in range(5)}


# --- errors of the body ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("busy", [False, True])
async def test_an_exception_of_the_body_leaves_as_the_same_object(shelf, autojump_clock, busy):
    helper, boom = agent([delay(1000), "late"]), Boom("bare")
    with pytest.raises(Boom) as caught:
        async with gr.open_runtime(shelf.open(), agents=[helper]) as runtime:
            if busy:
                await runtime.start(helper, "hi")
            raise boom
    assert caught.value is boom
    assert boom.__context__ is None


async def test_a_group_that_the_body_raises_leaves_as_the_same_object(shelf, autojump_clock):
    group = ExceptionGroup("mine", [Boom(), ValueError()])
    with pytest.raises(ExceptionGroup) as caught:  # noqa: ASYNC401 - the group's shape is what is tested
        async with gr.open_runtime(shelf.open()):
            raise group
    assert caught.value is group


async def test_an_exception_of_the_body_is_not_lost_when_a_cancel_cuts_the_drain_short(shelf, autojump_clock):
    helper, boom = agent([delay(1000), "late"]), Boom("bare")
    with pytest.raises(Boom) as caught, trio.move_on_after(2):
        async with gr.open_runtime(shelf.open(), agents=[helper], drain=5) as runtime:
            await runtime.start(helper, "hi")
            await trio.sleep(1)
            raise boom
    assert caught.value is boom
    assert trio.current_time() < 2.5


async def test_an_exception_out_of_events_leaves_bare(shelf, autojump_clock):
    helper, boom = agent([delay(1000), "late"]), Boom("bare")
    async with home(shelf, agents=[helper], drain=0) as runtime:
        run = await runtime.start(helper, "hi")
        with pytest.raises(Boom) as caught:
            async with run.events() as events:
                async for _ in events:
                    raise boom
    assert caught.value is boom


@pytest.mark.parametrize("where", ["sleeping", "nursery", "waiting", "following"])
async def test_a_cancel_from_outside_leaves_as_cancelled_and_quickly(shelf, autojump_clock, where):
    helper = agent([delay(100), "late"])

    async def body(runtime, run):
        match where:
            case "sleeping":
                await trio.sleep_forever()
            case "nursery":
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(trio.sleep_forever)
                    nursery.start_soon(run.result)
                    await trio.sleep_forever()
            case "waiting":
                await run.result()
            case "following":
                await events_of(run)

    left = []
    with trio.move_on_after(5) as scope:
        try:
            async with gr.open_runtime(shelf.open(), agents=[helper]) as runtime:
                run = await runtime.start(helper, "hi", run_id="r1")
                await body(runtime, run)
        except BaseException as error:
            left.append(error)
            raise
    assert scope.cancelled_caught
    assert trio.current_time() < 5.5
    assert isinstance(left[0], trio.Cancelled) or left[0].split(trio.Cancelled)[1] is None
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.get("r1")
        assert (await run.result()).output == "late"
        assert len(payloads(await events_of(run), "completed", "failed", "cancelled")) == 1


async def test_a_cancel_while_a_runtime_opens_is_just_a_cancel(shelf, autojump_clock):
    with trio.CancelScope() as scope:
        scope.cancel()
        async with gr.open_runtime(shelf.open()):
            await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    async with home(shelf) as runtime:
        assert (await runtime.runs()).runs == ()


# --- after the end ---------------------------------------------------------------------------------------------------


async def test_everything_after_the_end_says_that_the_runtime_is_closed(shelf, autojump_clock):
    helper = agent(call("ask", id="c1"), "done", tools=[ask])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi", run_id="r1")
        waiting = await run.wait()
    for attempt in (
        lambda: runtime.start(helper, "more"),
        lambda: runtime.fork("r1", step=0),
        lambda: runtime.resume("r1"),
        lambda: runtime.get("r1"),
        runtime.runs,
        run.wait,
        run.result,
        run.view,
        lambda: events_of(run),
    ):
        with pytest.raises(gr.RuntimeClosed, match="open it again"):
            await attempt()
    for command in (run.decide(waiting.tickets[0].approve()), run.cancel(), run.send("more")):
        answer = await command
        assert (answer.status, answer.code) == ("rejected", "store_unavailable")
        assert "open" in answer.detail
    async with home(shelf, agents=[helper]) as runtime:
        assert await (await runtime.get("r1")).wait() == waiting


async def test_followers_and_waiters_in_other_tasks_learn_that_the_runtime_closes(shelf, autojump_clock):
    helper = agent(call("ask", id="c1"), tools=[ask])
    received = []

    async def listen(what):
        try:
            await what()
        except gr.RuntimeClosed as error:
            received.append(error)

    async with trio.open_nursery() as nursery:
        async with home(shelf, agents=[helper]) as runtime:
            run = await runtime.start(helper, "hi")
            await run.wait()
            nursery.start_soon(listen, run.result)
            nursery.start_soon(listen, lambda: events_of(run))
            await trio.sleep(1)
    assert len(received) == 2


async def test_a_waiter_for_a_done_run_learns_what_it_came_to_also_if_the_block_is_left_at_once(shelf, autojump_clock):
    helper, received = agent([delay(1), "done"]), []

    async def wait_too(run):
        received.append((await run.result()).output)

    for number in range(10):  # trio draws lots who is woken first
        async with trio.open_nursery() as nursery, home(shelf, agents=[helper]) as runtime:
            run = await runtime.start("helper", "hi", run_id=f"r{number}")
            nursery.start_soon(wait_too, run)  # noqa: ASYNC111 - it may outlive the runtime
            await run.result()
    assert received == ["done"] * 10


async def test_a_follower_that_is_reading_when_the_runtime_closes_learns_so_too(shelf, autojump_clock):
    helper = agent(call("ask", id="c1"), tools=[ask])
    received = []

    async def look():
        try:
            while True:
                await run.view()
        except gr.RuntimeClosed as error:
            received.append(error)

    async with trio.open_nursery() as nursery:
        async with home(shelf, agents=[helper]) as runtime:
            run = await runtime.start(helper, "hi")
            await run.wait()
            for _ in range(20):
                nursery.start_soon(look)
            for _ in range(10):
                await trio.lowlevel.checkpoint()
    assert len(received) == 20


class Slow(gr.MemoryStore):
    """Takes a second for one of its methods."""

    slow = ""

    async def _pause(self, name: str) -> None:
        if self.slow == name:
            await trio.sleep(1)

    async def create_run(self, new, frame, **options):
        await self._pause("start")
        return await super().create_run(new, frame, **options)

    async def load(self, run_id, *, calls="step"):
        await self._pause("load")
        return await super().load(run_id, calls=calls)

    async def outline(self, run_id):
        await self._pause("load")
        return await super().outline(run_id)

    async def messages(self, thread_id):
        await self._pause("messages")
        return await super().messages(thread_id)

    async def state_at(self, run_id, step):
        await self._pause("state_at")
        return await super().state_at(run_id, step)


@pytest.mark.parametrize("call_of", ["start", "load", "messages", "state_at"])
async def test_a_start_or_fork_or_resume_that_the_end_overtakes_learns_that_the_runtime_is_closed(
    autojump_clock, call_of
):
    """The store is closed when its turn comes; that is how the runtime closes, not what it says."""

    async def hear(attempt):
        with pytest.raises(gr.RuntimeClosed, match="open it again"):
            await attempt()
        received.append(call_of)

    received, helper, store = [], agent("done"), Slow()
    async with trio.open_nursery() as nursery, home(store, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi", run_id="r1")
        await run.result()
        store.slow = call_of
        attempts = [lambda: runtime.fork("r1", step=0)]
        if call_of == "start":
            attempts = [lambda: runtime.start(helper, "more")]
        elif call_of == "load":
            attempts.append(lambda: runtime.resume("r1"))
        for attempt in attempts:
            nursery.start_soon(hear, attempt)  # noqa: ASYNC111 - it is what is tested
        await trio.sleep(0.5)
    assert len(received) == len(attempts)


async def test_join_learns_that_the_runtime_closes(shelf, autojump_clock):
    helper = agent([delay(1000), "late"])
    received = []

    async def joins():
        try:
            await runtime.join()
        except gr.RuntimeClosed as error:
            received.append(error)

    async with trio.open_nursery() as nursery:
        async with home(shelf, agents=[helper], drain=0) as runtime:
            await runtime.start(helper, "hi")
            nursery.start_soon(joins)
            await trio.sleep(1)
    assert len(received) == 1


# --- opening ---------------------------------------------------------------------------------------------------------


async def test_a_second_runtime_on_the_same_file_is_refused_and_the_first_continues(tmp_path):
    path = tmp_path / "runs.db"
    helper = agent("done")
    with trio.fail_after(120):
        async with gr.open_runtime(path, agents=[helper]) as runtime:
            with pytest.raises(gr.StoreOpenError, match=str(os.getpid())):
                async with gr.open_runtime(path):
                    pass
            assert (await (await runtime.start(helper, "hi")).result()).output == "done"


async def test_a_memory_store_serves_one_runtime_at_a_time(autojump_clock):
    store, helper = gr.MemoryStore(), agent("done")
    async with home(store, agents=[helper]) as runtime:
        with pytest.raises(gr.StoreOpenError, match="open already"):
            async with gr.open_runtime(store):
                pass
        assert (await (await runtime.start(helper, "hi")).result()).output == "done"


async def test_a_store_may_be_a_name_a_path_or_an_object(tmp_path):
    helper = agent("done")
    with trio.fail_after(120):
        for store in (None, str(tmp_path / "a.db"), tmp_path / "b.db", gr.SQLiteStore(tmp_path / "c.db")):
            async with gr.open_runtime(store=store, agents=[helper]) as runtime:
                assert (await (await runtime.start(helper, "hi")).result()).output == "done"
    assert (tmp_path / "a.db").exists()
    assert (tmp_path / "b.db").stat().st_mode & 0o777 == 0o600


# --- stores that fail ------------------------------------------------------------------------------------------------


async def test_a_store_that_fails_for_good_cancels_the_body_and_raises_runtime_failed_from_the_cause(
    shelf, autojump_clock
):
    outages, helper = Outages(), agent([delay(10), "done"], [delay(10), "done"])
    cause = OSError("the disk is gone")
    cancelled = []
    with pytest.raises(gr.RuntimeFailed, match="the disk is gone") as caught:
        async with gr.open_runtime(shelf.open(faults=outages, patience=20), agents=[helper]) as runtime:
            await runtime.start(helper, "hi", run_id="r1")
            outages.error = cause
            try:
                await trio.sleep(1000)
            except trio.Cancelled:
                cancelled.append(trio.current_time())
                raise
    assert cancelled
    assert 20 <= cancelled[0] < 60
    assert isinstance(caught.value.__cause__, gr.StoreDown)
    outages.error = None
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.get("r1")
        assert isinstance(await run.result(), gr.Completed)


@pytest.mark.parametrize("steps", range(8))
async def test_a_store_that_fails_while_the_runtime_opens_is_a_failure_of_the_runtime(autojump_clock, steps):
    """Whatever of the runtime was beginning at that moment: the store's own error is what is reported."""

    class Dies(gr.MemoryStore):
        async def run(self, hooks, *, task_status=trio.TASK_STATUS_IGNORED):
            async with trio.open_nursery() as nursery:
                await nursery.start(super().run, hooks)
                task_status.started()
                for _ in range(steps):
                    await trio.lowlevel.cancel_shielded_checkpoint()
                raise OSError("the disk is gone")

    with pytest.raises(gr.RuntimeFailed, match="the disk is gone") as caught:
        async with gr.open_runtime(Dies(), agents=[agent("done")]):
            await trio.sleep_forever()
    assert isinstance(caught.value.__cause__, OSError | ExceptionGroup)


@pytest.mark.parametrize("doing", ["result", "view", "events", "start"])
async def test_a_waiter_when_the_store_fails_for_good_learns_runtime_failed(shelf, autojump_clock, doing):
    outages, helper = Outages(), agent([delay(10), "done"])
    with trio.fail_after(1000), pytest.raises(gr.RuntimeFailed) as caught:
        async with gr.open_runtime(shelf.open(faults=outages, patience=5), agents=[helper]) as runtime:
            run = await runtime.start(helper, "hi", run_id="r1")
            outages.error = OSError("gone")
            match doing:
                case "result":
                    await run.result()
                case "events":
                    await events_of(run)
                case "view":
                    while True:
                        await run.view()
                        await trio.sleep(1)
                case "start":
                    while True:
                        with trio.move_on_after(0.5):
                            try:
                                await runtime.start(helper, "more")
                            except gr.StoreUnavailable:
                                await trio.sleep(1)
    assert caught.value.__cause__ is not None


async def test_while_the_store_does_not_answer_commands_are_refused_and_runs_stand_and_then_continue(
    shelf, autojump_clock
):
    outages = Outages()
    helper = agent([delay(10), "done"])
    waits = agent(call("ask", id="c1"), "done", tools=[ask], key="waits")
    async with home(shelf.open(faults=outages), agents=[helper, waits]) as runtime:
        waiting = await runtime.start(waits, "hi")
        ticket = (await waiting.wait()).tickets[0]
        run = await runtime.start(helper, "hi")
        await trio.sleep(1)
        outages.error = OSError("the disk is full")
        await trio.sleep(15)  # the run's answer meets the outage at second 10
        answers = [await waiting.decide(ticket.approve()), await run.cancel(), await run.send("more")]
        with pytest.raises(gr.StoreUnavailable, match="the disk is full"):
            await runtime.start(helper, "hi")
        assert (await run.view()).stage == "running"
        assert (await waiting.view()).stage == "needs_approval"
        outages.error = None
        await trio.sleep(5)
        assert (await run.result()).output == "done"
        assert (await waiting.decide(ticket.approve())).ok
        assert (await waiting.result()).output == "done"
        assert (await (await runtime.start(helper, "hi")).result()).output == "done"
    for answer in answers:
        assert (answer.status, answer.code) == ("rejected", "store_unavailable")
        assert "the disk is full" in answer.detail
    assert outages.hits > 1


async def test_a_command_that_meets_the_beginning_of_an_outage_is_answered_after_it(shelf, autojump_clock):
    outages = Outages()
    waits = agent(call("ask", id="c1"), "done", tools=[ask])
    async with home(shelf.open(faults=outages), agents=[waits]) as runtime:
        run = await runtime.start(waits, "hi")
        await run.wait()
        answers = []

        async def decide():
            answers.append(await run.decide("c1", "resume", decision_id="d1"))

        async with trio.open_nursery() as nursery:
            outages.error = OSError("busy")
            nursery.start_soon(decide)
            await trio.sleep(5)
            outages.error = None
        assert (await run.decide("c1", "resume", decision_id="d1")).ok
        assert (await run.result()).output == "done"
        assert len(payloads(await events_of(run), "approval.resolved")) == 1


# --- runs without an owner ------------------------------------------------------------------------------------


@gr.tool
async def look(ctx: gr.ToolContext) -> str:
    return f"saw {ctx.deps}"


async def test_deps_can_come_from_a_provider_sync_or_async(shelf, autojump_clock):
    def provider(info):
        return f"sync for {info.run_id}"

    async def later(info):
        await trio.sleep(1)
        return f"async for {info.run_id}"

    for name, source in (("r1", provider), ("r2", later)):
        helper = agent(call("look", id="c1"), "done", tools=[look])
        async with home(shelf, agents=[helper], deps=source) as runtime:
            await (await runtime.start(helper, "hi", run_id=name)).result()
        assert helper.model.requests[1].messages[-1].content.endswith(f"for {name}")


def missing(info):
    raise LookupError("nothing for it")


@pytest.mark.rule("L-87")
@pytest.mark.parametrize("deps", [None, missing], ids=["no provider", "LookupError"])
async def test_a_run_without_its_deps_stays_as_it_is_until_it_is_resumed_with_some(shelf, autojump_clock, deps):
    helper = agent([call("ask", id="c1"), call("look", id="c2")], "done", tools=[ask, look])
    other = agent("fine", key="other")
    async with home(shelf, agents=[helper]) as runtime:
        await (await runtime.start(helper, "hi", run_id="r1", deps="first")).wait()
    async with home(shelf, agents=[helper, other], deps=deps) as runtime:
        run = await runtime.get("r1")
        await runtime.join()
        view = await run.view()
        known = "deps_missing" if deps is None else None  # a provider is asked when there is something to do
        assert (view.degraded, view.stage) == (known, "needs_approval")
        assert isinstance(await run.wait(), gr.Waiting)
        answer = await run.decide("c1", "resume")
        assert answer.ok
        with pytest.raises(gr.RunDegradedError, match="deps_missing"):
            await run.wait()
        with pytest.raises(gr.RunDegradedError, match="resume"):
            await run.result()
        if deps is None:
            started = await runtime.start(other, "hi", deps="own")
            assert (await started.result()).output == "fine"
        same = await runtime.resume("r1", deps="second")
        assert same == run
        assert (await run.result()).output == "done"
        assert (await run.view()).degraded is None
    assert helper.model.requests[-1].messages[-1].content == "saw first"


@pytest.mark.parametrize("moment", ["at once", "while the provider is asked"])
async def test_a_run_whose_owner_is_still_looking_for_deps_takes_those_it_is_resumed_with(
    shelf, autojump_clock, moment
):
    async def provider(info):
        await trio.sleep(3)
        raise LookupError("nothing for it")

    helper = agent([delay(10), call("look", id="c1")], "done", tools=[look])
    async with home(shelf, agents=[helper], drain=0) as runtime:
        await runtime.start(helper, "hi", run_id="r1", deps="first")
        await trio.sleep(5)
    async with home(shelf, agents=[helper], deps=None if moment == "at once" else provider) as runtime:
        await trio.sleep(0 if moment == "at once" else 1)
        run = await runtime.resume("r1", deps="second")
        assert (await run.result()).output == "done"
        assert (await run.view()).degraded is None
    assert helper.model.requests[-1].messages[-1].content == "saw second"


async def test_a_run_that_has_its_deps_keeps_them_whatever_it_is_resumed_with(shelf, autojump_clock):
    """Also when its owner crashes later and begins again."""
    faults = [KeyError("a bug in the check")]

    def check(arguments):
        if faults:
            raise faults.pop()

    helper = agent([delay(10), call("look", id="c1")], "done", tools=[look])
    tools = {"look": attrs.evolve(helper.spec.tools["look"], check=check)}
    object.__setattr__(helper, "spec", attrs.evolve(helper.spec, tools=tools))
    async with home(shelf, agents=[helper]) as runtime:
        await runtime.start(helper, "hi", run_id="r1", deps="first")
        await trio.sleep(5)
        assert (await (await runtime.resume("r1", deps="second")).result()).output == "done"
    assert not faults
    assert helper.model.requests[-1].messages[-1].content == "saw first"


@pytest.mark.rule("L-87")
async def test_a_run_whose_agent_is_missing_is_degraded_and_continues_when_it_is_there(shelf, autojump_clock):
    helper, other = agent(call("ask", id="c1"), "done", tools=[ask]), agent("fine", key="other")
    async with home(shelf, agents=[helper]) as runtime:
        await (await runtime.start(helper, "hi", run_id="r1")).wait()
    async with home(shelf, agents=[other]) as runtime:
        run = await runtime.get("r1")
        await runtime.join()
        assert (await run.view()).degraded == "agent_unknown"
        with pytest.raises(gr.UnknownAgent, match="'helper'"):
            await runtime.resume("r1")
        for command in (run.decide("c1", "resume"), run.send("hello?")):
            assert (await command).ok
            assert (await run.view()).degraded == "agent_unknown"  # also while an owner looks what has come
        with pytest.raises(gr.RunDegradedError, match="agent_unknown"):
            await run.wait()
        assert (await run.view()).pending == 2
        assert (await (await runtime.start(other, "hi")).result()).output == "fine"
    async with home(shelf, agents=[helper]) as runtime:
        assert (await (await runtime.get("r1")).result()).output == "done"


@pytest.mark.rule("L-91")
@pytest.mark.parametrize("stage", ["needs_approval", "running", "planned"])
@pytest.mark.parametrize("decided", [False, True])
async def test_a_run_without_an_owner_can_be_cancelled(shelf, autojump_clock, stage, decided):
    steps = {"needs_approval": call("ask", id="c1"), "running": [delay(100), "x"], "planned": "x"}
    helper, busy = agent(steps[stage], "done", tools=[ask]), agent([delay(1000), "x"], key="busy")
    async with home(shelf, agents=[helper, busy], drain=0, max_running=1) as runtime:
        if stage == "planned":
            await runtime.start(busy, "hi")
        run = await runtime.start(helper, "hi", run_id="r1")
        await trio.sleep(1)
        assert (await run.view()).stage == stage
    async with home(shelf, agents=[busy], drain=0) as runtime:
        run = await runtime.get("r1")
        await trio.sleep(1)
        if decided and stage == "needs_approval":
            assert (await run.decide("c1", "resume")).ok
        assert (await run.cancel(reason="nobody needs it", by="ada")).ok
        assert await run.result() == gr.Cancelled(reason="nobody needs it", by="ada")
        events = await events_of(run)
        assert len(payloads(events, "completed", "failed", "cancelled")) == 1
        assert set((await run.view()).calls.values()) <= {"cancelled"}


async def test_a_provider_that_fails_in_any_way_leaves_the_run_as_it_is(shelf, autojump_clock):
    """A database that is down at the start must not fail every run that waits."""
    down = [True]

    def provider(info):
        if down[0] and info.run_id == "bad":
            raise ConnectionError("no database with canary-secret")
        return "deps"

    helper = agent(call("look", id="c1"), "done", tools=[look])
    async with home(shelf, agents=[helper], deps=provider, secrets=["canary-secret"]) as runtime:
        bad = await runtime.start(helper, "hi", run_id="bad")
        good = await runtime.start(helper, "hi", run_id="good")
        assert (await good.result()).output == "done"
        with pytest.raises(gr.RunDegradedError, match="ConnectionError: no database") as caught:
            await bad.wait()
        assert "canary-secret" not in str(caught.value)
        down[0] = False
        await runtime.resume("bad")
        assert (await bad.result()).output == "done"


async def test_a_provider_that_lets_a_foreign_cancellation_out_leaves_the_run_as_it_is(shelf, autojump_clock):
    """Two runs share one look-up; the one that did it was cancelled, and the other one is handed that."""
    broken = [True]

    async def provider(info):
        if broken[0]:
            raise await foreign_cancellation()
        return "deps"

    async def scene():
        helper = agent("done")
        async with home(shelf, agents=[helper], deps=provider) as runtime:
            run = await runtime.start(helper, "hi", run_id="r1")
            with pytest.raises(gr.RunDegradedError, match="it let a cancellation out that was not its own"):
                await run.wait()
            broken[0] = False
            await runtime.resume("r1")
            assert (await run.result()).output == "done"

    await to_its_end(scene)


async def test_a_run_is_not_resumed_or_forked_with_an_agent_that_has_no_model(shelf, autojump_clock):
    """It would fail at its first request; so it stays as it is."""
    helper = agent([delay(10), "done"])
    async with home(shelf, agents=[helper], drain=0) as runtime:
        await runtime.start(helper, "hi", run_id="r1")
        await trio.sleep(5)
    async with home(shelf, agents=[gr.Agent("helper")]) as runtime:
        run = await runtime.get("r1")
        with pytest.raises(gr.RunDegradedError, match="no model"):
            await run.wait()
        for again in (runtime.resume("r1"), runtime.fork("r1", step=0)):
            with pytest.raises(gr.AgentDefinitionError, match="no model"):
                await again
        assert (await run.view()).degraded == "agent_unknown"
    async with home(shelf, agents=[helper]) as runtime:
        assert (await (await runtime.get("r1")).result()).output == "done"


class Deaf(gr.MemoryStore):
    """Memory that answers so many reads of a run or its thread, and then none for a while."""

    reads: float = float("inf")

    def listen(self):
        if self.reads <= 0:
            raise gr.StoreUnavailable("the store does not answer now: disk I/O error; try again")
        self.reads -= 1

    async def load(self, *args, **options):
        self.listen()
        return await super().load(*args, **options)

    async def outline(self, *args, **options):
        self.listen()
        return await super().outline(*args, **options)

    async def messages(self, *args, **options):
        self.listen()
        return await super().messages(*args, **options)


@pytest.mark.parametrize("reads", range(1, 3))
async def test_a_run_waits_for_a_store_that_cannot_be_read(autojump_clock, caplog, reads):
    """For its rows when it is woken, and for its thread: that is no failure of the run, or of its model."""
    store, helper = Deaf(), agent(call("ask", id="c1"), "done", tools=[ask])
    async with home(store, agents=[helper], passivate_after=1.0) as runtime:
        run = await runtime.start(helper, "hi")
        await run.wait()
        await trio.sleep(10)
        store.reads = reads
        assert (await run.decide("c1", "resume")).ok
        await trio.sleep(20)
        store.reads = float("inf")
        assert (await run.result()).output == "done"
    assert caplog.text.count("the store cannot be read; it is asked again") == int(reads < 2)  # it asks twice


async def test_who_waits_for_a_run_waits_for_a_store_that_cannot_be_read(autojump_clock):
    store, helper = Deaf(), agent(call("ask", id="c1"), "done", tools=[ask])
    async with home(store, agents=[helper], passivate_after=1.0) as runtime, trio.open_nursery() as nursery:
        run = await runtime.start(helper, "hi")
        await run.wait()
        await trio.sleep(10)

        async def decide_later():
            await trio.sleep(20)
            store.reads = float("inf")
            await run.decide("c1", "resume")

        store.reads = 0
        nursery.start_soon(decide_later)
        assert (await run.result()).output == "done"


async def test_an_unchanged_spec_is_not_recorded(shelf, autojump_clock):
    helper = agent(call("ask", id="c1"), "done", tools=[ask])
    async with home(shelf, agents=[helper]) as runtime:
        await (await runtime.start(helper, "hi", run_id="r1")).wait()
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.get("r1")
        await run.decide("c1", "resume")
        await run.result()
        assert "degraded" not in types(await events_of(run))


async def test_resume_of_a_run_that_is_worked_on_or_done_is_harmless(shelf, autojump_clock):
    helper = agent([delay(10), "done"])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        assert await runtime.resume(run.id) == run
        assert (await run.result()).output == "done"
        assert await runtime.resume(run.id) == run
    assert len(helper.model.requests) == 1


async def test_a_clock_can_be_given_so_that_stored_times_continue_over_a_restart(shelf, autojump_clock):
    clock = Clock(datetime(2031, 5, 1, 12, tzinfo=UTC))
    helper = agent(call("ask", id="c1"), "done", tools=[ask])
    async with home(shelf, agents=[helper], clock=clock) as runtime:
        await (await runtime.start(helper, "hi", run_id="r1")).wait()
        await trio.sleep(3600)
    async with home(shelf, agents=[helper], clock=clock) as runtime:
        run = await runtime.get("r1")
        await run.decide("c1", "resume")
        await run.result()
        times = [event.timestamp for event in await events_of(run)]
    assert times[0].isoformat().startswith("2031-05-01T12:00")
    assert times[-1].isoformat().startswith("2031-05-01T13:00")


async def test_a_crash_of_a_runs_owner_ends_that_run_as_failed_and_no_other(shelf, autojump_clock):
    """What the engine cannot survive three times becomes failed(internal_error), with one terminal event."""

    def broken(text):
        raise KeyError("a bug in the output check")

    helper = agent("done")
    object.__setattr__(helper, "spec", attrs.evolve(helper.spec, check_output=broken))
    fine = gr.Agent("fine", model=FunctionModel(lambda _: "fine"))
    async with home(shelf, agents=[helper, fine]) as runtime:
        bad, good = await runtime.start(helper, "hi"), await runtime.start(fine, "hi")
        outcome = await bad.result()
        assert (await good.result()).output == "fine"
        assert (await (await runtime.start(fine, "again")).result()).output == "fine"
        assert len(payloads(await events_of(bad), "completed", "failed", "cancelled")) == 1
    assert isinstance(outcome, gr.Failed)
    assert outcome.code == "internal_error"


async def test_an_outage_of_the_store_and_its_end_are_reported_to_the_log(tmp_path, caplog, autojump_clock):
    outages = Outages()
    store = gr.SQLiteStore(tmp_path / "runs.db", writer="inline", faults=outages)
    helper = agent(delay(1), "done")
    with caplog.at_level("WARNING", "greenroom.run"):
        async with home(store, agents=[helper], secrets=["hidden-path"]) as runtime:
            run = await runtime.start(helper, "hi")
            outages.error = OSError("disk at hidden-path is full")
            await trio.sleep(5)
            outages.error = None
            assert isinstance(await run.result(), gr.Completed)
    reported = [record.getMessage() for record in caplog.records]
    assert any("the store does not answer" in text and "is full" in text for text in reported)
    assert reported[-1] == "the store answers again"
    assert not any("hidden-path" in text for text in reported)
