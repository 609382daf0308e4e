"""`AsyncioConnection`: the connections of a client on asyncio. `ClientLink` decides; three tasks move the bytes.

The same three as in `client/trio_connection.py`: a reader, a writer that is the only sender, and a watchdog.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Callable
from math import inf
from typing import Never

from greenroom import __version__
from greenroom.supervision.exits import leaves

from ..client.close_reasons import ConnectionLost
from ..client.endpoint import Endpoint
from ..client.errors import NotReachable
from ..client.link import ClientLink, ConnectionState
from ..client.timing import ConnectionTiming
from .client_streams import Stream, open_stream


class AsyncioConnection:
    """The connections of one client, one after the other.

    Attributes:
        link: Decides.
        context: For TLS.
        welcomed: Set at the first welcome.
    """

    def __init__(
        self,
        address: Endpoint,
        *,
        token: str | None,
        pace: ConnectionTiming,
        context: ssl.SSLContext | None = None,
        on_change: Callable[[ConnectionState], None] | None = None,
    ) -> None:
        program = f"greenroom/{__version__}"
        self.link = ClientLink(address, token=token, program=program, pace=pace, poke=self._poke, on_change=on_change)
        self.context = context
        self.welcomed = asyncio.Event()
        self._pace = pace
        self._loop = asyncio.get_running_loop()
        self._work, self._greeted, self._closed = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def __repr__(self) -> str:
        return f"<AsyncioConnection of {self.link!r}>"

    def _poke(self) -> None:
        self._work.set()

    async def run(self, *, patient: bool) -> None:
        """Connect, and reconnect, until `close` or until the gateway refuses the client permanently.

        Raises:
            ConnectError: See `ClientLink.lost`.
        """
        while True:
            loss = await self._visit()
            lot = (self._pace.lots or random.random)()
            wait = self.link.lost(loss, self._loop.time(), lot, patient=patient)
            if wait is None:
                break
            await asyncio.sleep(wait)
        self._closed.set()

    async def close(self) -> None:
        """Close the WebSocket within `ConnectionTiming.closing` seconds."""
        self.link.closing = True
        self._poke()
        if self.link.state.connected:
            await _wait_until(self._closed, self._loop.time() + self._pace.closing)

    async def _visit(self) -> ConnectionLost:
        """Open a connection, use the connection until its end, and return why it ended."""
        try:
            await self._stay()
        except ConnectionLost as error:
            return error
        except BaseExceptionGroup as group:  # of the three tasks
            losses, other = group.split(ConnectionLost)
            if losses is None or other is not None:
                raise
            return next(loss for loss in leaves(losses) if isinstance(loss, ConnectionLost))

    async def _stay(self) -> Never:
        deadline = self.link.begin(self._loop.time())
        stream = await self._open(deadline)
        self._greeted = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._write(stream))
                tasks.create_task(self._watch(deadline))
                await self._read(stream)
        finally:
            stream.abort()

    async def _open(self, deadline: float) -> Stream:
        try:
            async with asyncio.timeout_at(deadline):
                return await open_stream(self.link.address, self.context)
        except NotReachable as error:
            raise ConnectionLost(error) from error
        except TimeoutError:
            raise self.link.too_slow() from None

    async def _read(self, stream: Stream) -> Never:
        while True:
            data = await stream.receive()
            self.link.receive(data, self._loop.time())
            if self.link.welcomed:
                self._greeted.set()
                self.welcomed.set()

    async def _write(self, stream: Stream) -> None:
        while True:
            self._work.clear()  # before send(): a poke during the check below must wake the wait
            now = self._loop.time()
            data = self.link.send(now)
            if not data:
                await _wait_until(self._work, self.link.send_again_at(now))
            elif not await stream.send(data):
                return  # the reader reports the reason

    async def _watch(self, deadline: float) -> Never:
        await _wait_until(self._greeted, deadline)
        while True:
            now = self._loop.time()
            await asyncio.sleep(self.link.watch(now) - now)


async def _wait_until(event: asyncio.Event, deadline: float) -> None:
    """Wait for an event, until a time of the loop at the latest."""
    try:
        async with asyncio.timeout_at(None if deadline == inf else deadline):
            await event.wait()
    except TimeoutError:
        return
