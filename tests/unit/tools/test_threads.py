"""Sync bodies in worker threads, in real time: what a cancel does to a thread that can not be cancelled."""

import contextvars
import threading
import time

import pytest
import trio

from greenroom.actors.contract.decisions import Suspend
from greenroom.actors.tools import Invocation, SyncToolContext, ToolFailed, invoke, tool

colour: contextvars.ContextVar[str] = contextvars.ContextVar("colour", default="none")


@pytest.fixture
def limiter():
    return trio.CapacityLimiter(1)


@pytest.fixture
def gate():
    """Threads wait for it; it is opened at the end of every test, so that none is left behind."""
    event = threading.Event()
    yield event
    event.set()


async def until(condition):
    """Wait, in real time, until something is so."""
    with trio.fail_after(2):
        while not condition():  # noqa: ASYNC110 - threads set no trio events
            await trio.sleep(0.001)


async def test_a_sync_body_runs_in_a_named_worker_thread_with_the_callers_context(limiter):
    @tool
    def where(ctx: SyncToolContext) -> tuple[str, str]:
        return threading.current_thread().name, colour.get()

    colour.set("green")
    name, seen = await invoke(where, SyncToolContext(call_id="c1"), {}, limiter=limiter)
    assert name.startswith("tool where c1")
    assert seen == "green"
    assert threading.current_thread().name != name


async def test_what_a_thread_raises_means_the_same_as_in_the_event_loop(limiter):
    wish = Suspend()

    def make(error):
        def body() -> None:
            raise error

        return tool(body, name="body")

    assert await invoke(make(wish), SyncToolContext(), {}, limiter=limiter) is wish
    for error in (ValueError("no"), StopIteration("no")):
        with pytest.raises(ToolFailed, match=f"{type(error).__name__}: no") as caught:
            await invoke(make(error), SyncToolContext(), {}, limiter=limiter)
        assert caught.value.__cause__ is error
    with pytest.raises(KeyboardInterrupt):
        await invoke(make(KeyboardInterrupt()), SyncToolContext(), {}, limiter=limiter)


async def test_a_sync_function_that_returns_a_coroutine_is_told_to_be_async(limiter):
    async def inner() -> int:
        return 1

    @tool
    def outer() -> object:
        return inner()

    with pytest.raises(ToolFailed, match="async def"):
        await invoke(outer, SyncToolContext(), {}, limiter=limiter)


async def test_wrong_arguments_cost_no_thread(gate):
    full = trio.CapacityLimiter(1)

    @tool
    def body(a: int) -> None: ...

    async with full:
        with pytest.raises(ToolFailed, match=r"\$\.a"):
            await invoke(body, SyncToolContext(), {"a": "x"}, limiter=full)


async def test_a_thread_that_ends_within_its_grace_keeps_its_result(limiter, gate):
    started = threading.Event()

    @tool(grace=5)
    def finishes() -> str:
        started.set()
        gate.wait(5)
        return "written"

    record, results = Invocation(), []

    async def caller():
        results.append(await invoke(finishes, SyncToolContext(), {}, limiter=limiter, record=record))
        results.append("before the next checkpoint")
        await trio.lowlevel.checkpoint()
        results.append("not reached")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(caller)
        await until(started.is_set)
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await trio.sleep(0.01)
            assert results == []
            gate.set()
    assert results == ["written", "before the next checkpoint"]
    assert not record.stubborn


async def test_a_thread_that_ignores_its_grace_is_left_alone_and_named(limiter, gate):
    started, heard = threading.Event(), []

    @tool(grace=0.05)
    def stubborn(ctx: SyncToolContext) -> str:
        started.set()
        gate.wait(5)
        try:
            ctx.output("late")
        except BaseException as error:
            heard.append(type(error))
            raise
        return "late"

    record = Invocation()
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            async def caller():
                ctx = SyncToolContext(report_output=heard.append)
                await invoke(stubborn, ctx, {}, limiter=limiter, record=record)
                heard.append("returned")

            nursery.start_soon(caller)
            await until(started.is_set)
            began = trio.current_time()
            scope.cancel()
    assert 0.04 < trio.current_time() - began < 1
    assert scope.cancelled_caught
    assert record.stubborn
    assert repr(record) == "<Invocation stubborn>"
    assert "test_threads.py" in record.stack[0]
    assert record.stack[0].endswith(":stubborn")
    assert any(line.endswith(":wait") for line in record.stack)
    # Its token stays with the thread, and what it says and returns when it wakes is dropped.
    assert limiter.borrowed_tokens == 1
    gate.set()
    await until(lambda: limiter.borrowed_tokens == 0)
    assert heard == [trio.Cancelled]


async def test_a_late_report_of_a_thread_that_does_not_listen_is_dropped(limiter, gate):
    started, heard = threading.Event(), []

    @tool(grace=0.01)
    def deaf(ctx: SyncToolContext) -> None:
        started.set()
        gate.wait(5)
        ctx.report_output("late")
        ctx.report_progress(1.0, "late")

    with trio.move_on_after(0.02):
        ctx = SyncToolContext(report_output=heard.append, report_progress=lambda *args: heard.append(args))
        await invoke(deaf, ctx, {}, limiter=limiter)
    gate.set()
    await until(lambda: limiter.borrowed_tokens == 0)
    assert heard == []


async def test_a_body_that_reports_hears_of_the_cancel_and_ends_in_time(limiter):
    tidied = threading.Event()

    @tool(grace=5)
    def chatty(ctx: SyncToolContext) -> None:
        try:
            while True:
                ctx.progress(0.5)
                time.sleep(0.001)  # noqa: TID251
        finally:
            tidied.set()

    record = Invocation()
    with trio.move_on_after(0.02) as scope:
        await invoke(chatty, SyncToolContext(), {}, limiter=limiter, record=record)
    assert scope.cancelled_caught
    assert tidied.is_set()
    assert not record.stubborn


async def test_a_time_limit_gives_up_a_thread_after_its_grace(limiter, gate):
    @tool(timeout=0.02, grace=0.02, on_timeout="raise")
    def slow() -> None:
        gate.wait(5)

    record = Invocation()
    with pytest.raises(ToolFailed, match=r"within 0\.02 s") as caught:
        await invoke(slow, SyncToolContext(), {}, limiter=limiter, record=record)
    assert (caught.value.code, caught.value.fatal) == ("tool_timeout", True)
    assert record.stubborn


async def test_a_thread_that_finishes_in_the_grace_of_its_time_limit_has_succeeded(limiter):
    @tool(timeout=0.01, grace=5)
    def late() -> str:
        time.sleep(0.05)  # noqa: TID251
        return "late, but done"

    assert await invoke(late, SyncToolContext(), {}, limiter=limiter) == "late, but done"


async def test_a_body_that_is_cancelled_while_it_waits_for_a_thread_never_begins(limiter, gate):
    ran = []

    @tool
    def body() -> None:
        ran.append(True)

    await limiter.acquire_on_behalf_of("somebody else")
    record = Invocation()
    with trio.move_on_after(0.01) as scope:
        await invoke(body, SyncToolContext(), {}, limiter=limiter, record=record)
    limiter.release_on_behalf_of("somebody else")
    await trio.sleep(0.01)
    assert scope.cancelled_caught
    assert (ran, record.stubborn, limiter.borrowed_tokens) == ([], False, 0)


async def test_a_cancel_that_was_there_before_starts_no_thread(limiter):
    ran = []

    @tool
    def body() -> None:
        ran.append(True)

    with trio.CancelScope() as scope:
        scope.cancel()
        await invoke(body, SyncToolContext(), {}, limiter=limiter)
    assert scope.cancelled_caught
    assert ran == []
