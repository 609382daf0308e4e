"""Apply the answers of a phase's hooks.

Theory of operation. One phase is one revision: the hooks' writes come as one batch on the snapshot that they read. If
another writer changed one of those keys since, the whole answer is dropped and the hooks run again on the newest
snapshot. Otherwise the answer is applied once: verdicts, edits, tickets of the run, changes of the request, or the end
of the run.
"""

from __future__ import annotations

import attrs

from ..contract import events as ev
from ..contract.calls import CallPosition, CallStatus
from ..contract.ids import fingerprint, phase_error_id
from ..contract.lifecycle import Termination, TerminationKind
from ..contract.phases import TOOLS, Phase, RunPosition
from ..contract.rows import CallRow
from .budgets import spend_all
from .effects import RunPhase
from .gates import gate_answered, tool_disabled
from .guardrails import refuse_call
from .inputs import CallEdit, PhaseDone
from .judging import wait_with
from .nested import MAX_NAMES
from .run_tickets import open_run_ticket
from .state import StepBuilder
from .steps import AFTER_HOOKS, continue_run
from .termination import end, fail
from .tickets import close_call
from .tool_bodies import start_body


def phase_done(builder: StepBuilder, message: PhaseDone) -> None:
    """Apply the answer of a phase's hooks; a superseded answer is ignored."""
    call = None if message.call_id is None else builder.calls.get(message.call_id)
    if not _accepted(builder, message, call):
        return
    builder.phase_open = False
    if builder.row.position is RunPosition.RUN_END:
        if message.failure is not None:
            builder.emit(
                "run.degraded",
                ev.RunDegraded(reason="plugin_error", detail=message.failure, error_id=_error_id(builder, message)),
            )
        AFTER_HOOKS[builder.row.position](builder)
        return
    if call is not None and (message.failure or message.end):
        call = builder.put(
            call, at=CallPosition.SETTLED if call.settled else CallPosition.NEW
        )  # none of the call's code is in flight now
    if message.failure is not None:
        fail(builder, "plugin_error", message.failure, error_id=_error_id(builder, message))
    elif message.unavailable is not None:
        fail(builder, "runtime_unavailable", message.unavailable, error_id=_error_id(builder, message))
    elif message.end is not None:
        _end_asked(builder, message.end)
    elif call is not None:
        _call_phase_done(builder, call, message)
        continue_run(builder)
    else:
        _run_phase_done(builder, message)
        AFTER_HOOKS[builder.row.position](builder)


def _end_asked(builder: StepBuilder, reason: str) -> None:
    """End the run because a hook asked for it. A step that has just finished still counts."""
    if builder.row.termination is None:
        value, fault = builder.spec.check_output(builder.final)
        builder.row.output = value if builder.row.answer is not None and fault is None else None
    done = Termination(kind=TerminationKind.BEHAVIOR_REQUESTED, detail=reason)
    if builder.row.position is RunPosition.AFTER_INFERENCE and wait_with(builder, done):
        return
    if builder.row.position is RunPosition.STEP_END:
        builder.row.termination = done
        AFTER_HOOKS[builder.row.position](builder)
    else:
        end(builder, done)


def _accepted(builder: StepBuilder, message: PhaseDone, call: CallRow | None) -> bool:
    """Merge the hooks' writes and report what the hooks report, if the machine waits for exactly this answer.

    Returns False for any other answer, and on a conflict of the writes: then the hooks run again.
    """
    if message.call_id is None:
        expected = builder.phase_open and builder.row.position.rule.hooks is message.phase
    else:
        expected = builder.row.position is TOOLS and call is not None and call.position.phase is message.phase
    if not expected or message.step != builder.row.step:
        return False
    spend_all(builder, message.spent)
    builder.remember_reducers(message.keys)
    if message.batch is not None and builder.merge(message.batch, message.phase.value) is not None:
        builder.do(RunPhase(phase=message.phase, step=message.step, call_id=message.call_id, state=builder.snapshot))
        return False
    doubts = () if message.doubt is None else (message.doubt,)
    reports = [("plugin_error", text) for text in message.ignored] + [("predicate_failed", text) for text in doubts]
    reports += [("is_enabled_failed", text) for text in message.enabled_faults]
    for reason, detail in reports:
        event = ev.RunDegraded(reason=reason, detail=detail, error_id=_error_id(builder, message))
        builder.emit("run.degraded", event)
    for fault in message.toolset_faults:
        if fault.mark not in builder.row.toolset_faults and len(builder.row.toolset_faults) < MAX_NAMES:
            builder.row.toolset_faults += (fault.mark,)
            event = ev.RunDegraded(reason=fault.reason, detail=fault.detail, error_id=_error_id(builder, message))
            builder.emit("run.degraded", event)
    for one in message.overruled if message.call_id is not None else ():
        overruling = ev.GateOverruled(call_id=message.call_id or "", plugin=one.plugin, verdict=one.verdict, by=one.by)
        builder.emit("run.gate.overruled", overruling)
    return True


def _error_id(builder: StepBuilder, message: PhaseDone) -> str:
    return phase_error_id(builder.info.run_id, message.phase.value, message.step, message.call_id)


def _run_phase_done(builder: StepBuilder, message: PhaseDone) -> None:
    if message.phase is Phase.BEFORE_INFERENCE:
        builder.row.request = message.request
        for trim in message.trimmed:
            builder.emit(
                "run.context.trimmed",
                ev.ContextTrimmed(step=builder.row.step, messages=trim.messages, by=trim.by),
            )
    elif message.phase is Phase.AFTER_INFERENCE:
        for edit in message.edits:
            call = builder.calls.get(edit.call_id)
            if call is not None and not call.settled:
                _edit(builder, call, edit)
    for suspend in message.ticket_requests:
        open_run_ticket(builder, suspend)


def _edit(builder: StepBuilder, call: CallRow, edit: CallEdit) -> None:
    if edit.arguments is None:
        close_call(builder, call, CallStatus.CANCELLED, result=None, shown=edit.text, code="dropped")
        return
    mark = fingerprint(builder.spec.key, call.tool, edit.arguments, call.definition)
    early = builder.row.early.get(call.call_id)
    if early is not None and early.action == "resume" and early.fingerprint is None:
        # the early approval was given without seeing these arguments
        decision = attrs.evolve(early, fingerprint=call.fingerprint)
        builder.row.early = {**builder.row.early, call.call_id: decision}
    builder.put(call, arguments=dict(edit.arguments), fingerprint=mark, edited=True)
    builder.emit("run.tool.edited", ev.ToolEdited(call_id=call.call_id, arguments=edit.arguments, by=edit.by))


def _call_phase_done(builder: StepBuilder, call: CallRow, message: PhaseDone) -> None:
    match call.at:
        case CallPosition.GATING if message.tripped is not None:
            refuse_call(builder, call, message.tripped)
        case CallPosition.GATING if message.disabled:
            tool_disabled(builder, call)
        case CallPosition.GATING:
            gate_answered(builder, call, message.verdict, message.revision, message.allowed)
        case CallPosition.BEFORE:
            start_body(builder, call)
        case _:
            builder.put(call, at=CallPosition.SETTLED)
