"""`TrioConnection`: the connections of a client on trio. `ClientLink` decides; three tasks move the bytes.

The reader waits for nothing but the gateway. The writer is the only sender: a cancelled send would leave a torn frame.
The watchdog ends a connection that is silent.
"""

from __future__ import annotations

import random
import ssl
from collections.abc import Callable
from typing import Never

import trio

from greenroom import __version__
from greenroom.supervision.exits import leaves
from greenroom.supervision.nursery import open_collapsing_nursery

from .close_reasons import ConnectionLost
from .endpoint import Endpoint
from .errors import NotReachable
from .link import ClientLink, ConnectionState
from .timing import ConnectionTiming
from .trio_streams import CHUNK, open_stream


class TrioConnection:
    """The connections of one client, one after the other.

    Attributes:
        link: Decides.
        context: For TLS.
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
        self._pace = pace
        self._work, self._welcomed, self._closed = trio.Event(), trio.Event(), trio.Event()

    def __repr__(self) -> str:
        return f"<TrioConnection of {self.link!r}>"

    def _poke(self) -> None:
        self._work.set()

    async def run(self, *, patient: bool, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Connect, and reconnect, until `close` or until the gateway refuses the client permanently.

        Started at the first welcome.

        Raises:
            ConnectError: See `ClientLink.lost`.
        """

        def started() -> None:
            task_status.started()

        while True:
            loss = await self._visit(started)
            lot = (self._pace.lots or random.random)()
            wait = self.link.lost(loss, trio.current_time(), lot, patient=patient)
            if wait is None:
                break
            await trio.sleep(wait)
        self._closed.set()

    async def close(self) -> None:
        """Close the WebSocket within `ConnectionTiming.closing` seconds."""
        self.link.closing = True
        self._poke()
        if self.link.state.connected:
            with trio.move_on_after(self._pace.closing):
                await self._closed.wait()

    async def _visit(self, started: Callable[[], None]) -> ConnectionLost:
        """Open a connection, use the connection until its end, and return why it ended."""
        try:
            await self._stay(started)
        except ConnectionLost as error:
            return error
        except BaseExceptionGroup as group:  # two of the three tasks noticed the end at the same moment
            losses, other = group.split(ConnectionLost)
            if losses is None or other is not None:
                raise
            return next(loss for loss in leaves(losses) if isinstance(loss, ConnectionLost))

    async def _stay(self, started: Callable[[], None]) -> Never:
        deadline = self.link.begin(trio.current_time())
        stream = await self._open(deadline)
        self._welcomed = trio.Event()
        try:
            async with open_collapsing_nursery() as nursery:
                nursery.start_soon(self._write, stream)
                nursery.start_soon(self._watch, deadline)
                await self._read(stream, started)
        finally:
            await trio.aclose_forcefully(stream)

    async def _open(self, deadline: float) -> trio.abc.Stream:
        with trio.move_on_at(deadline):
            try:
                return await open_stream(self.link.address, self.context)
            except NotReachable as error:
                raise ConnectionLost(error) from error
        raise self.link.too_slow()

    async def _read(self, stream: trio.abc.Stream, started: Callable[[], None]) -> Never:
        link = self.link
        while True:
            data, is_first = await _received(stream), link.welcome is None
            link.receive(data, trio.current_time())
            if link.welcomed:
                self._welcomed.set()
                if is_first:
                    started()

    async def _write(self, stream: trio.abc.Stream) -> None:
        while True:
            self._work = trio.Event()  # before send(): a poke during the check below must wake the wait
            data = self.link.send(trio.current_time())
            if not data:
                await self._wait()
            elif not await _sent(stream, data):
                return  # the reader reports the reason

    async def _wait(self) -> None:
        with trio.move_on_at(self.link.send_again_at(trio.current_time())):
            await self._work.wait()

    async def _watch(self, deadline: float) -> Never:
        with trio.move_on_at(deadline):
            await self._welcomed.wait()
        while True:
            at = self.link.watch(trio.current_time())
            await trio.sleep_until(at)


async def _received(stream: trio.abc.Stream) -> bytes:
    """Return the next bytes; none at the end, also at a broken one."""
    try:
        return bytes(await stream.receive_some(CHUNK))
    except trio.BrokenResourceError:
        return b""


async def _sent(stream: trio.abc.Stream, data: bytes) -> bool:
    """Send bytes; return False if the stream is broken."""
    try:
        await stream.send_all(data)
    except trio.BrokenResourceError:
        return False
    return True
