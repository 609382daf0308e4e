"""The port to the rows: runs and their events, commits, commands, and lists."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Literal

import attrs
import trio

from ..contract.claims import Claim
from ..contract.commits import Commit, Created, Deliver, NewRun
from ..contract.decisions import Command, CommandResult, InboxItem, Ticket
from ..contract.messages import Message
from ..contract.recording import RecordDelta
from ..contract.rows import Judge, RunOutline, RunRecord, ThreadInfo
from ..contract.run_lists import Backlog, EndedRuns, RunPage, RunQuery
from ..contract.state import StateWrite
from ..contract.threads.lists import HistoryPage, HistoryQuery, ThreadPage, ThreadQuery
from ..contract.ticket_lists import TicketPage, TicketQuery
from ..store_events import Report


@attrs.frozen(kw_only=True)
class Pruned:
    """The amount that a prune deleted, or would delete.

    Attributes:
        runs: whole runs.
        messages: The messages of threads without runs.
        freed: bytes by which the storage shrank; for a dry run, an estimate of the bytes that would become free. A file
            shrinks at its next checkpoint, at the latest when the store closes. 0 for a store in memory.
        reusable: free bytes that stay in the storage for later writes.
    """

    runs: int = 0
    messages: int = 0
    freed: int = 0
    reusable: int = 0


@attrs.frozen(kw_only=True)
class StoreStatistics:
    """Counts since the store was opened; `bytes_written` is 0 if unknown, `queued` is the present queue length.

    The rest is 0 if the store is not shared.

    Attributes:
        beat_age: seconds since the newest confirmed beat of this process.
        reconnects: connections that were opened again after a failure.
        repeated: statements that were sent again because their outcome was unknown.
        hints_sent, hints_received: hints to and from other processes.
        hints_dropped: hints that this process could not read, or that the server did not take.
        claims: runs that this process has claimed.
        freed: runs of dead processes that this process has freed.
        dead_letters: The number of these that became dead letters.
    """

    commits: int = 0
    transactions: int = 0
    events: int = 0
    posts: int = 0
    queued: int = 0
    bytes_written: int = 0
    beat_age: float = 0.0
    reconnects: int = 0
    repeated: int = 0
    hints_sent: int = 0
    hints_received: int = 0
    hints_dropped: int = 0
    claims: int = 0
    freed: int = 0
    dead_letters: int = 0


class RunStore(abc.ABC):
    """The rows of runs. One transaction writes each change; a reader sees whole changes only.

    Delivery: a commit is one transaction. Commits of one run are written in the order of `submit`. A commit that cannot
    be written makes every later commit of that run fail until the run is claimed and loaded again; other runs are
    unaffected. Queued requests are written even if the task that queued them is cancelled.

    Every method may raise StoreDown if the store is not open or has failed for good; reads may raise StoreError if the
    data is damaged.
    """

    threaded: bool = False
    """True if the store works in another thread, so that virtual time must not be used with it."""

    @property
    def secrets(self) -> Sequence[str]:
        """The parts of the storage's address that must appear nowhere, such as a password; a runtime masks them."""
        return ()

    @property
    @abc.abstractmethod
    def epoch(self) -> str:
        """The identity of the logs. Constant, also over restarts, for as long as returned sequences stay valid.

        Known while the store is open. A copy (a backup that is put into use) has another epoch. A shared store may get
        another epoch while it is open (`LogsRenamed`): a failover may lose events that were returned.
        """

    @abc.abstractmethod
    async def run(self, report: Report, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Open the store and serve until cancelled; then write the queue, close, and re-raise Cancelled.

        Calls `task_status.started()` when open. Opening voids the claims of owners that are gone; in a store that is
        not shared, those are all earlier claims. Closing gives back the runs that this store has claimed, which counts
        as no crash.

        Raises:
            StoreOpenError: the store cannot be opened (before started).
            StoreDown: it failed for good; every pending and later receipt is "down".
        """

    @abc.abstractmethod
    async def create_run(self, new: NewRun, frame: bytes, *, claim: bool = True) -> Created:
        """Write a run, its first messages and its run.created event (`frame`), and claim it. Durable on return.

        A run id is used once, for ever: an existing run with the id is unchanged and returned as `existing`; the id of
        a pruned run gives `pruned`. The first run of a thread makes its `info.by` the thread's owner. `new.thread_runs`
        is compared in the transaction that writes the run. While an open run has `new.dedupe`, that run is `existing`.

        `claim=False`: the run waits in its queue until `claim_ready` takes it, in any process.

        Raises:
            ThreadBusy: the thread has an active run and new.on_busy is "refuse"; nothing written.
            StoreUnavailable: nothing written.
            StoreDown: unknown whether the run was written.
        """

    @abc.abstractmethod
    async def open_runs(self) -> Sequence[tuple[str, bool]]:
        """Return all runs that are not done, oldest first, each with whether its thread holds it."""

    @abc.abstractmethod
    def submit(self, claim: Claim, commit: Commit, frames: Sequence[bytes], deliver: Deliver) -> None:
        """Queue a commit; `frames` are the encoded `commit.events`.

        Never waits, and never raises for failures of the store.

        A commit with a terminal row also frees the thread for the oldest held run (`Receipt.next_in_thread`), and is
        refused with inbox_ahead if the inbox has items beyond `commit.row.inbox`. Its `row.pending_input` belongs to a
        run that was never admitted: the store appends it to the thread in the run's turn (immediately if the thread did
        not hold the run; else in the commit that ends the active run, before the next run of a higher number may work).

        A store that encodes rows keeps sent texts in the inbox only (`contract.pending_input`).
        """

    @abc.abstractmethod
    async def post(self, run_id: str, command: Command, judge: Judge) -> CommandResult:
        """Judge a command and, if accepted, journal it, in one transaction.

        A newly accepted command is reported (`CommandPosted`). The same id with the same content gives `duplicate` with
        the first result's code (the judge sees it as `CommandContext.known`). A decision that names a call is journaled
        with the fingerprint of the action that the judge saw.

        Raises:
            UnknownRun: no run has this id.
            StoreUnavailable: the command is not journaled.
            StoreDown: unknown whether it is.
        """

    @abc.abstractmethod
    async def load(self, run_id: str, *, calls: Literal["step", "all"] = "step") -> RunRecord | None:
        """Return one consistent snapshot of a run's rows; None if no run has this id.

        Calls of the current step, or all.

        State keys are ordered by scope and name. For a thread's key the newest write counts, by whichever run of the
        thread.
        """

    @abc.abstractmethod
    async def outline(self, run_id: str) -> RunOutline | None:
        """Return a run without calls, tickets and commands, also if these are unreadable; None if no run has this id.

        Costs the same regardless of the number of calls, tickets and messages.
        """

    @abc.abstractmethod
    async def ticket(self, run_id: str, target: str) -> Ticket | None:
        """Return the ticket with the id `target`, else the newest one of the call with that id; None if neither exists.

        Costs the same regardless of the number of tickets.
        """

    @abc.abstractmethod
    async def thread(self, thread_id: str) -> ThreadInfo | None:
        """Return the facts of a thread; None if no run was ever created in it."""

    @abc.abstractmethod
    async def state_at(self, run_id: str, step: int) -> Sequence[StateWrite]:
        """Return the state keys of a run at the end of a step (0: before its first), ordered by scope and name.

        For the run's keys, the newest values that it wrote up to then; values of its creation count as step 0. For its
        thread's keys likewise, and where the run wrote none, the values left by earlier runs of the thread. Revisions
        as in `RunRecord.state`. A value overwritten in the same step is not kept. A `prune` of other runs of the thread
        changes nothing here.

        Raises:
            UnknownRun: no run has this id.
        """

    @abc.abstractmethod
    async def events(
        self, run_id: str, *, after: int = 0, limit: int = 1000, max_bytes: int | None = None
    ) -> Sequence[bytes]:
        """Return encoded events with sequence > `after`, in order; empty at the end.

        A page has at most `limit` events, and ends with the event that reaches `max_bytes` (None: no such limit).
        Nothing beyond the page is read into memory.
        """

    @abc.abstractmethod
    async def commands(self, run_id: str) -> Sequence[InboxItem]:
        """Return every accepted command of a run, consumed or not, in inbox order."""

    @abc.abstractmethod
    async def record(self, run_id: str, *, after: int = 0, limit: int = 1000) -> Sequence[RecordDelta]:
        """Return the record of a run: the entries of its creation (`NewRun.taken`) and its commits (`Commit.taken`).

        Commits without entries are left out. Entries are durable with their commit, and deleted with their run. An
        entry that cannot be encoded is replaced by one `RecordGap`: it never makes a commit fail.

        Args:
            run_id: The id of the run; the result is empty for an unknown or unrecorded run.
            after: number of commits to skip.
            limit: most commits to return; fewer mean the end.
        """

    @abc.abstractmethod
    async def messages(self, thread_id: str) -> Sequence[Message]:
        """Return a thread's history, in order. Its parts are without their bytes, which `parts` returns."""

    @abc.abstractmethod
    async def history(self, thread_id: str, query: HistoryQuery) -> HistoryPage | None:
        """Return a part of a thread's history; None if no run was ever created in the thread.

        A page ends with the message that reaches `MESSAGE_BYTES`, and costs about its size, regardless of the length of
        the history. Positions are without a gap; an emptied thread begins with 1 again.

        Raises:
            UsageError: a value is invalid.
        """

    @abc.abstractmethod
    async def threads(self, query: ThreadQuery) -> ThreadPage:
        """Return a page of the threads that have runs, from one consistent snapshot, in the order of the newest runs.

        A page costs about the number of runs between its first and its last line; with `by`, the number of the
        principal's runs. The threads of child runs are in no list; nor is one whose line would have an unreadable run.

        Raises:
            UsageError: a value is invalid, or the cursor belongs to another query.
        """

    @abc.abstractmethod
    async def parts(self, thread_id: str, digests: Sequence[str]) -> Mapping[str, bytes]:
        """Return the bytes of a thread's images and files, by digest (`Part.sha256`); unknown digests are left out.

        Bytes are durable with the commit or the run that brought them (`Commit.parts`, `NewRun.parts`), are kept once
        for each thread and digest, and are deleted with the messages of the thread.
        """

    @abc.abstractmethod
    async def runs(
        self, query: RunQuery, *, among: Sequence[str] | None = None, shown: Callable[[str], str] | None = None
    ) -> RunPage:
        """Return a page of runs from one consistent snapshot.

        A page costs about its size, regardless of the number of runs: with no filter, with one of status, agent,
        thread_id, by, prefix, code and outcome, and in either order. Other filters may read a few words of each run.
        With a text, a page reads the first and the last event of at most `SEARCHED` runs, has the hits among these,
        and its cursor goes on behind them.

        Args:
            query: the filters.
            among: ids of the only runs that may be listed; None for all.
            shown: the redaction of the reader: a text that is hidden by it is not found.

        Raises:
            UsageError: a value is invalid, or the cursor belongs to another query.
        """

    @abc.abstractmethod
    async def summaries(self, run_ids: Sequence[str], *, counts: bool = False) -> RunPage:
        """Return the lines of these runs, in this order, as one page without a cursor; unknown ids are left out."""

    @abc.abstractmethod
    async def throughput(self, since: datetime) -> Sequence[EndedRuns]:
        """Count the runs that have ended since a time, by hour and outcome; hours without an end are left out.

        Costs a few words of each of these runs, regardless of the number of others.
        """

    @abc.abstractmethod
    async def backlog(self) -> Backlog:
        """Count what is not done, from one consistent snapshot.

        Costs a few words of each run that is not done and of each open ticket, regardless of the number of others.
        """

    @abc.abstractmethod
    async def tickets(self, query: TicketQuery) -> TicketPage:
        """Return a page of the open tickets of the runs that are not done, from one consistent snapshot.

        A page costs about its size, regardless of the number of runs and tickets, without a filter and with one of
        run_ids. Other filters may read each open ticket.

        Raises:
            UsageError: a value is invalid, or the cursor belongs to another query.
        """

    @abc.abstractmethod
    async def prune(self, before: datetime, *, dry_run: bool = False) -> Pruned:
        """Delete done runs that ended before a time, whole (events, calls, tickets, commands, rows).

        A thread keeps its messages as long as one of its runs is left: they are the history of that run. The last run
        takes the messages and the state keys with it; the thread's id and owner stay. Of the state keys of a thread
        with remaining runs, values that no present or future run can read are deleted. Run ids stay taken.

        Works in short transactions, between which other requests are served. After a cancel some runs are deleted, each
        of them whole for every reader; the next prune deletes the rest of them.

        Args:
            before: the time.
            dry_run: change nothing, and count what would be deleted.
        """

    @abc.abstractmethod
    def statistics(self) -> StoreStatistics:
        """Return counts since the store was opened."""
