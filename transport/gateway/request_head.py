"""What the head of a request says, judged before anything is done for it. Functions of what h11 has read; no I/O.

Stricter than h11 where two readers of the same bytes might differ (RFC 9112 sections 3.2 and 6.1): whoever stands
before us must have seen the same request.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl

import attrs
import h11

from ..protocol.codes import PATH, SUBPROTOCOL, Refused

ONCE: Final = (b"authorization", b"origin", b"transfer-encoding", b"sec-websocket-key")
"""Headers that decide something: which of two would count is nothing to guess. h11 sees to Host and Content-Length."""


@attrs.frozen(kw_only=True)
class Head:
    """A request without its body.

    Attributes:
        method, path: the path is still encoded. query: the last value of each name.
        headers: names in lower case, the last value of each.
        upgrade: it asks for a WebSocket. subprotocols: that it would speak then.
        modern: it is of HTTP/1.1.
        size: what it says about its body: a number of bytes, or None if that is told chunk by chunk.
    """

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    upgrade: bool
    subprotocols: tuple[str, ...]
    modern: bool
    size: int | None


def read_head(request: h11.Request) -> Head:
    """The head of a request.

    Raises:
        Refused: bad_message.
    """
    found: dict[bytes, bytes] = {}
    for name, value in request.headers:
        if name in found and name in ONCE:
            raise Refused("bad_message", f"there is more than one header {name.decode()}; send one")
        found[name] = value
    if b"transfer-encoding" in found and b"content-length" in found:
        raise Refused("bad_message", "there are both Content-Length and Transfer-Encoding; send one")
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in found.items()}
    path, query = _target(request.target.decode("latin-1"), headers.get("host"))
    offered = [value.decode("latin-1") for name, value in request.headers if name == b"sec-websocket-protocol"]
    return Head(
        method=request.method.decode("latin-1"),
        path=path,
        query=dict(parse_qsl(query, keep_blank_values=True)) if query else {},
        headers=headers,
        upgrade=headers.get("upgrade", "").lower() == "websocket",
        subprotocols=tuple(one.strip() for shown_target in offered for one in shown_target.split(",")),
        modern=request.http_version == b"1.1",
        size=None if b"transfer-encoding" in found else int(headers.get("content-length", "0")),
    )


def _target(target: str, host: str | None) -> tuple[str, str]:
    """Path and query. An absolute target is taken from proxies, if it names the host that the header names."""
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


def check_upgrade(head: Head) -> None:
    """What RFC 6455 section 4.2.1 asks of a handshake.

    Raises:
        Refused: not_found or bad_message.
    """
    headers = head.headers
    if head.path != PATH:
        raise Refused("not_found", f"WebSockets are at {PATH}")
    if head.method != "GET" or not head.modern or head.size != 0:
        raise Refused("bad_message", "a WebSocket begins with GET and HTTP/1.1, without a body")
    tokens = [token.strip().lower() for token in headers.get("connection", "").split(",")]
    if "upgrade" not in tokens:
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
    """The handshake, in our own words: trio-websocket reads what has been judged and nothing else."""
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
