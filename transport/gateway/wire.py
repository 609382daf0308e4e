"""`SharedStream`: one TCP connection that trio-websocket and the event writer share.

trio-websocket does the handshake, reads, answers pings and closes; the down path writes prebuilt frames beside it. Both
write whole, unfragmented frames, one writer at a time. A write that was cut short by a cancellation has torn the frame:
nothing may follow half a frame, so the stream is marked and refuses every later write.
"""

from __future__ import annotations

import os
from typing import Final, Literal

import trio

_CHUNK: Final = 65_536
"""Bytes per write where the stream has no socket (tests): progress is seen after each."""


class Stalled(trio.BrokenResourceError):
    """The peer took nothing for the whole time limit."""


class SharedStream(trio.abc.Stream):
    """What trio-websocket is given in place of the socket.

    Attributes:
        heard: trio time of the newest bytes from the peer.
        sent: trio time of the newest progress of a write.
        torn: nothing can be written any more.
        written: bytes that the operating system has taken.
    """

    def __init__(self, inner: trio.abc.Stream, prefix: bytes, *, stall_seconds: float) -> None:
        """`prefix` are bytes that were read from the stream already: they are received first."""
        self._inner = inner
        self._prefix = prefix
        self._stall = stall_seconds
        self._busy = False
        self._rest = b""
        self._lot = trio.lowlevel.ParkingLot()
        self.torn = False
        self.heard = self.sent = trio.current_time()
        self.written = 0

    def __repr__(self) -> str:
        return f"<SharedStream {'torn' if self.torn else 'busy' if self._busy else 'idle'}>"

    # --- reading -----------------------------------------------------------------------------------------------------

    def replay(self, prefix: bytes) -> None:
        """Receive these bytes (again) before anything else: what was read by somebody else."""
        self._prefix = prefix

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """What was read already, then what comes."""
        if self._prefix:
            await trio.lowlevel.checkpoint()
            data, self._prefix = self._prefix, b""
            return data
        received = await self._inner.receive_some(max_bytes)
        self.heard = trio.current_time()
        return bytes(received)

    # --- writing -----------------------------------------------------------------------------------------------------

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Write whole frames; others wait until they are out.

        Raises:
            Stalled: no progress within the time limit. BrokenResourceError: the connection is gone, or torn.
            ClosedResourceError: it was closed here.

        Cancellation: tears the stream if a byte was written or a rest is pending; the connection is of no use then.
        """
        await self._take()
        if not self._rest and not data:
            self._free()
            await trio.lowlevel.checkpoint()
            return
        await self._write(self._rest + bytes(data) if self._rest else data)

    async def _take(self) -> None:
        while self._busy:
            await self._lot.park()
        if self.torn:
            raise trio.BrokenResourceError("a write on this connection was cut short")
        self._busy = True

    def _free(self) -> None:
        self._busy = False
        if self._lot:
            self._lot.unpark()

    async def _write(self, data: bytes | bytearray | memoryview) -> None:
        self._rest = b""
        try:
            await (self._write_socket if isinstance(self._inner, trio.SocketStream) else self._write_stream)(data)
        except BaseException:
            self.torn = True
            raise
        finally:
            self._free()

    async def _write_socket(self, data: bytes | bytearray | memoryview) -> None:
        assert isinstance(self._inner, trio.SocketStream)  # noqa: S101 - for the type checker
        socket, left = self._inner.socket, memoryview(data)
        while left:
            with trio.move_on_after(self._stall) as limit:
                try:
                    count = await socket.send(left)
                except OSError as error:
                    raise trio.BrokenResourceError(f"the connection is gone: {error}") from error
                self._progress(count)
                left = left[count:]
            if limit.cancelled_caught:
                raise Stalled(f"the peer took nothing for {self._stall:g} s")

    async def _write_stream(self, data: bytes | bytearray | memoryview) -> None:
        for start in range(0, len(data), _CHUNK):
            chunk = memoryview(data)[start : start + _CHUNK]
            with trio.move_on_after(self._stall) as limit:
                await self._inner.send_all(chunk)
                self._progress(len(chunk))
            if limit.cancelled_caught:
                raise Stalled(f"the peer took nothing for {self._stall:g} s")

    def _progress(self, count: int) -> None:
        self.written += count
        self.sent = trio.current_time()

    def try_send(self, data: bytes) -> Literal["sent", "partly", "full", "no"]:
        """Write whole frames without waiting, from anybody's step.

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
        """Close the connection; a write that is going on fails."""
        self.torn = True
        await self._inner.aclose()
