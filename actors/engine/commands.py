"""Apply journaled commands to the run: decisions, expiries, cancels, pauses and new input.

Theory of operation. `command_rules.py` judged each command when it was posted. Here the command acts, exactly once, in
inbox order. The run may have changed since the judgement; a command that can no longer act leaves a
`run.decision.refused`, so no accepted command is dropped silently.
"""

from __future__ import annotations

from ..contract import events as ev
from ..contract.calls import CallPosition
from ..contract.decisions import Command, Decision, InboxItem, supplies_result
from ..contract.lifecycle import Stage
from ..contract.messages import Message, Producer
from ..contract.parts import facts_on_wire
from ..contract.pending_input import text_size
from ..contract.phases import TOOLS
from ..contract.rows import CallRow, PendingCancel, SentText
from .child_runs import decide_mirror, drop_early
from .decisions import act, cancelled, expire, refuse
from .lost_questions import withdraw_lost
from .pauses import decide_run_ticket, expire_run_ticket, pause
from .state import StepBuilder
from .termination import end, end_unowned


def command_arrived(builder: StepBuilder, item: InboxItem) -> None:
    """Consume the next inbox item. An item that was consumed before is ignored.

    Raises:
        ValueError: an item in between is missing; a bug of the owner.
    """
    if item.position <= builder.row.inbox:
        return
    if item.position != builder.row.inbox + 1:
        raise ValueError(f"run {builder.info.run_id}: inbox item {item.position} after {builder.row.inbox}")
    builder.row.inbox, builder.changed, builder.followed = item.position, True, True
    command = item.command
    match command.kind:
        case "cancel":
            wish = _note_cancel(builder, command)
            rests = builder.row.stage is Stage.NEEDS_APPROVAL or builder.row.position.rule.between_steps
            if command.mode == "now" or rests:
                end(builder, cancelled(wish))
        case "send":
            _send(builder, command)
        case "pause":
            pause(builder, command)
        case "decide" | "expire":
            _decide(builder, command)
        case "wake":
            pass  # the run has an owner, which was all


def cancel_unowned(builder: StepBuilder, items: tuple[InboxItem, ...]) -> None:
    """Cancel a run without agent or deps: apply the cancel, refuse every decision in the inbox with an event.

    The cancel is among the items, or was consumed by an owner whose process ended before the run did.
    """
    for item in items:
        if item.position != builder.row.inbox + 1:
            continue
        builder.row.inbox, builder.changed, builder.followed = item.position, True, True
        command = item.command
        if command.kind == "cancel":
            _note_cancel(builder, command)
        elif command.kind == "send":
            _send(builder, command)
        elif command.kind == "pause":
            pause(builder, command)
        elif command.kind == "decide" and command.decision is not None:
            refuse(builder, command.decision, "run_done", "the run was cancelled while no process could work on it")
    if builder.row.cancel is not None:
        end_unowned(builder, cancelled(builder.row.cancel))


def _note_cancel(builder: StepBuilder, command: Command) -> PendingCancel:
    builder.emit(
        "run.cancel.requested",
        ev.CancelRequested(command_id=command.command_id, mode=command.mode, by=command.by, reason=command.reason),
    )
    builder.row.cancel = PendingCancel(mode=command.mode, by=command.by, reason=command.reason)
    return builder.row.cancel


def _send(builder: StepBuilder, command: Command) -> None:
    message = Message(
        id=builder.new_message_id(),
        role="user",
        content=command.text,
        producer=Producer(run_id=builder.info.run_id, step=builder.row.step),
        parts=command.parts,
    )
    builder.row.pending_input += (message,)
    size = text_size(command.text)
    builder.row.sent += (
        SentText(number=builder.counters.messages, step=builder.row.step, command_id=command.command_id, size=size),
    )
    builder.emit(
        "run.input.received",
        ev.InputReceived(
            command_id=command.command_id,
            message_id=message.id,
            text=command.text,
            by=command.by,
            attachments=facts_on_wire(command.parts) if command.parts else (),
        ),
    )
    builder.row.unread_input_by = command.by or ""


# --- decisions -------------------------------------------------------------------------------------------------------


def _decide(builder: StepBuilder, command: Command) -> None:
    decision = command.decision
    if decision is None:
        return
    run_ticket = next((own for own in builder.row.run_tickets if own.ticket_id == decision.target), None)
    if run_ticket is not None and not builder.row.position.rule.leaving:
        if command.kind == "expire":
            expire_run_ticket(builder, run_ticket, command.command_id)
        else:
            decide_run_ticket(builder, run_ticket, decision)
        return
    if builder.row.mirrored and builder.row.position is TOOLS and decide_mirror(builder, decision):
        return
    call = builder.calls.rows.get(decision.target) or builder.calls.of_ticket(decision.target)
    waits = call is not None and call.at is CallPosition.PARKED and builder.row.position is TOOLS
    if command.kind == "expire":
        if call is not None and waits:
            expire(builder, call)
    elif builder.row.position.rule.leaving:
        refuse(builder, decision, "run_done", "the run was on its way out when the decision arrived")
    elif command.early and call is not None and not call.settled:
        builder.row.early = {
            **builder.row.early,
            call.call_id: decision,
        }  # judged as soon as the call has a ticket, which may be now
        builder.waiting_calls.append(call.call_id)
        drop_early(builder, call)
    elif call is not None and waits and not (_replaced(call, decision) or _lacks_tool(builder, call, decision)):
        act(builder, call, decision)
    else:
        _too_late(builder, command, decision, call)


def _too_late(builder: StepBuilder, command: Command, decision: Decision, call: CallRow | None) -> None:
    if command.early and (call is None or call.ticket is None):
        refuse(builder, decision, "unused", "the call ended without asking for a decision")
    elif call is not None and _replaced(call, decision):
        refuse(builder, decision, "fingerprint_mismatch", "the tool has changed since; the run has asked again")
    elif call is not None and call.ticket is not None and _lacks_tool(builder, call, decision):
        refuse(builder, decision, "fingerprint_mismatch", f"the tool {call.tool} is not there any more")
        withdraw_lost(builder, (call.call_id,))
    else:
        refuse(builder, decision, "already_decided", "the ticket was closed before the decision arrived")


def _lacks_tool(builder: StepBuilder, call: CallRow, decision: Decision) -> bool:
    """Return True if a decision lets a body run whose tool is not there any more."""
    lacks = call.parent is None and call.tool not in builder.spec.tools
    return lacks and decision.action == "resume" and not supplies_result(call.ticket, decision)


def _replaced(call: CallRow, decision: Decision) -> bool:
    """Return True if the decision approves a ticket that was replaced: the action has changed.

    A denial still applies. A decision by the call's id has the fingerprint of the action that was shown.
    """
    ticket = call.ticket
    if ticket is None or decision.action != "resume":
        return False
    return ticket.replaces == decision.target or decision.fingerprint not in (None, ticket.fingerprint)
