"""`ResponseStream`: the body of a streamed response, such as server-sent events, from the first chunk to the last.

When the gateway stops, only the wait for a chunk is interrupted: chunks are written completely, and the end of the
stream is well-formed. A well-formed end leaves the connection to the next request of its peer.
"""

from __future__ import annotations

from typing import Final, Protocol

import attrs
import h11
import trio

import greenroom as gr
from greenroom.supervision.nursery import open_collapsing_nursery

from .gateway import Gateway
from .http import Streamed
from .shared_stream import SharedStream

READ: Final = 65_536
"""Bytes per read of the socket."""
AHEAD: Final = 65_536
"""Bytes that a peer may send before the response has ended, such as its next request; the rest waits in the socket."""
LAST_CHUNK: Final = 1.0
"""Seconds to write a chunk that was ready when the gateway began to stop."""
ABANDONED: Final = 5.0
"""Seconds for a response's `abandoned` after its peer has disconnected."""
COMMENT_AFTER: Final = 15.0
"""Seconds without a byte before a comment is sent."""


class Body(Protocol):
    """The body of a response whose head has been sent; the I/O is a driver's.

    Attributes:
        torn: True if no further write is possible.
    """

    torn: bool

    @property
    def sent(self) -> float:
        """Time in trio's clock of the newest progress of a write."""

    @property
    def stalled(self) -> bool:
        """True if the body is torn because the peer accepted no data."""

    async def chunk(self, data: bytes) -> None:
        """Write a chunk that is not empty.

        Raises:
            BrokenResourceError, ClosedResourceError: The connection is broken, or its peer accepts no data.
        """

    async def end(self) -> None:
        """Write the end of the response. Errors are those of `chunk`."""

    async def gone(self) -> bool:
        """Wait until the peer has disconnected; return False if that can no longer be seen."""


@attrs.define(eq=False)
class ChunkedBody:
    """A body on a connection of the gateway, in the chunks of HTTP/1.1."""

    stream: SharedStream
    http: h11.Connection

    @property
    def sent(self) -> float:
        """As of the stream, which may have sent other data since."""
        return self.stream.sent

    @property
    def stalled(self) -> bool:
        """As of the stream."""
        return self.stream.stalled

    @property
    def torn(self) -> bool:
        """As of the stream."""
        return self.stream.torn

    @torn.setter
    def torn(self, value: bool) -> None:
        self.stream.torn = value

    async def chunk(self, data: bytes) -> None:
        """Write a chunk; see `Body`."""
        await self.stream.send_all(self.http.send(h11.Data(data=data)) or b"")

    async def end(self) -> None:
        """Write the last chunk; see `Body`."""
        await self.stream.send_all(self.http.send(h11.EndOfMessage()) or b"")

    async def gone(self) -> bool:
        """Wait for a disconnect; see `Body`. Bytes that the peer sends meanwhile belong to its next request.

        Beyond `AHEAD` bytes nothing is read before the response has ended; a disconnect then shows at a write.
        """
        room = AHEAD
        try:
            while room > 0:
                data = await self.stream.receive_some(min(READ, room))
                self.http.receive_data(data)
                if not data:
                    return True
                room -= len(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return True
        return False


@attrs.define(eq=False)
class ResponseStream:
    """The chunks of one response."""

    gateway: Gateway
    body: Body
    _stops: bool = False
    _waiting: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    @property
    def stopping(self) -> bool:
        """True once the stream is to end as soon as possible, and well-formed."""
        return self._stops or self.gateway.closing

    def stop(self) -> None:
        """End the stream as if the gateway stopped: only a wait for a chunk is interrupted."""
        self._stops = True
        if self._waiting in self.gateway.idle:
            self._waiting.cancel()

    async def run(self, streamed: Streamed) -> None:
        """Write chunks until the end of the response, the disconnect of the peer, or the stop of the gateway."""
        whole = False
        try:
            async with open_collapsing_nursery() as nursery:
                nursery.start_soon(self._watch, nursery.cancel_scope)
                nursery.start_soon(self._keep_alive, streamed.comment)
                if not await self._copied(streamed):
                    await self._chunk(streamed.last())
                await self.body.end()
                whole = True
                nursery.cancel_scope.cancel()
        finally:
            left = self.body.torn and not whole and not self.body.stalled and not self.stopping
            if left and streamed.abandoned is not None:
                # shielded: the disconnect cancels this task, and the run must still be cancelled
                with trio.move_on_after(ABANDONED, shield=True):
                    await streamed.abandoned()

    async def _copied(self, streamed: Streamed) -> bool:
        """Write all chunks; return False if the gateway or the runtime stops first.

        Only a wait for a chunk is interrupted.
        """
        idle = self.gateway.idle
        with self._waiting as scope:
            if self.stopping:
                scope.cancel()
            idle.add(scope)
            try:
                async with streamed.chunks() as chunks:
                    async for chunk in chunks:
                        idle.discard(scope)
                        await self._whole_chunk(chunk, scope)
                        idle.add(scope)
            except (gr.RuntimeClosed, gr.StoreUnavailable, gr.StoreDown):
                return False
            finally:
                idle.discard(scope)
            return True
        return False

    async def _whole_chunk(self, chunk: bytes, scope: trio.CancelScope) -> None:
        if scope.cancel_called:  # the chunk arrived as the gateway stopped; the end of the stream must include it
            with trio.move_on_after(LAST_CHUNK, shield=True):
                await self._chunk(chunk)
            return
        await self._chunk(chunk)
        if self.stopping:
            scope.cancel()

    async def _chunk(self, chunk: bytes) -> None:
        if chunk:
            await self.body.chunk(chunk)

    async def _watch(self, scope: trio.CancelScope) -> None:
        """End the response when the peer disconnects."""
        if await self.body.gone():
            self.body.torn = True
            scope.cancel()

    async def _keep_alive(self, comment: bytes) -> None:
        while True:
            await trio.sleep_until(self.body.sent + COMMENT_AFTER)
            if trio.current_time() >= self.body.sent + COMMENT_AFTER:
                await self._chunk(comment)
