"""What hooks and gates may have said: which phases are open, and what the record tells of their answers.

An answer is read from the events that it left, where they stand: first what was written to state, then the failures
that plugins ignore, the verdicts that gave way, and what was asked for. Which of the events at a place are one answer's
is not marked, so each answer that may begin there is told.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from ..contract.calls import CallStatus
from ..contract.decisions import Allow, Block, Deny, SetResult, Suspend, Verdict
from ..contract.envelope import Event
from ..contract.lifecycle import TerminationKind
from ..contract.phases import PHASE_OF, CallAt, Cursor, Phase
from ..contract.rows import CallRow, RequestChanges
from ..engine.denials import undoubted
from ..engine.effects import RunPhase
from ..engine.gates import APPROVAL, NOT_OFFERED
from ..engine.inputs import CallEdit, Overruled, PhaseDone
from ..engine.state import RunState
from ..engine.tickets import wish_of
from .index import writer_of
from .record import Record
from .writes import written

_OF_CALL: Final = {
    CallAt.GATING: Phase.TOOL_GATE,
    CallAt.BEFORE: Phase.BEFORE_TOOL_EXECUTE,
    CallAt.AFTER: Phase.AFTER_TOOL_EXECUTE,
}
_HOLDING: Final = (Phase.RUN_START, Phase.STEP_START, Phase.STEP_END)
"""Phases whose hooks may hold the run."""


def open_phases(state: RunState) -> Iterator[RunPhase]:
    """The phases whose hooks or gates the machine waits for."""
    row = state.row
    if state.phase_open and row.cursor in PHASE_OF:
        yield RunPhase(phase=PHASE_OF[row.cursor], step=row.step)
    if row.cursor is Cursor.TOOLS:
        for call in state.calls.values():
            phase = _OF_CALL.get(call.at)
            if phase is not None:
                yield RunPhase(phase=phase, step=row.step, call_id=call.call_id)


def told(record: Record, asked: RunPhase, state: RunState, position: int, *, plugins: bool) -> Iterator[PhaseDone]:
    """What the hooks and gates of a phase may have answered at a place of the log, as far as the record tells.

    Without plugins every phase passes, and an approval predicate has said one of two things.
    """
    revision = state.snapshot.revision
    done = PhaseDone(phase=asked.phase, step=asked.step, call_id=asked.call_id, revision=revision)
    if not plugins and asked.phase is not Phase.TOOL_GATE:
        yield done
        return
    if not plugins and not _is_doubt(record.events, position):
        yield from _allowed(record, done, position)
        yield msgspec.structs.replace(done, verdict=APPROVAL)
        return
    for begun, at in _begun(record, done, position):
        yield from _asked_for(record, begun, state, at)
        for fault in _faults(record, asked.phase):
            yield msgspec.structs.replace(begun, **fault)


# --- how an answer begins --------------------------------------------------------------------------------------------


def _begun(record: Record, done: PhaseDone, position: int) -> Iterator[tuple[PhaseDone, int]]:
    """What an answer may leave before what it asks for; and the place after that."""
    yield done, position
    events = record.events
    if events[position].type == "run.state.changed" and writer_of(events[position]) == done.phase.value:
        found = written(events[position])
        done, position = msgspec.structs.replace(done, batch=found.batch), position + 1
        yield done, position
    while position < len(events) and _degraded(events[position]):
        detail = str(events[position].payload.get("detail"))
        done, position = msgspec.structs.replace(done, ignored=(*done.ignored, detail)), position + 1
        yield done, position
    if _is_doubt(events, position):
        done = msgspec.structs.replace(done, doubt=str(events[position].payload.get("detail")))
        position += 1
        yield done, position
    before = position
    while position < len(events) and _gave_way(events[position], done.call_id):
        payload: Any = events[position].payload
        one = Overruled(plugin=payload.get("plugin"), verdict=payload.get("verdict"), by=payload.get("by"))
        done, position = msgspec.structs.replace(done, overruled=(*done.overruled, one)), position + 1
    if position > before:
        yield done, position


def _degraded(event: Event) -> bool:
    return event.type == "run.degraded" and event.payload.get("reason") == "plugin_error"


def _is_doubt(events: Sequence[Event], position: int) -> bool:
    event = events[position] if position < len(events) else None
    return event is not None and event.type == "run.degraded" and event.payload.get("reason") == "predicate_failed"


def _gave_way(event: Event, call_id: str | None) -> bool:
    return event.type == "run.gate.overruled" and event.payload.get("call_id") == call_id


_FAULTS: Final = {"plugin_error": "failure", "guardrail_tripped": "tripped"}


def _faults(record: Record, phase: Phase) -> Iterator[dict[str, Any]]:
    """How hooks have ended the run. On its way out, a failure is told as one that is ignored."""
    termination = record.row.termination
    if termination is None or phase is Phase.RUN_END:
        return
    if termination.code == "internal_error":  # the run may have been given up on its way out: why it left is not known
        yield from ({"failure": ""}, {"end": ""})
    if termination.code in _FAULTS:
        yield {_FAULTS[termination.code]: termination.detail or ""}
    if termination.kind is TerminationKind.BEHAVIOR_REQUESTED:
        yield {"end": termination.detail or ""}


# --- what it asks for ------------------------------------------------------------------------------------------------


def _asked_for(record: Record, done: PhaseDone, state: RunState, at: int) -> Iterator[PhaseDone]:
    match done.phase:
        case Phase.TOOL_GATE:
            yield from _judged(record, done, state, at)
        case Phase.BEFORE_INFERENCE:
            yield msgspec.structs.replace(done, request=_request(record, at))
        case Phase.AFTER_INFERENCE:
            yield msgspec.structs.replace(done, edits=tuple(_edits(record, state, at)))
        case _:
            yield done
    if done.phase in _HOLDING:
        holds = tuple(_holds(record, at))
        for many in range(1, len(holds) + 1):
            yield msgspec.structs.replace(done, holds=holds[:many])


def _holds(record: Record, at: int) -> Iterator[Suspend]:
    """What the tickets of the run ask for that are opened from here on, one after the other."""
    for event in record.events[at:]:
        ticket = record.tickets.get(str(event.payload.get("ticket_id")))
        if event.type != "run.approval.requested" or ticket is None or ticket.call_id is not None:
            return
        yield wish_of(ticket)


def _judged(record: Record, done: PhaseDone, state: RunState, at: int) -> Iterator[PhaseDone]:
    """The verdicts on a call: it may run, or the event says what else."""
    yield from _allowed(record, done, at)
    call = state.calls[done.call_id or ""]
    earlier = (other for other in state.calls.values() if other.index < call.index)
    if not call.provisional and any(other.at is not CallAt.SETTLED or other.batch is not None for other in earlier):
        yield msgspec.structs.replace(done, verdict=Block(""))  # of a provisional verdict only that it was one is seen
    elif call.provisional and any(other.at is not CallAt.SETTLED for other in earlier):
        yield msgspec.structs.replace(done, verdict=SetResult())  # as above, and it was one still
    event = record.events[at] if at < len(record.events) else None
    if event is None or event.payload.get("call_id") != call.call_id:
        return
    for verdict in _verdicts(record, event, record.calls.get(call.call_id)):
        yield msgspec.structs.replace(done, verdict=verdict)


def _allowed(record: Record, done: PhaseDone, position: int) -> Iterator[PhaseDone]:
    yield msgspec.structs.replace(done, verdict=Allow())
    if _written_meanwhile(record, position):
        older = done.revision - 1  # any older one is outdated alike
        yield msgspec.structs.replace(done, verdict=Allow(), revision=older)


_BLOCKED: Final = "Blocked: "


def _verdicts(record: Record, event: Event, row: CallRow | None) -> Iterator[Verdict]:
    if event.type == "run.tool.suspended":
        ticket = record.tickets.get(str(event.payload.get("ticket_id")))
        if ticket is not None and ticket.reason != "outcome_unknown":
            yield wish_of(ticket)
    elif event.type == "run.tool.result" and row is not None and row.settled:
        yield SetResult(row.result, None if row.status is CallStatus.SUCCEEDED else row.code)
        shown = undoubted(row.shown or "")
        if row.code == "permission_denied" and row.result is None:
            yield Deny(shown)
        if shown.startswith(_BLOCKED):  # not from the termination: an owner that was given up meanwhile has another
            yield Block(shown.removeprefix(_BLOCKED))


def _written_meanwhile(record: Record, position: int) -> bool:
    """Whether somebody wrote to state in this step up to here: a gate may have judged on what was there before."""
    steps = record.index.steps
    begun = steps[max(0, bisect(steps, position) - 1)] if steps else 0
    return any(begun < at < position for found in record.index.writes.values() for at in found)


def _edits(record: Record, state: RunState, at: int) -> Iterator[CallEdit]:
    """Calls that were edited or dropped."""
    for event in record.events[at:]:
        payload: Any = event.payload
        call = state.calls.get(str(payload.get("call_id")))
        row = None if call is None else record.calls.get(call.call_id)
        if call is None or row is None:
            return
        if event.type == "run.tool.edited":
            yield CallEdit(call_id=call.call_id, by=str(payload.get("by")), arguments=_arguments(record, row, payload))
        elif event.type == "run.tool.result" and payload.get("code") == "dropped":
            yield CallEdit(call_id=call.call_id, by="", text=row.shown or "")
        else:
            return


def _arguments(record: Record, row: CallRow, payload: Any) -> Any:
    """The arguments as the rows have them, of which the event has what may be shown."""
    tickets = (ticket.arguments for ticket in record.tickets.values() if ticket.call_id == row.call_id)
    shown = payload.get("arguments")
    for known in (*tickets, row.arguments):
        if record.redactor.value(known) == shown:
            return known
    return shown if isinstance(shown, dict) else {}


def _request(record: Record, at: int) -> RequestChanges | None:
    """What hooks have taken away from the request of the step that begins here, as far as a call was refused for it."""
    tools = []
    for position in record.index.unoffered:
        if position >= at:
            steps = (event.type == "run.step.started" for event in record.events[at:position])
            tool = record.events[position].payload.get("tool")
            if any(steps):
                break
            if record.events[position].payload.get("result") == NOT_OFFERED.format(tool=tool):
                tools.append(str(tool))
    return RequestChanges(exclude=tuple(tools)) if tools else None
