"""The rows of the memory store. Every change is one synchronous stretch: checked first, then written, or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

import attrs

from greenroom.actors.abc import Created, Receipt
from greenroom.actors.contract.decisions import Answer, Command, InboxItem, Ticket
from greenroom.actors.contract.lifecycle import TERMINAL, RunStatus
from greenroom.actors.contract.messages import Message
from greenroom.actors.contract.phases import LEAVING
from greenroom.actors.contract.rows import CallRow, Claim, Commit, Facts, Judge, NewRun, RunInfo, RunRow
from greenroom.actors.contract.state import StateWrite
from greenroom.actors.errors import LeaseLost, ThreadBusy, UnknownRun

from . import _verdict
from ._history import Entry, History, in_order
from ._moments import milliseconds
from ._requests import Posted


@attrs.define(eq=False)
class Thread:
    """A thread: its history, its state keys, who works on it and who waits for it (oldest first)."""

    messages: list[Message] = attrs.field(factory=list)
    ids: set[str] = attrs.field(factory=set)
    state: History = attrs.field(factory=History)
    active: str | None = None
    held: dict[str, None] = attrs.field(factory=dict)

    def append(self, messages: Iterable[Message]) -> None:
        """Append to the history."""
        for message in messages:
            self.messages.append(message)
            self.ids.add(message.id)

    def repeated(self, messages: Sequence[Message]) -> str | None:
        """The first id that the thread has already, or that comes twice."""
        new: set[str] = set()
        for message in messages:
            if message.id in self.ids or message.id in new:
                return message.id
            new.add(message.id)
        return None


@attrs.define(eq=False)
class Run:
    """A run: its rows, its events, its inbox.

    Attributes:
        number: in the order of creation.
        token: of the newest claim. broken: the token whose commits fail since one of them could not be written.
        consumed: position of the newest consumed inbox item.
        newest_ticket: call -> ticket id. ids, targets: command id, target key -> position in the inbox.
        ended: milliseconds; None while the run is not done.
    """

    number: int
    info: RunInfo
    row: RunRow
    thread: Thread
    frames: list[bytes]
    token: int = 1
    broken: int = 0
    consumed: int = 0
    ended: int | None = None
    calls: dict[str, CallRow] = attrs.field(factory=dict)
    tickets: dict[str, Ticket] = attrs.field(factory=dict)
    newest_ticket: dict[str, str] = attrs.field(factory=dict)
    inbox: list[tuple[Command, Answer]] = attrs.field(factory=list)
    ids: dict[str, int] = attrs.field(factory=dict)
    targets: dict[str, int] = attrs.field(factory=dict)
    state: History = attrs.field(factory=History)

    @property
    def pending(self) -> int:
        """How many accepted commands nobody has consumed."""
        return len(self.inbox) - self.consumed

    @property
    def at_rest(self) -> bool:
        """True if it is done, or waits and nobody has to act on anything."""
        waits = self.row.status is RunStatus.WAITING and not self.row.restless and not self.pending
        return waits or self.ended is not None

    @property
    def held(self) -> bool:
        """True if the run waits for its thread."""
        return self.info.run_id in self.thread.held

    def unconsumed(self) -> tuple[InboxItem, ...]:
        """The accepted commands that nobody has consumed, in order."""
        return self.journal(self.consumed)

    def journal(self, after: int) -> tuple[InboxItem, ...]:
        """The accepted commands after a position, in order."""
        items = enumerate(self.inbox[after:], after + 1)
        return tuple(InboxItem(position=position, command=command) for position, (command, _) in items)

    def write_state(self, writes: Iterable[StateWrite], step: int) -> None:
        """Write state keys at a step."""
        for write in writes:
            history = self.state if write.scope == "run" else self.thread.state
            history.put(Entry(self.number, step, write))

    def state_now(self) -> tuple[StateWrite, ...]:
        """The newest values of the run's and its thread's keys."""
        return in_order((*self.state.newest(self.number), *self.thread.state.newest(self.number)))

    def state_at(self, step: int) -> tuple[StateWrite, ...]:
        """The newest values that are not after the end of a step."""
        return in_order((*self.state.at(self.number, step), *self.thread.state.at(self.number, step)))

    def facts(self, command: Command) -> Facts:
        """What the judge needs to know."""
        known = self.ids.get(command.command_id)
        ticket = call = None
        if command.decision is not None:
            target = command.decision.target
            ticket = self.tickets.get(self.newest_ticket.get(target, "") if target not in self.tickets else target)
            call = self.calls.get(target if ticket is None else ticket.call_id or "")
        facts = Facts(
            stage=self.row.stage,
            pending=self.pending,
            known=None if known is None else self.inbox[known - 1],
            ticket=ticket,
            call=call,
            leaving=self.row.cursor in LEAVING,
        )
        prior = self._prior(facts.target_key, call)
        return facts if prior is None else attrs.evolve(facts, prior=prior)

    def _prior(self, key: str | None, call: CallRow | None) -> Command | None:
        """The decision that has the target; an early one for the call counts for its ticket too until it is used."""
        position = self.targets.get(key or "")
        if position is None and call is not None:
            early = self.targets.get(f"call:{call.call_id}", 0)
            position = early if early > self.consumed or (early and call.call_id in self.row.early) else None
        return None if position is None else self.inbox[position - 1][0]


class Ledger:
    """All threads and runs."""

    def __init__(self) -> None:
        self.threads: dict[str, Thread] = {}
        self.runs: dict[str, Run] = {}
        self._numbers = 0

    def timers(self) -> Iterator[tuple[datetime, str]]:
        """When which waiting run has a timer that fires."""
        for name, run in self.runs.items():
            if run.ended is None and run.row.status is RunStatus.WAITING and run.row.next_due is not None:
                yield run.row.next_due, name

    def void_claims(self) -> None:
        """Every claim that was given out is useless from now on."""
        for run in self.runs.values():
            run.token += run.ended is None

    def create(self, new: NewRun, frame: bytes) -> Created:
        """A new run, or the one that has the id.

        Raises:
            ThreadBusy: the thread has an active run and new.on_busy is "refuse". BadCommit: it can not be written.
        """
        run_id, thread_id = new.info.run_id, new.info.thread_id
        if (existing := self.runs.get(run_id)) is not None:
            return Created(claim=None, held=existing.held, existing=existing.info)
        thread = self.threads.get(thread_id) or Thread()
        if thread.active is not None and new.on_busy == "refuse":
            raise ThreadBusy(_verdict.busy_text(thread_id, thread.active))
        fault = _verdict.birth_fault(new)
        copied = self._copied(new, thread)
        known = {message.id for message in copied}
        messages = [*copied, *(message for message in new.messages if message.id not in known)]
        fault = fault or _verdict.repeated(thread_id, thread.repeated(messages))
        if fault is not None:
            raise fault
        self.threads[thread_id] = thread
        self._numbers += 1
        run = Run(number=self._numbers, info=new.info, row=new.row, thread=thread, frames=[frame])
        self.runs[run_id] = run
        held = thread.active is not None
        if held:
            thread.held[run_id] = None
        else:
            thread.active = run_id
        thread.append(messages)
        run.write_state(new.state, new.row.step)
        return Created(claim=Claim(run_id=run_id, token=run.token), held=held)

    def _copied(self, new: NewRun, thread: Thread) -> Sequence[Message]:
        """The history that a fork's new thread begins with."""
        if new.thread_parent is None or thread.messages:
            return ()
        parent, position = new.thread_parent
        source = self.threads.get(parent)
        return () if source is None else source.messages[:position]

    def claim(self, run_id: str) -> Claim | None:
        """A new token; the run may be written again. None if there is no such run or it is done."""
        run = self.runs.get(run_id)
        if run is None or run.ended is not None:
            return None
        run.token += 1
        return Claim(run_id=run_id, token=run.token)

    def commit(self, claim: Claim, commit: Commit, frames: Sequence[bytes]) -> Receipt:
        """Write a commit if everything about it is in order."""
        run = self.runs.get(commit.run_id)
        if run is None or claim.token != run.token or run.broken == claim.token or claim.run_id != commit.run_id:
            return Receipt(kind="lease_lost", error=LeaseLost(_verdict.stale_text(commit.run_id, claim.token)))
        if commit.expected_last != len(run.frames):
            text = _verdict.gap_text(commit.run_id, commit.expected_last, len(run.frames))
            return Receipt(kind="lease_lost", last=len(run.frames), error=LeaseLost(text))
        fault = (
            _verdict.fault(commit, frames)
            or (None if run.ended is None else _verdict.BadCommit(_verdict.done_text(commit.run_id)))
            or (commit.messages and _verdict.repeated(run.info.thread_id, run.thread.repeated(commit.messages)))
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
        return Receipt(kind="committed", last=len(run.frames), released=self._end(run, commit) if terminal else None)

    def _write(self, run: Run, commit: Commit, frames: Sequence[bytes]) -> None:
        run.frames += frames
        run.row = commit.row
        for call in commit.calls:
            run.calls[call.call_id] = call
        for ticket in commit.tickets:
            if ticket.ticket_id not in run.tickets and ticket.call_id is not None:
                run.newest_ticket[ticket.call_id] = ticket.ticket_id
            run.tickets[ticket.ticket_id] = ticket
        if commit.messages:
            run.thread.append(commit.messages)
        if commit.state:
            run.write_state(commit.state, commit.written_at)

    def _end(self, run: Run, commit: Commit) -> str | None:
        """The run is done: the oldest one that its thread holds back may work."""
        run.ended = milliseconds(commit.at)
        thread = run.thread
        thread.held.pop(run.info.run_id, None)
        if thread.active != run.info.run_id:
            return None
        thread.active = next(iter(thread.held), None)
        if thread.active is not None:
            del thread.held[thread.active]
        return thread.active

    def post(self, run_id: str, command: Command, judge: Judge) -> Posted:
        """Judge a command and journal it if accepted.

        Raises:
            UnknownRun: no such run.
        """
        run = self.runs.get(run_id)
        if run is None:
            raise UnknownRun(run_id)
        facts = run.facts(command)
        answer = _verdict.judged(judge, facts, command)
        if answer.status != "accepted":
            return Posted(answer)
        command = _verdict.journaled(facts, command, answer)
        run.inbox.append((command, answer))
        position = len(run.inbox)
        run.ids[command.command_id] = position
        key = _verdict.target_key(facts, command)
        if key is not None:
            run.targets[key] = position
        return Posted(answer, InboxItem(position=position, command=command))

    def prune(self, before: int, limit: int) -> int:
        """Forget up to `limit` runs that ended before `before` (milliseconds); of their threads, what nobody sees."""
        old = [name for name, run in self.runs.items() if run.ended is not None and run.ended < before][:limit]
        touched = {id(thread): thread for thread in (self.runs.pop(name).thread for name in old)}
        oldest: dict[int, int] = {}
        for run in self.runs.values() if touched else ():
            oldest.setdefault(id(run.thread), run.number)  # they are kept in the order of their numbers
        for key, thread in touched.items():
            thread.state.forget(oldest.get(key))
        return len(old)
