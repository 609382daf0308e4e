"""The head of a request, validated before any other work. Pure functions of what h11 has parsed.

Stricter than h11 where two parsers of the same bytes might differ (RFC 9112 sections 3.2 and 6.1): a proxy in front of
the gateway must have seen the same request.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import parse_qsl

import attrs
import h11

from ..protocol.codes import PATH, SUBPROTOCOL, Refused

ONCE: Final = (b"authorization", b"origin", b"transfer-encoding", b"sec-websocket-key")
"""Headers that must not be repeated, because the effective value would be ambiguous. h11 checks Host and
Content-Length.
"""


@attrs.frozen(kw_only=True)
class Head:
    """A request without its body.

    Attributes:
        method, path: The path is still encoded.
        query: The last value of each name.
        headers: Names in lower case; the values of a repeated header are joined with commas (RFC 9110 section 5.3).
        upgrade: True if the request asks for a WebSocket.
        subprotocols: The offered subprotocols.
        modern: True for HTTP/1.1.
        size: Announced size of the body in bytes; None if the body is chunked.
        kept: True if the peer keeps the connection for further requests (HTTP/1.1 without `Connection: close`).
        root: Path under which the gateway is mounted in another application; without a slash at its end.
        secure: True if the server that has accepted the connection speaks TLS.
        peer: IP address at the other end of the connection: of the client, or of a proxy; None if there is none.
    """

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    upgrade: bool
    subprotocols: tuple[str, ...]
    modern: bool
    size: int | None
    kept: bool
    root: str = ""
    secure: bool = False
    peer: str | None = None


def read_head(request: h11.Request, peer: str | None = None) -> Head:
    """Validate and convert the head of a request from `peer` that h11 has parsed.

    Raises:
        Refused: bad_message.
    """
    modern = request.http_version == b"1.1"
    return head_of(request.method, request.target, request.headers, modern=modern, peer=peer)


def head_of(
    method: bytes, target: bytes, fields: Iterable[tuple[bytes, bytes]], *, modern: bool, peer: str | None = None
) -> Head:
    """Validate and convert the parts of a request's head; the names of `fields` are in lower case.

    Raises:
        Refused: bad_message.
    """
    fields = list(fields)
    by_name: dict[bytes, bytes] = {}
    for name, value in fields:
        if name in by_name and name in ONCE:
            raise Refused("bad_message", f"there is more than one header {name.decode()}; send one")
        joint = b"; " if name == b"cookie" else b", "
        by_name[name] = by_name[name] + joint + value if name in by_name else value
    if b"transfer-encoding" in by_name and b"content-length" in by_name:
        raise Refused("bad_message", "there are both Content-Length and Transfer-Encoding; send one")
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in by_name.items()}
    path, query = _target(target.decode("latin-1"), headers.get("host"))
    connection = [value for name, value in fields if name == b"connection"]
    offered = [value.decode("latin-1") for name, value in fields if name == b"sec-websocket-protocol"]
    return Head(
        method=method.decode("latin-1"),
        path=path,
        query=dict(parse_qsl(query, keep_blank_values=True)) if query else {},
        headers=headers,
        upgrade=headers.get("upgrade", "").lower() == "websocket",
        subprotocols=tuple(protocol.strip() for shown_target in offered for protocol in shown_target.split(",")),
        modern=modern,
        size=None if b"transfer-encoding" in by_name else int(headers.get("content-length", "0")),
        kept=modern and b"close" not in _tokens(b",".join(connection)),
        peer=peer,
    )


def _tokens(header: bytes) -> list[bytes]:
    """Return the tokens of a header that is a list, in lower case."""
    return [token.strip().lower() for token in header.split(b",")]


def _target(target: str, host: str | None) -> tuple[str, str]:
    """Return path and query. An absolute target (from a proxy) must name the host of the Host header."""
    shown_target = target
    if not target.startswith("/"):
        scheme, _, rest = target.partition("://")
        authority, slash, path = rest.partition("/")
        if scheme.lower() not in ("http", "https") or not host or authority.lower() != host.lower():
            raise Refused("bad_message", f"the target {shown_target!r:.200} is no path of this host")
        target = f"/{path}" if slash else "/"
    if "#" in target:
        raise Refused("bad_message", f"the target {shown_target!r:.200} holds a fragment; those are not sent")
    path, _, query = target.partition("?")
    return path, query


def check_path(head: Head) -> None:
    """Check that a handshake is for the gateway's only WebSocket.

    Raises:
        Refused: not_found.
    """
    if head.path != PATH:
        raise Refused("not_found", f"WebSockets are at {PATH}")


def check_upgrade(head: Head) -> None:
    """Check the requirements of RFC 6455 section 4.2.1 for a handshake.

    Raises:
        Refused: not_found or bad_message.
    """
    headers = head.headers
    check_path(head)
    if head.method != "GET" or not head.modern or head.size != 0:
        raise Refused("bad_message", "a WebSocket begins with GET and HTTP/1.1, without a body")
    if b"upgrade" not in _tokens(headers.get("connection", "").encode("latin-1")):
        raise Refused("bad_message", "the header Connection must hold Upgrade")
    if headers.get("sec-websocket-version") != "13":
        raise Refused("bad_message", "the header Sec-WebSocket-Version must be 13")
    try:
        key = base64.b64decode(headers.get("sec-websocket-key", ""), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != 16:
        raise Refused("bad_message", "the header Sec-WebSocket-Key must hold 16 bytes in base64")


def handshake(head: Head) -> bytes:
    """Return a canonical handshake: trio-websocket parses only what has been validated here."""
    lines = [
        f"GET {PATH} HTTP/1.1",
        "Host: localhost",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {head.headers['sec-websocket-key']}",
    ]
    if SUBPROTOCOL in head.subprotocols:
        lines.append(f"Sec-WebSocket-Protocol: {SUBPROTOCOL}")
    return "\r\n".join([*lines, "", ""]).encode("ascii")
