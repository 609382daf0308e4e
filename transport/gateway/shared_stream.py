"""`SharedStream`: one TCP connection that trio-websocket and the event writer share.

trio-websocket performs the handshake, reads, and answers pings; the gateway writes prebuilt frames to the same stream.
Both write complete, unfragmented frames, one writer at a time. A cancelled write may leave half a frame, after which no
byte may follow: the stream is then marked as torn and rejects every later write. No byte may follow a close frame
either.
"""

from __future__ import annotations

import os
from typing import Final, Literal, NoReturn

import trio

from ..protocol.codes import CloseCode
from ..protocol.limits import Limits
from .frame_limiter import FrameLimiter

_CHUNK: Final = 65_536
"""Bytes per write on a stream without a socket (in tests); progress is measured after each."""
_CLOSE: Final = 0x88
"""First byte of a close frame; an HTTP response begins with H, a chunk with a digit."""
_CONTROL: Final = 0x88
"""Bits set in the first byte of a control frame."""


class PeerStalled(trio.BrokenResourceError):
    """The peer accepted no data within the time limit."""


class SharedStream(trio.abc.Stream):
    """The stream that trio-websocket receives in place of the socket.

    Attributes:
        received_at: trio time at which the newest bytes came from the peer.
        sent: trio time of the newest progress of a write.
        shown_at: trio time of the newest write that a web page sees: of more than a ping or pong.
        taken: trio time at which the peer last made room in a full window.
        torn: True if no further write is possible.
        finished: True if the stream is torn because its last frame was written completely.
        stalled: True if the stream is torn because the peer accepted no data.
        written: Bytes accepted by the operating system.
    """

    def __init__(self, inner: trio.abc.Stream, prefix: bytes, *, stall_seconds: float) -> None:
        """Wrap a stream. `prefix` has bytes that were already read; they are received first."""
        self._inner = inner
        self._prefix, self._early = prefix, b""
        self._stall = stall_seconds
        self._busy = False
        self._rest = b""
        self._lot = trio.lowlevel.ParkingLot()
        self._meter: FrameLimiter | None = None
        self._accepted = trio.Event()
        self._closed = False
        self.torn = self.finished = self.stalled = False
        self.received_at = self.sent = self.shown_at = self.taken = trio.current_time()
        self.written = 0

    @property
    def peer(self) -> str | None:
        """The IP address of the peer; None without a socket, or if the peer has gone."""
        if not isinstance(self._inner, trio.SocketStream):
            return None
        try:
            return str(self._inner.socket.getpeername()[0])
        except OSError:
            return None

    def __repr__(self) -> str:
        return f"<SharedStream {'torn' if self.torn else 'busy' if self._busy else 'idle'}>"

    # --- reading -----------------------------------------------------------------------------------------------------

    def begin_frames(self, handshake: bytes, early: bytes, limits: Limits) -> None:
        """Switch to WebSocket frames: trio-websocket reads this handshake and, after `accepted`, metered frames.

        `early` has the bytes that followed the real handshake. From now on `aclose` only ends the exchange of frames;
        the opener of the connection closes it after the peer has had time to read the end.
        """
        self._prefix, self._early = handshake, early
        self._meter = FrameLimiter(limits, trio.current_time())

    def accepted(self) -> None:
        """Release the frames after the answer to the handshake: trio-websocket would leave earlier ones unprocessed."""
        self._accepted.set()

    @property
    def verdict(self) -> CloseCode | None:
        """The close code that ended the reading because the peer sends too much; None otherwise."""
        return None if self._meter is None else self._meter.verdict

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Receive the bytes that were already read, then new ones.

        Raises:
            BrokenResourceError: The connection is broken.
            ClosedResourceError: The stream was closed here, or there is a verdict.
        """
        if self._prefix:
            await trio.lowlevel.checkpoint()
            data, self._prefix = self._prefix, b""
            return data
        if self._meter is not None:
            return await self._receive_frames(self._meter, max_bytes)
        received = bytes(await self._inner.receive_some(max_bytes))
        self.received_at = trio.current_time()
        return received

    async def _receive_frames(self, meter: FrameLimiter, max_bytes: int | None) -> bytes:
        await self._accepted.wait()
        if self._closed or meter.verdict is not None:
            raise trio.ClosedResourceError
        received, self._early = self._early, b""
        if not received:
            received = bytes(await self._inner.receive_some(max_bytes))
        self.received_at = trio.current_time()
        good = meter.feed(received, self.received_at)
        if received and not good:
            raise trio.ClosedResourceError
        return received[:good]

    # --- writing -----------------------------------------------------------------------------------------------------

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Write complete frames; other writers wait. After a close frame the stream is finished.

        Raises:
            PeerStalled: No progress within the time limit.
            BrokenResourceError: The connection is broken, torn or finished.
            ClosedResourceError: The stream was closed here.

        Cancellation: while waiting for other writers, nothing has been written. Afterwards the stream is torn.
        """
        await self._take()
        if not self._rest and not data:
            self._free()
            await trio.lowlevel.checkpoint()
            return
        first = data[0] if data else 0
        await self._write(self._rest + bytes(data) if self._rest else data, last=first == _CLOSE)
        if first & _CONTROL != _CONTROL:
            self.shown_at = self.sent

    async def send_last(self, data: bytes) -> None:
        """Write complete frames and nothing after them. Errors and cancellation are those of `send_all`."""
        await self._take()
        await self._write(self._rest + data, last=True)

    async def finish(self) -> None:
        """End the writing; the peer sees the end of the stream if the transport supports half-close.

        Raises:
            BrokenResourceError, ClosedResourceError: The connection is broken or closed.
        """
        self.torn = self.finished = True
        if isinstance(self._inner, trio.abc.HalfCloseableStream):
            await self._inner.send_eof()

    async def discard_some(self, max_bytes: int) -> int:
        """Read and discard bytes; return their number, 0 at the end.

        Raises:
            BrokenResourceError, ClosedResourceError: The connection is broken or closed.
        """
        return len(await self._inner.receive_some(max_bytes))

    async def _take(self) -> None:
        """Wait for the turn to write. A writer hands the turn to the first waiter, so no writer can overtake."""
        if self._busy:
            await self._lot.park()
        self._busy = True
        if self.torn:
            self._free()
            raise trio.BrokenResourceError("nothing can be written on this connection any more")

    def _free(self) -> None:
        if self._lot:
            self._lot.unpark()
        else:
            self._busy = False

    async def _write(self, data: bytes | bytearray | memoryview, *, last: bool) -> None:
        self._rest = b""
        try:
            await (self._write_socket if isinstance(self._inner, trio.SocketStream) else self._write_stream)(data)
            self.finished = last
            self.torn = self.torn or last
        except BaseException:  # a part of the data may be sent: no later write may follow it
            self.torn = True
            raise
        finally:
            self._free()

    async def _write_socket(self, data: bytes | bytearray | memoryview) -> None:
        assert isinstance(self._inner, trio.SocketStream)  # noqa: S101 - for the type checker
        socket, remaining, full = self._inner.socket, memoryview(data), False
        while remaining:
            with trio.move_on_after(self._stall) as limit:
                try:
                    count = await socket.send(remaining)
                except OSError as error:
                    raise trio.BrokenResourceError(f"the connection is gone: {error}") from error
                self._progress(count)
                if full:
                    self.taken = self.sent
                remaining, full = remaining[count:], True
            if limit.cancelled_caught:
                self._give_up()

    async def _write_stream(self, data: bytes | bytearray | memoryview) -> None:
        for start in range(0, len(data), _CHUNK):
            chunk = memoryview(data)[start : start + _CHUNK]
            with trio.move_on_after(self._stall) as limit:
                await self._inner.send_all(chunk)
                self._progress(len(chunk))
            if limit.cancelled_caught:
                self._give_up()

    def _give_up(self) -> NoReturn:
        self.stalled = True
        raise PeerStalled(f"the peer took nothing for {self._stall:g} s")

    def _progress(self, count: int) -> None:
        self.written += count
        self.sent = trio.current_time()

    def try_send(self, data: bytes) -> Literal["sent", "partly", "full", "no"]:
        """Write complete frames without waiting, from any task. Control frames must use `send_all`.

        Returns:
            sent: Everything was written.
            partly: The beginning was written; the rest is kept and written before anything else, by `flush`.
            full: Nothing was written because the peer's window is full.
            no: Nothing was written because another task writes, the stream is torn, or this stream has no socket.
        """
        if self._busy or self.torn or self._rest or not isinstance(self._inner, trio.SocketStream):
            return "no"
        try:
            # not trio's send, which is a checkpoint; trio's sockets are non-blocking, so this call never waits
            count = os.write(self._inner.socket.fileno(), data)
        except BlockingIOError:
            return "full"
        except OSError:
            self.torn = True
            return "no"
        self._progress(count)
        self.shown_at = self.sent
        if count == len(data):
            return "sent"
        self._rest = data[count:]
        return "partly"

    @property
    def pending(self) -> bool:
        """True if a frame is partly written: call `flush`."""
        return bool(self._rest)

    async def flush(self) -> None:
        """Write the rest of `try_send`. Errors are those of `send_all`."""
        await self.send_all(b"")

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until a write may make progress."""
        await self._inner.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        """Close the connection, or only the exchange of frames after `begin_frames`; a concurrent write fails."""
        if self._meter is not None:
            self._closed = True
            await trio.lowlevel.checkpoint()
            return
        self.torn = True
        await self._inner.aclose()
