"""`SharedStream`: one TCP connection that trio-websocket and the event writer share.

trio-websocket does the handshake, reads and answers pings; the down path writes prebuilt frames beside it. Both write
whole, unfragmented frames, one writer at a time. A write that was cut short by a cancellation has torn the frame:
nothing may follow half a frame, so the stream is marked and refuses every later write. Nothing may follow a close frame
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
"""Bytes per write where the stream has no socket (tests): progress is seen after each."""
_CLOSE: Final = 0x88
"""First byte of a close frame; a response of HTTP begins with H, a chunk of it with a digit."""
_CONTROL: Final = 0x88
"""The bits that the first byte of a control frame has."""


class PeerStalled(trio.BrokenResourceError):
    """The peer took nothing for the whole time limit."""


class SharedStream(trio.abc.Stream):
    """What trio-websocket is given in place of the socket.

    Attributes:
        heard: trio time of the newest bytes from the peer.
        sent: trio time of the newest progress of a write.
        told: trio time of the newest write of more than a ping or pong, of which pages hear nothing.
        taken: trio time when the peer has last made room in a window that was full.
        torn: nothing can be written any more.
        finished: it is torn because the last word was written, and written whole.
        stalled: it is torn because the peer took nothing.
        written: bytes that the operating system has taken.
    """

    def __init__(self, inner: trio.abc.Stream, prefix: bytes, *, stall_seconds: float) -> None:
        """`prefix` are bytes that were read from the stream already: they are received first."""
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
        self.heard = self.sent = self.told = self.taken = trio.current_time()
        self.written = 0

    def __repr__(self) -> str:
        return f"<SharedStream {'torn' if self.torn else 'busy' if self._busy else 'idle'}>"

    # --- reading -----------------------------------------------------------------------------------------------------

    def begin_frames(self, handshake: bytes, early: bytes, limits: Limits) -> None:
        """From now on trio-websocket reads: this handshake, and after `accepted` frames, which are metered.

        `early` is what has come after the real handshake already. From now on `aclose` ends the exchange of frames;
        whoever has opened the connection closes it, when the peer has had the time to read the end.
        """
        self._prefix, self._early = handshake, early
        self._meter = FrameLimiter(limits, trio.current_time())

    def accepted(self) -> None:
        """The answer to the handshake is out. Frames before it trio-websocket would not look at until others come."""
        self._accepted.set()

    @property
    def verdict(self) -> CloseCode | None:
        """Why nothing more is read: the peer sends too much; None as long as it does not."""
        return None if self._meter is None else self._meter.verdict

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """What was read already, then what comes.

        Raises:
            BrokenResourceError: the connection is gone. ClosedResourceError: it was closed here, or there is a verdict.
        """
        if self._prefix:
            await trio.lowlevel.checkpoint()
            data, self._prefix = self._prefix, b""
            return data
        if self._meter is not None:
            return await self._receive_frames(self._meter, max_bytes)
        received = bytes(await self._inner.receive_some(max_bytes))
        self.heard = trio.current_time()
        return received

    async def _receive_frames(self, meter: FrameLimiter, max_bytes: int | None) -> bytes:
        await self._accepted.wait()
        if self._closed or meter.verdict is not None:
            raise trio.ClosedResourceError
        received, self._early = self._early, b""
        if not received:
            received = bytes(await self._inner.receive_some(max_bytes))
        self.heard = trio.current_time()
        good = meter.feed(received, self.heard)
        if received and not good:
            raise trio.ClosedResourceError
        return received[:good]

    # --- writing -----------------------------------------------------------------------------------------------------

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Write whole frames; others wait until they are out. After a close frame the stream is finished.

        Raises:
            Stalled: no progress within the time limit. BrokenResourceError: the connection is gone, torn or finished.
            ClosedResourceError: it was closed here.

        Cancellation: while it waits for others, nothing has happened. Afterwards the stream is torn.
        """
        await self._take()
        if not self._rest and not data:
            self._free()
            await trio.lowlevel.checkpoint()
            return
        first = data[0] if data else 0
        await self._write(self._rest + bytes(data) if self._rest else data, last=first == _CLOSE)
        if first & _CONTROL != _CONTROL:
            self.told = self.sent

    async def send_last(self, data: bytes) -> None:
        """Write whole frames and nothing after them. Raises and cancellation as in `send_all`."""
        await self._take()
        await self._write(self._rest + data, last=True)

    async def finish(self) -> None:
        """Nothing more is written; the peer sees the end of the stream, if it has one of its own for each way.

        Raises:
            BrokenResourceError, ClosedResourceError: the connection is gone.
        """
        self.torn = self.finished = True
        if isinstance(self._inner, trio.abc.HalfCloseableStream):
            await self._inner.send_eof()

    async def discard_some(self, max_bytes: int) -> int:
        """Read, and forget what was read; 0 at the end.

        Raises:
            BrokenResourceError, ClosedResourceError: the connection is gone.
        """
        return len(await self._inner.receive_some(max_bytes))

    async def _take(self) -> None:
        """Wait for one's turn: whoever has written hands it to the first who waits, and not to who comes back first."""
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
        except BaseException:
            self.torn = True
            raise
        finally:
            self._free()

    async def _write_socket(self, data: bytes | bytearray | memoryview) -> None:
        assert isinstance(self._inner, trio.SocketStream)  # noqa: S101 - for the type checker
        socket, left, full = self._inner.socket, memoryview(data), False
        while left:
            with trio.move_on_after(self._stall) as limit:
                try:
                    count = await socket.send(left)
                except OSError as error:
                    raise trio.BrokenResourceError(f"the connection is gone: {error}") from error
                self._progress(count)
                if full:
                    self.taken = self.sent
                left, full = left[count:], True
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
        """Write whole frames without waiting, from anybody's step. No control frames: those go through `send_all`.

        Returns:
            sent: all of it. partly: the beginning; the rest is kept and written before anything else, by `flush`.
            full: nothing, the peer's window is full. no: nothing, because somebody writes, it is torn, or this stream
            has no socket.
        """
        if self._busy or self.torn or self._rest or not isinstance(self._inner, trio.SocketStream):
            return "no"
        try:
            count = os.write(self._inner.socket.fileno(), data)
        except BlockingIOError:
            return "full"
        except OSError:
            self.torn = True
            return "no"
        self._progress(count)
        self.told = self.sent
        if count == len(data):
            return "sent"
        self._rest = data[count:]
        return "partly"

    @property
    def pending(self) -> bool:
        """True if a frame is half written: call `flush`."""
        return bool(self._rest)

    async def flush(self) -> None:
        """Write what `try_send` could not. Raises as `send_all`."""
        await self.send_all(b"")

    async def wait_send_all_might_not_block(self) -> None:
        """Until a write may make progress."""
        await self._inner.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        """Close the connection, or end the exchange of frames on it; a write that is going on fails."""
        if self._meter is not None:
            self._closed = True
            await trio.lowlevel.checkpoint()
            return
        self.torn = True
        await self._inner.aclose()
