"""The rows of the memory store. Every change is one synchronous stretch: checked first, then written, or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from types import MappingProxyType

import attrs

from ..abc import ASKED, Created, Pruned, Receipt, RunCounts, RunSummary
from ..contract.decisions import Command, CommandResult, InboxItem, Ticket
from ..contract.lifecycle import TERMINAL, WAITING
from ..contract.messages import Message
from ..contract.parts import Part
from ..contract.pending_input import waiting
from ..contract.phases import LEAVING
from ..contract.recording import RecordDelta
from ..contract.rows import (
    CallRow,
    Claim,
    CommandContext,
    Commit,
    Judge,
    NewRun,
    RunInfo,
    RunOutline,
    RunRow,
    ThreadInfo,
)
from ..contract.state import StateWrite
from ..contract.ticket_summary import summary_of
from ..errors import LeaseLost, UnknownRun
from . import _commit_rules
from ._requests import PostResult, PruneSlice
from ._state_history import KeyVersion, StateHistory, in_order
from ._timestamps import milliseconds, moment


@attrs.define(eq=False)
class ThreadRecord:
    """A thread: its history, its state keys, its active run and its held runs (oldest first).

    Attributes:
        owner, created_at, created: as in `ThreadInfo`, where `created` is `runs`.
        runs: the remaining runs, by id, oldest first.
        pruned_members: facts -> the first pruned run with these facts, while messages remain.
        late: number of a run that ended before it was admitted -> its input, until its turn has come.
        parts: digest -> the bytes of an image or a file.
    """

    owner: str
    created_at: datetime
    created: int = 0
    runs: dict[str, RunTables] = attrs.field(factory=dict)
    pruned_members: dict[tuple[str | None, ...], RunInfo] = attrs.field(factory=dict)
    messages: list[Message] = attrs.field(factory=list)
    ids: set[str] = attrs.field(factory=set)
    state: StateHistory = attrs.field(factory=StateHistory)
    active: str | None = None
    held: dict[str, None] = attrs.field(factory=dict)
    late: dict[int, tuple[Message, ...]] = attrs.field(factory=dict)
    parts: dict[str, bytes] = attrs.field(factory=dict)

    def place(self, before: int | None) -> None:
        """Append the input of runs that ended while held, of those before the run of this number."""
        for number in sorted(self.late):
            if before is None or number < before:
                self.append(message for message in self.late.pop(number) if message.id not in self.ids)

    def append(self, messages: Iterable[Message]) -> None:
        """Append to the history."""
        for message in messages:
            self.messages.append(message)
            self.ids.add(message.id)

    def keep(self, parts: Iterable[Part], source: Mapping[str, bytes] = MappingProxyType({})) -> None:
        """Keep the bytes of parts; those that come without bytes are in `source`."""
        for part in parts:
            data = source.get(part.sha256) if part.data is None else part.data
            if data is not None:
                self.parts.setdefault(part.sha256, data)

    def remove(self, run: RunTables) -> int:
        """Remove a pruned run and everything that no run can read any more; returns the number of removed messages."""
        info = run.info
        del self.runs[info.run_id]
        self.late.pop(run.number, None)
        if self.runs:
            self.pruned_members.setdefault((info.by, info.agent, info.session_id, info.workspace), info)
            self.state.forget(next(iter(self.runs.values())).number)
            return 0
        removed = len(self.messages)
        self.messages, self.ids, self.state, self.pruned_members, self.parts = [], set(), StateHistory(), {}, {}
        return removed

    def repeated(self, messages: Sequence[Message]) -> str | None:
        """Return the first id that the thread already has, or that occurs twice; None if all are new."""
        new: set[str] = set()
        for message in messages:
            if message.id in self.ids or message.id in new:
                return message.id
            new.add(message.id)
        return None


@attrs.define(eq=False)
class RunTables:
    """A run: its rows, its events, its inbox.

    Attributes:
        number: in the order of creation.
        token: of the newest claim.
        broken: the token whose commits fail since one of them could not be written.
        consumed: position of the newest consumed inbox item.
        ended: milliseconds; None while the run is not done.
        since: milliseconds; None while the run does not wait.
        open_tickets: the open tickets, in order.
        newest_ticket: call -> ticket id.
        ids, targets: command id, target key -> position in the inbox.
        record: the record's part of each commit.
    """

    number: int
    info: RunInfo
    row: RunRow
    thread: ThreadRecord
    frames: list[bytes]
    token: int = 1
    broken: int = 0
    consumed: int = 0
    ended: int | None = None
    since: int | None = None
    open_tickets: dict[str, Ticket] = attrs.field(factory=dict)
    calls: dict[str, CallRow] = attrs.field(factory=dict)
    tickets: dict[str, Ticket] = attrs.field(factory=dict)
    newest_ticket: dict[str, str] = attrs.field(factory=dict)
    inbox: list[tuple[Command, CommandResult]] = attrs.field(factory=list)
    ids: dict[str, int] = attrs.field(factory=dict)
    targets: dict[str, int] = attrs.field(factory=dict)
    state: StateHistory = attrs.field(factory=StateHistory)
    record: list[RecordDelta] = attrs.field(factory=list)

    @property
    def pending(self) -> int:
        """The number of accepted, unconsumed commands."""
        return len(self.inbox) - self.consumed

    @property
    def at_rest(self) -> bool:
        """True if the run is done, or waits and needs no owner."""
        waits = self.row.status is WAITING and not self.row.restless and not self.pending
        return waits or self.ended is not None

    @property
    def held(self) -> bool:
        """True if the run waits for its thread."""
        return self.info.run_id in self.thread.held

    def note_open(self, ticket: Ticket) -> None:
        """Note a written ticket."""
        if ticket.status == "open":
            self.open_tickets[ticket.ticket_id] = ticket
        else:
            self.open_tickets.pop(ticket.ticket_id, None)

    def note_wait(self, at: datetime) -> None:
        """Update since when the run waits, after its row was written at this time."""
        if self.row.status is not WAITING:
            self.since = None
            return
        began = milliseconds(at) if self.since is None else self.since
        self.since = min([began, *(milliseconds(ticket.requested_at) for ticket in self.open_tickets.values())])

    def summary(self) -> RunSummary:
        """Return the run's line in a list."""
        opened = () if self.ended is not None else tuple(self.open_tickets.values())
        return RunSummary(
            info=self.info,
            row=self.row,
            pending=self.pending,
            held=self.held,
            ended_at=None if self.ended is None else moment(self.ended),
            waiting_since=None if self.since is None else moment(self.since),
            asked=tuple(map(summary_of, opened[:ASKED])),
            asked_count=len(opened),
        )

    def outline(self) -> RunOutline:
        """Return the run without its calls, tickets and commands."""
        row = self.row
        return RunOutline(
            info=self.info,
            stage=row.stage,
            step=row.step,
            last_sequence=row.last_sequence,
            posted=len(self.inbox),
            consumed=self.consumed,
            held=self.held,
            behind=self.thread.active if self.held else None,
            row=row,
        )

    def ticket(self, target: str) -> Ticket | None:
        """Return the ticket with that id, else the newest of the call with that id."""
        return self.tickets.get(target) or self.tickets.get(self.newest_ticket.get(target, ""))

    def unconsumed(self) -> tuple[InboxItem, ...]:
        """Return the accepted, unconsumed commands, in order."""
        return self.journal(self.consumed)

    def journal(self, after: int) -> tuple[InboxItem, ...]:
        """Return the accepted commands after a position, in order."""
        items = enumerate(self.inbox[after:], after + 1)
        return tuple(InboxItem(position=position, command=command) for position, (command, _) in items)

    def write_state(self, writes: Iterable[StateWrite], step: int) -> None:
        """Write state keys at a step."""
        for write in writes:
            history = self.state if write.scope == "run" else self.thread.state
            history.put(KeyVersion(self.number, step, write))

    def state_now(self) -> tuple[StateWrite, ...]:
        """Return the newest values of the run's and its thread's keys."""
        return in_order((*self.state.newest(self.number), *self.thread.state.newest(self.number)))

    def state_at(self, step: int) -> tuple[StateWrite, ...]:
        """Return the newest values as of the end of a step."""
        return in_order((*self.state.at(self.number, step), *self.thread.state.at(self.number, step)))

    def facts(self, command: Command) -> CommandContext:
        """Return the facts for the judge."""
        known = self.ids.get(command.command_id)
        ticket = call = None
        if command.decision is not None:
            target = command.decision.target
            ticket = self.ticket(target)
            call = self.calls.get(target if ticket is None else ticket.call_id or "")
        facts = CommandContext(
            stage=self.row.stage,
            pending=self.pending,
            known=None if known is None else self.inbox[known - 1],
            ticket=ticket,
            call=call,
            leaving=self.row.cursor in LEAVING,
        )
        if command.kind == "send":
            inputs, size = waiting(self.row, (item.command for item in self.unconsumed()))
            facts = attrs.evolve(facts, inputs=inputs, input_bytes=size)
        prior = self._prior(facts.target_key, call)
        return facts if prior is None else attrs.evolve(facts, prior=prior)

    def _prior(self, key: str | None, call: CallRow | None) -> Command | None:
        """The decision that has the target; an early one for the call counts for its ticket too until it is used."""
        position = self.targets.get(key or "")
        if position is None and call is not None:
            early = self.targets.get(f"call:{call.call_id}", 0)
            position = early if early > self.consumed or (early and call.call_id in self.row.early) else None
        return None if position is None else self.inbox[position - 1][0]


class MemoryTables:
    """All threads and runs; `open` holds the runs that are not done."""

    def __init__(self) -> None:
        self.threads: dict[str, ThreadRecord] = {}
        self.runs: dict[str, RunTables] = {}
        self.open: dict[str, RunTables] = {}
        self.pruned: dict[str, str] = {}
        self._numbers = 0

    def counts(self) -> RunCounts:
        """Return how many runs are not done."""
        by_status = Counter(run.row.status.value for run in self.open.values())
        return RunCounts(created=by_status["created"], running=by_status["running"], waiting=by_status["waiting"])

    def timers(self) -> Iterator[tuple[datetime, str]]:
        """Yield the timers of waiting runs: when, and the run's id."""
        for name, run in self.runs.items():
            if run.ended is None and run.row.status is WAITING and run.row.next_due is not None:
                yield run.row.next_due, name

    def void_claims(self) -> None:
        """Void every earlier claim."""
        for run in self.runs.values():
            run.token += run.ended is None

    def create(self, new: NewRun, frame: bytes) -> Created:
        """Create a run, or return the one that has the id.

        Raises:
            ThreadBusy: the thread has an active run and new.on_busy is "refuse".
            InvalidCommit: the run cannot be written.
        """
        run_id, thread_id = new.info.run_id, new.info.thread_id
        if (existing := self.runs.get(run_id)) is not None:
            return Created(claim=None, held=existing.held, existing=existing.info)
        if run_id in self.pruned:
            return Created(claim=None, pruned=self.pruned[run_id])
        thread = self.threads.get(thread_id) or ThreadRecord(new.info.by, new.info.created_at)
        if new.thread_runs not in (None, thread.created):
            return Created(claim=None, thread_changed=True)
        if thread.active is not None and new.on_busy == "refuse":
            raise _commit_rules.busy(thread_id, thread.active)
        fault = _commit_rules.birth_fault(new)
        copied = self._copied(new, thread)
        known = {message.id for message in copied}
        messages = [*copied, *(message for message in new.messages if message.id not in known)]
        fault = fault or _commit_rules.repeated(thread_id, thread.repeated(messages))
        if fault is not None:
            raise fault
        self.threads[thread_id] = thread
        self._numbers += 1
        run = RunTables(number=self._numbers, info=new.info, row=new.row, thread=thread, frames=[frame])
        self.runs[run_id] = self.open[run_id] = thread.runs[run_id] = run
        thread.created += 1
        behind = thread.active
        if behind is not None:
            thread.held[run_id] = None
        else:
            thread.active = run_id
        thread.append(messages)
        if new.parts:
            source = None if new.thread_parent is None else self.threads.get(new.thread_parent[0])
            thread.keep(new.parts, {} if source is None else source.parts)
        run.write_state(new.state, new.row.step)
        if new.taken:
            run.record.append(RecordDelta(1, new.taken))
        claim = Claim(run_id=run_id, token=run.token)
        return Created(claim=claim, held=behind is not None, behind=behind)

    def _copied(self, new: NewRun, thread: ThreadRecord) -> Sequence[Message]:
        """Return the history with which a fork's new thread begins."""
        if new.thread_parent is None or thread.messages:
            return ()
        parent, position = new.thread_parent
        source = self.threads.get(parent)
        return () if source is None else source.messages[:position]

    def claim(self, run_id: str) -> Claim | None:
        """Return a new claim, with which the run may be written again. None if no run has this id or it is done."""
        run = self.runs.get(run_id)
        if run is None or run.ended is not None:
            return None
        run.token += 1
        return Claim(run_id=run_id, token=run.token)

    def commit(self, claim: Claim, commit: Commit, frames: Sequence[bytes]) -> Receipt:
        """Write a valid commit; returns its receipt."""
        run = self.runs.get(commit.run_id)
        if run is None or claim.token != run.token or run.broken == claim.token or claim.run_id != commit.run_id:
            return Receipt(kind="lease_lost", error=LeaseLost(_commit_rules.stale_text(commit.run_id, claim.token)))
        if commit.expected_last != len(run.frames):
            text = _commit_rules.gap_text(commit.run_id, commit.expected_last, len(run.frames))
            return Receipt(kind="lease_lost", last=len(run.frames), error=LeaseLost(text))
        fault = (
            _commit_rules.fault(commit, frames)
            or (None if run.ended is None else _commit_rules.InvalidCommit(_commit_rules.done_text(commit.run_id)))
            or (commit.messages and _commit_rules.repeated(run.info.thread_id, run.thread.repeated(commit.messages)))
        )
        if fault:
            run.broken = claim.token
            return Receipt(kind="failed", error=fault)
        consumed = max(run.consumed, commit.consumed, commit.row.inbox)
        terminal = commit.row.stage in TERMINAL
        if terminal and len(run.inbox) > consumed:
            return Receipt(kind="inbox_ahead", last=len(run.frames))
        run.consumed = consumed
        self._write(run, commit, frames)
        return Receipt(
            kind="committed", last=len(run.frames), next_in_thread=self._end(run, commit) if terminal else None
        )

    def _write(self, run: RunTables, commit: Commit, frames: Sequence[bytes]) -> None:
        run.frames += frames
        run.row = commit.row
        for call in commit.calls:
            run.calls[call.call_id] = call
        for ticket in commit.tickets:
            if ticket.ticket_id not in run.tickets and ticket.call_id is not None:
                run.newest_ticket[ticket.call_id] = ticket.ticket_id
            run.tickets[ticket.ticket_id] = ticket
            run.note_open(ticket)
        if commit.messages:
            run.thread.append(commit.messages)
        if commit.parts:
            run.thread.keep(commit.parts)
        if commit.state:
            run.write_state(commit.state, commit.written_at)
        if commit.taken:
            run.record.append(RecordDelta(commit.last, commit.taken))
        run.note_wait(commit.at)

    def _end(self, run: RunTables, commit: Commit) -> str | None:
        """Handle the end of a run: its thread's oldest held run may work."""
        run.ended = milliseconds(commit.at)
        del self.open[run.info.run_id]
        thread = run.thread
        thread.held.pop(run.info.run_id, None)
        if commit.row.pending_input:
            thread.late[run.number] = commit.row.pending_input
        if thread.active != run.info.run_id:
            return None
        thread.active = next(iter(thread.held), None)
        if thread.active is not None:
            del thread.held[thread.active]
        if thread.late:
            thread.place(None if thread.active is None else self.runs[thread.active].number)
        return thread.active

    def post(self, run_id: str, command: Command, judge: Judge) -> PostResult:
        """Judge a command and journal it if accepted.

        Raises:
            UnknownRun: no run has this id.
        """
        run = self.runs.get(run_id)
        if run is None:
            raise UnknownRun(run_id)
        facts = run.facts(command)
        result = _commit_rules.judged(judge, facts, command)
        if result.status != "accepted":
            return PostResult(result)
        if command.parts:
            run.thread.keep(command.parts)
        command = _commit_rules.journaled(facts, command, result)
        run.inbox.append((command, result))
        position = len(run.inbox)
        run.ids[command.command_id] = position
        key = _commit_rules.target_key(facts, command)
        if key is not None:
            run.targets[key] = position
        return PostResult(result, InboxItem(position=position, command=command))

    def prune(self, before: int, limit: int) -> PruneSlice:
        """Delete up to `limit` runs that ended before `before` (milliseconds), and unused parts of their threads."""
        old = list(islice(self._old(before), limit))
        messages = 0
        for run in old:
            run_id = run.info.run_id
            del self.runs[run_id]
            self.pruned[run_id] = run.info.content
            messages += run.thread.remove(run)
        return PruneSlice(len(old), messages, more=len(old) == limit)

    def forecast(self, before: int) -> Pruned:
        """Return what a prune would delete."""
        old = list(self._old(before))
        counts = Counter(run.info.thread_id for run in old)
        empty = [self.threads[name] for name, count in counts.items() if count == len(self.threads[name].runs)]
        return Pruned(runs=len(old), messages=sum(len(thread.messages) for thread in empty))

    def _old(self, before: int) -> Iterator[RunTables]:
        return (run for run in self.runs.values() if run.ended is not None and run.ended < before)

    def thread(self, thread_id: str) -> ThreadInfo | None:
        """Return the facts of a thread."""
        thread = self.threads.get(thread_id)
        if thread is None:
            return None
        return ThreadInfo(
            thread_id=thread_id,
            owner=thread.owner,
            created_at=thread.created_at,
            runs=thread.created,
            members=(*thread.pruned_members.values(), *(run.info for run in thread.runs.values())),
        )
