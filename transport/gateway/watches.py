"""The watched lists of a connection: the frames of each that are not written yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, Protocol

import trio

import greenroom as gr
from greenroom.actors.contract.ticket_lists import TicketQuery

from ..protocol import down
from ..protocol.codes import CloseCode
from ..protocol.framing import text_frame
from ..protocol.lines import ListedTicketLine, RunLine
from ..protocol.ws_actions import ListSource
from .access import Principal

SLICE: Final = 65_536
"""Bytes after which a write ends, so that other sources get their turn."""
COUNTS: Final = "\ncounts"
PAGE: Final = "\npage"  # a run id never contains a line break

Reason = Literal["asked", "too_many"]
"""Why a first page is sent."""


class Feed(Protocol):
    """The feed that serves a watch."""

    def wake(self) -> None:
        """Wake the feed's task."""

    def leave(self, watch: ListWatch, /) -> None:
        """Remove a watch; repeated calls have no effect."""


class Watcher(Protocol):
    """A connection that watches lists of runs."""

    @property
    def who(self) -> Principal:
        """The principal of the connection."""

    def touch(self, watch: ListWatch, /) -> None:
        """Give a watch a turn in the connection's writer."""

    def end_list(self, watch: ListWatch, /) -> None:
        """Answer that the list cannot be read, and end the watch."""

    def leave(self, code: CloseCode, reason: str = "", retry_after_ms: int | None = None) -> None:
        """Send the reason and close the connection."""


class ListWatch:
    """One list on one connection.

    Attributes:
        conversation: The connection.
        name: The client's name for the list.
        query: A query for runs, or one for open tickets.
        wants: Why a page is to be read; None if no page is wanted.
        source: The source in the connection's session.
        shown: The rows of the first page as sent last, by the id of the run or the ticket. Kept for shared stores only.
        dropped: True after the client's unwatch.
    """

    def __init__(
        self, conversation: Watcher, feed: Feed, name: str, query: gr.RunQuery | TicketQuery, most: float
    ) -> None:
        self.conversation, self.name, self.query = conversation, name, query
        self.shown: dict[str, RunLine | ListedTicketLine] = {}
        self.wants: Reason | None = "asked"
        self.source = ListSource(name)
        self.dropped = False
        self._feed, self._most = feed, most
        self._out: dict[str, bytes] = {}
        self._size = 0

    def __repr__(self) -> str:
        return f"<ListWatch {self.name} with {len(self._out)} frames>"

    def put(self, key: str, frame: down.Frame) -> None:
        """Queue a frame, replacing an unwritten frame with the same key."""
        data = text_frame(down.encode(frame))
        old = self._out.pop(key, b"")
        self._out[key] = data
        self._size += len(data) - len(old)
        if self._size > self._most and key != PAGE:
            self.begin_again()
        self.conversation.touch(self)

    def begin_again(self) -> None:
        """Drop the unwritten frames; a page follows once there is room."""
        page = self._out.pop(PAGE, None)
        self._out = {} if page is None else {PAGE: page}
        self._size = 0 if page is None else len(page)
        self.wants = self.wants or "too_many"

    @property
    def ready(self) -> bool:
        """True if a page is wanted and there is room for it."""
        return self.wants is not None and not self._out

    @property
    def holds_counts(self) -> bool:
        """True if unwritten frames have the counts of the connection."""
        return COUNTS in self._out or (PAGE in self._out and isinstance(self.query, gr.RunQuery))

    async def advance(self) -> bytes | None:
        """Return the next bytes to write; None if there are none now."""
        await trio.lowlevel.checkpoint()
        taken, size = [], 0
        while self._out and size < SLICE:
            data = self._out.pop(next(iter(self._out)))
            size += len(data)
            taken.append(data)
        self._size -= size
        if self.ready:
            self._feed.wake()
        return b"".join(taken) or None

    def drop(self) -> None:
        """End the watch."""
        self.dropped = True
        self._feed.leave(self)
        self._out.clear()

    def differing(self, rows: Sequence[ListedTicketLine]) -> tuple[str, ...]:
        """Return the runs whose tickets on the first page of a list of tickets are not those that were sent."""
        now, before = {row.ticket_id: row for row in rows}, self.shown
        tickets = [*rows, *(row for row in before.values() if isinstance(row, ListedTicketLine))]
        changed = (row.run_id for row in tickets if now.get(row.ticket_id) != before.get(row.ticket_id))
        return tuple(dict.fromkeys(changed))
