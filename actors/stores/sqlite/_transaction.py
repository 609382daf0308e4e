"""Write requests as transactions: all waiting requests become one, and an invalid request affects only its own run.

Theory of operation. A batch is first written straight through. If a request cannot be written, everything is rolled
back and written again with a savepoint around each request (slower, and rare). An error of the whole store rolls
everything back and is raised as Outage: the caller retries the same batch later, so a transaction is all of its
requests, in order, or none. A batch that crashes after its commit is durable: executed again, it returns its results.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import attrs
from msgspec.structs import replace

from ...abc import StoreStatistics
from ...contract import codec
from ...contract.claims import Claim
from ...contract.commits import Commit, Created, NewRun, Receipt
from ...contract.decisions import Command, InboxItem
from ...contract.lifecycle import TERMINAL, WAITING, Stage
from ...contract.rows import CommandContext, JudgedRow, RunInfo
from ...errors import StoreError, ThreadBusy, UnknownRun
from ...processes import ReadyRun
from ..common import _commit_rules
from ..common._commit_rules import PlaceFacts
from ..common._encoding import EncodedRows, encode_again
from ..common._outages import Damaged, UnreadableData, is_outage, is_suspect
from ..common._requests import (
    ClaimRequest,
    CommitRequest,
    CreateRequest,
    DueRequest,
    GiveBackRequest,
    OwnerRequest,
    PostRequest,
    PostResult,
    PruneRequest,
    QueueRequest,
    ReadyRequest,
    ReleaseRequest,
    Request,
    Result,
    ReviveRequest,
    SetValuesRequest,
)
from ..common.faults import Faults, InjectedCrash, Outage
from . import _prune, _sql, _stored_values, _work_sql
from ._schema import BASE
from ._work_sql import ReadyRow

T = TypeVar("T")


class _Unwritable(Exception):
    """A request failed in a batch without savepoints."""


@attrs.define(eq=False)
class _Changes:
    """Changes of the writer's memory, applied once the transaction is durable.

    Attributes:
        known: run -> number and thread.
        broken: number -> the token whose commits fail.
        ended: runs that have ended.
        events: not yet written: run, sequence, frame, and so on.
        record: not yet written: run, sequence, body, and so on.
        written: the number of written events.
        queues: that exist.
        older: runs of earlier openings may need an owner; None: as before.
    """

    known: dict[str, tuple[int, int]] = attrs.field(factory=dict)
    broken: dict[int, int] = attrs.field(factory=dict)
    ended: list[str] = attrs.field(factory=list)
    commits: int = 0
    events: list[object] = attrs.field(factory=list)
    record: list[object] = attrs.field(factory=list)
    written: int = 0
    posts: int = 0
    size: int = 0
    queues: set[str] = attrs.field(factory=set)
    older: bool | None = None


class TransactionWriter:
    """Writes batches through one connection. Used by one thread at a time."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        faults: Faults | None,
        *,
        in_place: Callable[[], None] = lambda: None,
        examine: Callable[[], str | None] = lambda: None,
    ) -> None:
        """Begin with empty caches.

        Args:
            connection: The connection of the writer.
            faults: see `faults.POINTS`.
            in_place: raises if the file is no longer where the next start looks for it.
            examine: returns the damage that a check of the whole file finds; None if it is sound. Raises
                UnreadableData.
        """
        self._connection = connection
        self._in_place, self._examine = in_place, examine
        self._suspicion: Exception | None = None
        self._base = int(connection.execute(BASE).fetchone()[0])
        self._faults = faults
        self._known: dict[str, tuple[int, int]] = {}
        self._broken: dict[int, int] = {}
        self._queues: set[str] = set()
        self._older, self._served = True, ""
        self._changes = _Changes()
        self._durable: tuple[Sequence[Request], Sequence[Any]] | None = None  # not returned yet
        self.statistics = StoreStatistics()

    def execute(self, batch: Sequence[Request]) -> Sequence[Any]:
        """Write a batch as one transaction; returns one result per request, in order.

        Raises:
            Outage: the whole store is unavailable; nothing was written.
            Damaged: the file is damaged.
            FileGone: the file was removed or replaced; written requests are not acknowledged.
            InjectedCrash, or any other exception of a fault after the commit: discard the connection.
        """
        if self._durable is not None and self._durable[0] is batch:
            return self._reported(self._durable[1])
        if self._suspicion is not None:
            self._look_closer(self._suspicion)
        try:
            return self._attempt(batch, careful=False)
        except _Unwritable:
            return self._attempt(batch, careful=True)

    def _look_closer(self, error: Exception) -> None:
        """Examine the file after a report of damage, which SQLite also gives for an unreadable page.

        Raises:
            Damaged: the file is damaged.
            Outage: the check is impossible now.
        """
        try:
            finding = self._examine()
        except UnreadableData as unread:
            raise Outage(unread) from error
        if finding is not None:
            raise Damaged(f"the file is damaged ({finding}); restore it from a backup") from error
        try:
            self._connection.execute("PRAGMA shrink_memory")  # a misread page must not stay in the cache
        except (sqlite3.Error, MemoryError) as met:
            raise Outage(met) from error
        self._suspicion = None

    def _attempt(self, batch: Sequence[Request], *, careful: bool) -> Sequence[Any]:
        self._changes = _Changes()
        try:
            self._roll_back()  # of the previous attempt, if its own rollback failed
            self._fault("begin")
            self._connection.execute("BEGIN IMMEDIATE")
            if careful:
                results = [self._guarded(request) for request in batch]
            else:
                results = [self._straight(request) for request in batch]
                self._at_fault(self._add_events)
            self._fault("before_commit")
            self._connection.execute("COMMIT")
        except (_Unwritable, Outage):
            self._roll_back()
            raise
        except (sqlite3.Error, OSError, MemoryError) as error:
            self._roll_back()
            if is_suspect(error):
                self._suspicion = error
                raise Outage(
                    UnreadableData(f"the data that was read is invalid ({error}); the file is being checked")
                ) from error
            raise Outage(error) from error
        self._durable = batch, results
        return self._reported(results)

    def _reported(self, results: Sequence[Any]) -> Sequence[Any]:
        """Return the results of a batch that is durable."""
        self._in_place()  # checked after the commit: an acknowledged write was in place when it became durable
        self._fault("after_commit")
        self._remember()
        self._durable = None
        return results

    def _fault(self, point: str) -> None:
        if self._faults is not None:
            self._faults(point)

    def _roll_back(self) -> None:
        """Undo the open transaction. After a grave error SQLite has done so itself, and there is nothing to undo."""
        if self._connection.in_transaction:
            with contextlib.suppress(sqlite3.Error, MemoryError):
                self._connection.execute("ROLLBACK")

    def _remember(self) -> None:
        changes, statistics = self._changes, self.statistics
        self._known |= changes.known
        self._queues |= changes.queues
        self._older = self._older if changes.older is None else changes.older
        self._broken |= changes.broken
        for name in changes.ended:
            self._broken.pop(self._known.pop(name, (0, 0))[0], None)
        self.statistics = StoreStatistics(  # evolve asks the class for its fields, for each transaction
            commits=statistics.commits + changes.commits,
            transactions=statistics.transactions + 1,
            events=statistics.events + changes.written,
            posts=statistics.posts + changes.posts,
            bytes_written=statistics.bytes_written + changes.size,
        )

    def _straight(self, request: Request) -> Any:
        def write() -> Any:
            self._fault("write")
            return self._apply(request)

        return self._at_fault(write)

    def _at_fault(self, write: Callable[[], T]) -> T:
        """Write something of a batch.

        Raises:
            _Unwritable: some request is at fault: others must not suffer for it.
        """
        try:
            return write()
        except (InjectedCrash, Outage):
            raise
        except Exception as error:  # of one request: the whole batch is written again with savepoints
            if is_outage(error):
                raise
            raise _Unwritable from error

    def _guarded(self, request: Request) -> Any:
        self._connection.execute("SAVEPOINT request")
        try:
            self._fault("write")
            result = self._apply(request)
            self._add_events()
        except (InjectedCrash, Outage):
            raise
        except Exception as error:  # of this request alone: others must not suffer for it
            if is_outage(error):
                raise
            self._connection.execute("ROLLBACK TO request")
            self._changes.events.clear()
            self._changes.record.clear()
            result = self._refused(request, error)
        self._connection.execute("RELEASE request")
        return result

    def _add_events(self) -> None:
        """Write the events and records of the batch so far.

        In few statements, because each one competes with the trio thread for the interpreter's lock.
        """
        events = self._changes.events
        if events:
            _sql.add_events(self._connection, events)
            self._changes.written += len(events) // 3
            events.clear()
        record = self._changes.record
        if record:
            _sql.add_record(self._connection, record)
            record.clear()

    def _refused(self, request: Request, error: Exception) -> Receipt | Result[Any]:
        """Return the result of a request that cannot be written."""
        if isinstance(request, CommitRequest):
            run_id = request.commit.run_id
            number, _ = self._find(run_id) or (0, 0)
            self._break(request, number)
            return Receipt(kind="failed", error=_commit_rules.unwritable(run_id, error))
        reason = _commit_rules.InvalidCommit(f"it cannot be written: {error}")
        reason.__cause__ = error
        return Result(error=reason)

    def _break(self, request: CommitRequest, number: int) -> None:
        """Fail the later commits under the claim of one that cannot be written."""
        self._changes.broken[number] = request.claim.token
        with contextlib.suppress(ValueError):
            self._changes.ended.remove(request.commit.run_id)

    def _apply(self, request: Request) -> Receipt | Result[Any]:
        """Write one request. Exceptions were met in writing; refusals that need no rollback are results."""
        match request:
            case CommitRequest():
                return self._commit(request)
            case CreateRequest():
                return self._create(request)
            case PostRequest():
                return self._post(request)
            case PruneRequest(before=before):
                return Result(_prune.sweep(self._connection, before))
            case SetValuesRequest(writes=writes):
                self._changes.size += request.size
                return Result(_stored_values.set_values(self._connection, writes))
            case _:
                return self._owned(request)

    def _owned(self, request: OwnerRequest) -> Result[Any]:
        """Write a request about owners."""
        match request:
            case ClaimRequest(run_id=run_id):
                return Result(self._claim(run_id))
            case ReadyRequest():
                return Result(self._claim_ready(request))
            case DueRequest():
                return Result(self._claim_due(request))
            case QueueRequest():
                _work_sql.limit_queue(self._connection, request)
                return Result()
            case ReviveRequest(run_id=run_id):  # the process counts no crashes of others: there is no dead letter
                return Result(error=UnknownRun(run_id)) if self._find(run_id) is None else Result(False)
            case ReleaseRequest() | GiveBackRequest():  # the process owns every run
                return Result(())

    def _find(self, run_id: str) -> tuple[int, int] | None:
        """Return number and thread of a run, or None."""
        place = self._known.get(run_id) or self._changes.known.get(run_id)
        if place is not None:
            return place
        sql = "SELECT number, thread FROM runs WHERE run_id = ?"
        columns: tuple[int, int] | None = self._connection.execute(sql, (run_id,)).fetchone()
        return columns

    # --- commits -----------------------------------------------------------------------------------------------------

    def _commit(self, request: CommitRequest) -> Receipt:
        claim, commit = request.claim, request.commit
        number, thread = self._find(commit.run_id) or (0, 0)
        broken = self._changes.broken.get(number) or self._broken.get(number)
        old = claim.token <= self._base  # a claim of an earlier opening
        if not number or old or broken == claim.token or claim.run_id != commit.run_id:
            return _commit_rules.lease_lost(commit, claim)
        if isinstance(request.error, MemoryError):  # encoding ran out of memory: there may be enough now
            request.blobs, request.error = encode_again(commit, request.frames)
        blobs = request.blobs
        fault = request.error or _commit_rules.fault(commit, request.frames)
        if fault is not None or not isinstance(blobs, EncodedRows):
            return self._refusal(request, number, fault or TypeError("no rows"))
        if not _sql.move_run(self._connection, number, claim.token, commit, blobs.row):
            return self._refusal(request, number, None)
        changes = self._changes
        for sequence, frame in enumerate(request.frames, commit.expected_last + 1):
            changes.events += (number, sequence, frame)
        if blobs.taken:
            changes.record += (number, commit.last, blobs.taken)
        _sql.add_rows(self._connection, number, thread, commit.written_at, blobs)
        if commit.row.status is WAITING:
            _sql.wait_since(self._connection, number)
        changes.commits += 1
        changes.size += blobs.size
        if commit.row.stage not in TERMINAL:
            return Receipt(kind="committed", last=commit.last)
        changes.ended.append(commit.run_id)
        return Receipt(kind="committed", last=commit.last, next_in_thread=self._release(commit, number, thread))

    def _release(self, commit: Commit, number: int, thread: int) -> str | None:
        return _sql.release(self._connection, number, thread, commit.row.pending_input)

    def _refusal(self, request: CommitRequest, number: int, fault: Exception | None) -> Receipt:
        """Return the receipt of a commit that was not written: it has a fault, or does not fit its run."""
        sql = "SELECT token, last_seq, posted, consumed, ended_at IS NOT NULL FROM runs WHERE number = ?"
        facts = _commit_rules.RunFacts(*self._connection.execute(sql, (number,)).fetchone())
        receipt = _commit_rules.admit(facts, request.claim, request.commit, fault)
        assert receipt is not None  # noqa: S101 - the statement that wrote nothing has the same conditions
        if receipt.kind == "failed":
            self._break(request, number)
        return receipt

    # --- commands ----------------------------------------------------------------------------------------------------

    def _create(self, request: CreateRequest) -> Result[Created]:
        connection, new = self._connection, request.new
        info, blobs = new.info, request.blobs
        facts, thread = self._place_facts(new)
        active = facts.active
        try:
            refusal = _commit_rules.place(facts, new)
        except (ThreadBusy, StoreError) as error:
            return Result(error=error)
        if refusal is not None:
            return Result(refusal)
        if not isinstance(blobs, EncodedRows):
            return Result(error=_commit_rules.InvalidCommit(f"run {info.run_id}: no rows"))
        thread = _sql.join_thread(connection, thread, info)
        token = self._base + request.claimed
        number = _sql.insert_run(
            connection, new, blobs, thread=thread, token=token, held=active is not None, claimed=request.claimed
        )
        self._add_queue(new.queue or info.agent)
        if new.thread_parent is not None:
            copied = _sql.copy_messages(connection, thread, new.thread_parent)
            _sql.copy_parts(connection, thread, new.thread_parent[0], blobs)
            blobs = replace(blobs, messages=[row for row in blobs.messages if row[0] not in copied])
        self._changes.events += (number, 1, request.frame)
        if blobs.taken:
            self._changes.record += (number, 1, blobs.taken)
        _sql.add_rows(connection, number, thread, new.row.step, blobs)
        self._changes.known[info.run_id] = (number, thread)
        self._changes.size += blobs.size
        claim = Claim(run_id=info.run_id, token=token) if request.claimed else None
        return Result(Created(claim=claim, held=active is not None, behind=active, unclaimed=claim is None))

    def _add_queue(self, name: str) -> None:
        if name not in self._queues and name not in self._changes.queues:
            _work_sql.add_queue(self._connection, name)
            self._changes.queues.add(name)

    def _place_facts(self, new: NewRun) -> tuple[PlaceFacts, int | None]:
        """Return what `place` decides on, and the number of the thread, if there is one."""
        connection, run_id = self._connection, new.info.run_id
        sql = "SELECT dispatch = 'held' AND ended_at IS NULL, info FROM runs WHERE run_id = ?"
        existing = connection.execute(sql, (run_id,)).fetchone()
        if existing is None:
            pruned = connection.execute("SELECT content FROM pruned WHERE run_id = ?", (run_id,)).fetchone()
            if pruned is not None:
                return PlaceFacts(pruned=pruned[0]), None
            existing = None if new.dedupe is None else _work_sql.deduplicated(connection, new.dedupe)
        if existing is not None:
            return PlaceFacts(codec.load(RunInfo, existing[1]), bool(existing[0])), None
        thread, runs = _sql.find_thread(connection, new.info.thread_id) or (None, 0)
        return PlaceFacts(runs=runs, active=None if thread is None else _sql.active_run(connection, thread)), thread

    def _claim(self, run_id: str) -> Claim | None:
        columns = _work_sql.claim(self._connection, run_id, self._base)
        if columns is None:
            return None
        token, number, thread = columns
        self._changes.known[run_id] = (number, thread)
        return Claim(run_id=run_id, token=token)

    def _claim_ready(self, request: ReadyRequest) -> Sequence[ReadyRun]:
        changes, room = self._changes, request.room
        older = self._older if changes.older is None else changes.older
        rows, more = _work_sql.ready(
            self._connection, room, request.ability, request.now, self._base, older=older, served=self._served
        )
        if rows:
            self._served = rows[-1].queue
        claimed = [self._claim_row(row) for row in rows]
        changes.older = more
        return claimed

    def _claim_due(self, request: DueRequest) -> Sequence[ReadyRun]:
        due = _work_sql.due(self._connection, request.now, request.ability, request.limit)
        return [self._claim_row(row) for row in due]

    def _claim_row(self, row: ReadyRow) -> ReadyRun:
        """Claim a run that was found; one that has a good claim of this opening keeps it."""
        broken = self._changes.broken.get(row.number) or self._broken.get(row.number)
        if row.token > self._base and row.token != broken:
            return _work_sql.ready_run(row, row.token)
        claim = self._claim(row.run_id)
        assert claim is not None  # noqa: S101 - the run was found open in this transaction
        return _work_sql.ready_run(row, claim.token)

    def _post(self, request: PostRequest) -> Result[PostResult]:
        connection, command = self._connection, request.command
        sql = "SELECT number, agent, stage, posted, consumed, token FROM runs WHERE run_id = ?"
        columns = connection.execute(sql, (request.run_id,)).fetchone()
        if columns is None:
            return Result(error=UnknownRun(request.run_id))
        number, agent, stage, posted, consumed, token = columns
        try:
            facts = self._facts(number, agent, Stage(stage), (posted, consumed), command)
            result = _commit_rules.judged(request.judge, facts, command)
        except (sqlite3.Error, MemoryError):
            raise
        except codec.SchemaError as error:
            return Result(error=_unreadable(request.run_id, error))
        except Exception as error:  # noqa: BLE001 - a judge may raise anything: only the caller of its post gets the exception
            return Result(error=error)
        if result.status != "accepted":
            return Result(PostResult(result))
        item = InboxItem(position=posted + 1, command=_commit_rules.journaled(facts, command, result))
        if command.parts:
            _sql.add_parts(connection, number, command.parts)
        _sql.add_command(connection, number, item, result, _commit_rules.target_key(facts, command))
        self._changes.posts += 1
        if token <= self._base:
            self._changes.older = True
        return Result(PostResult(result, item))

    def _facts(self, number: int, agent: str, stage: Stage, inbox: tuple[int, int], command: Command) -> CommandContext:
        """Return the facts for the judge."""
        connection = self._connection
        posted, consumed = inbox
        facts = CommandContext(
            stage=stage,
            pending=posted - consumed,
            known=_sql.find_command(connection, number, command.command_id),
            agent=agent,
        )
        if command.kind == "pause":
            return attrs.evolve(facts, leaving=_sql.judged_row(connection, number).position.rule.leaving)
        if command.kind == "send":
            inputs, size = _sql.waiting_input(connection, number, consumed)
            return attrs.evolve(facts, inputs=inputs, input_bytes=size)
        if command.decision is None:
            return facts
        target = command.decision.target
        ticket = _sql.find_ticket(connection, number, target)
        call_id = target if ticket is None else ticket.call_id
        call = None if call_id is None else _sql.find_call(connection, number, call_id)
        row = _sql.judged_row(connection, number)
        facts = attrs.evolve(facts, ticket=ticket, call=call, active_agent=row.agent)
        return attrs.evolve(facts, prior=self._prior(number, row, facts, consumed))

    def _prior(self, number: int, row: JudgedRow, facts: CommandContext, consumed: int) -> Command | None:
        """Return the decision that has the target; until used, an early one for the call counts for its ticket, too."""
        key = facts.target_key
        earlier = None if key is None else _sql.find_target(self._connection, number, key)
        if earlier is not None:
            return earlier[1]
        if facts.call is None or facts.ticket is None:
            return None
        call_id = facts.call.call_id
        early = _sql.find_target(self._connection, number, f"call:{call_id}")
        if early is None:
            return None
        unused = early[0] > consumed or call_id in row.early
        return early[1] if unused else None


def _unreadable(run_id: str, error: codec.SchemaError) -> StoreError:
    """Return the error for a command to a run with a damaged row; the command is not journaled."""
    unread = StoreError(f"a row of run {run_id} cannot be read: {error}")
    unread.__cause__ = error
    return unread
