"""Every extension point in one file: Store and Model (plugins and backends join them with their own releases)."""

from __future__ import annotations

import abc
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Final, Literal, Protocol, get_args

import attrs
import msgspec
import trio

from .contract.decisions import Command, CommandResult, InboxItem, Ticket
from .contract.lifecycle import RunStatus
from .contract.messages import Message, ModelRequest, ModelResponse
from .contract.recording import RecordDelta
from .contract.rows import Claim, Commit, Judge, NewRun, RunInfo, RunOutline, RunRecord, RunRow, ThreadInfo
from .contract.state import StateWrite
from .contract.ticket_summary import TicketSummary
from .contract.titles import searched
from .errors import UsageError

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

    Attributes:
        name: names the model in events, in the agent's digest and in messages.
        structured: "prompt": where the agent has an output type, the system text of a request asks for JSON of its
            schema in words. "native": the model asks its provider itself for `request.output_schema`.
    """

    name: str = "model"
    structured: Literal["prompt", "native"] = "prompt"

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

    def pruned(self) -> None:
        """Done runs have been deleted. Called after each slice of a prune that deleted some."""

    def unavailable(self, error: Exception | None) -> None:
        """The whole store has stopped answering (an error) or answers again (None)."""


@attrs.frozen(kw_only=True)
class Created:
    """What create_run came to: a new run with its claim, or why there is none.

    Attributes:
        claim: of the new run; None if nothing was written, and then one of the last three says why.
        held: the thread has an active run; `Receipt.released` of that run's end names this one.
        behind: that active run, if the new run is held.
        existing: the run that has this id.
        pruned: a run had this id and was pruned: its `RunInfo.content`, or "" if that is not known.
        thread_changed: the thread is not as `NewRun.thread_runs` expects.
    """

    claim: Claim | None
    held: bool = False
    behind: str | None = None
    existing: RunInfo | None = None
    pruned: str | None = None
    thread_changed: bool = False


@attrs.frozen(kw_only=True)
class Pruned:
    """What a prune has deleted, or would delete.

    Attributes:
        runs: whole runs.
        messages: of threads that have no run any more.
        freed: bytes by which the storage became smaller; for a dry run, an estimate of the bytes that would be free. A
            file shrinks at its next checkpoint, at the latest when the store closes. 0 for a store in memory.
        reusable: free bytes that stay in the storage, for what is written next.
    """

    runs: int = 0
    messages: int = 0
    freed: int = 0
    reusable: int = 0


@attrs.frozen(kw_only=True)
class RunSummary:
    """One line of a list of runs.

    Attributes:
        info, row: the two halves of the run; private. The row may lack the messages of `row.sent`, whose texts are in
            the inbox.
        pending: accepted commands that have not acted yet.
        held: another run works on the thread, and this one waits for that run's end.
        ended_at: UTC; None while the run is not done.
        waiting_since: since when the oldest open ticket of a waiting run is open (or since when the run waits, if it
            has none), UTC; None while the run does not wait.
        asked: the first open tickets, oldest first, at most `ASKED`. asked_count: how many are open in all.
    """

    info: RunInfo
    row: RunRow
    pending: int
    held: bool = False
    ended_at: datetime | None = None
    waiting_since: datetime | None = None
    asked: tuple[TicketSummary, ...] = ()
    asked_count: int = 0

    @property
    def title(self) -> str:
        """One line that says what the run is about; its id if nothing better is known."""
        return self.info.title or self.info.run_id


ASKED: Final = 3
"""Open tickets that a line of a list shows."""

LARGEST_PAGE: Final = 1_000
"""Runs per page: more would hold a reader, and its snapshot, too long."""
LONGEST_TEXT: Final = 200
"""Characters that may be searched for."""
RunOrder = Literal["newest", "waiting_longest"]
ORDERS: Final[tuple[str, ...]] = get_args(RunOrder)


@attrs.frozen(kw_only=True)
class RunQuery:
    """Which runs to list, and in which order. A cursor is good only for the query that it came from.

    Attributes:
        status, agent, thread_id, by: all that are given must match. `by` is the principal that started the run.
        prefix: what the run's id begins with.
        since, until: when the run was created: not before `since`, and before `until`; with a time zone.
        text: what the title or the id contains; upper and lower case are the same, and no character is special. At
            most 200 characters, not blank.
        order: "newest" (newest first), or "waiting_longest": waiting runs only, the longest waiting first.
        limit: at most so many, 1 to 1,000.
        cursor: from the page before.
        counts: also count the runs that are not done (`RunPage.counts`).
    """

    status: RunStatus | None = None
    agent: str | None = None
    thread_id: str | None = None
    prefix: str = ""
    by: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    text: str | None = None
    order: RunOrder = "newest"
    limit: int = 100
    cursor: str | None = None
    counts: bool = False

    def check(self) -> None:
        """Go on, if this can be asked; the cursor is the store's to judge.

        Raises:
            UsageError: a value can not be; names it and the way out.
        """
        if not 1 <= self.limit <= LARGEST_PAGE:
            raise UsageError(f"limit={self.limit}: give 1 to {LARGEST_PAGE:,}, and take the next page with the cursor")
        if self.order not in ORDERS:
            raise UsageError(f"order={self.order!r:.100} is not known; use one of {', '.join(ORDERS)}")
        if self.order == "waiting_longest" and self.status not in (None, RunStatus.WAITING):
            other = self.status.value
            raise UsageError(f"order='waiting_longest' lists runs that wait, not status={other!r}; leave one out")
        for name, moment in (("since", self.since), ("until", self.until)):
            if moment is not None and moment.tzinfo is None:
                raise UsageError(f"{name}={moment.isoformat()} has no time zone; write it with Z for UTC")
        if self.text is not None and not (self.text.strip() and len(self.text) <= LONGEST_TEXT):
            way = f"give 1 to {LONGEST_TEXT} characters that are not all white space"
            raise UsageError(f"text={self.text!r:.100}: {way}")

    def matches(self, summary: RunSummary) -> bool:
        """True if the run is in the list that this query asks for, on whichever page."""
        info = summary.info
        return (
            self.status in (None, summary.row.status)
            and (self.order == "newest" or summary.waiting_since is not None)
            and self.agent in (None, info.agent)
            and self.thread_id in (None, info.thread_id)
            and self.by in (None, info.by)
            and info.run_id.startswith(self.prefix)
            and (self.since is None or info.created_at >= self.since)
            and (self.until is None or info.created_at < self.until)
            and (self.text is None or self.text.casefold() in searched(info.title, info.run_id))
        )


@attrs.frozen(kw_only=True)
class RunCounts:
    """How many runs are not done, by their status."""

    created: int = 0
    running: int = 0
    waiting: int = 0


@attrs.frozen(kw_only=True)
class RunPage:
    """A page of a list, in the order of its query.

    Attributes:
        runs: the lines. There may be fewer than `limit` on a page that is not the last: one with very large rows.
        cursor: for the next page; None on the last one.
        counts: of all runs, if the query asks for them; as of the same moment as the lines.
        unreadable: ids of runs of this page whose rows cannot be read (damaged, or written by a newer release); such a
            run has no line and takes nothing from the page's `limit`.
    """

    runs: tuple[RunSummary, ...]
    cursor: str | None
    counts: RunCounts | None = None
    unreadable: tuple[str, ...] = ()


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

        A run id is used once, for ever: an existing run with the id is left as it is and returned as `existing`, and
        the id of a pruned one is answered with `pruned`. The first run of a thread makes its `info.by` the thread's
        owner. `new.thread_runs` is compared in the same transaction that writes the run.

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
        refused with inbox_ahead if the inbox holds items beyond `commit.row.inbox`. Its `row.pending_input` is of a run
        that was never admitted: the store appends it to the thread when that is free and the turn of the run has come
        (at once if the thread did not hold the run back; else in the commit that ends the active run, before the next
        run of a higher number may work).

        A store that encodes rows keeps the texts that were sent where they are, in the inbox (`contract.waiting`).
        """

    @abc.abstractmethod
    async def post(self, run_id: str, command: Command, judge: Judge) -> CommandResult:
        """Judge a command and, if it is accepted, journal it; one transaction.

        `hooks.posted` is called for a newly accepted one. The same id with the same content is answered `duplicate`
        with the first answer's code (the judge sees it as `CommandContext.known`).

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
    async def outline(self, run_id: str) -> RunOutline | None:
        """A run without its calls, tickets and commands, also if those can not be read; None if there is no such run.

        Costs the same however many calls, tickets and messages the run has.
        """

    @abc.abstractmethod
    async def ticket(self, run_id: str, target: str) -> Ticket | None:
        """The ticket with the id `target`, else the newest one of the call with that id; None if there is neither.

        Costs the same however many tickets the run has.
        """

    @abc.abstractmethod
    async def thread(self, thread_id: str) -> ThreadInfo | None:
        """To whom a thread belongs; None if no run was ever created in it."""

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
    async def events(
        self, run_id: str, *, after: int = 0, limit: int = 1000, max_bytes: int | None = None
    ) -> Sequence[bytes]:
        """Encoded events with sequence > `after`, in order; empty at the end.

        A page has at most `limit` events, and ends with the event that brings it to `max_bytes` (None: no such limit).
        Nothing beyond the page is read into memory.
        """

    @abc.abstractmethod
    async def commands(self, run_id: str) -> Sequence[InboxItem]:
        """Every accepted command of a run, consumed or not, in the order of the inbox."""

    @abc.abstractmethod
    async def record(self, run_id: str, *, after: int = 0, limit: int = 1000) -> Sequence[RecordDelta]:
        """The record of a run: what its commits carry (`Commit.taken`), beginning with its creation (`NewRun.taken`).

        Commits that carry nothing are left out. What a commit carries is durable with it, and deleted with its run. A
        part that can not be encoded is replaced by one `RecordGap`: it never makes a commit fail.

        Args:
            run_id: of the run; empty for one that is not there, or was not recorded.
            after: so many of them are skipped.
            limit: at most so many are returned; fewer are the last ones.
        """

    @abc.abstractmethod
    async def messages(self, thread_id: str) -> Sequence[Message]:
        """A thread's history, in order."""

    @abc.abstractmethod
    async def runs(self, query: RunQuery) -> RunPage:
        """A page of runs: one consistent snapshot.

        A page costs about its size, however many runs there are: with no filter, with one of status, agent, thread_id,
        by and prefix, and in either order. Other filters may read a few words of each run.

        Raises:
            UsageError: limit out of range, a value can not be, or the cursor is not one of this query.
        """

    @abc.abstractmethod
    async def summaries(self, run_ids: Sequence[str], *, counts: bool = False) -> RunPage:
        """The lines of these runs, in this order, as one page without a cursor; an id that is not there is left out."""

    @abc.abstractmethod
    async def prune(self, before: datetime, *, dry_run: bool = False) -> Pruned:
        """Delete done runs that ended before a time, whole (events, calls, tickets, commands, rows).

        A thread keeps its messages as long as one of its runs is left: all of them are the history of that run. With
        the last run go the messages and the state keys; the thread's id and owner stay. Of the state keys of a thread
        that has runs left the values go that none of these and none to come can see. Run ids stay taken.

        Works in short transactions, between which others are served. Cancelled half-way, some runs are deleted, each of
        them whole for every reader; the next prune deletes what is left of them.

        Args:
            before: the time.
            dry_run: change nothing, and count what would go.
        """

    @abc.abstractmethod
    def statistics(self) -> StoreStatistics:
        """Counts since the store was opened."""
