"""The port to the event loop of a program on asyncio that hosts a runtime."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Final, Protocol

import trio

from .errors import AgentDefinitionError


class HostLoop(Protocol):
    """The asyncio loop of the host. A plain trio program has none."""

    async def call(self, function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        """Call a coroutine function in a task of the host's loop, and return its result; for tasks of trio.

        The task sees the context variables of the caller, and `IN_HOST`.

        Raises:
            BaseException: The task's own error.
            RuntimeClosed: The loop has ended, or was closed before the task could begin.
            trio.Cancelled: The caller was cancelled; the task has ended.

        Cancellation: the task is cancelled, and the call waits for its end. A task that ends with a result or an error
        nevertheless decides how the call ends.
        """

    async def back(self, function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        """Call an async function of trio, and return its result; for tasks of the host's loop.

        Raises:
            BaseException: The function's own error.
            RuntimeClosed: The runtime's thread ends before the function.

        Cancellation: the function is cancelled, and the call waits for its end.
        """


HOST_LOOP: Final[trio.lowlevel.RunVar[HostLoop | None]] = trio.lowlevel.RunVar("greenroom.host_loop", default=None)
"""The host's loop, in the trio run of a thread that serves a host; None in a plain trio program."""
IN_HOST: Final[ContextVar[HostLoop]] = ContextVar("greenroom.in_host")
"""The host's loop, in the tasks of `HostLoop.call`."""


def no_host(what: str) -> AgentDefinitionError:
    """Return the error for code of asyncio in a runtime of a plain trio program."""
    way = "open the runtime with greenroom.aio.open_runtime(...) in a program on asyncio, or write the code for trio"
    return AgentDefinitionError(f"{what} runs on asyncio, and the runtime of this program has trio only; {way}")
