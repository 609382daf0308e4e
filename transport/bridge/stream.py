"""An async iterator of trio, read by a task of asyncio: a bounded buffer between two threads."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, Generic, TypeVar

import trio

from greenroom.supervision import Raised, Returned, acapture
from greenroom.supervision.nursery import open_collapsing_nursery

from .host import AsyncioHost

T = TypeVar("T")

MOST: Final = 256
"""Items that trio reads ahead of the host."""
TURN: Final = 32
"""Items that a reader takes before other tasks of its loop run."""


class Buffer(Generic[T]):
    """The items between a trio task, which adds, and a task of the host, which takes.

    Both ends of a deque may be used by two threads without a lock. An end that waits sets its event or future first and
    looks again, so that it misses nothing; the other end wakes it only if it waits.
    """

    def __init__(self, host: AsyncioHost) -> None:
        self._host = host
        self._items: deque[T] = deque()
        self._end: Returned[None] | Raised | None = None
        self._reader: asyncio.Future[None] | None = None
        self._has_room: trio.Event | None = None

    def __repr__(self) -> str:
        return f"<Buffer of {len(self._items)} items>"

    # --- in trio's thread --------------------------------------------------------------------------------------------

    async def fill(self, items: AsyncIterator[T]) -> None:
        """Add the items of an iterator, as there is room, and its end."""

        async def add() -> None:
            async for item in items:
                self._items.append(item)
                self._wake_reader()
                if len(self._items) >= MOST:
                    await self._room()

        end = await acapture(add)
        self._end = Returned(None) if isinstance(end, Returned) else end
        self._wake_reader()

    async def _room(self) -> None:
        self._has_room = trio.Event()
        if len(self._items) >= MOST:  # the host may have taken items since
            await self._has_room.wait()
        self._has_room = None

    def _wake_reader(self) -> None:
        if self._reader is not None:
            self._host.send(self.wake)

    def note_room(self) -> None:
        """Wake the trio task."""
        if self._has_room is not None:
            self._has_room.set()

    # --- in the host's thread ----------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Wake the reader."""
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def take(self, send: Callable[[Callable[[], object]], None]) -> T:
        """Return the next item.

        Raises:
            StopAsyncIteration: The iterator of trio has ended.
            BaseException: Its error.
        """
        while not self._items:
            if self._end is not None and not self._items:  # the end is set after the last item
                if isinstance(self._end, Raised):
                    raise self._end.error
                raise StopAsyncIteration
            self._reader = asyncio.get_running_loop().create_future()
            try:
                if not self._items and self._end is None:
                    await self._reader
            finally:
                self._reader = None
        item = self._items.popleft()
        if self._has_room is not None and len(self._items) <= MOST // 2:
            send(self.note_room)
        return item


class HostIterator(AsyncIterator[T]):
    """The items of a buffer, for one task of the host."""

    def __init__(self, buffer: Buffer[T], send: Callable[[Callable[[], object]], None]) -> None:
        self._buffer, self._send = buffer, send
        self._taken = 0

    def __repr__(self) -> str:
        return f"<HostIterator of {self._buffer!r}>"

    async def __anext__(self) -> T:
        self._taken += 1
        if self._taken % TURN == 0:  # a reader that never waits still lets other tasks run
            await asyncio.sleep(0)
        return await self._buffer.take(self._send)


@asynccontextmanager
async def pumped(
    make: Callable[[], AbstractAsyncContextManager[AsyncIterator[T]]], host: AsyncioHost
) -> AsyncIterator[Buffer[T]]:
    """Fill a buffer from an iterator of trio for the block; in trio's thread."""
    buffer: Buffer[T] = Buffer(host)
    async with make() as items, open_collapsing_nursery() as nursery:
        nursery.start_soon(buffer.fill, items)
        yield buffer
        nursery.cancel_scope.cancel()
