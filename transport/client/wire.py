"""`ClientWire`: the WebSocket of one connection, as bytes in and bytes out. Pure.

Request ->  AcceptConnection            messages  ->  CloseConnection in either direction  ->  closed
->  RejectConnection, its body  ->  Rejected
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

LARGEST: Final = 64 * 1024 * 1024
"""Maximum characters of a message; larger than any event that a store accepts."""
LARGEST_REJECTION: Final = 64 * 1024
"""Bytes that are kept of the body of a rejection."""
TOO_BIG: Final = 1009
"""RFC 6455: a message is too big to process."""


class Rejected(Exception):
    """The peer has answered the upgrade with HTTP."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"HTTP {status}")
        self.status, self.body = status, body


class WireClosed(Exception):
    """The connection has ended, or both sides have said so. `code` is None without a close frame."""

    def __init__(self, code: int | None = None, reason: str = "") -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason


class ClientWire:
    """A client's WebSocket. The owner of the bytes calls `receive` with what arrives, and sends `take`.

    Attributes:
        accepted: The peer has accepted the upgrade.
        subprotocol: The subprotocol that the peer has named.
    """

    def __init__(
        self, authority: str, path: str, *, subprotocol: str, headers: Sequence[tuple[bytes, bytes]] = ()
    ) -> None:
        self.accepted = False
        self.subprotocol: str | None = None
        self._socket = WSConnection(ConnectionType.CLIENT)
        request = Request(host=authority, target=path, subprotocols=[subprotocol], extra_headers=list(headers))
        self._out = bytearray(self._socket.send(request))
        self._parts: list[Any] = []  # of one message: str, or bytes
        self._size = 0
        self._rejection: tuple[int, bytearray] | None = None
        self._end: WireClosed | None = None

    def __repr__(self) -> str:
        return f"<ClientWire {'closed' if self._end else 'open' if self.accepted else 'connecting'}>"

    @property
    def ended(self) -> WireClosed | None:
        """Why nothing more is received: the peer has sent a close frame, or was sent one."""
        return self._end

    def take(self) -> bytes:
        """Return the bytes to send now, and forget them."""
        data, self._out = bytes(self._out), bytearray()
        return data

    def send(self, text: str) -> None:
        """Send a message."""
        self._out += self._socket.send(TextMessage(data=text))

    def close(self) -> None:
        """Send a close frame, unless one was sent or received."""
        if self._end is None:
            self._end = WireClosed(1000)
            self._out += self._socket.send(CloseConnection(code=1000))

    def receive(self, data: bytes) -> Iterator[str | bytes]:
        """Yield the messages that are whole now. `data` is empty at the end of the connection.

        Raises:
            Rejected: The peer has answered the upgrade with HTTP.
            WireClosed: The connection has ended, or the peer breaks the protocol. After a close frame `ended` is set,
                and the answer to it is in `take`.
        """
        if not data:
            self._finish()
        try:
            self._socket.receive_data(data)
            events = list(self._socket.events())
        except (RemoteProtocolError, LocalProtocolError):
            raise WireClosed from None
        for event in events:
            message = self._handle(event)
            if message is not None:
                yield message

    def _finish(self) -> None:
        if self._rejection is not None:
            raise Rejected(self._rejection[0], bytes(self._rejection[1]))
        raise self._end or WireClosed

    def _handle(self, event: Event) -> str | bytes | None:
        match event:
            case AcceptConnection():
                self.accepted, self.subprotocol = True, event.subprotocol
            case RejectConnection():
                self._rejection = event.status_code, bytearray()
                if not event.has_body:
                    self._finish()
            case RejectData():
                self._reject(event)
            case TextMessage() | BytesMessage():
                return self._join(event)
            case Ping() if self._end is None:
                self._out += self._socket.send(event.response())
            case CloseConnection():
                self._closed(event)
            case _:  # a pong, or a ping after a close frame
                pass
        return None

    def _reject(self, event: RejectData) -> None:
        if self._rejection is not None:
            body = self._rejection[1]
            body += event.data[: LARGEST_REJECTION - len(body)]
            if event.body_finished:
                self._finish()

    def _closed(self, event: CloseConnection) -> None:
        if self._end is not None:  # the answer to ours
            raise self._end
        self._end = WireClosed(event.code, event.reason or "")
        self._out += self._socket.send(event.response())

    def _join(self, event: TextMessage | BytesMessage) -> str | bytes | None:
        self._parts.append(event.data)
        self._size += len(event.data)
        if self._size > LARGEST:
            raise WireClosed(TOO_BIG, f"a message of more than {LARGEST:,} characters")
        if not event.message_finished:
            return None
        parts, self._parts, self._size = self._parts, [], 0
        return "".join(parts) if isinstance(event, TextMessage) else b"".join(parts)
