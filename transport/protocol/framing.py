"""Bytes around bytes: RFC 6455 frames (server to client, so unmasked and whole) and server-sent events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

PING: Final = b"\x89\x00"
"""A ping without payload."""


def text_frame(payload: bytes) -> bytes:
    """One text frame (RFC 6455 section 5.2: FIN, opcode 1, no mask); the payload is UTF-8."""
    size = len(payload)
    if size < 126:
        return b"\x81%c%b" % (size, payload)
    if size < 65_536:
        return b"\x81\x7e%b%b" % (size.to_bytes(2, "big"), payload)
    return b"\x81\x7f%b%b" % (size.to_bytes(8, "big"), payload)


def text_frames(payloads: Iterable[bytes]) -> bytes:
    """Many text frames, one after the other."""
    return b"".join(map(text_frame, payloads))


def close_frame(code: int, reason: str) -> bytes:
    """A close frame; of the reason as much as a control frame has room for."""
    reason_bytes = reason.encode(errors="replace")[:123].decode(errors="ignore").encode()
    return b"\x88%c%b%b" % (2 + len(reason_bytes), code.to_bytes(2, "big"), reason_bytes)


def server_sent_event(payload: bytes, name: str) -> bytes:
    """One server-sent event; JSON as msgspec writes it has no line break, so one `data` line is enough."""
    return b"id: %b\ndata: %b\n\n" % (name.encode(), payload)
