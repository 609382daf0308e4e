"""The machine's state, and the builder that collects the changes of one input.

Theory of operation. `RunState` is a value: the durable rows plus the few facts that exist only while an owner lives.
`StepBuilder` belongs to one input: handlers set fields of its copy of the run row, and `build` makes the next state,
the commit and the effects (one new row per input, never one per event). The copy is generic: a new field of the run row
needs no line here.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

import attrs
import msgspec
from msgspec.structs import replace

from ..contract import events as ev
from ..contract.artifacts import Artifact, without_bytes
from ..contract.calls import CallPosition, check_move
from ..contract.catalogue import LIFECYCLE_EVENT
from ..contract.commits import Commit, EventDraft
from ..contract.decisions import Ticket
from ..contract.ids import message_id, ticket_id
from ..contract.lifecycle import NEEDS_APPROVAL, STAGES, STATUS, TERMINAL, IllegalTransition, RunStatus, Stage
from ..contract.messages import Message
from ..contract.parts import Part, light
from ..contract.payloads import Payload
from ..contract.phases import STEP_START, RunPosition, illegal_move
from ..contract.plain import JSONObject, JSONValue
from ..contract.row_forms import opened, sealed
from ..contract.rows import CallRow, CounterFields, Counters, RunFields, RunInfo, RunRecord, RunRow
from ..contract.spec import MODES, AgentSpec, ExecutionMode, ToolSpec
from ..contract.state import Batch, KeyId, Keys, Write
from ..contract.tasks import TaskRow, by_id
from ..state.snapshot import EMPTY, StateSnapshot, WriteConflict
from .effects import ComparableError, Effect, ReportFailure
from .step_calls import NO_CALLS, StepCalls

_RUNNING: Final = Stage.RUNNING
_PREPARING: Final = RunPosition.PREPARING
_ACTIVE: Final = frozenset(stage for stage, status in STATUS.items() if status is RunStatus.RUNNING)
"""The stages whose time counts as active."""
ENGINE = "engine"
"""The `by` of moves without a principal."""


_PARKED: Final = CallPosition.PARKED.mark
_MILLISECOND: Final = timedelta(milliseconds=1)


def milliseconds(start: datetime, end: datetime) -> int:
    """Return the whole milliseconds between two moments; 0 if the clock went backwards."""
    return max(0, round((end - start) / _MILLISECOND))


def stored(call: CallRow) -> CallRow:
    """Return the call as the store gets it: without writes to keys that are not persistent."""
    batch = call.batch
    if batch is None or all(write.persistent for write in batch.writes):
        return call
    writes = tuple(write for write in batch.writes if write.persistent)
    return replace(call, batch=replace(batch, writes=writes))


def held_at_start(row: RunFields) -> bool:
    """Return True if a ticket of the run holds its step at the start: the hooks of step_start have answered."""
    return row.position is STEP_START and bool(row.run_tickets)


class RunState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A run as its machine sees it.

    Attributes:
        info, row: the durable run.
        calls: The calls of the current step.
        call_ids: every call id of the run.
        snapshot: the state keys.
        keys: undeclared keys that hooks and bodies have written.
    """

    info: RunInfo
    row: RunRow
    calls: StepCalls = NO_CALLS
    call_ids: frozenset[str] = frozenset()
    snapshot: StateSnapshot = EMPTY
    keys: Keys = msgspec.field(default_factory=dict)

    @property
    def deadline(self) -> datetime | None:
        """When time ends the run; None if there is no deadline, or the run is already ending."""
        return None if self.row.position.rule.leaving else self.info.deadline

    def acting(self, spec: AgentSpec) -> AgentSpec:
        """Return the spec of the active agent, with the offered tools of the step, from that of the run."""
        acting = spec if self.row.agent is None else spec.acting(self.row.agent)
        return self.calls.joined(acting) if self.calls.all else acting

    @classmethod
    def from_record(cls, record: RunRecord) -> RunState:
        """Return the state of a stored run; the next input is `Activate`."""
        calls = StepCalls(call for call in record.calls if call.step == record.row.step)
        snapshot = StateSnapshot.restored(record.row.revision, record.state)
        return cls(info=record.info, row=record.row, calls=calls, call_ids=record.call_ids, snapshot=snapshot)


class Transition(msgspec.Struct, frozen=True, gc=False):
    """The result of one input. `commit` is None if nothing has to be written."""

    state: RunState
    commit: Commit | None
    effects: tuple[Effect, ...]


@attrs.define(eq=False, init=False, repr=False)
class StepBuilder:
    """Collects the changes of one input: handlers write into the builder, `build` makes the next state and its commit.

    Attributes:
        spec: The spec of the active agent.
        state, now: the arguments of `step`; `state` is the state before the input.
        info: the run's constant facts.
        mode: its execution mode.
        row, counters: mutable copies of the run row and its counters; handlers set their fields.
        calls, call_ids, snapshot, keys: of the next `RunState`. Calls are changed by `put` only.
        phase_open: the hooks of the run's position, or what prepares the run, were asked and have not answered.
        do: appends an effect.
        changed: a change must be written that no event and no other row shows.
        waiting_calls: calls that have come to wait for a decision, or for which one came early, in this input.
        followed: other inputs wait behind this one, and must be taken before the run ends.
        events, effects, tickets, messages: of this input, in order.
        parts: The parts and artifacts of this input, with their bytes.
        tasks: the live background tasks by id, in the order of their starts; `build` writes them into the row.
    """

    spec: AgentSpec
    state: RunState
    now: datetime
    info: RunInfo
    mode: ExecutionMode
    row: RunFields
    counters: CounterFields
    calls: StepCalls
    call_ids: frozenset[str]
    snapshot: StateSnapshot
    keys: Keys
    phase_open: bool
    changed: bool
    followed: bool
    waiting_calls: list[str]
    events: list[EventDraft]
    effects: list[Effect]
    do: Callable[[Effect], None]
    tickets: list[Ticket]
    messages: list[Message]
    parts: tuple[Part | Artifact, ...]
    tasks: dict[str, TaskRow]
    _own: StepCalls | None
    _changed_calls: dict[str, CallRow]

    def __init__(self, spec: AgentSpec, state: RunState, now: datetime) -> None:
        self.spec, self.state, self.now, self.info = spec, state, now, state.info
        execution = state.info.execution
        self.mode = MODES[execution] if isinstance(execution, str) else execution
        self.row, self.counters = opened(RunFields, state.row), opened(CounterFields, state.row.counters)
        self.calls, self.call_ids = state.calls, state.call_ids
        position = state.row.position
        self.phase_open = (
            position.rule.hooks in spec.hooked and not held_at_start(state.row)
        ) or position is _PREPARING
        self.snapshot, self.keys = state.snapshot, state.keys
        self.changed = self.followed = False
        self.events, self.effects, self.tickets, self.messages, self.waiting_calls = [], [], [], [], []
        self.do = self.effects.append
        self.parts, self._own, self._changed_calls = (), None, {}
        self.tasks = by_id(state.row.tasks) if state.row.tasks else {}

    # --- what handlers use -------------------------------------------------------------------------------------------

    def spec_of(self, agent: str | None) -> AgentSpec:
        """Return the spec of an agent of the run by its key; None: the run's first agent."""
        return self.spec.acting(self.info.agent if agent is None else agent)

    @property
    def final(self) -> str:
        """The newest final text of the model: a candidate for the output."""
        return (self.row.answer or "")[self.row.answer_at :]

    def tool_of(self, call: CallRow) -> ToolSpec | None:
        """Return the tool of a call; None if it is not there, or the call is nested: it has none."""
        return self.spec.tools.get(call.tool) if call.parent is None else None

    def emit(self, name: str, payload: Payload) -> None:
        """Append an event."""
        self.events.append(EventDraft(name, payload))

    def put(self, call: CallRow, **changes: Any) -> CallRow:
        """Write a call's row with changes. The only way to move a call: each move is checked against the table.

        Raises:
            IllegalTransition: the table does not allow the position, or the outcome there.
        """
        call_id = call.call_id
        before = self.calls.rows.get(call_id)
        at, outcome = changes.get("at", call.at), changes.get("outcome", call.outcome)
        if before is None or at is not before.at or outcome is not before.outcome:
            check_move(call_id, None if before is None else before.at, at, outcome)
        new = replace(call, **changes) if changes else call
        if self._own is None:
            self.calls = self._own = self.calls.opened()
        self._own.put(new, before)
        self._changed_calls[call_id] = new
        return new

    def bring(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """Let the bytes of parts join the thread with the commit. Returns the parts as rows hold them."""
        self.parts += tuple(part for part in parts if part.data is not None)
        return light(parts)

    def publish(self, artifact: Artifact) -> Artifact:
        """Let the bytes of an artifact become durable with the commit. Returns the artifact as rows hold it."""
        if artifact.data is not None:
            self.parts += (artifact,)
        return without_bytes(artifact)

    def remember_reducers(self, keys: Keys) -> None:
        """Keep the reducers of written keys that the agent does not declare."""
        new = {key: spec for key, spec in keys.items() if key not in self.spec.keys and self.keys.get(key) != spec}
        if new:
            self.keys = {**self.keys, **new}

    def merge(self, batch: Batch, by: str) -> WriteConflict | None:
        """Merge a batch into the state, with its event. Returns the conflict if that is impossible, else None."""
        keys = {write.key for write in batch.writes}
        specs = {key: self.spec.keys.get(key, self.keys.get(key)) for key in keys}
        outcome = self.snapshot.merge(batch, {key: spec for key, spec in specs.items() if spec is not None}, by)
        if isinstance(outcome, WriteConflict):
            if outcome.error is not None:
                what = f"the reducer of state key {str(outcome.key)!r} failed in run {self.info.run_id}"
                self.do(
                    ReportFailure(what=what, raised=ComparableError(outcome.error), code="state_conflict", call_id=by)
                )
            return outcome
        self.snapshot = outcome
        names = tuple(sorted({str(key) for key in keys}))
        self.emit("run.state.changed", ev.StateChanged(revision=outcome.revision, keys=names, by=by))
        return None

    def reserve(self, key: KeyId, value: JSONValue, by: str = ENGINE) -> None:
        """Write a reserved state key, with its event."""
        write = Write(name=key.name, scope=key.scope, value=value, result=value)
        self.merge(Batch(base=self.snapshot.revision, writes=(write,)), by)  # on the newest revision: no conflict

    def enter(self, position: RunPosition) -> None:
        """Move the run. The only way to do so: each move is checked against the table.

        Raises:
            IllegalTransition: the table does not allow the move.
        """
        source = self.row.position
        if position not in source.rule.to:
            raise illegal_move(self.info.run_id, source, position)
        self.row.position, self.phase_open = position, False

    def next_step(self) -> None:
        """Begin a new step: the settled calls of the old step stay in the store only."""
        self.row.step += 1
        self.calls, self._own = NO_CALLS, None

    def move(self, target: Stage, *, by: str = ENGINE, detail: JSONObject | None = None) -> None:
        """Move to a stage that is neither terminal nor needs_approval, with its event.

        Raises:
            IllegalTransition: the table does not allow the move.
        """
        source = self.to_stage(target)
        back = target is _RUNNING and source is not Stage.PREPARING
        name = "run.resumed" if back else LIFECYCLE_EVENT[target]
        self.emit(name, ev.RunMoved(source=source, to=target, by=by, detail=detail))

    def rest(self, tickets: tuple[str, ...]) -> None:
        """Move to needs_approval, with its event."""
        source = self.to_stage(NEEDS_APPROVAL)
        self.emit("run.waiting", ev.RunWaiting(source=source, to=self.row.stage, by=ENGINE, tickets=tickets))

    def to_stage(self, target: Stage) -> Stage:
        """Move to a stage and return the stage before; the caller emits the event.

        Raises:
            IllegalTransition: the table does not allow the move.
        """
        source = self.row.stage
        if target not in STAGES[source]:
            raise IllegalTransition("run", source.value, target.value, STAGES[source])
        self.row.stage, self.changed, active = target, True, target in _ACTIVE
        if active is (self.counters.active_since is None):
            self.account_active_time(active)
        return source

    def account_active_time(self, active: bool) -> None:
        """Add the active time up to now; keep counting if the run is active."""
        counters = self.counters
        if counters.active_since is not None and counters.active_since is not self.now:
            counters.active_ms += milliseconds(counters.active_since, self.now)
        counters.active_since = self.now if active else None

    def new_message_id(self) -> str:
        """Return the next message id."""
        self.counters.messages += 1
        return message_id(self.info.run_id, self.counters.messages)

    def new_ticket_id(self) -> str:
        """Return the next ticket id."""
        self.counters.tickets += 1
        return ticket_id(self.info.run_id, self.counters.tickets)

    # --- the result --------------------------------------------------------------------------------------------------

    def build(self) -> Transition:
        """Return the next state, the commit (if anything has to be written) and the effects."""
        before = self.state
        any_change = self.changed or self.row.position is not before.row.position
        if not (any_change or self.events or self._changed_calls or self.tickets or self.messages):
            state = before if self.keys is before.keys else replace(before, keys=self.keys)
            return Transition(state, None, tuple(self.effects))
        if self.counters.active_since is not None:
            self.account_active_time(True)  # the next process knows only the written active time
        if self.tasks or before.row.tasks:
            self.row.tasks = tuple(self.tasks.values())
        if self.calls.nested or self.row.nested:
            self.row.nested = (self.calls.nested & self.calls.open).bit_count()
        self.row.last_sequence += len(self.events)
        self.row.next_due = self._next_due()
        self.row.revision = self.snapshot.revision
        self.row.counters = sealed(Counters, self.counters)
        row = sealed(RunRow, self.row)
        state = RunState(
            info=self.info,
            row=row,
            calls=self.calls,
            call_ids=self.call_ids,
            snapshot=self.snapshot,
            keys=self.keys,
        )
        state_changes = () if self.snapshot is before.snapshot else self.snapshot.changes(before.snapshot)
        commit = Commit(
            run_id=self.info.run_id,
            expected_last=before.row.last_sequence,
            at=self.now,
            events=tuple(self.events),
            row=row,
            calls=tuple([call if call.batch is None else stored(call) for call in self._changed_calls.values()]),
            tickets=tuple(self.tickets),
            messages=tuple(self.messages),
            state=state_changes,
            # an input may begin a step but writes nothing in it; the writes of run_end come after all steps
            state_step=before.row.step + (before.row.position is RunPosition.RUN_END) if state_changes else None,
            consumed=row.inbox if row.inbox != before.row.inbox else 0,
            parts=self.parts,
        )
        return Transition(state, commit, tuple(self.effects))

    def _next_due(self) -> datetime | None:
        if self.row.stage in TERMINAL:
            return None
        due = None if self.row.position.rule.leaving else self.info.deadline
        moments = [ticket.expires_at for ticket in self.row.run_tickets if ticket.status == "open"]
        if self.calls.present & _PARKED:
            moments.append(self.calls.earliest)
        return min((moment for moment in (due, *moments) if moment is not None), default=None) if moments else due


def shifted(state: RunState, seconds: float) -> RunState:
    """Return the run after a stretch of inactivity that its clock counts: the machine slept, or its clock was set."""
    counters = state.row.counters
    if counters.active_since is None:
        return state
    counters = replace(
        counters,
        active_since=counters.active_since + timedelta(seconds=seconds),
        unowned_ms=counters.unowned_ms + round(seconds * 1000),
    )
    return replace(state, row=replace(state.row, counters=counters))
