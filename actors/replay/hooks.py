"""What hooks and gates may have said: which phases are open, and what the record tells of their answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import attrs

from ..contract.calls import CallStatus
from ..contract.decisions import Allow, Block, SetResult, Verdict
from ..contract.envelope import Event
from ..contract.lifecycle import TerminationKind
from ..contract.phases import PHASE_OF, CallAt, Cursor, Phase
from ..contract.rows import CallRow
from ..engine.effects import RunPhase
from ..engine.gates import APPROVAL
from ..engine.inputs import PhaseDone
from ..engine.state import RunState
from .derive import wish
from .record import Record

_OF_CALL: Final = {
    CallAt.GATING: Phase.TOOL_GATE,
    CallAt.BEFORE: Phase.BEFORE_TOOL_EXECUTE,
    CallAt.AFTER: Phase.AFTER_TOOL_EXECUTE,
}


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


def told(record: Record, asked: RunPhase, plugins: bool) -> tuple[PhaseDone, ...]:
    """What the hooks and gates of a phase may have answered, as far as the record tells.

    Without plugins every phase passes, and an approval predicate has said one of two things.
    """
    done = PhaseDone(phase=asked.phase, step=asked.step, call_id=asked.call_id)
    gates = asked.phase is Phase.TOOL_GATE
    verdicts: Iterable[Verdict | None] = (Allow(), APPROVAL) if gates else (None,)
    if plugins and gates:
        verdicts = (*verdicts, *_verdicts(record, record.calls.get(asked.call_id or "")))
    answers = [attrs.evolve(done, verdict=verdict) for verdict in verdicts]
    if plugins:
        answers += [attrs.evolve(done, **fault) for fault in _faults(record)]
    return tuple(answers)


def _verdicts(record: Record, call: CallRow | None) -> Iterator[Verdict]:
    """What gates have said of a call: asked for a decision, given its result, or blocked the run."""
    if call is None:
        return
    for ticket in record.tickets.values():
        if ticket.call_id == call.call_id and ticket.reason != "outcome_unknown":
            yield wish(ticket)
    yield SetResult()  # of a provisional verdict only that it was one is seen
    if call.settled:
        yield SetResult(call.result, None if call.status is CallStatus.SUCCEEDED else call.code)
    termination = record.row.termination
    if termination is not None and termination.kind is TerminationKind.BLOCKED:
        yield Block(termination.detail or "")


_FAULTS: Final = {"plugin_error": "failure", "guardrail_tripped": "tripped"}


def _faults(record: Record) -> Iterator[dict[str, Any]]:
    """How hooks have ended the run, or failed while it ended."""
    termination = record.row.termination
    if termination is not None and termination.code in _FAULTS:
        yield {_FAULTS[termination.code]: termination.detail or ""}
    if termination is not None and termination.kind is TerminationKind.BEHAVIOR_REQUESTED:
        yield {"end": termination.detail or ""}
    details = (event.payload.get("detail") for event in record.events if _degraded(event))
    for detail in dict.fromkeys(map(str, details)):
        yield {"failure": detail}


def _degraded(event: Event) -> bool:
    return event.type == "run.degraded" and event.payload.get("reason") == "plugin_error"
