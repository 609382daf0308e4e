"""A nursery without wrapping: one error leaves bare, cancellations leave as one `Cancelled`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NoReturn

import trio

from .exits import sole_cancellation


def unwrap(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Remove the one group level that a nursery has put around the errors of its tasks.

    Returns:
        The one error that is not a cancellation (a group that a task itself raised is kept); one `Cancelled` if there
        is nothing else; a group of the real errors if there are several.
    """
    real = [error for error in group.exceptions if sole_cancellation(error) is None]
    if len(real) == 1:
        return real[0]
    if real:
        return group.derive(real)
    return sole_cancellation(group) or group


def raise_bare(error: BaseException) -> NoReturn:
    """Raise `error` unchanged: the group that is being handled does not become its `__context__`."""
    context = error.__context__
    try:
        raise error
    finally:
        error.__context__ = context
        # otherwise the frame and the error's traceback refer to each other until the garbage collector runs
        del error, context


@asynccontextmanager
async def open_collapsing_nursery() -> AsyncIterator[trio.Nursery]:
    """Open a nursery for use inside actors.

    If a task fails, the other tasks are cancelled, as in `trio.open_nursery`. The error then leaves bare; a group of
    nothing but `Cancelled` leaves as one `Cancelled`, which keeps nested cancellation linear (see `exits`).
    """
    try:
        async with trio.open_nursery() as nursery:
            yield nursery
    except BaseExceptionGroup as group:  # trio wraps each exit of a nursery in a group
        raise_bare(unwrap(group))
