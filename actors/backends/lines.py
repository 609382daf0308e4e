"""Lines from bytes in pieces of any size. A line ends in LF; a CR before it does not belong to the line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

LINE_LIMIT: Final = 10 * 1024 * 1024
"""Most bytes of one line: the largest file that a program would show in one, and its JSON escapes."""


class LineReader:
    """Reads one stream. Feed it all bytes in order, then call `end` once."""

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self._line = bytearray()  # the unfinished line
        self._dropping = False

    def __repr__(self) -> str:
        return f"<LineReader: {len(self._line)} bytes of an unfinished line>"

    def feed(self, piece: bytes) -> Iterator[bytes | None]:
        """Yield the lines that this piece completes; None in place of a line that is too long."""
        start = 0
        while (found := piece.find(b"\n", start)) >= 0:
            yield self._complete(piece[start:found])
            start = found + 1
        self._hold(piece[start:])

    def end(self) -> bytes | None:
        """Return the line that has no end: b"" if there is none, None if it is too long."""
        return self._complete(b"")

    def _complete(self, last: bytes) -> bytes | None:
        self._hold(last)
        line, dropped = bytes(self._line), self._dropping
        self._line.clear()
        self._dropping = False
        return None if dropped else line.removesuffix(b"\r")

    def _hold(self, part: bytes) -> None:
        if self._dropping or len(self._line) + len(part) > self._limit:
            self._dropping = True
            self._line.clear()
        else:
            self._line += part
