"""Gates: decide per call whether its body may run.

Theory of operation. Gates are asked per call in the model's order; a call without gates is decided by table lookup.
Verdicts, strongest first: block, deny, suspend, set_result, allow. A block, deny or set_result is provisional while
earlier calls of the step have not run, because an earlier tool may change what the gate reads. The gate is asked again
as soon as the earlier calls have settled or wait for a person, and when nothing executes at all. A block or denial is
then final. A result still waits for earlier calls whose bodies have begun and wait for an answer. For example, with
calls `unlock` and `enter` in one step:

    enter: block    provisional, because `unlock` has not run
    unlock: runs and settles
    enter: the gate is asked again, reads the state that `unlock` wrote, and allows
"""

from __future__ import annotations

from typing import Final

from ..contract import events as ev
from ..contract.calls import CallPosition, CallStatus, marks_where
from ..contract.decisions import Allow, Block, Deny, SetResult, Suspend, Verdict, supplies_result
from ..contract.excerpt import shown_value
from ..contract.lifecycle import Termination, TerminationKind
from ..contract.phases import TOOLS, Phase
from ..contract.rows import CallRow
from ..contract.spec import ToolSpec
from .denials import doubted
from .effects import RunPhase
from .handoffs import come_before
from .inputs import Allowed
from .nested import answerable, report_not_asked
from .state import ENGINE, StepBuilder
from .state_merge import merge_pending
from .step_calls import BATCH, BEGUN, StepCalls
from .termination import end, fail
from .tickets import close_call, open_ticket, withdraw

APPROVAL: Final = Suspend(reason="tool_permission", message="This call needs an approval.")
"""The request of a tool with needs_approval=True."""
DISABLED: Final = "The tool {tool!r} is not available any more."
"""Tells the model that a tool was disabled between the request and the call."""
TURN_STOPPED: Final = "This call did not run: the tool {tool!r} of the same answer is not available any more."
NOT_OFFERED: Final = "The tool {tool!r} is not available in this step."
"""Tells the model that hooks removed the tool from this step's request."""
UNGATED: Final = CallPosition.NEW.mark | CallPosition.GATING.mark
"""Positions of calls about which the gates have not answered."""
_GATING: Final = CallPosition.GATING
_WRITES: Final = marks_where(lambda rule: rule.writes)
_SUSPENDED: Final = marks_where(lambda rule: rule.status is CallStatus.SUSPENDED)


def gate_new(builder: StepBuilder) -> bool:
    """Ask the gates of new calls in the model's order, one call at a time. Returns False while one is being asked."""
    while builder.calls.present & UNGATED:
        call = builder.calls.first(builder.calls.marked(UNGATED))
        if call.at is _GATING:
            return False
        ask_gates(builder, call)
        if builder.row.position is not TOOLS:
            return False
    return True


def ask_gates(builder: StepBuilder, call: CallRow) -> None:
    """Find out whether a call may run. Without hooks the answer is immediate."""
    tool = builder.tool_of(call)
    code, fault = _fault(builder, call, tool) if call.parent is None else ("", None)
    if fault is not None:
        close_call(builder, call, CallStatus.FAILED, result=None, shown=fault, code=code)
        if tool is None and builder.spec.on_unknown_tool == "raise":
            fail(builder, "model_behavior_error", fault)
    elif asks_gates(builder, call):
        builder.put(call, at=CallPosition.GATING)
        builder.do(RunPhase(phase=Phase.TOOL_GATE, step=builder.row.step, call_id=call.call_id, state=builder.snapshot))
    elif tool is not None and tool.gate == "always" and call.approved != call.fingerprint:
        open_ticket(builder, call, APPROVAL)
    else:
        _allow(builder, call)


def _fault(builder: StepBuilder, call: CallRow, tool: ToolSpec | None) -> tuple[str, str | None]:
    """Return a code, and the model's text about a call that cannot run whatever its gates say; None if it can."""
    if tool is None and call.status is CallStatus.RESUMING and supplies_result(call.ticket, call.decision):
        return "", None  # a release has removed the tool, and a person gives the result
    if tool is None:
        tool_names = ", ".join(sorted(builder.spec.tools)) or "none"
        return "unknown_tool", f"There is no tool named {call.tool!r}. The tools are: {tool_names}."
    if call.requested.fault is not None and not call.edited:  # a hook may have replaced the model's arguments
        fault = f"Invalid arguments: {call.requested.fault}. Call the tool again with a JSON object."
        return "invalid_arguments", fault
    complaint = tool.check(call.arguments)
    if complaint is None and builder.row.request is not None and not builder.row.request.offers(call.tool):
        return "unknown_tool", NOT_OFFERED.format(tool=call.tool)
    return "invalid_arguments", complaint


def asks_gates(builder: StepBuilder, call: CallRow) -> bool:
    """Return True if code must decide whether the call may run: plugins, or guardrails or predicates of its tool."""
    if Phase.TOOL_GATE in builder.spec.hooked:
        return call.parent is None or call.body_decision is None  # no gate is asked about a question to people
    tool = builder.tool_of(call)
    if tool is None:
        return False
    asks = tool.guarded or (tool.conditional and not call.attempts)
    return asks or (tool.gate == "ask" and call.approved != call.fingerprint)


def tool_disabled(builder: StepBuilder, call: CallRow) -> None:
    """Fail a call whose tool was disabled meanwhile, and cancel the calls of the step that have not run.

    The model decided about them together. A call whose body, or code around it, has begun continues.
    """
    close_call(
        builder, call, CallStatus.FAILED, result=None, shown=DISABLED.format(tool=call.tool), code="tool_disabled"
    )
    for other in builder.calls.each(builder.calls.open & ~builder.calls.marked(BEGUN) & ~builder.calls.nested):
        if other.settled or other.position.executing:
            continue
        row = withdraw(builder, other, by=ENGINE, reason=f"the tool {call.tool} was disabled")
        text = TURN_STOPPED.format(tool=call.tool)
        close_call(builder, row, CallStatus.CANCELLED, result=None, shown=text, code="turn_stopped")


def gate_answered(
    builder: StepBuilder, call: CallRow, verdict: Verdict | None, revision: int = 0, notes: tuple[Allowed, ...] = ()
) -> None:
    """Apply the gates' verdict on a revision of the state. An approval that the tool itself needs counts as a gate.

    `notes`: the notes of the gates that allow the call, reported if it passes.
    """
    tool = builder.tool_of(call)
    # the tool's own gate ranks as Suspend and replaces weaker verdicts only; an approval satisfies it for the approved
    # fingerprint, so that a later change of the arguments asks again
    weaker = verdict is None or isinstance(verdict, Allow | SetResult)
    if weaker and tool is not None and tool.gate == "always" and call.approved != call.fingerprint:
        verdict = APPROVAL
    if call.seen and not isinstance(verdict, Allow | None):
        report_not_asked(builder, call, verdict)
        verdict = None
    match verdict:
        case None | Allow():
            for one in notes:
                event = ev.GateAllowed(call_id=call.call_id, plugin=one.plugin, note=one.note)
                builder.emit("run.gate.allowed", event)
            _allow(builder, builder.put(call, verdict_at=revision))
        case Suspend():
            open_ticket(builder, call, answerable(call, verdict))
        case _ if _postpone(builder, call, verdict):
            pass
        case SetResult(value, code):
            status = CallStatus.SUCCEEDED if code is None else CallStatus.FAILED
            result_text, large = shown_value(value)
            close_call(builder, call, status, result=value, shown=result_text, code=code, large=large)
        case Deny():
            text = doubted(verdict.text, call.doubt)
            close_call(builder, call, CallStatus.FAILED, result=None, shown=text, code="permission_denied")
        case Block():
            text = doubted(f"Blocked: {verdict.reason}", call.doubt)
            close_call(builder, call, CallStatus.FAILED, result=None, shown=text, code="permission_denied")
            end(builder, Termination(kind=TerminationKind.BLOCKED, code="permission_denied", detail=verdict.reason))


def _postpone(builder: StepBuilder, call: CallRow, verdict: SetResult | Deny | Block) -> bool:
    """Keep a verdict that may still change as provisional. Returns False if the verdict is final.

    The first verdict may change if earlier calls may still run, or have unmerged writes. A set_result that was asked
    for again stays provisional while an earlier body runs, or may begin without a person: a decided call may change
    the verdict, a call that waits for a person and whose body has not begun cannot.
    """
    calls, earlier = builder.calls, come_before(builder.calls, call)
    if call.status is not CallStatus.NEW or call.parent is not None:
        return False  # a body waits for the verdict about a nested call
    if not call.provisional:
        may_change = bool(calls.marked(_WRITES | BATCH) & earlier)
        if may_change:
            builder.put(call, at=CallPosition.PROVISIONAL, provisional=True)
        return may_change
    if not _moving(calls) & earlier or not isinstance(verdict, SetResult):
        return False
    builder.put(call, at=CallPosition.PROVISIONAL, settled_at_gate=_settled_before(calls, call))
    return True


def _settled_before(calls: StepCalls, call: CallRow) -> int:
    return (come_before(calls, call) & ~calls.open).bit_count()


def _moving(calls: StepCalls) -> int:
    """Return the set of the open calls but those whose body has not begun and that a person must allow."""
    return calls.open & ~(calls.marked(_SUSPENDED) & ~calls.marked(BEGUN))


def ask_again(builder: StepBuilder, *, quiet: bool = False) -> bool:
    """Ask the first provisional verdict that may be final now again. Returns True if one is being asked.

    `quiet`: nothing executes and nothing may start. Then a verdict that was weighed before is asked again only if
    another earlier call has settled since.
    """
    calls = builder.calls
    provisional, moving = calls.marked(CallPosition.PROVISIONAL.mark), _moving(calls)
    for call in calls.each(provisional):
        ready = not moving & come_before(calls, call)
        if ready or (quiet and (call.settled_at_gate is None or call.settled_at_gate < _settled_before(calls, call))):
            merge_pending(builder, before=call)
            builder.put(call, at=CallPosition.GATING)
            builder.do(
                RunPhase(phase=Phase.TOOL_GATE, step=builder.row.step, call_id=call.call_id, state=builder.snapshot)
            )
            return True
    return False


def _allow(builder: StepBuilder, call: CallRow) -> None:
    decision = call.decision
    if decision is not None and call.status is CallStatus.RESUMING and supplies_result(call.ticket, decision):
        value = decision.result
        result_text, large = shown_value(value)
        close_call(builder, call, CallStatus.SUCCEEDED, result=value, shown=result_text, large=large)
    else:
        builder.put(call, at=CallPosition.ALLOWED)
