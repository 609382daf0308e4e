"""Why a connection ended, and whether a new connection can help. Pure."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ..protocol.codes import CLOSE_CODES, DONE, FORBIDDEN, SUBPROTOCOL, UNAUTHENTICATED, WRONG_PROTOCOL
from ..protocol.down import Bye
from .endpoint import Endpoint
from .errors import ConnectError, Forbidden, NotAGateway, NotAuthenticated

ABNORMAL: Final = 1006
"""RFC 6455: the connection ended without a close frame."""
_LATER: Final = frozenset({408, 425, 429})
"""HTTP statuses below 500 for which another attempt may succeed."""


class ConnectionLost(Exception):
    """A connection has ended.

    Attributes:
        error: The error to report.
        fatal: True if another connection would end in the same way.
        wait: Seconds to wait before the next connection, as requested by the gateway; None leaves the choice to the
            client.
    """

    def __init__(self, error: ConnectError, *, fatal: bool = False, wait: float | None = None) -> None:
        super().__init__(str(error))
        self.error, self.fatal, self.wait = error, fatal, wait


def closed(address: Endpoint, code: int | None, reason: str | None, bye: Bye | None) -> ConnectionLost:
    """Return the end of a connection with or without a close frame; `bye` is the gateway's gw.bye, if any."""
    code = bye.code if bye is not None else code or ABNORMAL
    reason = (bye.reason if bye is not None else reason) or ""
    wait = None if bye is None or bye.retry_after_ms is None else max(0, bye.retry_after_ms) / 1000
    error_type = CLOSE_CODES.get(code)
    if error_type is None or error_type.retry or error_type is DONE:
        name = error_type.name if error_type is not None else "connection lost" if code == ABNORMAL else f"code {code}"
        return ConnectionLost(address.unreachable(f"{name}: {reason}" if reason else name), wait=wait)
    return ConnectionLost(_refused(address, code, reason or error_type.meaning), fatal=True)


def _refused(address: Endpoint, code: int, reason: str) -> ConnectError:
    url = address.url
    match code:
        case UNAUTHENTICATED.code:
            return not_authenticated(address, reason)
        case FORBIDDEN.code:
            return Forbidden(f"{url} does not let this principal in ({reason}); use a token that it lets in", url=url)
        case WRONG_PROTOCOL.code:
            return wrong_protocol(address, reason)
        case _:
            return ConnectError(f"{url} closed the connection ({code}: {reason}); the last frame is invalid", url=url)


def rejected(address: Endpoint, status: int, body: bytes | None) -> ConnectionLost:
    """Return the end of a connection attempt that was answered with HTTP instead of a WebSocket."""
    url, answer = address.url, f"HTTP {status}"
    message = message_of(body)
    answer += f": {message}" if message else ""
    if status >= 500 or status in _LATER:
        return ConnectionLost(address.unreachable(answer))
    if status == 401:
        return ConnectionLost(not_authenticated(address, answer), fatal=True)
    if status == 403:
        way = "the server has to allow the name by which it is reached"
        return ConnectionLost(Forbidden(f"{url} does not let this client in ({answer}); {way}", url=url), fatal=True)
    return ConnectionLost(NotAGateway(f"at {url} is not a gateway ({answer}); check the address", url=url), fatal=True)


def not_authenticated(address: Endpoint, reason: str) -> NotAuthenticated:
    """Return the error for a missing or unknown token."""
    way = "give the token that `greenroom serve` keeps in its token file, as token=..."
    return NotAuthenticated(f"{address.url} does not take this token ({reason}); {way}", url=address.url)


def wrong_protocol(address: Endpoint, reason: str) -> NotAGateway:
    """Return the error for a peer of another release, or another program."""
    text = f"{address.url} does not speak {SUBPROTOCOL} ({reason}); use the client of the server's release"
    return NotAGateway(text, url=address.url)


def message_of(body: bytes | None) -> str:
    """Return the message in the body of an HTTP error; empty if the body is not a gateway's."""
    try:
        data: Any = msgspec.json.decode(body or b"")
        return str(data["error"]["message"])[:500]
    except (msgspec.DecodeError, UnicodeError, KeyError, TypeError):
        return ""
