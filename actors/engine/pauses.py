"""What people say about a run as a whole: pause, and the decisions about the tickets that hold it."""

from __future__ import annotations

from typing import Any

from ..contract import events as ev
from ..contract.decisions import Command, Decision, Ticket
from ..contract.excerpt import shown_value
from ..contract.lifecycle import Stage
from ..contract.messages import Message, Producer
from ..contract.phases import LEAVING, Cursor
from ..contract.rows import CancelWish, PauseWish
from .decisions import cancelled
from .ending import append_input, end, refuse_pause
from .holds import close_run_ticket, open_pause, rest
from .state import Draft
from .steps import arrive, next_step, wake


def pause(d: Draft, command: Command) -> None:
    """Hold the run at the end of the step, or at once if it waits already. A second pause joins the first."""
    if d.cursor in LEAVING:
        refuse_pause(d, command.command_id, "run_done", "the run was on its way out when the pause arrived")
        return
    paused = next((ticket.ticket_id for ticket in d.holds if ticket.reason == "manual_pause"), None)
    joins = d.pause.command_id if d.pause is not None else paused
    d.emit(
        "run.pause.requested",
        ev.PauseRequested(command_id=command.command_id, by=command.by, reason=command.reason, joins=joins),
    )
    if joins is not None:
        return
    d.pause = PauseWish(command_id=command.command_id, by=command.by, reason=command.reason)
    if d.stage is Stage.NEEDS_APPROVAL:
        open_pause(d)
    elif d.cursor is Cursor.TASKS:
        open_pause(d)
        rest(d)


def find_hold(d: Draft, target: str) -> Ticket | None:
    """The open ticket of the run with that id."""
    return next((ticket for ticket in d.holds if ticket.ticket_id == target), None)


def decide_hold(d: Draft, ticket: Ticket, decision: Decision) -> None:
    """A decision about the run: it goes on (and is told the result), or it ends as cancelled."""
    denied = decision.action == "cancel"
    by = decision.decided_by
    close_run_ticket(d, ticket, "denied" if denied else "approved", by=by, reason=decision.reason)
    if denied:
        end(d, cancelled(CancelWish(mode="now", by=by, reason=decision.reason), "approval_rejected"))
        return
    _tell(d, decision.result, decision.decision_id, by)
    _go_on(d, by)


def expire_hold(d: Draft, ticket: Ticket, command_id: str) -> None:
    """Nobody decided in time: a default result lets the run go on, anything else ends it as cancelled."""
    close_run_ticket(d, ticket, "expired", by="clock", reason="nobody decided in time")
    if ticket.on_expiry == "set_result":
        _tell(d, ticket.expiry_result, command_id, "clock")
        _go_on(d, "clock")
        return
    wish = CancelWish(mode="now", by="clock", reason="an approval expired")
    end(d, cancelled(wish, "approval_rejected"))


def _tell(d: Draft, result: Any, command_id: str, by: str | None) -> None:
    """The result, unless it is blank, joins the thread as a message: so the model knows what happened meanwhile."""
    if result is None or (isinstance(result, str) and not result.strip()):
        return
    text = result if isinstance(result, str) else shown_value(result)[0]
    producer = Producer(run_id=d.info.run_id, step=d.step)
    message = Message(id=d.new_message_id(), role="user", content=text, producer=producer)
    d.pending_input += (message,)
    d.emit("run.input.received", ev.InputReceived(command_id=command_id, message_id=message.id, text=text, by=by))


def _go_on(d: Draft, by: str | None) -> None:
    """Work goes on where the run was held, if nothing else holds it; in the middle of a step nothing was."""
    if d.holds or d.stage is not Stage.NEEDS_APPROVAL:
        return
    if d.cursor is Cursor.PAUSED:
        d.move(Stage.RUNNING, by=by or "local")
        next_step(d)
    elif d.cursor is Cursor.STEP_START:
        d.move(Stage.RUNNING, by=by or "local")
        append_input(d)
        arrive(d, Cursor.BEFORE_INFERENCE)
    elif d.cursor is Cursor.TASKS:
        d.move(Stage.RUNNING, by=by or "local")
        wake(d)
