"""Pauses, and decisions about the tickets that hold the run itself.

Theory of operation. A pause is a pending fact of the run's row until the run can stop: at the end of the step, or
immediately if it already waits. Then it becomes a ticket of the run (`run_tickets.py`). A decision about such a ticket
continues the run at the position where it stopped, once no other ticket is open, or ends the run.
"""

from __future__ import annotations

from ..contract import events as ev
from ..contract.decisions import Command, Decision, Ticket
from ..contract.excerpt import shown_value
from ..contract.lifecycle import Stage
from ..contract.messages import Message, Producer
from ..contract.phases import RunPosition
from ..contract.rows import PendingCancel, PendingPause
from .decisions import cancelled
from .judging import open_input
from .run_tickets import close_run_ticket, open_pause, rest
from .state import StepBuilder
from .steps import continue_run, next_step, step_started
from .termination import append_input, end, refuse_command


def pause(builder: StepBuilder, command: Command) -> None:
    """Hold the run at the end of the step, or immediately if it already waits. A second pause joins the first."""
    if builder.row.position.rule.leaving:
        refuse_command(builder, command.command_id, "run_done", "the run was on its way out when the pause arrived")
        return
    pause_id = next((ticket.ticket_id for ticket in builder.row.run_tickets if ticket.reason == "manual_pause"), None)
    joins = builder.row.pause.command_id if builder.row.pause is not None else pause_id
    builder.emit(
        "run.pause.requested",
        ev.PauseRequested(command_id=command.command_id, by=command.by, reason=command.reason, joins=joins),
    )
    if joins is not None:
        return
    builder.row.pause = PendingPause(command_id=command.command_id, by=command.by, reason=command.reason)
    if builder.row.stage is Stage.NEEDS_APPROVAL:
        open_pause(builder)
    elif builder.row.position is RunPosition.TASKS:
        open_pause(builder)
        rest(builder)


def decide_run_ticket(builder: StepBuilder, ticket: Ticket, decision: Decision) -> None:
    """Apply a decision about the run: it continues, with the result as a message, or ends as cancelled."""
    denied = decision.action == "cancel"
    by = decision.decided_by
    close_run_ticket(builder, ticket, "denied" if denied else "approved", by=by, reason=decision.reason)
    if denied:
        end(builder, cancelled(PendingCancel(mode="now", by=by, reason=decision.reason), "approval_rejected"))
        return
    _tell(builder, decision.result, decision.decision_id, by)
    _go_on(builder, by)


def expire_run_ticket(builder: StepBuilder, ticket: Ticket, command_id: str) -> None:
    """Apply the expiry of a run's ticket: a default result continues the run, otherwise the run ends as cancelled."""
    close_run_ticket(builder, ticket, "expired", by="clock", reason="no decision came in time")
    if ticket.on_expiry == "set_result":
        _tell(builder, ticket.expiry_result, command_id, "clock")
        _go_on(builder, "clock")
        return
    cancel = PendingCancel(mode="now", by="clock", reason="an approval expired")
    end(builder, cancelled(cancel, "approval_rejected"))


def _tell(builder: StepBuilder, result: object, command_id: str, by: str | None) -> None:
    """Append the result, unless blank, to the pending input, so that the model knows what happened during the pause."""
    if result is None or (isinstance(result, str) and not result.strip()):
        return
    text = result if isinstance(result, str) else shown_value(result)[0]
    producer = Producer(run_id=builder.info.run_id, step=builder.row.step)
    message = Message(id=builder.new_message_id(), role="user", content=text, producer=producer)
    builder.row.pending_input += (message,)
    builder.emit("run.input.received", ev.InputReceived(command_id=command_id, message_id=message.id, text=text, by=by))


def _go_on(builder: StepBuilder, by: str | None) -> None:
    """Continue the run where it was held, if no other ticket holds it; a run in the middle of a step was not held."""
    if builder.row.run_tickets or builder.row.stage is not Stage.NEEDS_APPROVAL:
        return
    if builder.row.position is RunPosition.PAUSED:
        builder.move(Stage.RUNNING, by=by or "local")
        next_step(builder)
    elif builder.row.position is RunPosition.STEP_START:
        builder.move(Stage.RUNNING, by=by or "local")
        open_input(builder)
        append_input(builder)
        step_started(builder)
    elif builder.row.position is RunPosition.TASKS:
        builder.move(Stage.RUNNING, by=by or "local")
        continue_run(builder)
