"""What a WebSocket session writes, and in which order. No I/O.

Answers come first, all that wait in one write. Then the sources (followed runs, watched lists) have one turn after the
other. There is no queue of events: a source that may have something is in the line once, and the connection looks up
what it has when its turn comes. Answers are bounded, because the session takes no frame of the client while many wait.

A turn of a run:

    FetchEvents -> events_read  -> WriteTurn -> turn_written: in the line again
                -> nothing_read -> gw.live the first time, else CheckEnd -> nothing_yet: out of the line, unless behind
                                                                         -> run_ended: gw.unsubscribed, over

Each of these facts returns the next action of the turn, or None at its end.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Literal

from . import down
from .framing import PING, text_frame
from .ws_actions import (
    AnySource,
    CheckEnd,
    FetchEvents,
    ListSource,
    RetryLater,
    RunSource,
    TakeRows,
    UnfollowRun,
    WriteFrames,
    WriterAction,
    WriteTurn,
)

MOST_ANSWERS: Final = 64
"""Answers that wait to be written until no frame of the client is taken."""
ANSWER_BYTES: Final = 1_048_576
"""The same in bytes: the snapshot of a run may be large."""


class SessionError(Exception):
    """The connection has reported what can not follow: a bug of the gateway. The connection ends with 1011."""


def framed(frame: down.Frame) -> bytes:
    """A gateway frame as a WebSocket frame."""
    return text_frame(down.encode(frame))


class SessionOutput:
    """The frames that wait and the line of the sources.

    Attributes:
        runs: run id -> its source. lists: name -> its source.
        answering: frames wait; they come before any event.
        size: bytes of the frames that wait.
    """

    def __init__(self) -> None:
        self.runs: dict[str, RunSource] = {}
        self.lists: dict[str, ListSource] = {}
        self.answering = False
        self.size = 0
        self._frames: list[bytes] = []
        self._ping = False  # a ping waits
        self._line: deque[AnySource] = deque()
        self._closed = False

    def __repr__(self) -> str:
        return f"<SessionOutput of {len(self._frames)} frames, {self.in_line} of {len(self)} sources in line>"

    def __len__(self) -> int:
        return len(self.runs) + len(self.lists)

    @property
    def in_line(self) -> int:
        """Sources that wait for their turn: never more than there are."""
        return len(self._line)

    @property
    def full(self) -> bool:
        """True while so many answers wait that no frame of the client is to be taken."""
        return len(self._frames) >= MOST_ANSWERS or self.size >= ANSWER_BYTES

    @property
    def pinging(self) -> bool:
        """True while a ping waits."""
        return self._ping

    def put(self, frame: down.Frame) -> None:
        """Let a gateway frame be written."""
        data = framed(frame)
        self._frames.append(data)
        self.size += len(data)
        self.answering = True

    def put_ping(self) -> None:
        """Let a ping be written behind the frames: a write that begins with a ping does not count as a frame."""
        self._ping = self.answering = True

    def take_frames(self) -> bytes:
        """All frames that wait; none waits afterwards."""
        data = b"".join(self._frames) + (PING if self._ping else b"")
        self._frames.clear()
        self.size = 0
        self.answering = self._ping = False
        return data

    def close(self) -> None:
        """From now on `next` has nothing."""
        self._closed = True

    def next(self) -> WriterAction | None:
        """What the writer is to do; None if there is nothing now. With the action the turn of its source begins."""
        if self._closed:
            return None
        if self.answering:
            pinging = self._ping
            return WriteFrames(self.take_frames(), pinging)
        if not self._line:
            return None
        source = self._line.popleft()
        source.queued, source.writing = False, True
        return FetchEvents(source) if isinstance(source, RunSource) else TakeRows(source)

    # --- sources -----------------------------------------------------------------------------------------------------

    def follow(self, run: str, after: int) -> RunSource:
        """A new source of a run that is not followed; it may have something."""
        source = self.runs[run] = RunSource(run, after)
        self.touch(source)
        return source

    def watch(self, source: ListSource) -> None:
        """Take a list in, in the place of the one of this name."""
        old = self.lists.get(source.name)
        if old is not None:
            self._end(old)
        self.lists[source.name] = source

    def unfollow(self, run: str) -> RunSource | None:
        """Let go of a run; None if it is not followed."""
        source = self.runs.pop(run, None)
        if source is not None:
            self._end(source)
        return source

    def unwatch(self, name: str) -> bool:
        """Let go of a list; False if there is none of this name."""
        source = self.lists.pop(name, None)
        if source is not None:
            self._end(source)
        return source is not None

    def _end(self, source: AnySource) -> None:
        source.over = True
        if source.queued:  # else a client that replaces its sources fills the line of a slow connection
            self._line.remove(source)
            source.queued = False

    def touch(self, source: AnySource) -> bool:
        """The source may have something: True if it has come into the line with this."""
        if source.queued or source.over or self._closed:
            return False
        source.queued = True
        self._line.append(source)
        return True

    # --- turns: what the connection has found -------------------------------------------------------------------------

    def events_read(self, source: RunSource, first: int, last: int, data: bytes) -> WriterAction | None:
        """Events of a source are here, as frames.

        Raises:
            SessionError: `first` does not follow the last event of the source.
        """
        if source.over:
            return None  # the client has let go of it meanwhile, or follows it from another position
        self.advance(source, first, last)
        return WriteTurn(source, data)

    def free(self, source: RunSource) -> bool:
        """True if events of a source may be written beside the line: it is live, and nothing else comes first."""
        return source.live and not (source.queued or source.writing or self.answering)

    def advance(self, source: RunSource, first: int, last: int) -> None:
        """Events are being written: move the cursor of the source behind them.

        Raises:
            SessionError: `first` does not follow the last event of the source.
        """
        if first != source.after + 1:
            raise SessionError(f"events {first} to {last} of {source.run} do not follow {source.after}")
        source.after = last

    def nothing_read(self, source: RunSource) -> WriterAction | None:
        """The log ends at the position of the source."""
        if source.over:
            return None
        if source.live:
            return CheckEnd(source)
        source.live = True
        return WriteTurn(source, framed(down.Live(run=source.run, sequence=source.after)))

    def nothing_yet(self, source: RunSource, *, behind: bool) -> WriterAction | None:
        """More events can come. `behind`: they may be there already."""
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
        """No more events of the run come; `code` and `detail` say why."""
        if source.over:
            return None
        del self.runs[source.run]
        self._end(source)
        reply = down.Unsubscribed(run=source.run, reason=reason, code=code, detail=detail)
        return WriteTurn(source, framed(reply))

    def fetch_failed(self, source: RunSource) -> WriterAction | None:
        """The store does not answer now."""
        return None if source.over else RetryLater(source)

    def rows_taken(self, source: ListSource, data: bytes | None) -> WriterAction | None:
        """What waits of a list, as frames; None if nothing does."""
        if data is not None and not source.over:
            return WriteTurn(source, data)
        source.writing = False
        return None

    def turn_written(self, source: AnySource) -> WriterAction | None:
        """A turn was written whole: the source has another one, behind all others in the line, unless it is over."""
        source.writing = False
        if source.over and isinstance(source, RunSource):
            return UnfollowRun(source)
        self.touch(source)
        return None
