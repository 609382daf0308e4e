"""What the hooks of a phase have answered.

One phase is one revision: the hooks' writes come as one batch on the snapshot that they read. If somebody has written
one of its keys meanwhile, the hooks are asked again on the newest snapshot, and nothing else of the answer counts.
"""

from __future__ import annotations

import attrs

from ..contract import events as ev
from ..contract.calls import CallStatus
from ..contract.ids import fingerprint, phase_error_id
from ..contract.lifecycle import Termination, TerminationKind
from ..contract.phases import PHASE_OF, CallAt, Cursor, Phase
from ..contract.rows import CallRow
from .bodies import start_body
from .calls import drive
from .effects import RunPhase
from .ending import end, fail
from .gates import gate_answered
from .holds import open_run_ticket
from .inputs import CallEdit, PhaseDone
from .state import Draft
from .steps import leave, tools_done
from .tickets import close_call


def phase_done(d: Draft, message: PhaseDone) -> None:
    """Take the answer of a phase's hooks. One that is no longer asked for is ignored."""
    call = None if message.call_id is None else d.calls.get(message.call_id)
    if not _asked(d, message, call) or not _written(d, message):
        return
    _note(d, message)
    if d.cursor is Cursor.RUN_END:
        fault = message.failure or message.tripped
        if fault is not None:
            d.emit("run.degraded", ev.RunDegraded(reason="plugin_error", detail=fault, error_id=_error_id(d, message)))
        leave(d)
        return
    d.phase_open = d.phase_open and call is not None
    if call is not None and (message.failure or message.tripped or message.end):
        call = d.put(call, at=CallAt.SETTLED if call.settled else CallAt.NEW)  # nothing of it is in flight
    if message.failure is not None:
        fail(d, "plugin_error", message.failure, error_id=_error_id(d, message))
    elif message.tripped is not None:
        fail(d, "guardrail_tripped", message.tripped)
    elif message.end is not None:
        _end_asked(d, message.end)
    elif call is not None:
        _call_phase_done(d, call, message)
        if d.cursor is Cursor.TOOLS and drive(d):
            tools_done(d)
    else:
        _run_phase_done(d, message)
        leave(d)


def _end_asked(d: Draft, reason: str) -> None:
    """A hook wants the run to end. A step that has come to its end counts."""
    if d.termination is None:
        value, fault = d.spec.check_output(d.final)
        d.output = value if d.answer is not None and fault is None else None
    done = Termination(kind=TerminationKind.BEHAVIOR_REQUESTED, detail=reason)
    if d.cursor is Cursor.STEP_END:
        d.termination = done
        leave(d)
    else:
        end(d, done)


def _asked(d: Draft, message: PhaseDone, call: CallRow | None) -> bool:
    """True if the machine waits for exactly this answer."""
    if message.step != d.step:
        return False
    if message.call_id is not None:
        return d.cursor is Cursor.TOOLS and call is not None and call.position.phase is message.phase
    return d.phase_open and PHASE_OF.get(d.cursor) is message.phase


def _written(d: Draft, message: PhaseDone) -> bool:
    """Make what the hooks wrote part of the state; if that can not be, ask them again."""
    d.learn(message.keys)
    if message.batch is None or d.merge(message.batch, message.phase.value) is None:
        return True
    d.do(RunPhase(phase=message.phase, step=message.step, call_id=message.call_id, state=d.snapshot))
    return False


def _error_id(d: Draft, message: PhaseDone) -> str:
    return phase_error_id(d.info.run_id, message.phase.value, message.step, message.call_id)


def _note(d: Draft, message: PhaseDone) -> None:
    for failure in message.ignored:
        d.emit("run.degraded", ev.RunDegraded(reason="plugin_error", detail=failure, error_id=_error_id(d, message)))
    if message.doubt is not None:
        told = ev.RunDegraded(reason="predicate_failed", detail=message.doubt, error_id=_error_id(d, message))
        d.emit("run.degraded", told)
    if message.call_id is not None:
        for one in message.overruled:
            d.emit(
                "run.gate.overruled",
                ev.GateOverruled(call_id=message.call_id, plugin=one.plugin, verdict=one.verdict, by=one.by),
            )


def _run_phase_done(d: Draft, message: PhaseDone) -> None:
    if message.phase is Phase.BEFORE_INFERENCE:
        d.request = message.request
    elif message.phase is Phase.AFTER_INFERENCE:
        for edit in message.edits:
            call = d.calls.get(edit.call_id)
            if call is not None and not call.settled:
                _edit(d, call, edit)
    for wish in message.holds:
        open_run_ticket(d, wish)


def _edit(d: Draft, call: CallRow, edit: CallEdit) -> None:
    if edit.arguments is None:
        close_call(d, call, CallStatus.CANCELLED, result=None, shown=edit.text, code="dropped")
        return
    mark = fingerprint(d.spec.key, call.tool, edit.arguments, call.definition)
    early = d.early.get(call.call_id)
    if early is not None and early.action == "resume" and early.fingerprint is None:
        seen = attrs.evolve(early, fingerprint=call.fingerprint)  # whoever approved it has not seen these arguments
        d.early = {**d.early, call.call_id: seen}
    d.put(call, arguments=dict(edit.arguments), fingerprint=mark, edited=True)
    d.emit("run.tool.edited", ev.ToolEdited(call_id=call.call_id, arguments=edit.arguments, by=edit.by))


def _call_phase_done(d: Draft, call: CallRow, message: PhaseDone) -> None:
    match call.at:
        case CallAt.GATING:
            gate_answered(d, call, message.verdict, message.revision)
        case CallAt.BEFORE:
            start_body(d, call)
        case _:
            d.put(call, at=CallAt.SETTLED)
