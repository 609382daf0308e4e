"""Watched lists of runs, across connections, with one buffer per reader. Pure; `RunListIterator` waits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import attrs

from greenroom.actors.contract.run_lists import RunCounts
from greenroom.actors.errors import GreenroomError

from ..protocol.down import CountsChanged, Error, RunChanged, Runs
from ..protocol.lines import Counts, RunLine
from ..protocol.up import Unwatch, Watch
from .errors import refusal

MOST: Final = 2_000
"""Maximum number of buffered changes; a reader that is further behind receives the first page again."""


@attrs.frozen(kw_only=True)
class ListedRuns:
    """A page of runs.

    Attributes:
        runs: In the requested order.
        cursor: Cursor of the next page; None if this is the last page.
        counts: Number of unfinished runs by status; None unless requested.
    """

    runs: tuple[RunLine, ...]
    cursor: str | None
    counts: RunCounts | None = None


@attrs.frozen(kw_only=True)
class ListedRunChanged:
    """A run has changed. `line` is its present line; None if the run is not (or no longer) in the list."""

    run_id: str
    line: RunLine | None


ListChange = ListedRuns | ListedRunChanged | RunCounts
"""ListedRuns: replace the list by this page. RunCounts: number of unfinished runs."""


def counts_of(line: Counts) -> RunCounts:
    """Convert the counts of a gateway."""
    return RunCounts(created=line.created, running=line.running, waiting=line.waiting)


class RunListBuffer:
    """The unread changes of one reader of a list of runs.

    The buffer of a slow reader has at most the newest line of each run; a reader that is very far behind restarts with
    a page. The list also restarts after a lost connection.
    """

    def __init__(self, frame: Watch, poke: Callable[[], None], wake: Callable[[], None] = lambda: None) -> None:
        """`poke`: wakes the connection, which has to watch the list again; `wake`: wakes the reader."""
        self.frame = frame
        self.requested = False
        self._poke, self._wake = poke, wake
        self._waiting: dict[str, ListChange] = {}
        self._error: Callable[[], GreenroomError] | None = None

    def __repr__(self) -> str:
        """Show the number of buffered changes."""
        return f"<{type(self).__name__} {self.frame.id}: {len(self._waiting)} waiting>"

    def read(self) -> ListChange | None:
        """Return the next change; None if there is none yet.

        Raises:
            GreenroomError: The reason why no more changes follow.
        """
        if self._waiting:
            return self._waiting.pop(next(iter(self._waiting)))
        if self._error is not None:
            raise self._error()
        return None

    # --- what the connection does ------------------------------------------------------------------------------------

    def take(self, frame: Runs | RunChanged | CountsChanged) -> None:
        """Buffer a frame of the gateway."""
        match frame:
            case Runs():
                page = ListedRuns(runs=frame.runs, cursor=frame.cursor, counts=counts_of(frame.counts))
                self._waiting = {"\npage": page}
            case RunChanged():
                self._waiting.pop(frame.run, None)
                self._waiting[frame.run] = ListedRunChanged(run_id=frame.run, line=frame.row)
                if len(self._waiting) > MOST:
                    self.requested = False
                    self._waiting.clear()
                    self._poke()
            case CountsChanged():
                self._waiting.pop("\ncounts", None)
                self._waiting["\ncounts"] = counts_of(frame.counts)
        self._wake()

    def end(self, error: Callable[[], GreenroomError]) -> None:
        """End the iteration after the buffered changes. The first reason wins."""
        if self._error is None:
            self._error = error
            self._wake()


@attrs.define(eq=False)
class RunLists:
    """The lists that are watched on one connection."""

    _open: dict[str, RunListBuffer] = attrs.field(factory=dict)
    _left: list[str] = attrs.field(factory=list)

    def __repr__(self) -> str:
        return f"<RunLists: {len(self._open)} lists>"

    def join(self, watching: RunListBuffer) -> None:
        """Add a reader."""
        self._open[watching.frame.id] = watching

    def leave(self, watching: RunListBuffer) -> None:
        """Remove a reader."""
        if self._open.pop(watching.frame.id, None) is not None and watching.requested:
            self._left.append(watching.frame.id)

    def frame(self) -> Watch | Unwatch | None:
        """Return the next frame to send; None if the gateway already watches the right lists."""
        if self._left:
            return Unwatch(id=self._left.pop())
        for watching in self._open.values():
            if not watching.requested:
                watching.requested = True
                return watching.frame
        return None

    def receive(self, frame: Runs | RunChanged | CountsChanged) -> None:
        """Pass a frame of the gateway to the readers of its list, or of all lists."""
        for watching in list(self._open.values()):
            if watching.requested and (isinstance(frame, CountsChanged) or watching.frame.id == frame.watch):
                watching.take(frame)

    def refused(self, frame: Error) -> bool:
        """Handle an error; return True if the error is about a list."""
        watching = self._open.get(frame.id or "")
        if watching is None:
            return (frame.id or "").startswith(PREFIX)
        if frame.retry:
            watching.requested = False
        else:
            watching.end(partial(refusal, frame.code, frame.message, current=frame.current))
        return True

    def disconnected(self) -> None:
        """Mark all lists as not watched after a lost connection."""
        self._left.clear()
        for watching in self._open.values():
            watching.requested = False

    def end(self, error: Callable[[], GreenroomError]) -> None:
        """End all iterations: the connection was given up."""
        for watching in list(self._open.values()):
            watching.end(error)


PREFIX: Final = "watch-"
"""Prefix of the ids of this client's watches."""
