"""Every extension point in one file: Store and Model (plugins and backends join them with their own releases)."""

from __future__ import annotations

import abc
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Literal, Protocol

import attrs
import msgspec
import trio

from .contract.decisions import Answer, Command, InboxItem
from .contract.lifecycle import RunStatus
from .contract.messages import Message, ModelRequest, ModelResponse
from .contract.rows import Claim, Commit, Judge, NewRun, RunInfo, RunRecord, RunRow
from .contract.state import StateWrite

# --- models ----------------------------------------------------------------------------------------------------------


@attrs.frozen
class TextDelta:
    """More text of the answer."""

    text: str


@attrs.frozen
class ReasoningDelta:
    """More of the model's reasoning."""

    text: str


ModelDelta = TextDelta | ReasoningDelta
ModelEvent = TextDelta | ReasoningDelta | ModelResponse


class Model(abc.ABC):
    """One streaming port to a language model.

    `stream` opens one request. The iterator yields deltas and, as its last item, exactly one `ModelResponse`. Leaving
    the context closes the connection before it returns, also on cancellation. A model holds no state of a run: the
    request carries all of it.
    """

    name: str = "model"

    @abc.abstractmethod
    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[ModelEvent]]:
        """Ask the model.

        Raises:
            ModelError: classified; from opening the stream or from any iteration.
        """


# --- stores ----------------------------------------------------------------------------------------------------------


ReceiptKind = Literal["committed", "lease_lost", "inbox_ahead", "failed", "down"]


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a submitted commit. Receipts of one run come in the order of its commits.

    Attributes:
        kind: how it went.
            committed: durable.
            lease_lost: another claim is newer, or `expected_last` does not match; nothing written.
            inbox_ahead: a terminal commit met unconsumed inbox items; nothing written, consume them first.
            failed: this commit can not be written; others are unharmed.
            down: the store has failed for good.
        last: sequence of the run's newest durable event (for committed).
        error: what went wrong.
        released: a run that was held back because its thread was busy, and may now be worked on.
    """

    kind: ReceiptKind
    last: int = 0
    error: Exception | None = None
    released: str | None = None


Deliver = Callable[[Receipt], None]
"""Called in the trio thread, once per submitted commit, maybe before `submit` returns. Must not raise and must not
wait.
"""


class StoreHooks(Protocol):
    """What a store tells the runtime, synchronously, in the trio thread, in commit order."""

    def posted(self, run_id: str, item: InboxItem) -> None:
        """A command is durable. Called before its poster wakes."""

    def committed(self, run_id: str, last: int, frames: Sequence[bytes]) -> None:
        """Events of a run are durable: `frames`, the newest of which has sequence `last`.

        Called for every commit and for a new run, before the receipt is delivered and before the creator wakes.
        """

    def unavailable(self, error: Exception | None) -> None:
        """The whole store has stopped answering (an error) or answers again (None)."""


@attrs.frozen(kw_only=True)
class Created:
    """What create_run came to: a new run with its claim, or the run that had this id already.

    Attributes:
        claim: of the new run; None if the run existed.
        held: the thread has an active run; `Receipt.released` of that run's end names this one.
        existing: the run that had this id.
    """

    claim: Claim | None
    held: bool = False
    existing: RunInfo | None = None


@attrs.frozen(kw_only=True)
class RunQuery:
    """Which runs to list. A cursor is good only for the query that it came from.

    Attributes:
        status, agent, thread_id: all that are given must match.
        prefix: what the run's id begins with.
        limit: at most so many, 1 to 1,000.
        cursor: from the page before.
    """

    status: RunStatus | None = None
    agent: str | None = None
    thread_id: str | None = None
    prefix: str = ""
    limit: int = 100
    cursor: str | None = None


@attrs.frozen(kw_only=True)
class RunSummary:
    """One line of a list of runs."""

    info: RunInfo
    row: RunRow
    pending: int


@attrs.frozen(kw_only=True)
class RunPage:
    """Newest first. `cursor` is None on the last page."""

    runs: tuple[RunSummary, ...]
    cursor: str | None


@attrs.frozen(kw_only=True)
class StoreStatistics:
    """Counts since the store was opened; `bytes_written` is 0 where it is not known, `queued` is what waits now."""

    commits: int = 0
    transactions: int = 0
    events: int = 0
    posts: int = 0
    queued: int = 0
    bytes_written: int = 0


class Store(abc.ABC):
    """Where runs live; `actors.testing.check_store` holds an implementation to this contract.

    Delivery: a commit is one transaction. Commits of one run are written in the order of `submit`. One that can not be
    written makes every later one of that run fail until the run is claimed and loaded again, and leaves other runs
    alone. What is queued is written even if the task that queued it is cancelled.

    Every method may raise StoreDown when the store is not open or has failed for good; reads may raise StoreError when
    the data is damaged.
    """

    threaded: bool = False
    """True if work is done in another thread, so that virtual time must not be used with it."""

    @property
    @abc.abstractmethod
    def epoch(self) -> str:
        """Names the log. It stays the same, over restarts too, for as long as sequences that were given out are good.

        Known while the store is open. A copy (a backup that is taken into use) has another one.
        """

    @abc.abstractmethod
    async def run(self, hooks: StoreHooks, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Open the store and serve until cancelled; then write what is queued, close, and re-raise Cancelled.

        Calls `task_status.started()` when open. Opening voids all earlier claims.

        Raises:
            StoreOpenError: can not be opened (before started).
            StoreDown: failed for good; every pending and later receipt is "down".
        """

    @abc.abstractmethod
    async def create_run(self, new: NewRun, frame: bytes) -> Created:
        """Write a run, its first messages and its run.created event (`frame`), and claim it. Durable when this returns.

        An existing run with the id is left as it is and returned as `existing`.

        Raises:
            ThreadBusy: the thread has an active run and new.on_busy is "refuse"; nothing written.
            StoreUnavailable: not written. StoreDown: unknown whether it was written.
        """

    @abc.abstractmethod
    async def claim(self, run_id: str) -> Claim | None:
        """Take a run: a new fencing token, older claims are void. None if there is no such run or it is done."""

    @abc.abstractmethod
    async def open_runs(self) -> Sequence[tuple[str, bool]]:
        """All runs that are not done, oldest first, each with whether it is held back by its thread."""

    @abc.abstractmethod
    async def to_do(self) -> Sequence[tuple[str, bool]]:
        """Of the open runs, those that somebody has to work on: not at rest, or waiting while background tasks live.

        Costs what it returns, however many runs wait.
        """

    @abc.abstractmethod
    async def next_due(self) -> datetime | None:
        """When the earliest timer of a waiting run fires (its `row.next_due`); None if there is none."""

    @abc.abstractmethod
    async def due(self, now: datetime, *, limit: int = 100) -> Sequence[str]:
        """Waiting runs whose timer has fired by `now`, earliest first. Costs what it returns."""

    @abc.abstractmethod
    def submit(self, claim: Claim, commit: Commit, frames: Sequence[bytes], deliver: Deliver) -> None:
        """Queue a commit; `frames` are the encoded `commit.events`. Never waits, never raises for what the store does.

        A commit whose row is terminal also frees the thread for the oldest held run (`Receipt.released`), and is
        refused with inbox_ahead if the inbox holds items beyond `commit.row.inbox`.
        """

    @abc.abstractmethod
    async def post(self, run_id: str, command: Command, judge: Judge) -> Answer:
        """Judge a command and, if it is accepted, journal it; one transaction.

        `hooks.posted` is called for a newly accepted one. The same id with the same content is answered `duplicate`
        with the first answer's code (the judge sees it as `Facts.known`).

        Raises:
            UnknownRun: no such run. StoreUnavailable: not journaled. StoreDown: unknown.
        """

    @abc.abstractmethod
    async def load(self, run_id: str, *, calls: Literal["step", "all"] = "step") -> RunRecord | None:
        """One consistent snapshot of a run's rows; of the calls, those of the current step or all.

        State keys come in order of scope and name; the newest write to a thread's key is the one that counts, whichever
        of its runs wrote it.
        """

    @abc.abstractmethod
    async def state_at(self, run_id: str, step: int) -> Sequence[StateWrite]:
        """State keys as they were for a run at the end of a step (0: before its first), in order of scope and name.

        Of the run's keys, the newest values that it wrote up to then; what it was created with counts as step 0. Of its
        thread's keys likewise, and where it had written none, what the runs of the thread before it had left.
        Revisions as in `RunRecord.state`. A value that was overwritten in the same step is not kept. A `prune` of other
        runs of the thread changes nothing of it.

        Raises:
            UnknownRun: no such run.
        """

    @abc.abstractmethod
    async def events(self, run_id: str, *, after: int = 0, limit: int = 1000) -> Sequence[bytes]:
        """Up to `limit` encoded events with sequence > `after`, in order; empty at the end."""

    @abc.abstractmethod
    async def commands(self, run_id: str) -> Sequence[InboxItem]:
        """Every accepted command of a run, consumed or not, in the order of the inbox."""

    @abc.abstractmethod
    async def messages(self, thread_id: str) -> Sequence[Message]:
        """A thread's history, in order."""

    @abc.abstractmethod
    async def runs(self, query: RunQuery) -> RunPage:
        """A page of runs, newest first.

        Raises:
            UsageError: limit out of range, or the cursor is not one of this query.
        """

    @abc.abstractmethod
    async def prune(self, before: datetime) -> int:
        """Delete done runs that ended before a time, whole (events, calls, tickets, commands, rows); threads stay.

        Of the threads' state keys the values go that no run that is left, and none to come, can see.

        Returns:
            How many.
        """

    @abc.abstractmethod
    def statistics(self) -> StoreStatistics:
        """Counts since the store was opened."""
