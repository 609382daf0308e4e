"""Running bodies in the event loop: values, suspensions, failures, time limits, cancellation."""

import pytest
import trio
from trio.testing import MockClock

from greenroom.actors.contract.decisions import Suspend
from greenroom.actors.errors import ToolError
from greenroom.actors.tools import SyncToolContext, ToolContext, ToolFailed, invoke, tool

from ...support.stray_cancels import ESCAPES, ctrl_c


@pytest.fixture
def limiter():
    return trio.CapacityLimiter(2)


def raising(make, **options):
    """A tool that raises what `make` makes."""

    async def body() -> None:
        raise make()

    return tool(body, name="body", **options)


async def run(made, limiter, **arguments):
    return await invoke(made, ToolContext() if made.is_async else SyncToolContext(), arguments, limiter=limiter)


async def test_an_async_body_gets_converted_arguments_and_its_value_comes_back(limiter):
    @tool
    async def halve(ctx: ToolContext, a: float) -> float:
        await trio.lowlevel.checkpoint()
        return a / 2

    assert await run(halve, limiter, a=3) == 1.5


async def test_a_suspend_counts_whether_it_is_returned_raised_or_alone_in_groups(limiter):
    suspend = Suspend(message="sure?")

    async def gives() -> Suspend:
        return suspend

    def grouped():
        return ExceptionGroup("outer", [ExceptionGroup("inner", [suspend])])

    assert await run(tool(gives), limiter) is suspend
    assert await run(raising(lambda: suspend), limiter) is suspend
    assert await run(raising(grouped), limiter) is suspend

    @tool
    async def from_a_nursery() -> None:
        async def ask() -> None:
            raise suspend

        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(ask)

    assert await run(from_a_nursery, limiter) is suspend


async def test_a_suspend_beside_another_error_is_a_failure(limiter):
    with pytest.raises(ToolFailed, match="ValueError: no"):
        await run(raising(lambda: ExceptionGroup("both", [Suspend(), ValueError("no")])), limiter)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: ValueError("no such order"), "ValueError: no such order"),
        (lambda: ToolError("Order 7 is closed."), "Order 7 is closed."),
        (lambda: ToolError("x" * 3000), "x" * 3000),
        (lambda: ExceptionGroup("one", [ToolError("Closed.")]), "Closed."),
        (lambda: ExceptionGroup("two", [ValueError("a"), KeyError("b")]), "ValueError: a; KeyError: 'b'"),
        (TimeoutError, "TimeoutError"),
        (StopAsyncIteration, "StopAsyncIteration"),
        (StopIteration, "RuntimeError: coroutine raised StopIteration"),
    ],
    ids=[
        "type and message",
        "own text",
        "own text whole",
        "one in a group",
        "group",
        "no message",
        "stop",
        "iteration",
    ],
)
async def test_a_failure_is_reported_to_the_model_without_a_traceback(limiter, make, text):
    with pytest.raises(ToolFailed) as caught:
        await run(raising(make), limiter)
    shown = str(caught.value)
    assert shown == text
    assert "Traceback" not in shown
    assert (caught.value.code, caught.value.fatal) == ("tool_error", False)
    assert caught.value.__cause__ is not None


async def test_a_long_message_is_cut_and_one_that_cannot_be_shown_does_not_hurt(limiter):
    class Rude(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    with pytest.raises(ToolFailed) as caught:
        await run(raising(lambda: ValueError("x" * 5000)), limiter)
    assert len(str(caught.value)) == 2000
    with pytest.raises(ToolFailed, match=r"Rude: \(its message cannot be shown\)"):
        await run(raising(Rude), limiter)


async def test_a_tool_may_declare_that_its_failure_ends_the_run(limiter):
    with pytest.raises(ToolFailed) as caught:
        await run(raising(ValueError, on_error="raise"), limiter)
    assert caught.value.fatal


class Unready(ToolError):
    """Does not call the constructor of its class."""

    def __init__(self) -> None:
        Exception.__init__(self, "not ready")


class Misleading(ToolError):
    """Has an attribute of its own in the place of the code."""

    @property
    def run_code(self) -> str:  # type: ignore[override]
        raise ValueError("none of yours")


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: ToolError("gone", run_code="target_offline"), "target_offline"),
        (lambda: ExceptionGroup("", [ValueError(), ToolError("gone", run_code="target_offline")]), "target_offline"),
        (lambda: ToolError("gone"), None),
        (Unready, None),
        (lambda: Misleading.__new__(Misleading), None),
    ],
)
async def test_a_failure_may_name_the_code_of_the_run(limiter, make, code):
    with pytest.raises(ToolFailed) as caught:
        await run(raising(make), limiter)
    assert (caught.value.run_code, caught.value.code) == (code, code or "tool_error")


async def test_wrong_arguments_fail_with_their_own_code_and_the_body_does_not_run(limiter):
    ran = []

    @tool(on_error="raise")
    async def body(a: int) -> None:
        ran.append(a)

    with pytest.raises(ToolFailed, match=r"`\$\.a`") as caught:
        await run(body, limiter, a="1")
    assert (caught.value.code, caught.value.fatal, ran) == ("invalid_arguments", False, [])


@pytest.mark.rule("L-41")
@pytest.mark.parametrize(
    ("on_error", "on_timeout", "fatal"),
    [
        ("return", None, False),
        ("return", "return", False),
        ("return", "raise", True),
        ("raise", None, True),
        ("raise", "return", False),
        ("raise", "raise", True),
    ],
)
async def test_a_body_that_takes_too_long_times_out(limiter, autojump_clock: MockClock, on_error, on_timeout, fatal):
    """What a timeout does is what a failure does, unless the tool says something of its own for timeouts."""
    tidied = []

    @tool(timeout=30, on_error=on_error, on_timeout=on_timeout)
    async def slow() -> None:
        try:
            await trio.sleep(31)
        finally:
            tidied.append(True)

    start = trio.current_time()
    with pytest.raises(ToolFailed, match="timed out after 30 s") as caught:
        await run(slow, limiter)
    assert (caught.value.code, caught.value.fatal) == ("tool_timeout", fatal)
    assert trio.current_time() - start == pytest.approx(30)
    assert tidied == [True]


async def test_a_time_limit_inside_the_body_is_the_bodys_own_failure(limiter, autojump_clock: MockClock):
    @tool(timeout=30)
    async def impatient() -> None:
        with trio.fail_after(1):
            await trio.sleep(2)

    with pytest.raises(ToolFailed, match="TooSlowError") as caught:
        await run(impatient, limiter)
    assert caught.value.code == "tool_error"


async def test_a_cancel_passes_through_and_also_out_of_a_nursery_with_failures_in_it(limiter):
    @tool
    async def patient() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(trio.sleep_forever)

    with trio.CancelScope() as scope:
        scope.cancel()
        await run(patient, limiter)
    assert scope.cancelled_caught


async def test_a_failure_while_being_cancelled_is_not_hidden(limiter):
    @tool
    async def clumsy() -> None:
        async def tidy() -> None:
            try:
                await trio.sleep_forever()
            finally:
                raise OSError("disk full")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(tidy)
            nursery.start_soon(trio.sleep_forever)

    with trio.CancelScope() as scope:
        scope.cancel()
        with pytest.raises(ToolFailed, match="OSError: disk full"):
            await run(clumsy, limiter)


@pytest.mark.parametrize("kind", ESCAPES)
async def test_a_base_exception_of_a_body_is_a_failure_of_the_tool(limiter, kind):
    with pytest.raises(ToolFailed, match=f"^{kind.__name__}$") as caught:
        await run(raising(kind), limiter)
    assert (caught.value.code, type(caught.value.__cause__)) == ("tool_error", kind)
    with pytest.raises(ToolFailed, match=f"^{kind.__name__}; ValueError: no$"):
        await run(raising(lambda: BaseExceptionGroup("two", [kind(), ValueError("no")])), limiter)


async def test_a_real_interrupt_passes_through_bare(limiter):
    async def body() -> None:
        try:
            ctrl_c()
        except KeyboardInterrupt as error:
            raise BaseExceptionGroup("two", [error, ValueError()]) from None

    with pytest.raises(KeyboardInterrupt):
        await run(tool(body), limiter)


async def test_tool_errors_in_a_group_show_their_own_texts(limiter):
    with pytest.raises(ToolFailed, match=r"^Closed\.; ValueError: no$"):
        await run(raising(lambda: ExceptionGroup("two", [ToolError("Closed."), ValueError("no")])), limiter)
