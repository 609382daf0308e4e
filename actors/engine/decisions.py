"""Apply decisions: each acts exactly once on its call, as the ticket's resume mode says.

Theory of operation. A decision closes its ticket immediately. In the modes with batch approval the call is `DECIDED`
until every suspended call of the step is; otherwise the decision acts immediately. A denial ends the call. An approval
makes the call new again with other facts (approved, edited, answered), and the gates are asked again, because the state
may have changed while the call waited. A decision that arrives before its ticket (early) is kept in the run's row. The
resume modes:

    replay_tool_call             the body runs again; `ctx.decision` is the decision if the question was its own
    use_decision_as_tool_result  the call ends with the decision's result; no body runs
    pass_decision_to_tool        the decision's result becomes the arguments of the body
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from ..contract import events as ev
from ..contract.calls import CallPosition, CallStatus, marks_where
from ..contract.decisions import Command, Decision, Ticket
from ..contract.excerpt import shown_value
from ..contract.ids import fingerprint
from ..contract.lifecycle import Termination, TerminationKind
from ..contract.phases import TOOLS
from ..contract.plain import JSONObject
from ..contract.rows import CallRow, CommandContext, PendingCancel
from .child_runs import supersede_child
from .command_rules import CommandRules
from .denials import denial_text, doubted
from .gates import ask_gates
from .state import StepBuilder
from .step_calls import ENDED
from .termination import end
from .tickets import Resolution, close_call, closed, resolve, withdraw
from .tool_bodies import in_turn

_UNDECIDED: Final = marks_where(lambda rule: rule.undecided)
_WAITING: Final = CallPosition.PARKED.mark | CallPosition.CHILD.mark


def cancelled(cancel: PendingCancel, code: str | None = None) -> Termination:
    """Return the termination of a cancel."""
    return Termination(kind=TerminationKind.CANCELLED, code=code, detail=cancel.reason, by=cancel.by)


def refuse(builder: StepBuilder, decision: Decision, code: str, detail: str) -> None:
    """Emit that an accepted decision does not act, and why."""
    builder.emit(
        "run.decision.refused",
        ev.DecisionRefused(command_id=decision.decision_id, target=decision.target, code=code, detail=detail),
    )


def early_decisions(builder: StepBuilder) -> None:
    """Apply decisions that arrived before their ticket, where the ticket exists now."""
    call_ids, builder.waiting_calls = builder.waiting_calls, []
    for call_id in call_ids:
        call, decision = builder.calls.get(call_id), builder.row.early.get(call_id)
        if (
            builder.row.position is TOOLS
            and decision is not None
            and call is not None
            and call.at is CallPosition.PARKED
            and call.ticket is not None
        ):
            builder.row.early = {key: other for key, other in builder.row.early.items() if key != call_id}
            _act_early(builder, call, call.ticket, decision)


def _act_early(builder: StepBuilder, call: CallRow, ticket: Ticket, decision: Decision) -> None:
    """Judge an early decision against its ticket: it acts, or the ticket stays open and an event gives the reason."""
    tool = builder.tool_of(call)
    judge = CommandRules(builder.now, lambda _, arguments: None if tool is None else tool.check(arguments))
    command = Command(command_id=decision.decision_id, kind="decide", decision=decision, by=decision.decided_by)
    facts = CommandContext(stage=builder.row.stage, pending=0, ticket=ticket, call=call)
    wrong = judge.reviewer(ticket, command) or judge.fits(facts, command, decision)
    if ticket.reason == "outcome_unknown":
        refuse(builder, decision, "unused", "it was made before the question was whether the call took effect")
    elif wrong is None:
        act(builder, call, decision)
    else:
        refuse(builder, decision, wrong.code or "not_allowed", wrong.detail or "")


SUPERSEDED: Final = "This call was superseded by new input from the user."


def supersede(builder: StepBuilder) -> None:
    """Withdraw tickets of calls while new input waits for the next step (on_new_input="supersede").

    This applies to calls that wait when the input arrives, and to calls that suspend afterwards: their tickets are
    withdrawn as they are opened. An early decision acts first. A nested call stays: the body of its parent waits.
    """
    for call in builder.calls.each(builder.calls.marked(_WAITING) & ~builder.calls.nested):
        if call.at is CallPosition.PARKED and builder.row.position is TOOLS:
            row = withdraw(builder, call, by=builder.row.unread_input_by or None, reason="superseded by new input")
            text = doubted(SUPERSEDED, call.doubt)
            close_call(builder, row, CallStatus.CANCELLED, result=None, shown=text, code="superseded")
        elif call.at is CallPosition.CHILD and builder.row.position is TOOLS:
            supersede_child(builder, call, by=builder.row.unread_input_by or None)


def act(builder: StepBuilder, call: CallRow, decision: Decision) -> None:
    """Apply a decision: immediately, or (batch approval) once all suspended calls of the step are decided."""
    ticket = call.ticket
    if ticket is not None and ticket.status == "open":
        how: Resolution = "denied" if decision.action == "cancel" else "approved"
        edited = decision.edited_arguments is not None
        ticket = closed(builder, ticket, how, by=decision.decided_by, reason=decision.reason, edited=edited)
    builder.put(call, ticket=ticket, decision=decision, at=CallPosition.DECIDED)
    release_held(builder)


def release_held(builder: StepBuilder) -> None:
    """Apply held decisions, unless the mode requires all suspended calls to be decided first.

    A call that must wait for an exclusive or ordered call before it stays held: resuming means that the call moves.
    """
    if builder.mode.batch and builder.calls.present & _UNDECIDED:
        return
    later = -1
    while builder.row.position is TOOLS:
        calls = builder.calls
        held_calls = calls.marked(CallPosition.DECIDED.mark) & later
        ready = (
            held_calls & (calls.marked(ENDED) | calls.nested | in_turn(calls, builder.spec.tools)) if held_calls else 0
        )
        if not ready:
            return
        call = calls.first(ready)
        later = -(ready & -ready) << 1
        if call.decision is not None and call.ticket is not None:
            release(builder, call, call.ticket, call.decision)


def release(builder: StepBuilder, call: CallRow, ticket: Ticket, decision: Decision) -> None:
    """Let a decision act on the call that it was made about."""
    if decision.action == "cancel":
        text = denial_text(builder, call, decision)
        close_call(builder, call, CallStatus.CANCELLED, result=None, shown=text, code="approval_rejected")
        # a text for the model is an instruction, which only a run that goes on can follow
        if builder.spec.on_deny == "cancel_run" and not isinstance(decision.result, str):
            cancel = PendingCancel(mode="now", by=decision.decided_by, reason=decision.reason)
            end(builder, cancelled(cancel, "approval_rejected"))
        return
    arguments = decision.edited_arguments
    if arguments is None and ticket.resume_mode == "pass_decision_to_tool":
        call = _edited(builder, call, decision.result)
    elif arguments is not None:
        call = replace(_edited(builder, call, arguments), edited=True, edited_at=call.attempts)
    else:
        call = replace(call, approved=call.fingerprint)
    body_decision = (
        decision if call.body_question else call.body_decision
    )  # only a body's own question gets the decision: a permission or a lost outcome does not
    call = builder.put(
        call, at=CallPosition.NEW, resumed_at=call.attempts, body_decision=body_decision, body_question=False
    )
    _say_resumed(builder, call, ticket)
    ask_gates(builder, call)


def _say_resumed(builder: StepBuilder, call: CallRow, ticket: Ticket) -> None:
    other = None if call.fingerprint == ticket.fingerprint else call.arguments
    builder.emit(
        "run.tool.resumed",
        ev.ToolResumed(
            call_id=call.call_id,
            status=call.status,
            ticket_id=ticket.ticket_id,
            mode=ticket.resume_mode,
            arguments=other,
        ),
    )


def expire(builder: StepBuilder, call: CallRow) -> None:
    """Apply a ticket's on_expiry: no decision came in time."""
    ticket = call.ticket
    if ticket is None:
        return
    call = resolve(builder, call, "expired", by="clock", reason="no decision came in time")
    if ticket.on_expiry == "set_result":
        value = ticket.expiry_result
        call = builder.put(call, at=CallPosition.NEW, resumed_at=call.attempts)
        _say_resumed(builder, call, ticket)
        result_text, large = shown_value(value)
        status = CallStatus.SUCCEEDED if ticket.expiry_code is None else CallStatus.FAILED
        close_call(builder, call, status, result=value, shown=result_text, code=ticket.expiry_code, large=large)
        return
    text = doubted("The approval expired: no decision came in time.", call.doubt)
    close_call(builder, call, CallStatus.CANCELLED, result=None, shown=text, code="expired")
    if ticket.on_expiry == "cancel_run":
        cancel = PendingCancel(mode="now", by="clock", reason="an approval expired")
        end(builder, cancelled(cancel, "approval_rejected"))


def _edited(builder: StepBuilder, call: CallRow, arguments: JSONObject) -> CallRow:
    """Give a call other arguments, and so another fingerprint; the author of the arguments has approved them."""
    mark = fingerprint(builder.spec.key, call.tool, arguments, call.definition)
    return replace(call, arguments=dict(arguments), fingerprint=mark, approved=mark)
