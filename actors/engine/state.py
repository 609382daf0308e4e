"""The machine's state, and the builder in which one input changes it.

`RunState` is a value: rows plus the little that is known only while an owner lives. `StepBuilder` belongs to one input:
handlers set fields of its copy of the run row, and `build` makes the next state, the commit and the effects (one new
row per input, never one per event). No field of the row is named here because of the copy: a new one needs no line.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import attrs
import msgspec
from msgspec.structs import replace

from ..contract import events as ev
from ..contract.calls import check_move
from ..contract.decisions import Ticket
from ..contract.ids import message_id, ticket_id
from ..contract.lifecycle import STATUS, TERMINAL, RunStatus, Stage, check_stage
from ..contract.messages import Message
from ..contract.phases import LEAVING, RunPosition
from ..contract.plain import JSONObject
from ..contract.row_forms import opened, sealed
from ..contract.rows import (
    CallRow,
    Commit,
    CounterFields,
    Counters,
    EventDraft,
    RunFields,
    RunInfo,
    RunRecord,
    RunRow,
)
from ..contract.spec import MODES, AgentSpec, ModeRow
from ..contract.state import Batch, Keys
from ..state.snapshot import EMPTY, StateSnapshot, WriteConflict
from .effects import Effect, Raised, ReportFailure

ENGINE = "engine"
"""The `by` of moves that nobody asked for."""


TOOLS: Final = RunPosition.TOOLS
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
    return replace(call, batch=replace(batch, writes=kept))


class RunState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
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
    snapshot: StateSnapshot = EMPTY
    keys: Keys = msgspec.field(default_factory=dict)

    @property
    def deadline(self) -> datetime | None:
        """When time ends the run; None if nothing is set, or it is on its way out already."""
        return None if self.row.cursor in LEAVING else self.info.deadline

    @classmethod
    def from_record(cls, record: RunRecord) -> RunState:
        """The state as a store has it; the next input is `Activate`."""
        calls = {call.call_id: call for call in record.calls if call.step == record.row.step}
        snapshot = StateSnapshot.restored(record.row.revision, record.state)
        return cls(info=record.info, row=record.row, calls=calls, used=record.call_ids, snapshot=snapshot)


class Transition(msgspec.Struct, frozen=True):
    """What one input came to. `commit` is None if nothing has to be written."""

    state: RunState
    commit: Commit | None
    effects: tuple[Effect, ...]


@attrs.define(eq=False, init=False, repr=False)
class StepBuilder:
    """Builds what one input comes to: handlers write into it, `build` makes the next state and the commit of it.

    Attributes:
        spec, state, now: the arguments of `step`; the state is as it was before the input.
        info: the run's. mode: the row of its execution mode.
        row, counters: a copy of the run row and one of its counters. Handlers set their fields.
        calls, used, snapshot, keys, phase_open: as in `RunState`, for the next one. Calls are changed by `put` alone.
        changed: there is something to write that no event and no other row shows.
        followed: other inputs wait behind this one, and must be taken before the run ends.
        events, effects, tickets, messages: of this input, in order.
    """

    spec: AgentSpec
    state: RunState
    now: datetime
    info: RunInfo
    mode: ModeRow
    row: RunFields
    counters: CounterFields
    calls: Mapping[str, CallRow]
    used: frozenset[str]
    snapshot: StateSnapshot
    keys: Keys
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
        self.spec, self.state, self.now, self.info = spec, state, now, state.info
        self.mode = MODES[state.info.execution]
        self.row, self.counters = opened(RunFields, state.row), opened(CounterFields, state.row.counters)
        self.calls, self.used, self.phase_open = state.calls, state.used, state.phase_open
        self.snapshot, self.keys = state.snapshot, state.keys
        self.changed = self.followed = False
        self.events, self.effects, self.tickets, self.messages = [], [], [], []
        self._own, self._touched = None, {}

    # --- what handlers use -------------------------------------------------------------------------------------------

    @property
    def final(self) -> str:
        """The newest final text of the model: what may be the output."""
        return (self.row.answer or "")[self.row.answer_at :]

    @property
    def in_tools(self) -> bool:
        """True while the calls of the step may move (not before them, not on the way out)."""
        return self.row.cursor is TOOLS

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
        new = replace(call, **changes) if changes else call
        if self._own is None:
            self.calls = self._own = dict(self.calls)
        self._touched[call_id] = self._own[call_id] = new
        return new

    def remember_reducers(self, keys: Keys) -> None:
        """Know the reducers of keys that were written and are not declared."""
        new = {key: spec for key, spec in keys.items() if key not in self.spec.keys and self.keys.get(key) != spec}
        if new:
            self.keys = {**self.keys, **new}

    def merge(self, batch: Batch, by: str) -> WriteConflict | None:
        """Make a batch part of the state, with its event; or say why that can not be."""
        touched = {write.key for write in batch.writes}
        known = {key: self.spec.keys.get(key, self.keys.get(key)) for key in touched}
        outcome = self.snapshot.merge(batch, {key: spec for key, spec in known.items() if spec is not None}, by)
        if isinstance(outcome, WriteConflict):
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
        self.row.step += 1
        self.calls = self._own = {}

    def move(self, target: Stage, *, by: str = ENGINE, detail: JSONObject | None = None) -> None:
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
        self.emit("run.waiting", ev.RunWaiting(source=source, to=self.row.stage, by=ENGINE, tickets=tickets))

    def finish(self, target: Stage) -> Stage:
        """Go to a terminal stage; the caller emits the event. Returns the stage before."""
        return self._enter(target)

    def _enter(self, target: Stage) -> Stage:
        source, self.row.stage = self.row.stage, check_stage(self.row.stage, target)
        self.changed = True
        self.account_active_time(STATUS[target] is RunStatus.RUNNING)
        return source

    def account_active_time(self, active: bool) -> None:
        """Count the active time up to now; go on counting if the run is active."""
        counters = self.counters
        if counters.active_since is not None:
            counters.active_ms += milliseconds(counters.active_since, self.now)
        counters.active_since = self.now if active else None

    def new_message_id(self) -> str:
        """The next message id."""
        self.counters.messages += 1
        return message_id(self.info.run_id, self.counters.messages)

    def new_ticket_id(self) -> str:
        """The next ticket id."""
        self.counters.tickets += 1
        return ticket_id(self.info.run_id, self.counters.tickets)

    # --- the result --------------------------------------------------------------------------------------------------

    def build(self) -> Transition:
        """The next state, the commit (if anything has to be written) and the effects."""
        before = self.state
        moved = self.changed or self.row.cursor is not before.row.cursor
        if not (moved or self.events or self._touched or self.tickets or self.messages):
            state = before
            if self.phase_open != before.phase_open or self.keys is not before.keys:
                state = replace(before, phase_open=self.phase_open, keys=self.keys)
            return Transition(state, None, tuple(self.effects))
        self.account_active_time(
            self.counters.active_since is not None
        )  # what a process has not written, the next one does not know
        row = self._sealed_row()
        state = RunState(
            info=self.info,
            row=row,
            calls=self.calls,
            used=self.used,
            phase_open=self.phase_open,
            snapshot=self.snapshot,
            keys=self.keys,
        )
        written = () if self.snapshot is before.snapshot else self.snapshot.changes(before.snapshot)
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
            consumed=row.inbox if row.inbox != before.row.inbox else 0,
        )
        return Transition(state, commit, tuple(self.effects))

    def _written_at(self) -> int:
        """The step that writes belong to. An input may begin one, but writes nothing in it; run_end comes after all."""
        row = self.state.row
        return row.step + (row.cursor is RunPosition.RUN_END)

    def _sealed_row(self) -> RunRow:
        """The row as it is written. From here on nothing sets its fields any more."""
        row = self.row
        row.last_sequence += len(self.events)
        row.next_due = self._next_due()
        row.revision = self.snapshot.revision
        row.counters = sealed(Counters, self.counters)
        return sealed(RunRow, row)

    def _next_due(self) -> datetime | None:
        if self.row.stage in TERMINAL:
            return None
        due = None if self.row.cursor in LEAVING else self.info.deadline
        for ticket in (*(call.ticket for call in self.calls.values()), *self.row.holds):
            if ticket is not None and ticket.status == "open" and ticket.expires_at is not None:
                due = ticket.expires_at if due is None else min(due, ticket.expires_at)
        return due


def shifted(state: RunState, seconds: float) -> RunState:
    """The same run after a stretch that its clock counts and that was no activity: the machine slept, or was set."""
    counters = state.row.counters
    if counters.active_since is None:
        return state
    counters = replace(
        counters,
        active_since=counters.active_since + timedelta(seconds=seconds),
        unowned_ms=counters.unowned_ms + round(seconds * 1000),
    )
    return replace(state, row=replace(state.row, counters=counters))
