"""The rows of one thread and of one run in the memory store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType

import attrs

from ...contract.artifacts import Artifact
from ...contract.decisions import Command, CommandResult, InboxItem, Ticket
from ...contract.lifecycle import WAITING
from ...contract.messages import Message
from ...contract.parts import Part
from ...contract.pending_input import waiting
from ...contract.recording import RecordDelta
from ...contract.rows import CallRow, CommandContext, QueuePlace, RunInfo, RunOutline, RunRow
from ...contract.run_lists import ASKED, RunSummary
from ...contract.state import StateWrite
from ...contract.ticket_lists import summary_of
from ..common._ranks import rank
from ..common._state_history import KeyVersion, StateHistory, in_order
from ..common._timestamps import milliseconds, moment


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
    runs: dict[str, RunTables] = attrs.field(init=False, factory=dict)
    pruned_members: dict[tuple[str | None, ...], RunInfo] = attrs.field(init=False, factory=dict)
    messages: list[Message] = attrs.field(init=False, factory=list)
    ids: set[str] = attrs.field(init=False, factory=set)
    state: StateHistory = attrs.field(init=False, factory=StateHistory)
    active: str | None = None
    held: dict[str, None] = attrs.field(init=False, factory=dict)
    late: dict[int, tuple[Message, ...]] = attrs.field(init=False, factory=dict)
    parts: dict[str, bytes] = attrs.field(init=False, factory=dict)

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

    def keep(self, parts: Iterable[Part | Artifact], source: Mapping[str, bytes] = MappingProxyType({})) -> None:
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
        number: The number in the order of creation.
        token: The token of the newest claim.
        broken: the token whose commits fail since one of them could not be written.
        consumed: position of the newest consumed inbox item.
        ended: milliseconds; None while the run is not done.
        since: milliseconds; None while the run does not wait.
        open_tickets: the open tickets, in order.
        newest_ticket: call -> ticket id.
        ticket_numbers: ticket id -> its number among the tickets of all runs, in the order in which they were opened.
        ids, targets: command id, target key -> position in the inbox.
        record: the record's part of each commit.
        tools: The names of the tools of its calls.
        owner: name of the process that has the newest claim; "" in a store that is not shared; None: no process.
        queue, priority, dedupe: as in `NewRun`, where the queue has its name.
        ready_at: The time from which a process may claim the run.
        crashes: The crashes of owners since the newest finished step; `crashed_at` is the step of the last crash.
        dead: The reason why the run is a dead letter.
        level: The level of the newest release that wrote the run.
    """

    number: int
    info: RunInfo
    row: RunRow
    thread: ThreadRecord
    frames: list[bytes]
    queue: str
    ready_at: datetime
    priority: int = 0
    dedupe: str | None = None
    owner: str | None = None
    crashes: int = 0
    crashed_at: int = 0
    dead: str | None = None
    level: int = 0
    token: int = 1
    broken: int = 0
    consumed: int = 0
    ended: int | None = None
    since: int | None = None
    open_tickets: dict[str, Ticket] = attrs.field(init=False, factory=dict)
    calls: dict[str, CallRow] = attrs.field(init=False, factory=dict)
    tickets: dict[str, Ticket] = attrs.field(init=False, factory=dict)
    newest_ticket: dict[str, str] = attrs.field(init=False, factory=dict)
    ticket_numbers: dict[str, int] = attrs.field(init=False, factory=dict)
    inbox: list[tuple[Command, CommandResult]] = attrs.field(init=False, factory=list)
    ids: dict[str, int] = attrs.field(init=False, factory=dict)
    targets: dict[str, int] = attrs.field(init=False, factory=dict)
    state: StateHistory = attrs.field(init=False, factory=StateHistory)
    record: list[RecordDelta] = attrs.field(init=False, factory=list)
    tools: set[str] = attrs.field(init=False, factory=set)

    @property
    def rank(self) -> datetime:
        """The run's place in its queue."""
        return rank(self.ready_at, self.priority)

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

    @property
    def in_work(self) -> bool:
        """True if a process works on the run: it owns the run, which is neither held nor at rest."""
        return self.owner is not None and not self.held and not self.at_rest

    @property
    def cancelled(self) -> bool:
        """True if an unread command cancels the run: then an owner is needed also for a held run or a dead letter."""
        return any(command.kind == "cancel" for command, _ in self.inbox[self.consumed :])

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
        oldest = next(iter(self.open_tickets.values()), None)  # in the order in which they were opened
        self.since = began if oldest is None else min(began, milliseconds(oldest.requested_at))

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
            queue=self.queue,
            owner=self.owner or None,
            dead=self.dead,
        )

    def outline(self, queue: QueuePlace | None) -> RunOutline:
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
            behind=self.thread.active or next(iter(self.thread.held)) if self.held else None,
            row=row,
            queue=queue,
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
        position = self.ids.get(command.command_id)
        ticket = call = None
        if command.decision is not None:
            target = command.decision.target
            ticket = self.ticket(target)
            call = self.calls.get(target if ticket is None else ticket.call_id or "")
        facts = CommandContext(
            stage=self.row.stage,
            pending=self.pending,
            known=None if position is None else self.inbox[position - 1],
            ticket=ticket,
            call=call,
            agent=self.info.agent,
            active_agent=None if command.decision is None else self.row.agent,
            leaving=self.row.position.rule.leaving,
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
