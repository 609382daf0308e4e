"""What the tasks of a client wait for, in any event loop: the ports of the loop, and the waits on them."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Protocol

from ..protocol.down import Ack, Error
from .endpoint import Endpoint
from .http_exchange import HttpExchange
from .pending_requests import PendingAnswers


class Occurrence(Protocol):
    """An event of trio or asyncio."""

    def set(self) -> None:
        """Wake all tasks that wait."""

    async def wait(self) -> object:
        """Wait until the event is set."""


class Loop(Protocol):
    """The event loop of a client."""

    def occurrence(self) -> Occurrence:
        """Return a new event."""

    async def checkpoint(self) -> None:
        """Let other tasks run, and be cancelled."""

    async def exchange(self, address: Endpoint, exchange: HttpExchange, context: ssl.SSLContext | None) -> None:
        """Perform an HTTP request on a new connection.

        Raises:
            NotReachable: The gateway does not answer, or not with HTTP.
        """


class News:
    """Wakes one task whenever there is something to read. No news is lost between a look and a wait."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._next = loop.occurrence()

    def tell(self) -> None:
        """Wake the task."""
        self._next.set()
        self._next = self._loop.occurrence()

    async def wait(self) -> None:
        """Wait for the next news. The caller has looked without another await before."""
        await self._next.wait()


async def ask(loop: Loop, calls: PendingAnswers, id_: str, text: str) -> Ack | Error:
    """Send a request, on as many connections as necessary, and return the answer.

    Raises:
        UsageError: A request with this id and another content is pending.
        GreenroomError: There will be no answer.

    Cancellation: the request may or may not have been sent; ask again with the same id.
    """
    done = loop.occurrence()
    wake: Callable[[], None] = done.set
    call = calls.open(id_, text, wake)
    try:
        while call.result is None:
            await done.wait()
    finally:
        calls.leave(call, wake)
    return call.result()
