"""Call one function of the user's: a hook, a gate, a guardrail, a predicate, or a function of instructions.

Theory of operation. `call_user` is the only way to such a function. A call ends in one of three ways, each a value:
`Returned`, `Raised`, or `Late` once its time is over, whatever the function returns then. Two things pass instead of
becoming a value: a real Ctrl-C, and a cancellation of the caller. A function that ignores the end of its time never
returns; `HookDeadlines` finds that out, the task of the call is abandoned, and the next call of the same name is `Late`
without being made.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from typing import Any, Final, TypeVar, TypeVarTuple

import attrs
import trio

from greenroom.supervision import Raised, Returned, acapture, capture, open_collapsing_nursery

from ..services.sanitize import InvalidValue
from ..tools.invoke import shown_text
from .hook_deadlines import HookDeadlines

Ts = TypeVarTuple("Ts")
T = TypeVar("T")
A = TypeVar("A")
PREDICATE_TIMEOUT: Final = 30.0
"""Seconds for a predicate or a function of instructions, equal to the default of a plugin's hook."""


class HookFailed(Exception):
    """User code raised, took too long, or gave an invalid answer; the text says which.

    Attributes:
        level: log level of the failure.
    """

    def __init__(self, text: str, *, level: int = logging.ERROR) -> None:
        super().__init__(text)
        self.level = level


@attrs.frozen
class Late:
    """The function did not end within its time limit. `str()` completes a sentence: within 30 s.

    Attributes:
        limit: seconds.
        given_up: the function was not called, because it ignored the end of its time before.
    """

    limit: float
    given_up: bool = False

    def __str__(self) -> str:
        return f"within {self.limit:g} s{', and did not obey either' if self.given_up else ''}"


async def call_user(
    function: Callable[[*Ts], object],
    *args: *Ts,
    name: str = "",
    limit: float = math.inf,
    watch: HookDeadlines | None = None,
    answers: tuple[type[BaseException], ...] = (),
) -> Returned[Any] | Raised | Late:
    """Call a function of the user's, await an awaitable answer, and return how the call ended.

    Args:
        function: async or sync. A sync function runs in the event loop.
        args: its arguments, copies.
        name: The name of the function in `watch`.
        limit: seconds. A value that is returned later does not count; an exception that is raised later does.
        watch: notes that the function is running, and until when; None: the caller bounds the time otherwise.
        answers: exceptions that count as if the function had returned them.

    Raises:
        trio.Cancelled: cancelled.
        KeyboardInterrupt: a real Ctrl-C.
    """
    if watch is not None and name in watch.given_up:
        return Late(limit, given_up=True)
    with nullcontext() if watch is None else watch.over(name, limit), trio.move_on_after(limit) as time:
        outcome = await acapture(function, *args)
        if isinstance(outcome, Raised) and not isinstance(outcome.error, answers):
            return outcome
        if not time.cancel_called:
            return Returned(outcome.error) if isinstance(outcome, Raised) else outcome
    return Late(limit)


def answer_of(outcome: Returned[T] | Raised | Late, failure_text: str, late: str = "") -> T:
    """Return the value that a function returned.

    Args:
        outcome: the end of its call.
        failure_text: begins the message about an exception.
        late: begins the message about a late function.

    Raises:
        HookFailed: the function returned none.
    """
    match outcome:
        case Returned(value):
            return value
        case Raised(error):
            raise HookFailed(f"{failure_text}: {shown_text(error)}") from error
        case Late():
            raise HookFailed(f"{late} {outcome}", level=logging.WARNING)


def read_answer(where: str, what: str, reader: Callable[[], T]) -> T:
    """Read the answer of a function. The values are the program's objects, and reading them may run any code.

    Args:
        where: the function, for the message of a failure.
        what: its answer, for that message.
        reader: reads, and may raise HookFailed itself.

    Raises:
        HookFailed: the answer cannot be used.
    """
    match capture(reader):
        case Returned(value):
            return value
        case Raised(HookFailed() as failure):
            raise failure
        case Raised(InvalidValue() as error):
            raise HookFailed(f"{where}: its {what} cannot be stored: {error}") from error
        case Raised(error):
            raise HookFailed(f"{where}: its {what} cannot be read: {shown_text(error)}") from error


async def together(
    items: Sequence[A], ask: Callable[[A], Awaitable[T]], ends: Callable[[T], bool] = lambda answer: False
) -> list[T | None]:
    """Ask plugins, tools or guardrails concurrently, and return their answers in order.

    The first failure, and the first answer for which `ends` is True, cancel the others; nothing is heard of these then,
    and their answers are None. None of them is alive when this returns or raises.

    Raises:
        HookFailed: that first failure.
    """
    answers: list[T | None] = [None] * len(items)
    failures: list[HookFailed] = []

    async def ask_one(index: int, one: A) -> None:
        scope = nursery.cancel_scope
        try:
            answer = await ask(one)
        except HookFailed as failure:
            if not scope.cancel_called:
                failures.append(failure)
                scope.cancel("a function of the phase has failed")
            return
        if not scope.cancel_called:
            answers[index] = answer
            if ends(answer):
                scope.cancel("an answer has ended the phase")

    if len(items) < 2:  # the usual case needs no task
        return [await ask(one) for one in items]
    async with open_collapsing_nursery() as nursery:
        for index, one in enumerate(items):
            nursery.start_soon(ask_one, index, one)
    if failures:
        raise failures[0]
    return answers
