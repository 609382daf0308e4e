"""Server-sent events from bytes, in pieces of any size (WHATWG HTML, section 9.2, "Interpreting an event stream").

Theory of operation. Lines end in LF, CRLF or CR, and a piece may end between CR and LF. An empty line ends an event;
its `data` lines are joined with LF; a line that begins with a colon is a comment. A client that reconnects continues
behind the last `id`, which a model's stream never has; `retry` is ignored like unknown fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

EVENT_LIMIT: Final = 8 * 1024 * 1024
"""Most bytes of one event."""

_BREAK: Final = re.compile(rb"\r\n|\n|\r")
_BOM: Final = b"\xef\xbb\xbf"


class EventTooLong(Exception):
    """An event of the stream is longer than `EVENT_LIMIT`."""


class ServerSentEvent(NamedTuple):
    """One event: its name ("" if the stream gave none) and its data."""

    name: str
    data: bytes


class EventParser:
    """Reads one stream. Feed it all bytes in order, then call `end` once.

    Attributes:
        last_id: The id of the newest complete event that has one; "" before.
    """

    def __init__(self) -> None:
        self.last_id = ""
        self._line = bytearray()  # the unfinished line
        self._name = self._id = ""
        self._data: list[bytes] = []
        self._size = 0  # bytes of the event's complete data lines, with the names of their fields
        self._after_cr = False
        self._first = True

    def feed(self, piece: bytes) -> Iterator[ServerSentEvent]:
        """Yield the events that this piece completes.

        Raises:
            EventTooLong: an event is longer than `EVENT_LIMIT`.
        """
        if self._after_cr and piece:
            self._after_cr = False
            piece = piece.removeprefix(b"\n")
        start = 0
        for line_break in _BREAK.finditer(piece):
            self._hold(piece[start : line_break.start()])
            start = line_break.end()
            if (event := self._end_line()) is not None:
                yield event
        if start < len(piece):
            self._hold(piece[start:])
        elif piece.endswith(b"\r"):
            self._after_cr = True  # an LF at the beginning of the next piece belongs to this line break

    def end(self) -> ServerSentEvent | None:
        """Return the last event if the stream ended without the empty line behind it."""
        if self._line:
            self._take(self._whole())
        return self._end_event()

    def _hold(self, part: bytes) -> None:
        self._line += part
        if self._size + len(self._line) > EVENT_LIMIT:
            raise EventTooLong(f"an event of the stream is longer than {EVENT_LIMIT:,} bytes")

    def _whole(self) -> bytes:
        line = bytes(self._line)
        self._line.clear()
        if self._first:
            self._first, line = False, line.removeprefix(_BOM)
        return line

    def _end_line(self) -> ServerSentEvent | None:
        line = self._whole()
        if not line:
            return self._end_event()
        self._take(line)
        return None

    def _take(self, line: bytes) -> None:
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
            self._size += len(line) + 1
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        elif field == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")

    def _end_event(self) -> ServerSentEvent | None:
        name, data = self._name, self._data
        self._name, self._data, self._size = "", [], 0
        self.last_id = self._id
        return ServerSentEvent(name, b"\n".join(data)) if data else None
