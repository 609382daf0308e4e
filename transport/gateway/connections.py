"""What a gateway knows of the WebSocket connections that it counts, watches over and closes."""

from __future__ import annotations

from typing import Protocol

from ..protocol.codes import CloseCode
from .access import Principal
from .shared_stream import SharedStream


class Closable(Protocol):
    """A connection that the gateway counts and can close.

    Attributes:
        stream: of the connection.
        principal: whose it is; None before hello.
        counted: the connection counts for its principal.
    """

    stream: SharedStream
    principal: Principal | None
    counted: bool

    def leave(self, code: CloseCode, reason: str = "", retry_after_ms: int | None = None) -> None:
        """Send the reason and close the connection."""

    def heartbeat(self, now: float) -> None:
        """Ping a silent peer, and cut one that does not answer. Never waits."""
