"""Why an actor ended: a closed union, and the rules that turn exceptions into it.

A nursery reports failure by exception groups and knows one reaction, to cancel everybody. An actor's crash is
instead a value that its supervisor decides upon, so groups stop at the actor's boundary:

* a group is flattened and its `trio.Cancelled` leaves are dropped as soon as one real error is among them (a
  cancellation that races a crash must not hide it);
* a group of nothing but `Cancelled` collapses to one of its leaves. Trio formats `repr(error)` into a cancel reason
  at every nursery level, which is quadratic in the depth and, on CPython 3.11, a RecursionError inside trio at 300
  to 400 levels (python-trio/trio#3290). With the collapse 5,000 levels unwind in linear time.

Everything here walks groups with a stack of its own: depth is bounded by memory, never by the interpreter's
recursion limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, TypeAlias

import trio
from attrs import frozen

STRAY: Final = "it let a cancellation out that was not its own"
"""What is said of code that has done so (`is_stray`)."""


@frozen(kw_only=True)
class Normal:
    """The body returned."""


@frozen(kw_only=True)
class Shutdown:
    """The supervisor asked it to end because the supervisor, or this child, is being stopped."""


@frozen(kw_only=True)
class ActorCancelled:
    """Somebody cancelled this very actor.

    Attributes:
        reason: Why, in words for an operator.
        by: Who asked (a principal, an actor's name).
    """

    reason: str
    by: str


@frozen(kw_only=True)
class Crashed:
    """The body raised.

    Attributes:
        error: The one error that escaped, or a flat group of several; traceback included.
    """

    error: BaseException


@frozen(kw_only=True)
class GaveUp:
    """It crashed more often than its intensity allows and is not restarted again.

    Attributes:
        error: The last crash; None if the last incarnation of a permanent child returned instead.
        restarts: How many times it had been restarted.
    """

    error: BaseException | None
    restarts: int


@frozen(kw_only=True)
class Unresponsive:
    """It did not end within its budget after it had been cancelled (a thread, a shield that does not end).

    Attributes:
        stack: Where it stood when the budget ran out, outermost frame first, one `file:line:function` each.
        late: How it ended in the end, if it has; its results come too late to count.
    """

    stack: tuple[str, ...]
    late: Normal | Shutdown | ActorCancelled | Crashed | GaveUp | None = None


Exit: TypeAlias = Normal | Shutdown | ActorCancelled | Crashed | GaveUp | Unresponsive


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors inside `error` that are not groups, in order; an error that is no group yields itself."""
    stack = [error]
    while stack:
        top = stack.pop()
        if isinstance(top, BaseExceptionGroup):
            stack.extend(reversed(top.exceptions))
        else:
            yield top


def sole_cancellation(error: BaseException) -> trio.Cancelled | None:
    """One `Cancelled` leaf if `error` consists of nothing else, otherwise None."""
    found: trio.Cancelled | None = None
    for leaf in leaves(error):
        if not isinstance(leaf, trio.Cancelled):
            return None
        found = leaf
    return found


def is_stray(error: BaseException) -> bool:
    """True for a `Cancelled` that no scope around the caller has sent: user code has kept it from somewhere else.

    Nobody above may see it: a nursery would take it for its own, end all its tasks, and say nothing.
    """
    return isinstance(error, trio.Cancelled) and trio.current_effective_deadline() > -math.inf


def cause_of(error: BaseException) -> BaseException:
    """What an error was raised from, or the error itself. An exception of foreign code may be false: ask for None."""
    return error if error.__cause__ is None else error.__cause__


def flatten(error: BaseException) -> BaseException:
    """The failure inside `error` without nesting and without cancellations.

    Returns:
        The single real error, or one flat group of several; one `Cancelled` if there is nothing else; `error` itself
        if it is no group.
    """
    if not isinstance(error, BaseExceptionGroup):
        return error
    real = [leaf for leaf in leaves(error) if not isinstance(leaf, trio.Cancelled)]
    if not real:
        return next(leaves(error))
    if len(real) == 1:
        return real[0]
    return BaseExceptionGroup(error.message, real)


def is_failure(exit_: Exit) -> bool:
    """True if a transient child is restarted after this exit."""
    return isinstance(exit_, Crashed)
