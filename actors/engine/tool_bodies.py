"""Bodies: which calls may start now, and the inputs of running bodies.

Theory of operation. The execution modes are rows of one table (`contract.spec.MODES`); `startable` is its only reader,
besides batch approval in `decisions.py`. Calls start in the model's order; an exclusive call runs alone, ordered calls
run one after the other, and a decided call is not held back by suspended ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from ..contract import events as ev
from ..contract.calls import CallPosition, CallStatus, marks_where
from ..contract.ids import body_error_id, child_run_id
from ..contract.phases import TOOLS, Phase
from ..contract.rows import CallRow
from ..contract.spec import ExecutionMode, ToolSpec
from .body_inputs import CallPrinted, CallProgressed, CallRaised, CallReturned, CallSuspended, FromBody, ResultRefused
from .budgets import may_begin_body, spend_all
from .denials import doubted
from .effects import RunPhase, StartCall
from .gates import ask_gates, asks_gates
from .guardrails import refuse_result
from .handoffs import begin_handoff, carry_out, without_handoffs
from .nested import begin_nested, parent_said
from .reports import discard_spoken
from .state import StepBuilder
from .state_merge import returned
from .step_calls import ALONE, BEGUN, PROVISIONAL, RESUMED, StepCalls
from .tasks import call_in_background
from .termination import fail_by_call
from .tickets import ask_for_body, close_call

_GATING: Final = CallPosition.GATING
_ALLOWED: Final = CallPosition.ALLOWED
_BODY: Final = CallPosition.BODY


_BODIES: Final = marks_where(lambda rule: rule.body)
_EXECUTING: Final = marks_where(lambda rule: rule.executing)
_SUSPENDED: Final = marks_where(lambda rule: rule.status is CallStatus.SUSPENDED)


def startable(calls: StepCalls, mode: ExecutionMode, tools: Mapping[str, ToolSpec], cap: int) -> tuple[CallRow, ...]:
    """Return the calls that may start now, in the model's order."""
    if calls.all == 1 and calls.present & _ALLOWED.mark:
        return (calls.first(1),)  # nothing else of the step can hold it back
    among = (without_handoffs(calls) if calls.handoffs else calls.all) & ~calls.nested
    exclusive = calls.concurrency(tools)[0] | calls.marked(ALONE)
    bodies = (calls.marked(_BODIES) & among).bit_count()
    room = (cap if mode.bodies is None else min(cap, mode.bodies)) - bodies
    if room <= 0 or calls.marked(_EXECUTING) & among & exclusive:
        return ()
    candidates = unblocked(calls, among, mode, alone=room + bodies == 1)
    candidates &= in_turn(calls, tools)
    if bodies:
        candidates &= ~exclusive
    out: list[CallRow] = []
    while candidates and len(out) < room:
        first = candidates & -candidates
        out.append(calls.first(first))
        if first & exclusive:
            break
        candidates &= ~first & ~exclusive
    return tuple(out)


def startable_now(builder: StepBuilder) -> tuple[CallRow, ...]:
    """Return the allowed calls that may start now. A nested call waits for no other: its body runs already."""
    calls, spec = builder.calls, builder.spec
    if not calls.nested:
        return startable(calls, builder.mode, spec.tools, spec.max_bodies)
    allowed_calls = calls.marked(_ALLOWED.mark)
    waits_for_none = allowed_calls & calls.nested
    if waits_for_none == allowed_calls:
        return tuple(calls.each(waits_for_none))
    return (*startable(calls, builder.mode, spec.tools, spec.max_bodies), *calls.each(waits_for_none))


def unblocked(calls: StepCalls, among: int, mode: ExecutionMode, *, alone: bool) -> int:
    """Return the set of the allowed calls that no gate and no suspended call holds back.

    Args:
        calls: The calls of the step.
        among: those that count.
        mode: The mode of the run.
        alone: one body may run, so the calls behind one whose gate is asked wait for it.
    """
    candidates = calls.marked(_ALLOWED.mark) & among
    gating = calls.marked(_GATING.mark) & among if calls.present & _GATING.mark else 0
    if gating and (
        pending_gates := gating & calls.marked(PROVISIONAL)
    ):  # a verdict that will be final is being asked for: it may end the run
        candidates &= -1 << pending_gates.bit_length()
    if alone and gating:
        candidates &= (gating & -gating) - 1
    if mode.suspended_blocks and calls.present & _SUSPENDED:
        waiting = calls.marked(_SUSPENDED) & calls.marked(BEGUN) & among
        if waiting:  # a decided call acts immediately
            candidates &= ((waiting & -waiting) - 1) | calls.marked(BEGUN | RESUMED)
    return candidates


def in_turn(calls: StepCalls, tools: Mapping[str, ToolSpec]) -> int:
    """Return the set of the open calls of the model for which no earlier call must settle first.

    An earlier call must settle if one of the two is exclusive, or both are ordered. A handoff is in turn when all other
    calls have settled, and the handoffs before it.
    """
    waiting = calls.open & without_handoffs(calls) if calls.handoffs else calls.open
    waiting &= ~calls.nested
    if not waiting & (waiting - 1):
        return waiting  # one call waits for no other
    exclusive, ordered_calls = calls.concurrency(tools)
    turn = waiting
    if waiting & ordered_calls:
        turn &= ~ordered_calls | _first(waiting & ordered_calls)
    if waiting & exclusive:
        turn &= (_first(waiting & exclusive) << 1) - 1  # nothing passes the first exclusive call,
        turn &= ~exclusive | _first(waiting)  # which passes nothing
    return turn


def _first(calls: int) -> int:
    return calls & -calls


def start(builder: StepBuilder, call: CallRow) -> None:
    """Let an allowed call run: its before_tool_execute hooks first, if there are any.

    If the state has changed since the gates allowed the call, the gates are asked again instead.
    """
    if call.verdict_at != builder.snapshot.revision and asks_gates(builder, call):
        ask_gates(builder, call)
    elif Phase.BEFORE_TOOL_EXECUTE in builder.spec.hooked:
        builder.put(call, at=CallPosition.BEFORE)
        builder.do(
            RunPhase(
                phase=Phase.BEFORE_TOOL_EXECUTE, step=builder.row.step, call_id=call.call_id, state=builder.snapshot
            )
        )
    else:
        start_body(builder, call)


def start_body(builder: StepBuilder, call: CallRow) -> None:
    """Count an attempt and start the body; a background tool's body starts as a task. A used-up budget ends the run.

    A handoff without a body is carried out immediately. The body of a nested call is that of its parent.
    """
    tool = builder.tool_of(call)
    if tool is not None and tool.handoff is not None:
        begin_handoff(builder, call)
        if tool.bodiless:
            carry_out(builder, call)
            return
    budget = builder.spec.policies.budget
    if budget is not None and not may_begin_body(builder, budget):
        return
    if call.parent is not None:
        begin_nested(builder, call)
        return
    if tool is not None and tool.background:
        call_in_background(builder, call)
        return
    if tool is not None and tool.child_agent is not None and call.child_run is None:
        call = replace(call, child_run=child_run_id(builder.info.run_id, call.call_id))
    call = builder.put(call, at=_BODY, attempts=call.attempts + 1, started_at=builder.now)
    builder.emit(
        "run.tool.started", ev.ToolStarted(call_id=call.call_id, status=CallStatus.RUNNING, attempt=call.attempts)
    )
    builder.do(
        StartCall(
            call_id=call.call_id,
            attempt=call.attempts,
            tool=call.tool,
            arguments=call.arguments,
            decision=call.body_decision,
            state=builder.snapshot,
            child_run=call.child_run,
            memo=call.memo,
            offered=call.offered,
            waited=call.ticket is not None,
            # a child run must not exist for a call that is not stored
            durable=tool is None or not tool.replay_safe or call.ticket is not None or call.child_run is not None,
        )
    )


_LOGGED: Final = frozenset({"tool_error", "tool_timeout", "internal_error"})
"""Codes of a body's own failures, which have a line in the log."""


def of_bug(builder: StepBuilder, message: CallRaised) -> str | None:
    """Return the error id of the log line about a body's failure; None if there is none."""
    is_logged = message.code in _LOGGED or message.run_code is not None
    return body_error_id(builder.info.run_id, message.call_id, message.attempt) if is_logged else None


# --- what bodies say -------------------------------------------------------------------------------------------------


def body_said(builder: StepBuilder, call: CallRow, message: FromBody) -> None:
    """Handle an input of a call's newest body. The nested calls of a body that has ended end first."""
    parent_said(builder, message)
    if not isinstance(message, CallProgressed | CallPrinted):
        spend_all(builder, message.usage, call.call_id)
        call = discard_spoken(builder, call)
    match message:
        case CallReturned():
            returned(builder, call, message)
        case CallProgressed():
            builder.emit(
                "run.tool.progress",
                ev.ToolProgress(
                    call_id=call.call_id, attempt=call.attempts, fraction=message.fraction, text=message.text
                ),
            )
        case CallPrinted():
            builder.emit(
                "run.tool.output.delta",
                ev.ToolOutputDelta(call_id=call.call_id, attempt=call.attempts, index=message.index, text=message.text),
            )
        case CallSuspended():
            if builder.row.position is TOOLS:
                ask_for_body(builder, call, message)
        case ResultRefused():
            refuse_result(builder, call, message)
        case CallRaised():
            name = of_bug(builder, message)
            text = doubted(
                message.shown, "grace" if call.unknown_cause == "grace" else ""
            )  # the body may still run and act
            close_call(builder, call, CallStatus.FAILED, result=None, shown=text, code=message.code, error_id=name)
            if message.fatal:
                fail_by_call(builder, call, message.shown, code=message.run_code, error_id=name)
