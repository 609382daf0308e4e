"""`Outbox`: what one connection of an ASGI server is to send, between the gateway and the server's `send`.

A server's `send` may wait for as long as a peer reads nothing, may not be cancelled there (hypercorn), and may belong
to another event loop. Therefore two tasks share a connection: the gateway's adds messages, and the server's sends them
and merges the chunks of a body that have come meanwhile. The outbox stands for the socket's buffer: bounded, and a
writer waits while it is full.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

import trio

from greenroom.supervision import Raised, acapture

from .http import nothing

Message = dict[str, Any]
"""A message of ASGI, as the gateway sends it."""
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[Message], Awaitable[None]]

AHEAD: Final = 65_536
"""Bytes that wait for the server before a writer waits, too."""
PIECE: Final = 65_536
"""Bytes of a body per message; the progress of a slow peer shows after each."""


class Outbox(ABC):
    """The messages of one connection, in order. A chunk of a body is bytes; the pump makes the message.

    The pump may run in another thread than the gateway. Both ends of a deque may be used by two threads without a lock;
    each counter has one writer; and an end that waits says so first and looks again, so that it misses nothing.

    Attributes:
        ended: True once no message follows.
        broken: True once the server takes no further message.
    """

    def __init__(self) -> None:
        self.ended = self.broken = False
        self._items: deque[tuple[Message | bytes, int]] = deque()
        self._added = self._sent = 0  # bytes
        self._has_room: trio.Event | None = None
        self._most = 0
        self._on_lost: Callable[[], None] = nothing

    def __repr__(self) -> str:
        return f"<{type(self).__name__} with {self.pending} bytes>"

    @property
    def pending(self) -> int:
        """Bytes that the server has not taken."""
        return self._added - self._sent

    # --- the gateway's end -------------------------------------------------------------------------------------------

    def put(self, item: Message | bytes, size: int) -> None:
        """Add a message, or a chunk of a body."""
        self._added += size
        self._items.append((item, size))
        self._wake()

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Call `callback` if the server takes no further message before the end."""
        self._on_lost = callback

    def end(self) -> None:
        """Add nothing further: the pump ends when it has sent everything."""
        self.ended = True
        self._wake()

    @abstractmethod
    def abandon(self) -> None:
        """Send nothing more, and end a `send` that waits: the peer takes nothing."""

    async def drained(self, most: int, seconds: float) -> bool:
        """Wait until at most `most` bytes are pending; return False if the server takes none for `seconds`."""
        while self.pending > most and not self.broken:
            before, self._most, self._has_room = self._sent, most, trio.Event()
            if self.pending > most and not self.broken:
                with trio.move_on_after(seconds) as limit:
                    await self._has_room.wait()
                if limit.cancelled_caught and self._sent == before:
                    return False
        return True

    def _note_room(self) -> None:
        if self._has_room is not None:
            self._has_room.set()

    def _note_end(self) -> None:
        self._note_room()
        if not self.ended:
            self._on_lost()

    # --- the server's end --------------------------------------------------------------------------------------------

    async def pump(self, send: Send) -> None:
        """Send everything until the end; an error of `send` is raised."""
        try:
            while self._items or not self.ended:
                if not self._items:
                    await self._wait()
                    continue
                message, size = self._next()
                await send(message)
                self._sent += size
                if self._has_room is not None and self.pending <= self._most:
                    self._tell(self._note_room)
        finally:
            self.broken = True
            self._tell(self._note_end)

    def _next(self) -> tuple[Message, int]:
        """Take a message: the next one, or one of the chunks that are there."""
        item, size = self._items.popleft()
        if not isinstance(item, bytes):
            return item, size
        parts = [item]
        while self._items and size < PIECE:
            more, length = self._items[0]
            if not isinstance(more, bytes) or size + length > PIECE:
                break
            self._items.popleft()
            parts.append(more)
            size += length
        body = item if len(parts) == 1 else b"".join(parts)
        return {"type": "http.response.body", "body": body, "more_body": True}, size

    @abstractmethod
    def _wake(self) -> None:
        """Wake the pump; at the gateway's end."""

    @abstractmethod
    async def _wait(self) -> None:
        """Wait until the pump is woken; not if there are items, or the end, already."""

    @abstractmethod
    def _tell(self, callback: Callable[[], None]) -> None:
        """Call a function at the gateway's end, soon."""


class TrioOutbox(Outbox):
    """Both ends are in one run of trio."""

    def __init__(self) -> None:
        super().__init__()
        self._lot = trio.lowlevel.ParkingLot()
        self._pumping = trio.CancelScope()
        self._over = trio.Event()
        self._error: BaseException | None = None

    async def run(self, send: Send) -> None:
        """Pump, in a task that may outlive the server's: a `send` of hypercorn ends only after that."""
        try:
            with self._pumping:
                end = await acapture(self.pump, send)
                self._error = end.error if isinstance(end, Raised) else None
        finally:
            self._over.set()

    async def over(self) -> None:
        """Wait until everything is sent, or abandoned.

        Raises:
            Exception: The error of `send`, which is the server's or a framework's.
        """
        await self._over.wait()
        if self._error is not None:
            raise self._error

    def abandon(self) -> None:
        """End the pump; see `Outbox`."""
        self._pumping.cancel()
        self._over.set()

    def _wake(self) -> None:
        self._lot.unpark()

    async def _wait(self) -> None:
        await self._lot.park()

    def _tell(self, callback: Callable[[], None]) -> None:
        callback()
