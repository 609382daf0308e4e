"""The two halves of a WebSocket as the gateway uses them: messages in, complete frames out."""

from __future__ import annotations

from typing import Literal, Protocol

from ..protocol.codes import CloseCode


class MessagesEnded(Exception):
    """The client sends no further message: `code` and `reason` of its close frame, None without one."""

    def __init__(self, code: int | None = None, reason: str | None = None) -> None:
        super().__init__(code, reason)
        self.code, self.reason = code, reason


class Messages(Protocol):
    """The messages of a client, after the handshake."""

    @property
    def subprotocol(self) -> str | None:
        """The subprotocol that both sides speak; None: hello says which."""

    async def next(self) -> str | bytes:
        """Wait for the next message.

        Raises:
            MessagesEnded: There is none.
        """


class FrameStream(Protocol):
    """Where the frames for a client go; `SharedStream` documents each of these.

    Attributes:
        torn: True if no further write is possible.
    """

    torn: bool

    @property
    def stalled(self) -> bool:
        """True if the stream is torn because the peer accepted no data."""

    @property
    def received_at(self) -> float:
        """Time in trio's clock of the newest sign of the peer."""

    @property
    def shown_at(self) -> float:
        """Time in trio's clock of the newest write that a web page sees."""

    @property
    def taken(self) -> float:
        """Time in trio's clock at which the peer last made room."""

    @property
    def verdict(self) -> CloseCode | None:
        """The close code that ended the reading because the peer sends too much."""

    @property
    def pending(self) -> bool:
        """True if a frame is partly written."""

    async def send_all(self, data: bytes) -> None:
        """Write complete frames."""

    async def send_last(self, data: bytes) -> None:
        """Write complete frames and nothing after them."""

    def try_send(self, data: bytes) -> Literal["sent", "partly", "full", "no"]:
        """Write complete frames without waiting."""

    async def flush(self) -> None:
        """Write the rest of `try_send`."""
