"""Why an actor ended: a closed union, and the rules that turn exceptions into a member of the union.

A nursery reports failures as exception groups and has one reaction, to cancel all its tasks. The crash of an actor is
instead a value that the supervisor decides upon, so groups end at the actor's boundary:

* A group is flattened, and its `trio.Cancelled` leaves are dropped as soon as one real error is among the leaves (a
  cancellation that races a crash must not hide the crash).
* A group of nothing but `Cancelled` collapses to one of its leaves. Trio formats `repr(error)` into a cancel reason at
  every nursery level, which is quadratic in the depth and, on CPython 3.11, a RecursionError inside trio at 300 to 400
  levels (python-trio/trio#3290). With the collapse 5,000 levels unwind in linear time.

All functions walk groups with an explicit stack: depth is bounded by memory, never by the interpreter's recursion
limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, TypeAlias

import trio
from attrs import frozen

STRAY: Final = "it let a cancellation out that was not its own"
"""Message of the failure of code that raised a `Cancelled` from a foreign scope (`is_stray`)."""


@frozen(kw_only=True)
class Normal:
    """The body returned."""


@frozen(kw_only=True)
class Shutdown:
    """The supervisor stopped this child, or is being stopped itself."""


@frozen(kw_only=True)
class ActorCancelled:
    """This actor was cancelled on request.

    Attributes:
        reason: The reason, as a text for an operator.
        by: The requester: a principal or the name of an actor.
    """

    reason: str
    by: str


@frozen(kw_only=True)
class Crashed:
    """The body raised an exception.

    Attributes:
        error: The error that escaped, or a flat group of several; traceback included.
    """

    error: BaseException


@frozen(kw_only=True)
class GaveUp:
    """The child ended more often than its restart intensity allows and is not restarted.

    Attributes:
        error: The last crash; None if the last incarnation of a permanent child returned instead.
        restarts: Number of restarts so far.
    """

    error: BaseException | None
    restarts: int


@frozen(kw_only=True)
class Unresponsive:
    """The child did not end within its budget after its cancellation (a thread, or a shield without end).

    Attributes:
        stack: Await stack at the end of the budget, outermost frame first, one `file:line:function` each.
        late: The exit that followed later, if any. Results that arrive after the budget are dropped.
    """

    stack: tuple[str, ...]
    late: Normal | Shutdown | ActorCancelled | Crashed | GaveUp | None = None


Exit: TypeAlias = Normal | Shutdown | ActorCancelled | Crashed | GaveUp | Unresponsive


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors inside `error` that are not groups, in order; an error that is not a group yields itself."""
    stack = [error]
    while stack:
        top = stack.pop()
        if isinstance(top, BaseExceptionGroup):
            stack.extend(reversed(top.exceptions))
        else:
            yield top


def sole_cancellation(error: BaseException) -> trio.Cancelled | None:
    """Return one `Cancelled` leaf if `error` consists of nothing else, otherwise None."""
    cancellation: trio.Cancelled | None = None
    for leaf in leaves(error):
        if not isinstance(leaf, trio.Cancelled):
            return None
        cancellation = leaf
    return cancellation


def is_stray(error: BaseException) -> bool:
    """Return True for a `Cancelled` that no scope around the caller has delivered.

    User code kept such an exception from another scope. A stray `Cancelled` must not propagate: a nursery would mistake
    it for its own cancellation, end all its tasks, and raise nothing.
    """
    return isinstance(error, trio.Cancelled) and trio.current_effective_deadline() > -math.inf


def cause_of(error: BaseException) -> BaseException:
    """Return the exception that an error was raised from, or the error itself.

    The check is for None and not for truth, because bool() of a foreign exception may be False.
    """
    return error if error.__cause__ is None else error.__cause__


def flatten(error: BaseException) -> BaseException:
    """Return the failure inside `error` without nesting and without cancellations.

    Returns:
        The single real error, or one flat group of several; one `Cancelled` if there is nothing else; `error` itself if
        `error` is not a group.
    """
    if not isinstance(error, BaseExceptionGroup):
        return error
    real = [leaf for leaf in leaves(error) if not isinstance(leaf, trio.Cancelled)]
    if not real:
        return next(leaves(error))
    if len(real) == 1:
        return real[0]
    return BaseExceptionGroup(error.message, real)
