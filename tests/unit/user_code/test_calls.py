"""`call_user`: every kind of function x every kind of misbehaviour ends as Returned, Raised or Late, or passes."""

import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import attrs
import pytest
import trio

from greenroom.actors.services.sanitize import InvalidValue
from greenroom.actors.user_code.calls import HookFailed, Late, answer_of, call_user, read_answer, together
from greenroom.actors.user_code.hook_deadlines import GRACE, HookDeadlines
from greenroom.supervision import Raised, Returned
from greenroom.supervision.exits import STRAY

from ...support.scene_plugins import hide
from ...support.stray_cancels import ESCAPES, ctrl_c, foreign_cancellation, to_its_end

LIMIT = 10.0


@attrs.frozen
class Later:
    """An awaitable that is no coroutine."""

    act: Callable[[], Awaitable[Any]]

    def __await__(self) -> Any:
        return self.act().__await__()


@attrs.frozen
class Asynchronous:
    """An object whose call is async."""

    act: Callable[[], Awaitable[Any]]

    async def __call__(self, given: object) -> Any:
        return await self.act()


async def in_nursery(act: Callable[[], Awaitable[Any]], given: object) -> Any:
    found = []

    async def child() -> None:
        found.append(await act())

    async with trio.open_nursery() as nursery:  # noqa: ASYNC112 - the nursery is what is tested
        nursery.start_soon(child)
    return found[0]


async def in_task(act: Callable[[], Awaitable[Any]], given: object) -> Any:
    return await act()


ASYNC: dict[str, Callable[[Callable[[], Awaitable[Any]]], Callable[[object], Any]]] = {
    "async function": lambda act: partial(in_task, act),
    "sync function that returns a coroutine": lambda act: lambda given: act(),
    "sync function that returns an awaitable": lambda act: lambda given: Later(act),
    "object with an async call": Asynchronous,
    "nursery": lambda act: partial(in_nursery, act),
}
"""Kinds of functions that can wait; each gets what it does."""


def at_once(way: Any) -> Any:
    """The kind of function for something that does not wait."""

    def made(act: Callable[[], Any]) -> Any:
        async def wait() -> Any:
            return act()

        return way(wait)

    return made


SYNC: dict[str, Callable[[Callable[[], Any]], Callable[[object], Any]]] = {
    "sync function": lambda act: lambda given: act(),
    "thread": lambda act: lambda given: trio.to_thread.run_sync(act),
    **{name: at_once(way) for name, way in ASYNC.items()},
}
"""All kinds of functions; each gets what it does, which does not wait."""


class Unshown(Exception):
    __str__ = None  # type: ignore[assignment]  # a `__repr__` that raises would break the nursery of trio


RAISED: dict[str, Callable[[], BaseException]] = {
    **{kind.__name__: kind for kind in ESCAPES},
    "ValueError": ValueError,
    "an error without a text": Unshown,
    "trio's own": lambda: trio.TrioInternalError("made by hand"),
    "a closed channel": trio.ClosedResourceError,
}


class Swallowed(Exception):
    """Raised in place of a cancellation."""


async def never() -> str:
    await trio.sleep_forever()
    return "never"


async def swallow() -> str:
    with suppress(trio.Cancelled):
        await trio.sleep_forever()
    return "late"


async def shielded() -> str:
    await hide(LIMIT + 3)
    return "late"


async def a_thread_left_behind() -> str:
    await trio.to_thread.run_sync(threading.Event().wait, 0.05, abandon_on_cancel=True)
    return "never"


async def raise_instead() -> str:
    try:
        await trio.sleep_forever()
    finally:
        raise Swallowed


async def raise_beside() -> str:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        await raise_instead()
    return "never"


async def in_time() -> str:
    await trio.sleep(LIMIT - 1)
    return "in time"


async def own_limit() -> str:
    with trio.move_on_after(1):
        await trio.sleep_forever()
    return "own"


WAITING: dict[str, tuple[Callable[[], Awaitable[Any]], object, float]] = {
    "never returns": (never, Late(LIMIT), LIMIT),
    "swallows its cancel": (swallow, Late(LIMIT), LIMIT),
    "hides from its cancel": (shielded, Late(LIMIT), LIMIT + 3),
    "raises instead of its cancel": (raise_instead, Swallowed, LIMIT),
    "raises beside its cancel": (raise_beside, Swallowed, LIMIT),
    "returns in time": (in_time, Returned("in time"), LIMIT - 1),
    "has a shorter limit of its own": (own_limit, Returned("own"), 1),
}
"""What a function does that waits, the end of its call, and the seconds until then."""


async def call(function: Callable[[object], Any], **options: Any) -> Any:
    """Call a function; nothing about it may be noted when the call is over."""
    watch = HookDeadlines(1_000.0)
    try:
        return await call_user(function, "given", name="f", limit=LIMIT, watch=watch, **options)
    finally:
        assert watch.next_look() > trio.current_time() + LIMIT + GRACE


def raising(error: BaseException) -> Callable[[], Any]:
    def act() -> Any:
        raise error

    return act


@pytest.mark.parametrize("way", SYNC)
async def test_the_value_of_every_kind_of_function_is_returned(way):
    assert await call(SYNC[way](lambda: 7)) == Returned(7)


@pytest.mark.parametrize("way", SYNC)
@pytest.mark.parametrize("kind", RAISED)
async def test_any_exception_of_a_user_function_is_its_failure(way, kind):
    error = RAISED[kind]()
    ended = await call(SYNC[way](raising(error)))
    assert isinstance(ended, Raised)
    assert ended.error is error


@pytest.mark.parametrize("way", SYNC)
async def test_a_group_with_one_error_becomes_the_error_and_larger_groups_become_flat(way):
    one, other = ValueError(), SystemExit(3)
    ended = await call(SYNC[way](raising(BaseExceptionGroup("outer", [BaseExceptionGroup("inner", [one])]))))
    assert ended.error is one
    ended = await call(SYNC[way](raising(BaseExceptionGroup("outer", [BaseExceptionGroup("inner", [one, other])]))))
    assert ended.error.exceptions == (one, other)


@pytest.mark.parametrize("way", [way for way in SYNC if way != "nursery"])  # which takes such a cancel for its own
async def test_a_cancellation_of_another_scope_is_a_failure(way):
    async def scene() -> None:
        error = await foreign_cancellation()
        ended = await call(SYNC[way](raising(error)))
        assert (type(ended.error), str(ended.error)) == (RuntimeError, STRAY)

    await to_its_end(scene)


@pytest.mark.parametrize("way", [way for way in SYNC if way != "thread"])
async def test_a_real_interrupt_passes(way):
    with pytest.raises(KeyboardInterrupt):
        await call(SYNC[way](ctrl_c))


@pytest.mark.parametrize("way", ASYNC)
@pytest.mark.parametrize("what", WAITING)
async def test_a_function_that_waits_returns_in_time_or_is_late_or_has_raised(autojump_clock, way, what):
    act, end, seconds = WAITING[what]
    began = trio.current_time()
    ended = await call(ASYNC[way](act))
    assert trio.current_time() - began == pytest.approx(seconds)
    if isinstance(end, type):
        assert isinstance(ended, Raised)
        assert isinstance(ended.error, end)
    else:
        assert ended == end


@pytest.mark.parametrize("way", ASYNC)
async def test_a_thread_that_is_left_behind_delays_nobody(way):
    assert await call_user(ASYNC[way](a_thread_left_behind), "given", limit=0.001) == Late(0.001)


@pytest.mark.parametrize("way", ASYNC)
@pytest.mark.parametrize("what", ["never returns", "hides from its cancel"])
async def test_a_cancel_of_the_caller_passes(autojump_clock, way, what):
    with trio.move_on_after(2) as scope:
        await call(ASYNC[way](WAITING[what][0]))
    assert scope.cancelled_caught is (what == "never returns")


@pytest.mark.parametrize("way", ASYNC)
async def test_a_failure_is_not_hidden_by_a_cancel_of_the_caller(autojump_clock, way):
    with trio.move_on_after(2):
        assert isinstance((await call(ASYNC[way](raise_beside))).error, Swallowed)


@pytest.mark.parametrize("way", SYNC)
async def test_a_value_returned_after_the_limit_does_not_count_also_without_a_checkpoint(mock_clock, way):
    assert await call(SYNC[way](lambda: mock_clock.jump(LIMIT))) == Late(LIMIT)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("way", SYNC)
async def test_an_exception_that_counts_as_an_answer_can_be_late(mock_clock, way, late):
    error = Swallowed()

    def act() -> Any:
        mock_clock.jump(LIMIT if late else 0)
        raise ExceptionGroup("one", [error])

    assert await call(SYNC[way](act), answers=(Swallowed,)) == (Late(LIMIT) if late else Returned(error))


async def test_a_function_that_ignores_its_limit_is_overdue_and_is_not_called_again(autojump_clock):
    watch, called = HookDeadlines(LIMIT), []

    async def look() -> None:
        await trio.sleep_until(watch.next_look())
        called.append((trio.current_time() - began, watch.overdue()))

    async with trio.open_nursery() as nursery:
        began = trio.current_time()
        nursery.start_soon(partial(call_user, hide, 100, name="f", limit=LIMIT, watch=watch))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(look)
    assert called == [(LIMIT + GRACE, {"f"})]
    again = HookDeadlines(LIMIT, frozenset("f"))
    ended = await call_user(called.append, None, name="f", limit=LIMIT, watch=again)
    assert (ended, len(called)) == (Late(LIMIT, given_up=True), 1)
    assert await call_user(len, "four", name="g", limit=LIMIT, watch=again) == Returned(4)


async def test_an_awaitable_may_misbehave_in_each_of_its_methods():
    class Hidden:
        @property
        def __class__(self):
            raise ValueError

    class Refused:
        def __await__(self):
            raise ValueError

    class Numbers:
        def __await__(self):
            return 7

    for kind, error in ((Hidden, ValueError), (Refused, ValueError), (Numbers, TypeError)):
        ended = await call_user(kind)
        assert isinstance(ended, Raised)
        assert type(ended.error) is error


async def test_wrong_arguments_are_the_failure_of_the_function():
    assert isinstance((await call(lambda: 7)).error, TypeError)


# --- answers ---------------------------------------------------------------------------------------------------------


def test_the_failure_names_the_function_and_says_why():
    error = ValueError("no")
    assert answer_of(Returned(7), "f failed", "f did not answer") == 7
    with pytest.raises(HookFailed, match=r"^f failed: ValueError: no$") as caught:
        answer_of(Raised(error), "f failed", "f did not answer")
    assert caught.value.__cause__ is error
    with pytest.raises(HookFailed, match=r"^f did not answer within 2.5 s$"):
        answer_of(Late(2.5), "f failed", "f did not answer")
    with pytest.raises(HookFailed, match=r"^f did not answer within 30 s, and did not obey either$"):
        answer_of(Late(30.0, given_up=True), "f failed", "f did not answer")


@pytest.mark.parametrize("kind", RAISED)
def test_an_answer_whose_own_code_raises_cannot_be_read(kind):
    error = RAISED[kind]()
    with pytest.raises(HookFailed, match=r"^f: its verdict cannot be read: ") as caught:
        read_answer("f", "verdict", raising(error))
    assert caught.value.__cause__ is error


def test_an_answer_is_read_or_refused_or_cannot_be_stored():
    assert read_answer("f", "verdict", lambda: 7) == 7
    refused = HookFailed("f: no")
    with pytest.raises(HookFailed) as caught:
        read_answer("f", "verdict", raising(refused))
    assert caught.value is refused
    with pytest.raises(HookFailed, match=r"^f: its verdict cannot be stored: too deep$"):
        read_answer("f", "verdict", raising(InvalidValue("too deep")))


# --- several at once -------------------------------------------------------------------------------------------------


async def test_answers_come_in_the_order_of_the_asked(autojump_clock):
    async def ask(seconds: int) -> int:
        await trio.sleep(seconds)
        return seconds

    assert await together([3, 1, 2], ask) == [3, 1, 2]
    assert trio.current_time() == 3


@pytest.mark.parametrize("last", ["answers", "fails", "swallows"])
async def test_the_first_failure_or_ending_answer_cancels_the_others_and_is_the_only_one(autojump_clock, last):
    async def ask(seconds: int) -> int:
        try:
            await trio.sleep(seconds)
        except trio.Cancelled:  # noqa: ASYNC103 - the rude one is what is tested
            if last == "answers":
                raise
            if last == "fails":
                raise HookFailed("2 failed, later") from None  # noqa: ASYNC104
        if seconds == 1:
            raise HookFailed("1 failed")
        return seconds  # noqa: ASYNC104

    with pytest.raises(HookFailed, match=r"^1 failed$"):
        await together([3, 1], ask)
    assert await together([9, 0, 4], ask, ends=lambda answer: answer == 4) == [None, 0, 4]
    assert trio.current_time() == 1 + 4
