"""The port to the event loop of a program that hosts a runtime in another library than trio."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

import trio


class HostLoop(Protocol):
    """The asyncio loop of the host. A plain trio program has none."""

    async def call(self, function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        """Call a coroutine function in a task of the host's loop, and return its result.

        The task sees the context variables of the caller.

        Raises:
            BaseException: The task's own error.
            RuntimeClosed: The loop has ended, or was closed before the task could begin.
            trio.Cancelled: The caller was cancelled; the task has ended.

        Cancellation: the task is cancelled, and the call waits for its end. A task that ends with a result or an error
        nevertheless decides how the call ends.
        """


HOST_LOOP: Final[trio.lowlevel.RunVar[HostLoop | None]] = trio.lowlevel.RunVar("greenroom.host_loop", default=None)
"""The host's loop, in the trio run of a thread that serves a host; None in a plain trio program."""
