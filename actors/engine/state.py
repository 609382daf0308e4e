"""The machine's state, and the draft in which one input changes it.

`RunState` is a value: rows plus the little that is known only while an owner lives. `Draft` belongs to one step:
handlers write into it, and it becomes the next state, the commit and the effects in one go (one new row per input,
never one per event).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import attrs
import msgspec

from ..contract import events as ev
from ..contract.calls import check_move
from ..contract.decisions import Decision, Ticket
from ..contract.ids import message_id, ticket_id
from ..contract.lifecycle import STATUS, TERMINAL, RunStatus, Stage, Termination, check_stage
from ..contract.messages import FinishReason, Message, Usage
from ..contract.phases import LEAVING, Cursor
from ..contract.rows import (
    CallRow,
    CancelWish,
    Commit,
    Counters,
    EventDraft,
    Inference,
    PauseWish,
    RequestChanges,
    RunInfo,
    RunRecord,
    RunRow,
    Sent,
)
from ..contract.spec import MODES, AgentSpec, ModeRow
from ..contract.state import Batch, Keys
from ..contract.tasks import TaskRow
from ..state.snapshot import EMPTY, Clash, Snapshot
from .effects import Effect, Raised, ReportFailure

ENGINE = "engine"
"""The `by` of moves that nobody asked for."""


_set = object.__setattr__
TOOLS: Final = Cursor.TOOLS
"""A name of its own: before Python 3.12 looking up a member of an enum costs six times as much as a global."""


def milliseconds(start: datetime, end: datetime) -> int:
    """Whole milliseconds between two moments; 0 if the clock went backwards."""
    return max(0, round((end - start) / timedelta(milliseconds=1))) if end is not start else 0


def stored(call: CallRow) -> CallRow:
    """As the store gets it: what was written to keys that are not persistent goes with the process."""
    batch = call.batch
    if batch is None or all(write.persistent for write in batch.writes):
        return call
    kept = tuple(write for write in batch.writes if write.persistent)
    return attrs.evolve(call, batch=attrs.evolve(batch, writes=kept))


class RunState(msgspec.Struct, frozen=True, kw_only=True):
    """A run as its machine sees it.

    Attributes:
        info, row: the durable run.
        calls: of the current step, in the model's order.
        used: every call id of the run.
        phase_open: the hooks of the run-level phase at the cursor have been asked and have not answered.
        snapshot: the state keys.
        keys: those that hooks and bodies have written to, beside the declared ones.
    """

    info: RunInfo
    row: RunRow
    calls: Mapping[str, CallRow] = msgspec.field(default_factory=dict)
    used: frozenset[str] = frozenset()
    phase_open: bool = False
    snapshot: Snapshot = EMPTY
    keys: Keys = msgspec.field(default_factory=dict)

    @property
    def deadline(self) -> datetime | None:
        """When time ends the run; None if nothing is set, or it is on its way out already."""
        return None if self.row.cursor in LEAVING else self.info.deadline

    @classmethod
    def from_record(cls, record: RunRecord) -> RunState:
        """The state as a store has it; the next input is `Activate`."""
        calls = {call.call_id: call for call in record.calls if call.step == record.row.step}
        snapshot = Snapshot.restored(record.row.revision, record.state)
        return cls(info=record.info, row=record.row, calls=calls, used=record.call_ids, snapshot=snapshot)


class Step(msgspec.Struct, frozen=True):
    """What one input came to. `commit` is None if nothing has to be written."""

    state: RunState
    commit: Commit | None
    effects: tuple[Effect, ...]


@attrs.define(eq=False, init=False, repr=False)
class Draft:
    """One input's changes, in the making. Its plain attributes are the fields of run row and counters as they will be.

    A call row that this draft has made is its own until `build`, and is changed in place; nobody else has seen it.

    Attributes:
        followed: other inputs wait behind this one, and must be taken before the run ends.
    """

    spec: AgentSpec
    state: RunState
    now: datetime
    info: RunInfo
    mode: ModeRow
    stage: Stage
    cursor: Cursor
    step: int
    inbox: int
    begun: bool
    termination: Termination | None
    answer: str | None
    answer_at: int
    output: Any
    cancel: CancelWish | None
    usage: Usage
    rounds: int
    errors: int
    active_before: int
    active_since: datetime | None
    unowned: int
    trail: tuple[str, ...]
    answers: int
    output_retries: int
    message_count: int
    ticket_count: int
    inference: Inference | None
    draft: Message | None
    pending_input: tuple[Message, ...]
    sent: tuple[Sent, ...]
    unheard: str | None
    early: Mapping[str, Decision]
    request: RequestChanges | None
    finish_reason: FinishReason | None
    snapshot: Snapshot
    keys: Keys
    stubborn: tuple[str, ...]
    unknown: tuple[str, ...]
    tasks: tuple[TaskRow, ...]
    pause: PauseWish | None
    holds: tuple[Ticket, ...]
    calls: Mapping[str, CallRow]
    used: frozenset[str]
    phase_open: bool
    changed: bool
    followed: bool
    events: list[EventDraft]
    effects: list[Effect]
    tickets: list[Ticket]
    messages: list[Message]
    _own: dict[str, CallRow] | None
    _touched: dict[str, CallRow]

    def __init__(self, spec: AgentSpec, state: RunState, now: datetime) -> None:
        row, counters = state.row, state.row.counters
        self.spec, self.state, self.now, self.info = spec, state, now, state.info
        self.mode = MODES[state.info.execution]
        self.stage, self.cursor, self.step = row.stage, row.cursor, row.step
        self.inbox, self.begun, self.termination = row.inbox, row.begun, row.termination
        self.answer, self.answer_at, self.output = row.answer, row.answer_at, row.output
        self.cancel, self.usage = row.cancel, row.usage
        self.rounds, self.errors = counters.rounds, counters.errors
        self.active_before, self.active_since = counters.active_ms, counters.active_since
        self.unowned, self.trail = counters.unowned_ms, counters.trail
        self.answers, self.output_retries = counters.answers, counters.output_retries
        self.message_count, self.ticket_count = counters.messages, counters.tickets
        self.inference, self.draft = row.inference, row.draft
        self.pending_input, self.sent = row.pending_input, row.sent
        self.unheard, self.early = row.unheard, row.early
        self.request, self.snapshot, self.keys = row.request, state.snapshot, state.keys
        self.finish_reason = row.finish
        self.stubborn, self.unknown, self.tasks = row.stubborn, row.unknown, row.tasks
        self.pause, self.holds = row.pause, row.holds
        self.calls, self.used, self.phase_open = state.calls, state.used, state.phase_open
        self.changed = self.followed = False
        self.events, self.effects, self.tickets, self.messages = [], [], [], []
        self._own, self._touched = None, {}

    # --- what handlers use -------------------------------------------------------------------------------------------

    @property
    def final(self) -> str:
        """The newest final text of the model: what may be the output."""
        return (self.answer or "")[self.answer_at :]

    @property
    def in_tools(self) -> bool:
        """True while the calls of the step may move (not before them, not on the way out)."""
        return self.cursor is TOOLS

    def emit(self, name: str, payload: ev.Payload) -> None:
        """Append an event."""
        self.events.append(EventDraft(name, payload))

    def do(self, effect: Effect) -> None:
        """Ask the owner for an effect."""
        self.effects.append(effect)

    def put(self, call: CallRow, **changes: Any) -> CallRow:
        """Write a call's row, changed. The only way to move a call: the table is asked about each move.

        Raises:
            IllegalTransition: the table does not allow the position, or the outcome there.
        """
        call_id = call.call_id
        known = self.calls.get(call_id)
        at, outcome = changes.get("at", call.at), changes.get("outcome", call.outcome)
        if known is None or at is not known.at or outcome is not known.outcome:
            check_move(call_id, None if known is None else known.at, at, outcome)
        if changes and self._touched.get(call_id) is call:
            for name, value in changes.items():
                _set(call, name, value)
            return call
        new = attrs.evolve(call, **changes) if changes else call
        if self._own is None:
            self.calls = self._own = dict(self.calls)
        self._touched[call_id] = self._own[call_id] = new
        return new

    def learn(self, keys: Keys) -> None:
        """Know the reducers of keys that were written and are not declared."""
        new = {key: spec for key, spec in keys.items() if key not in self.spec.keys and self.keys.get(key) != spec}
        if new:
            self.keys = {**self.keys, **new}

    def merge(self, batch: Batch, by: str) -> Clash | None:
        """Make a batch part of the state, with its event; or say why that can not be."""
        touched = {write.key for write in batch.writes}
        known = {key: self.spec.keys.get(key, self.keys.get(key)) for key in touched}
        outcome = self.snapshot.merge(batch, {key: spec for key, spec in known.items() if spec is not None}, by)
        if isinstance(outcome, Clash):
            if outcome.error is not None:
                what = f"the reducer of state key {str(outcome.key)!r} failed in run {self.info.run_id}"
                self.do(ReportFailure(what=what, raised=Raised(outcome.error), code="state_conflict", call_id=by))
            return outcome
        self.snapshot = outcome
        names = tuple(sorted({str(key) for key in touched}))
        self.emit("run.state.changed", ev.StateChanged(revision=outcome.revision, keys=names, by=by))
        return None

    def next_step(self) -> None:
        """A new step: the settled calls of the old one stay in the store only."""
        self.step += 1
        self.calls = self._own = {}

    def move(self, target: Stage, *, by: str = ENGINE, detail: Mapping[str, Any] | None = None) -> None:
        """Go to a stage that is not terminal and not needs_approval, with its event.

        Raises:
            IllegalTransition: the table does not allow it.
        """
        source = self._enter(target)
        back = target is Stage.RUNNING and source is not Stage.PREPARING
        name = "run.resumed" if back else ev.LIFECYCLE_EVENT[target]
        self.emit(name, ev.RunMoved(source=source, to=target, by=by, detail=detail))

    def rest(self, tickets: tuple[str, ...]) -> None:
        """Go to needs_approval, with its event."""
        source = self._enter(Stage.NEEDS_APPROVAL)
        self.emit("run.waiting", ev.RunWaiting(source=source, to=self.stage, by=ENGINE, tickets=tickets))

    def finish(self, target: Stage) -> Stage:
        """Go to a terminal stage; the caller emits the event. Returns the stage before."""
        return self._enter(target)

    def _enter(self, target: Stage) -> Stage:
        source, self.stage = self.stage, check_stage(self.stage, target)
        self.changed = True
        self.clock_in(STATUS[target] is RunStatus.RUNNING)
        return source

    def clock_in(self, active: bool) -> None:
        """Count the active time up to now; go on counting if the run is active."""
        if self.active_since is not None:
            self.active_before += milliseconds(self.active_since, self.now)
        self.active_since = self.now if active else None

    def new_message_id(self) -> str:
        """The next message id."""
        self.message_count += 1
        return message_id(self.info.run_id, self.message_count)

    def new_ticket_id(self) -> str:
        """The next ticket id."""
        self.ticket_count += 1
        return ticket_id(self.info.run_id, self.ticket_count)

    # --- the result --------------------------------------------------------------------------------------------------

    def build(self) -> Step:
        """The next state, the commit (if anything has to be written) and the effects."""
        before = self.state
        moved = self.changed or self.cursor is not before.row.cursor
        if not (moved or self.events or self._touched or self.tickets or self.messages):
            state = before
            if self.phase_open != before.phase_open or self.keys is not before.keys:
                state = msgspec.structs.replace(before, phase_open=self.phase_open, keys=self.keys)
            return Step(state, None, tuple(self.effects))
        self.clock_in(self.active_since is not None)  # what a process has not written, the next one does not know
        row = self._row()
        state = RunState(
            info=self.info,
            row=row,
            calls=self.calls,
            used=self.used,
            phase_open=self.phase_open,
            snapshot=self.snapshot,
            keys=self.keys,
        )
        written = self.snapshot.changes(before.snapshot)
        commit = Commit(
            run_id=self.info.run_id,
            expected_last=before.row.last_sequence,
            at=self.now,
            events=tuple(self.events),
            row=row,
            calls=tuple(call if call.batch is None else stored(call) for call in self._touched.values()),
            tickets=tuple(self.tickets),
            messages=tuple(self.messages),
            state=written,
            state_step=self._written_at() if written else None,
            consumed=self.inbox if self.inbox != before.row.inbox else 0,
        )
        return Step(state, commit, tuple(self.effects))

    def _written_at(self) -> int:
        """The step that writes belong to. An input may begin one, but writes nothing in it; run_end comes after all."""
        row = self.state.row
        return row.step + (row.cursor is Cursor.RUN_END)

    def _row(self) -> RunRow:
        return RunRow(
            stage=self.stage,
            cursor=self.cursor,
            step=self.step,
            last_sequence=self.state.row.last_sequence + len(self.events),
            inbox=self.inbox,
            begun=self.begun,
            termination=self.termination,
            answer=self.answer,
            answer_at=self.answer_at,
            output=self.output,
            cancel=self.cancel,
            usage=self.usage,
            counters=self._counters(),
            inference=self.inference,
            draft=self.draft,
            pending_input=self.pending_input,
            sent=self.sent,
            unheard=self.unheard,
            early=self.early,
            stubborn=self.stubborn,
            unknown=self.unknown,
            tasks=self.tasks,
            pause=self.pause,
            holds=self.holds,
            next_due=self._next_due(),
            revision=self.snapshot.revision,
            request=self.request,
            finish=self.finish_reason,
        )

    def _counters(self) -> Counters:
        return Counters(
            rounds=self.rounds,
            errors=self.errors,
            active_ms=self.active_before,
            active_since=self.active_since,
            unowned_ms=self.unowned,
            trail=self.trail,
            answers=self.answers,
            output_retries=self.output_retries,
            messages=self.message_count,
            tickets=self.ticket_count,
        )

    def _next_due(self) -> datetime | None:
        if self.stage in TERMINAL:
            return None
        due = None if self.cursor in LEAVING else self.info.deadline
        for ticket in (*(call.ticket for call in self.calls.values()), *self.holds):
            if ticket is not None and ticket.status == "open" and ticket.expires_at is not None:
                due = ticket.expires_at if due is None else min(due, ticket.expires_at)
        return due


def shifted(state: RunState, seconds: float) -> RunState:
    """The same run after a stretch that its clock counts and that was no activity: the machine slept, or was set."""
    counters = state.row.counters
    if counters.active_since is None:
        return state
    counters = attrs.evolve(
        counters,
        active_since=counters.active_since + timedelta(seconds=seconds),
        unowned_ms=counters.unowned_ms + round(seconds * 1000),
    )
    return msgspec.structs.replace(state, row=attrs.evolve(state.row, counters=counters))
