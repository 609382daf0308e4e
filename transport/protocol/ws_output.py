"""The output of a WebSocket session, and its order. No I/O.

Answers come first, all pending ones in one write. Then the sources (followed runs, watched lists) take turns. There is
no queue of events: a source with possible data is in the line once, and the connection reads the data when the turn of
the source comes. Answers are bounded, because the session accepts no frame of the client while many answers are
pending.

A turn of a run:

    FetchEvents -> events_read  -> WriteTurn -> turn_written: in the line again
                -> nothing_read -> gw.live the first time, else CheckEnd -> nothing_yet: out of the line, unless behind
                                                                         -> run_ended: gw.unsubscribed, over

The first turn of a stale source, whose log was replaced:

    ReadReset -> reset_read -> WriteTurn (gw.reset) -> turn_written: in the line again, no longer stale

Each of these facts returns the next action of the turn, or None at its end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final, Literal

from . import down
from .framing import PING, text_frame
from .ws_actions import (
    AnySource,
    CheckEnd,
    FetchEvents,
    ListSource,
    ReadReset,
    RetryLater,
    RunSource,
    TakeRows,
    UnfollowRun,
    WriteFrames,
    WriterAction,
    WriteTurn,
)

MOST_ANSWERS: Final = 64
"""Number of pending answers from which on no frame of the client is accepted."""
ANSWER_BYTES: Final = 1_048_576
"""The same limit in bytes: the snapshot of a run may be large."""


class SessionError(Exception):
    """The connection reported a fact that is impossible in this state: a bug of the gateway.

    The connection ends with 1011.
    """


def framed(frame: down.Frame) -> bytes:
    """Encode a gateway frame as a WebSocket frame."""
    return text_frame(down.encode(frame))


class SessionOutput:
    """The pending frames, and the line of the sources.

    Attributes:
        runs: Run id -> its source.
        lists: Name -> its source.
        answering: True while frames are pending; frames precede events.
        size: Bytes of the pending frames.
    """

    def __init__(self) -> None:
        self.runs: dict[str, RunSource] = {}
        self.lists: dict[str, ListSource] = {}
        self.answering = False
        self.size = 0
        self._frames: list[bytes] = []
        self._ping = False  # a ping is pending
        self._line: deque[AnySource] = deque()
        self._closed = False

    def __repr__(self) -> str:
        return f"<SessionOutput of {len(self._frames)} frames, {self.in_line} of {len(self)} sources in line>"

    def __len__(self) -> int:
        return len(self.runs) + len(self.lists)

    @property
    def in_line(self) -> int:
        """Number of sources in line; never more than there are sources."""
        return len(self._line)

    @property
    def full(self) -> bool:
        """True while so many answers are pending that no frame of the client is to be read."""
        return len(self._frames) >= MOST_ANSWERS or self.size >= ANSWER_BYTES

    @property
    def pinging(self) -> bool:
        """True while a ping is pending."""
        return self._ping

    def put(self, frame: down.Frame) -> None:
        """Append a gateway frame to the pending frames."""
        data = framed(frame)
        self._frames.append(data)
        self.size += len(data)
        self.answering = True

    def put_ping(self) -> None:
        """Append a ping after the pending frames: a write that begins with a ping does not count as a frame."""
        self._ping = self.answering = True

    def take_frames(self) -> bytes:
        """Return all pending frames and clear them."""
        data = b"".join(self._frames) + (PING if self._ping else b"")
        self._frames.clear()
        self.size = 0
        self.answering = self._ping = False
        return data

    def close(self) -> None:
        """Make `next` return None from now on."""
        self._closed = True

    def next(self) -> WriterAction | None:
        """Return the writer's next action, or None. The action begins the turn of its source."""
        if self._closed:
            return None
        if self.answering:
            pinging = self._ping
            return WriteFrames(self.take_frames(), pinging)
        if not self._line:
            return None
        source = self._line.popleft()
        source.queued, source.writing = False, True
        if not isinstance(source, RunSource):
            return TakeRows(source)
        return ReadReset(source) if source.stale else FetchEvents(source)

    # --- sources -----------------------------------------------------------------------------------------------------

    def follow(self, run: str, after: int) -> RunSource:
        """Add a source for a run that is not followed; the source may have data."""
        source = self.runs[run] = RunSource(run, after)
        self.touch(source)
        return source

    def replace_runs(self) -> list[RunSource]:
        """Replace the source of each followed run by a stale one, and return the old ones: the log was replaced."""
        old = list(self.runs.values())
        for source in old:
            self._end(source)
            self.follow(source.run, source.after).stale = True
        return old

    def watch(self, source: ListSource) -> None:
        """Add a list, replacing the list with the same name."""
        old = self.lists.get(source.name)
        if old is not None:
            self._end(old)
        self.lists[source.name] = source

    def unfollow(self, run: str) -> RunSource | None:
        """Remove a run and return its source; None if the run is not followed."""
        source = self.runs.pop(run, None)
        if source is not None:
            self._end(source)
        return source

    def unwatch(self, name: str) -> bool:
        """Remove a list; return False if there is no list with this name."""
        source = self.lists.pop(name, None)
        if source is not None:
            self._end(source)
        return source is not None

    def _end(self, source: AnySource) -> None:
        source.over = True
        if source.queued:  # otherwise a client that replaces its sources fills the line of a slow connection
            self._line.remove(source)
            source.queued = False

    def touch(self, source: AnySource) -> bool:
        """Put a source that may have data into the line; return True if this added the source."""
        if source.queued or source.over or self._closed:
            return False
        source.queued = True
        self._line.append(source)
        return True

    # --- turns: facts found by the connection -------------------------------------------------------------------------

    def events_read(self, source: RunSource, first: int, last: int, data: bytes) -> WriterAction | None:
        """Handle events of a source, as frames.

        Raises:
            SessionError: `first` does not follow the last event of the source.
        """
        if source.over:
            return None  # the client has unsubscribed meanwhile, or subscribed at another position
        self.advance(source, first, last)
        return WriteTurn(source, data)

    def free(self, source: RunSource) -> bool:
        """Return True if events of a source may be written outside of the line: it is live and nothing precedes."""
        return source.live and not (source.queued or source.writing or self.answering)

    def advance(self, source: RunSource, first: int, last: int) -> None:
        """Move the cursor of a source past events that are being written.

        Raises:
            SessionError: `first` does not follow the last event of the source.
        """
        if first != source.after + 1:
            raise SessionError(f"events {first} to {last} of {source.run} do not follow {source.after}")
        source.after = last

    def nothing_read(self, source: RunSource) -> WriterAction | None:
        """Handle the end of the log at the position of the source."""
        if source.over:
            return None
        if source.live:
            return CheckEnd(source)
        source.live = True
        return WriteTurn(source, framed(down.Live(run=source.run, sequence=source.after)))

    def reset_read(self, source: RunSource, sequence: int, snapshot: Mapping[str, Any]) -> WriterAction | None:
        """Handle the snapshot, as of event `sequence`, of a stale source; None if the source has been replaced."""
        if source.over:
            return None
        source.stale, source.after = False, sequence
        return WriteTurn(
            source, framed(down.Reset(run=source.run, reason="epoch", sequence=sequence, snapshot=snapshot))
        )

    def nothing_yet(self, source: RunSource, *, behind: bool) -> WriterAction | None:
        """Handle a pause of the log: more events can follow. `behind`: they may exist already."""
        source.writing = False
        if behind:
            self.touch(source)
        return None

    def run_ended(
        self,
        source: RunSource,
        reason: Literal["done", "gone", "degraded"],
        code: str | None = None,
        detail: str | None = None,
    ) -> WriterAction | None:
        """Handle the end of a run's events; `code` and `detail` say why."""
        if source.over:
            return None
        del self.runs[source.run]
        self._end(source)
        reply = down.Unsubscribed(run=source.run, reason=reason, code=code, detail=detail)
        return WriteTurn(source, framed(reply))

    def fetch_failed(self, source: RunSource) -> WriterAction | None:
        """Handle a store that does not answer now."""
        return None if source.over else RetryLater(source)

    def rows_taken(self, source: ListSource, data: bytes | None) -> WriterAction | None:
        """Handle the pending changes of a list, as frames; None if there are none."""
        if data is not None and not source.over:
            return WriteTurn(source, data)
        source.writing = False
        return None

    def turn_written(self, source: AnySource) -> WriterAction | None:
        """End a turn after its write: the source joins the end of the line again, unless it is over."""
        source.writing = False
        if source.over and isinstance(source, RunSource):
            return UnfollowRun(source)
        self.touch(source)
        return None
