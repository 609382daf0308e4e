"""Framing: RFC 6455 frames (server to client: unmasked, unfragmented) and server-sent events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

PING: Final = b"\x89\x00"
"""A ping without payload."""


def text_frame(payload: bytes) -> bytes:
    """Return one text frame (RFC 6455 section 5.2: FIN, opcode 1, no mask); the payload is UTF-8."""
    size = len(payload)
    if size < 126:
        return b"\x81%c%b" % (size, payload)
    if size < 65_536:
        return b"\x81\x7e%b%b" % (size.to_bytes(2, "big"), payload)
    return b"\x81\x7f%b%b" % (size.to_bytes(8, "big"), payload)


def text_frames(payloads: Iterable[bytes]) -> bytes:
    """Return one text frame per payload, concatenated."""
    return b"".join(map(text_frame, payloads))


def close_frame(code: int, reason: str) -> bytes:
    """Return a close frame; the reason is truncated to the size of a control frame."""
    reason_bytes = reason.encode(errors="replace")[:123].decode(errors="ignore").encode()
    return b"\x88%c%b%b" % (2 + len(reason_bytes), code.to_bytes(2, "big"), reason_bytes)


def server_sent_event(payload: bytes, name: str) -> bytes:
    """Return one server-sent event. msgspec writes JSON without line breaks, so one `data` line is sufficient."""
    return b"id: %b\ndata: %b\n\n" % (name.encode(), payload)
