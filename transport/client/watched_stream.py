"""A byte stream that says when it has ended, also to those who do not read it."""

from __future__ import annotations

import trio


class WatchedStream(trio.abc.Stream):
    """A stream with an event for its end: the WebSocket library waits for a handshake on one that has ended.

    Attributes:
        gone: the other side has closed or the stream has broken, or we have closed it.
    """

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self.gone = trio.Event()

    def __repr__(self) -> str:
        """Whether it is open."""
        return f"<Wire {'gone' if self.gone.is_set() else 'open'}>"

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Bytes, or none at the end."""
        try:
            data = await self._stream.receive_some(max_bytes)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.gone.set()
            raise
        if not data:
            self.gone.set()
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of it."""
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until there is room."""
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        """Close it."""
        self.gone.set()
        await self._stream.aclose()
