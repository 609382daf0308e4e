"""`FrameLimiter`: checks the headers of a client's frames before their payload is buffered. No I/O.

trio-websocket limits the characters of a message. It limits neither fragments, of which empty ones cost memory and no
characters, nor control frames, each of which it answers. This class limits bytes, fragments and control frames, and
stops the reading as soon as a header announces too much.
"""

from __future__ import annotations

from typing import Final

from ..protocol.codes import TOO_BIG, TOO_FAST, CloseCode
from ..protocol.limits import Limits

FRAGMENTS: Final = 1024
"""Frames allowed per message in any case: 64 bytes in each make up the default limit of a message."""
LEAST: Final = 64
"""Average bytes per frame required of larger messages, which may have correspondingly more frames."""
_FIN, _CONTROL, _MASKED, _LENGTH = 0x80, 0x08, 0x80, 0x7F
_EXTENDED: Final = {126: 2, 127: 8}


class FrameLimiter:
    """Tracks the frames of one connection from their first byte on. Well-formedness is checked by wsproto, not here.

    Attributes:
        verdict: The close code that ends the reading; None while there is no reason.
    """

    def __init__(self, limits: Limits, now: float) -> None:
        self._most = limits.message_bytes
        self._fragments = max(FRAGMENTS, limits.message_bytes // LEAST)
        self._rate = limits.messages_per_second
        self._budget, self._looked = 2 * self._rate, now
        self.verdict: CloseCode | None = None
        self._header = b""
        self._ahead = 0  # bytes of the present frame's payload that have not arrived
        self._bytes = self._frames = 0  # of the present message

    def __repr__(self) -> str:
        return f"<FrameLimiter {self._frames} frames, {self._bytes} bytes>"

    def feed(self, data: bytes, now: float) -> int:
        """Check received bytes and return how many of them may be read: fewer than all if there is a verdict."""
        self._budget = min(2 * self._rate, self._budget + (now - self._looked) * self._rate)
        self._looked = now
        at, good, end = 0, 0, len(data)
        while at < end and self.verdict is None:
            if self._ahead:
                step = min(self._ahead, end - at)
                self._ahead -= step
                at = good = at + step
                continue
            taken = self._need() - len(self._header)
            self._header += data[at : at + taken]
            at += taken
            if len(self._header) == self._need():
                self.verdict = self._begin()
                good = at if self.verdict is None else good
        return good if self.verdict else end

    def _need(self) -> int:
        """Return the size of the present header, as far as it is known."""
        if len(self._header) < 2:
            return 2
        second = self._header[1]
        return 2 + _EXTENDED.get(second & _LENGTH, 0) + (4 if second & _MASKED else 0)

    def _begin(self) -> CloseCode | None:
        first, short = self._header[0], self._header[1] & _LENGTH
        size = int.from_bytes(self._header[2 : 2 + _EXTENDED[short]], "big") if short in _EXTENDED else short
        self._header, self._ahead = b"", size
        if first & _CONTROL:
            self._budget -= 1
            return TOO_FAST if self._budget < 0 else None
        self._bytes += size
        self._frames += 1
        if self._bytes > self._most or self._frames > self._fragments:
            return TOO_BIG
        if first & _FIN:
            self._bytes = self._frames = 0
        return None
