"""A byte stream that signals its end to tasks that do not read the stream."""

from __future__ import annotations

import trio


class WatchedStream(trio.abc.Stream):
    """A stream with an event for its end.

    trio-websocket waits without limit for a handshake on a stream that has ended; the event ends that wait.

    Attributes:
        closed: Set when the peer closes the stream, when the stream breaks, or on `aclose`.
    """

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self.closed = trio.Event()

    def __repr__(self) -> str:
        """Show whether the stream is open."""
        return f"<WatchedStream {'closed' if self.closed.is_set() else 'open'}>"

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Receive bytes; empty at the end."""
        try:
            data = await self._stream.receive_some(max_bytes)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.closed.set()
            raise
        if not data:
            self.closed.set()
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send all bytes."""
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until the stream may accept bytes."""
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        """Close the stream."""
        self.closed.set()
        await self._stream.aclose()
