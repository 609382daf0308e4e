"""Lists of runs that are watched, over one connection after the other, and the buffer of each reader."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import datetime
from functools import partial
from typing import Any, Final, Literal

import attrs
import msgspec
import trio

from greenroom.actors.abc import RunCounts
from greenroom.actors.contract.lifecycle import RunStatus, Stage, Termination
from greenroom.actors.contract.messages import Usage
from greenroom.actors.contract.ticket_summary import TicketSummary
from greenroom.actors.errors import GreenroomError

from ..protocol import lines
from ..protocol.down import CountsChanged, Error, RunChanged, Runs
from ..protocol.up import Unwatch, Watch
from .errors import refusal

MOST: Final = 2_000
"""Changed runs that wait for a reader; one that is further behind gets the first page again."""


@attrs.frozen(kw_only=True)
class ListedRun:
    """One run of a list: who, about what, where it stands, what it asks, how far it is.

    The fields are those of `greenroom.RunSummary`, `RunInfo` and `RunRow`; texts hold no secrets and are cut.
    """

    run_id: str
    thread_id: str
    agent: str
    by: str
    title: str
    stage: Stage
    status: RunStatus
    created_at: datetime
    ended_at: datetime | None
    step: int
    last_sequence: int
    usage: Usage
    pending: int
    held: bool
    degraded: str | None
    waiting_since: datetime | None
    asked: tuple[TicketSummary, ...]
    asked_count: int
    termination: Termination | None


@attrs.frozen(kw_only=True)
class ListedRuns:
    """A page of runs.

    Attributes:
        runs: in the order that was asked for.
        cursor: for the next page; None if there is none.
        counts: how many runs are not done, by status; None if they were not asked for.
    """

    runs: tuple[ListedRun, ...]
    cursor: str | None
    counts: RunCounts | None = None


@attrs.frozen(kw_only=True)
class ListedRunChanged:
    """A run has changed. `line`: what it looks like now; None: it is not in the list (any more)."""

    run_id: str
    line: ListedRun | None


ListChange = ListedRuns | ListedRunChanged | RunCounts
"""RunLines: forget the list and begin with this page. RunCounts: how many runs are not done now."""


def line_of(line: lines.RunLine) -> ListedRun:
    """A row of a gateway."""
    fields: dict[str, Any] = msgspec.structs.asdict(line)
    asked = tuple(TicketSummary(**msgspec.structs.asdict(one)) for one in line.asked)
    names = {"run": "run_id", "thread": "thread_id", "sequence": "last_sequence"}
    return ListedRun(**{names.get(name, name): value for name, value in (fields | {"asked": asked}).items()})


def counts_of(line: lines.Counts) -> RunCounts:
    """The counts of a gateway."""
    return RunCounts(created=line.created, running=line.running, waiting=line.waiting)


class RunListIterator(AsyncIterator[ListChange]):
    """A list of runs as its reader sees it. For one task.

    What waits for a slow reader is the newest line of each run, no more; one that is very far behind begins again with
    a page. After a lost connection the list begins again, too. Cancelled, the iteration loses nothing.
    """

    def __init__(self, frame: Watch, poke: Callable[[], None]) -> None:
        self.frame = frame
        self.asked = False
        self._poke = poke
        self._waiting: dict[str, ListChange] = {}
        self._error: Callable[[], GreenroomError] | None = None
        self._news = trio.Event()

    def __repr__(self) -> str:
        """How much waits."""
        return f"<Watching {self.frame.id}: {len(self._waiting)} waiting>"

    async def __anext__(self) -> ListChange:
        """The next change; the first one is a page.

        Raises:
            UsageError, NotAllowed, RequestRefused, ConnectError: no more changes come, and why.
        """
        await trio.lowlevel.checkpoint()
        while not self._waiting:
            if self._error is not None:
                raise self._error()
            await self._news.wait()
        return self._waiting.pop(next(iter(self._waiting)))

    # --- what the connection does ------------------------------------------------------------------------------------

    def take(self, frame: Runs | RunChanged | CountsChanged) -> None:
        """Something has come."""
        match frame:
            case Runs():
                page = ListedRuns(
                    runs=tuple(map(line_of, frame.runs)), cursor=frame.cursor, counts=counts_of(frame.counts)
                )
                self._waiting = {"\npage": page}
            case RunChanged():
                line = None if frame.row is None else line_of(frame.row)
                self._waiting.pop(frame.run, None)
                self._waiting[frame.run] = ListedRunChanged(run_id=frame.run, line=line)
                if len(self._waiting) > MOST:
                    self.asked = False
                    self._waiting.clear()
                    self._poke()
            case CountsChanged():
                self._waiting.pop("\ncounts", None)
                self._waiting["\ncounts"] = counts_of(frame.counts)
        self._tell()

    def end(self, error: Callable[[], GreenroomError]) -> None:
        """No more come; what waits is still given. The first reason stays."""
        if self._error is None:
            self._error = error
            self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = trio.Event()


@attrs.define(eq=False)
class RunLists:
    """All lists that are watched over one connection."""

    _open: dict[str, RunListIterator] = attrs.field(factory=dict)
    _left: list[str] = attrs.field(factory=list)

    def __repr__(self) -> str:
        return f"<Watches of {len(self._open)} lists>"

    def join(self, watching: RunListIterator) -> None:
        """A reader begins."""
        self._open[watching.frame.id] = watching

    def leave(self, watching: RunListIterator) -> None:
        """A reader ends."""
        if self._open.pop(watching.frame.id, None) is not None and watching.asked:
            self._left.append(watching.frame.id)

    def frame(self) -> Watch | Unwatch | None:
        """The next frame that is to be sent; None if all is as it should be."""
        if self._left:
            return Unwatch(id=self._left.pop())
        for watching in self._open.values():
            if not watching.asked:
                watching.asked = True
                return watching.frame
        return None

    def answer(self, frame: Runs | RunChanged | CountsChanged) -> None:
        """What the gateway says of a list, or of all."""
        for watching in list(self._open.values()):
            if watching.asked and (isinstance(frame, CountsChanged) or watching.frame.id == frame.watch):
                watching.take(frame)

    def refused(self, frame: Error) -> bool:
        """An error; returns whether it was about a list."""
        watching = self._open.get(frame.id or "")
        if watching is None:
            return (frame.id or "").startswith(PREFIX)
        if frame.retry:
            watching.asked = False
        else:
            watching.end(partial(refusal, frame.code, frame.message, current=frame.current))
        return True

    def disconnected(self) -> None:
        """The connection is gone, and what was watched over it."""
        self._left.clear()
        for watching in self._open.values():
            watching.asked = False

    def end(self, error: Callable[[], GreenroomError]) -> None:
        """There will be no connection any more."""
        for watching in list(self._open.values()):
            watching.end(error)


PREFIX: Final = "watch-"
"""With what the ids of this client's watches begin."""
Order = Literal["newest", "waiting_longest"]
