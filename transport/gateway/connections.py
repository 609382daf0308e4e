"""The gateway's view of a WebSocket connection: counted, checked for liveness, closed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from ..protocol.codes import CloseCode
from .access import Principal
from .frame_stream import FrameStream
from .request_head import Head
from .sign_ins.authenticator import OpenSignIn


class Closable(Protocol):
    """A connection that the gateway counts and can close.

    Attributes:
        stream: The stream of the connection.
        principal: The authenticated principal; None before hello.
        counted: True if the connection counts for its principal.
        head: The head of the upgrade.
        opened: The watch over the principal; None before hello, and for a principal that is never asked about again.
    """

    stream: FrameStream
    principal: Principal | None
    counted: bool
    head: Head
    opened: OpenSignIn | None

    def followed(self) -> Iterable[str]:
        """Return the runs whose events the connection gets."""

    def leave(self, code: CloseCode, reason: str = "", retry_after_ms: int | None = None) -> None:
        """Send the reason and close the connection."""

    def renamed(self, epoch: str) -> None:
        """Begin every subscription again: the logs have another identity."""

    def heartbeat(self, now: float) -> None:
        """Ping a silent peer, and cut a peer that does not answer. Never waits."""
