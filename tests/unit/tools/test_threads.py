"""Sync bodies in worker threads: what a cancel does to a thread that cannot be cancelled.

The clock is a MockClock that only these tests move: bodies begin and end on events, deadlines pass when a test says so,
and no test depends on how fast the machine is.
"""

import contextvars
import threading
from collections.abc import Iterator

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from greenroom.actors.contract.decisions import Suspend
from greenroom.actors.tools import Invocation, SyncToolContext, Tool, ToolContext, ToolFailed, invoke, tool
from greenroom.actors.tools.threads import ThreadBody

from ...support.exhaustion import no_threads
from ...support.stray_cancels import ESCAPES

colour: contextvars.ContextVar[str] = contextvars.ContextVar("colour", default="none")


@pytest.fixture
def limiter() -> trio.CapacityLimiter:
    return trio.CapacityLimiter(1)


@attrs.define(eq=False)
class Gate:
    """Where a body waits: it tells that it has begun, and continues when the test opens."""

    _begun: threading.Event = attrs.field(factory=threading.Event)
    _open: threading.Event = attrs.field(factory=threading.Event)

    def wait(self) -> None:
        self._begun.set()
        assert self._open.wait(60)

    def open(self) -> None:
        self._open.set()

    async def started(self) -> None:
        assert await trio.to_thread.run_sync(self._begun.wait, 60, limiter=trio.CapacityLimiter(1))


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()  # no thread is left behind, whatever happened


@attrs.define(eq=False)
class Caller:
    """A task that invokes a tool in a scope of its own, and writes down what came of it."""

    made: Tool[..., object]
    limiter: trio.CapacityLimiter
    ctx: SyncToolContext = attrs.field(factory=SyncToolContext)
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    record: Invocation = attrs.field(factory=Invocation)
    came: list[object] = attrs.field(factory=list)
    done: trio.Event = attrs.field(factory=trio.Event)

    async def run(self) -> None:
        with self.scope:
            try:
                self.came.append(await invoke(self.made, self.ctx, {}, limiter=self.limiter, record=self.record))
                self.came.append("before the next checkpoint")
                await trio.lowlevel.checkpoint()
                self.came.append("after it")
            except ToolFailed as error:
                self.came.append(error)
        self.done.set()


async def freed(limiter: trio.CapacityLimiter) -> None:
    """Wait until the thread has given its slot back."""
    async with limiter:
        pass


async def test_a_sync_body_runs_in_a_named_worker_thread_with_the_callers_context(limiter):
    @tool
    def where(ctx: SyncToolContext) -> tuple[str, str]:
        return threading.current_thread().name, colour.get()

    colour.set("green")
    name, seen = await invoke(where, SyncToolContext(call_id="c1"), {}, limiter=limiter)
    assert name.startswith("tool where c1")
    assert seen == "green"
    assert threading.current_thread().name != name


async def test_a_sync_body_takes_whatever_context_it_is_given(limiter):
    @tool
    def who(ctx: ToolContext[str]) -> str:
        return ctx.deps

    assert await invoke(who, SyncToolContext(deps="sync"), {}, limiter=limiter) == "sync"
    assert await invoke(who, ToolContext(deps="async"), {}, limiter=limiter) == "async"


async def test_an_exception_in_a_thread_means_the_same_as_in_the_event_loop(limiter):
    suspend = Suspend()

    def make(error):
        def body() -> None:
            raise error

        return tool(body, name="body")

    assert await invoke(make(suspend), SyncToolContext(), {}, limiter=limiter) is suspend
    for error in (ValueError("no"), StopIteration("no")):
        with pytest.raises(ToolFailed, match=f"{type(error).__name__}: no") as caught:
            await invoke(make(error), SyncToolContext(), {}, limiter=limiter)
        assert caught.value.__cause__ is error
    for kind in ESCAPES:
        with pytest.raises(ToolFailed, match=kind.__name__):
            await invoke(make(kind()), SyncToolContext(), {}, limiter=limiter)


async def test_a_sync_function_that_returns_a_coroutine_is_required_to_be_async(limiter):
    async def inner() -> int:
        return 1

    @tool
    def outer() -> object:
        return inner()

    with pytest.raises(ToolFailed, match="async def"):
        await invoke(outer, SyncToolContext(), {}, limiter=limiter)


async def test_reports_of_a_thread_arrive_while_it_works(limiter):
    received = []

    @tool
    def chatty(ctx: SyncToolContext) -> str:
        ctx.progress(0.5, "half")
        ctx.output("a")
        ctx.check_cancelled()
        return "done"

    ctx = SyncToolContext(report_progress=lambda *report: received.append(report), report_output=received.append)
    assert await invoke(chatty, ctx, {}, limiter=limiter) == "done"
    assert received == [(0.5, "half"), "a"]


async def test_wrong_arguments_cost_no_thread():
    full = trio.CapacityLimiter(1)

    @tool
    def body(a: int) -> None: ...

    async with full:
        with pytest.raises(ToolFailed, match=r"\$\.a"):
            await invoke(body, SyncToolContext(), {"a": "x"}, limiter=full)


async def test_a_thread_that_ends_within_its_grace_keeps_its_result(limiter, gate, mock_clock: MockClock):
    @tool(grace=5)
    def finishes() -> str:
        gate.wait()
        return "written"

    caller = Caller(finishes, limiter)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(caller.run)
        await gate.started()
        caller.scope.cancel()
        mock_clock.jump(4.9)
        await wait_all_tasks_blocked()
        assert caller.came == []
        gate.open()
    assert caller.came == ["written", "before the next checkpoint"]
    assert not caller.record.stubborn


async def test_a_thread_that_fails_within_its_grace_has_failed(limiter, gate, mock_clock: MockClock):
    @tool
    def fails() -> str:
        gate.wait()
        raise OSError("disk full")

    caller = Caller(fails, limiter)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(caller.run)
        await gate.started()
        caller.scope.cancel()
        gate.open()
    assert str(caller.came[0]) == "OSError: disk full"


async def test_a_thread_that_ignores_its_grace_is_left_alone_and_named(limiter, gate, mock_clock: MockClock):
    received = []

    @tool(grace=5)
    def stubborn(ctx: SyncToolContext) -> str:
        gate.wait()
        try:
            ctx.output("late")
        except BaseException as error:
            received.append(type(error))
            raise
        return "late"

    caller = Caller(stubborn, limiter, SyncToolContext(report_output=received.append))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(caller.run)
        await gate.started()
        caller.scope.cancel()
        await wait_all_tasks_blocked()
        mock_clock.jump(4.9)
        await wait_all_tasks_blocked()
        assert not caller.done.is_set()
        mock_clock.jump(0.2)
        await caller.done.wait()
    record = caller.record
    assert caller.scope.cancelled_caught
    assert (caller.came, record.stubborn, repr(record)) == ([], True, "<Invocation stubborn>")
    assert "test_threads.py" in record.stack[0]
    assert record.stack[0].endswith(":stubborn")
    assert any(line.endswith(":wait") for line in record.stack)
    # Its slot stays with the thread; what it says and returns when it wakes is dropped, and it learns of its end.
    assert limiter.borrowed_tokens == 1
    gate.open()
    await freed(limiter)
    assert received == [trio.Cancelled]


async def test_a_late_report_of_a_thread_that_does_not_listen_is_dropped(limiter, gate, mock_clock: MockClock):
    received = []

    @tool(grace=0)
    def deaf(ctx: SyncToolContext) -> None:
        gate.wait()
        ctx.report_output("late")
        ctx.report_progress(1.0, "late")

    ctx = SyncToolContext(report_output=received.append, report_progress=lambda *report: received.append(report))
    caller = Caller(deaf, limiter, ctx)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(caller.run)
        await gate.started()
        caller.scope.cancel()
    assert caller.record.stubborn
    gate.open()
    await freed(limiter)
    assert received == []


async def test_a_body_that_reports_learns_of_the_cancel_and_ends_in_time(limiter, gate, mock_clock: MockClock):
    @tool(grace=5)
    def chatty(ctx: SyncToolContext) -> None:
        gate.wait()
        ctx.progress(0.5)
        raise AssertionError("the report before should have ended this")

    caller = Caller(chatty, limiter)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(caller.run)
        await gate.started()
        caller.scope.cancel()
        await wait_all_tasks_blocked()
        gate.open()
    assert caller.scope.cancelled_caught
    assert (caller.came, caller.record.stubborn) == ([], False)


async def test_a_time_limit_gives_up_a_thread_after_its_grace(limiter, gate, mock_clock: MockClock):
    @tool(timeout=30, grace=5, on_timeout="raise")
    def slow() -> None:
        gate.wait()

    caller = Caller(slow, limiter)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(caller.run)
        await gate.started()
        for seconds in (29.9, 0.2, 4.8, 0.2):
            assert not caller.done.is_set()
            mock_clock.jump(seconds)
            await wait_all_tasks_blocked()
    (failed,) = caller.came
    assert isinstance(failed, ToolFailed)
    assert (str(failed), failed.code) == ("The tool 'slow' timed out after 30 s.", "tool_timeout")
    assert failed.fatal
    assert caller.record.stubborn


async def test_a_thread_that_finishes_in_the_grace_of_its_time_limit_has_succeeded(
    limiter, gate, mock_clock: MockClock
):
    @tool(timeout=30, grace=5)
    def late() -> str:
        gate.wait()
        return "late, but done"

    caller = Caller(late, limiter)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(caller.run)
        await gate.started()
        mock_clock.jump(31)
        await wait_all_tasks_blocked()
        gate.open()
    assert caller.came == ["late, but done", "before the next checkpoint", "after it"]


async def test_a_body_that_is_cancelled_while_it_waits_for_a_thread_never_begins(limiter):
    ran = []

    @tool
    def body() -> None:
        ran.append(True)

    caller = Caller(body, limiter)
    async with trio.open_nursery() as nursery:
        async with limiter:
            nursery.start_soon(caller.run)
            await wait_all_tasks_blocked()
            caller.scope.cancel()
            await caller.done.wait()
    await freed(limiter)
    assert caller.scope.cancelled_caught
    assert (ran, caller.record.stubborn) == ([], False)


async def test_a_body_that_is_given_up_before_its_thread_reaches_it_never_begins():
    ran = []
    body = ThreadBody(lambda: ran.append(True))
    assert body.give_up_unbegun()
    body.run()
    assert (ran, body.stack()) == ([], ())


async def test_a_cancel_that_was_there_before_starts_no_thread(limiter):
    ran = []

    @tool
    def body() -> None:
        ran.append(True)

    caller = Caller(body, limiter)
    caller.scope.cancel()
    await caller.run()
    assert caller.scope.cancelled_caught
    assert ran == []


async def test_a_body_waits_for_a_thread_that_the_system_does_not_have_now(limiter):
    """It has not begun: that the system is out of threads is no failure of the tool."""
    started = []

    @tool
    def body() -> str:
        started.append(1)
        return "done"

    came = []

    async def call() -> None:
        came.append(await invoke(body, SyncToolContext(), {}, limiter=limiter))

    async with trio.open_nursery() as nursery:
        with no_threads():
            nursery.start_soon(call)
            await trio.sleep(0.15)
            assert started == []
    assert came == ["done"]
