"""Waits of asyncio that end only when they are over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any


async def wait_through(
    future: asyncio.Future[Any], on_cancel: Callable[[], None] | None = None
) -> asyncio.CancelledError | None:
    """Wait until a future is done, however often the caller's task is cancelled.

    Args:
        future: The future; is not cancelled, and its error is not raised.
        on_cancel: Called at each cancel, so that the future may be done earlier.

    Returns:
        The last cancellation, which the caller has to raise; None if the task was not cancelled.
    """
    cancellation: asyncio.CancelledError | None = None
    while not future.done():
        waiter = future.get_loop().create_future()  # a cancel cancels what a task waits for: not `future`
        wake = partial(_wake, waiter)
        future.add_done_callback(wake)
        try:
            await waiter
        except asyncio.CancelledError as error:  # noqa: ASYNC103 - returned
            cancellation = error
            future.remove_done_callback(wake)
            if on_cancel is not None:
                on_cancel()
    return cancellation


def _wake(waiter: asyncio.Future[None], _: object) -> None:
    if not waiter.done():
        waiter.set_result(None)
