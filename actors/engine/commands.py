"""Commands reach the run here: decisions, the clock's expiries, cancels and new input.

Whether a command is acceptable was judged when it was posted (`judge.py`). Here it acts, exactly once, in the order
of the inbox. One that can not act any more leaves a `run.decision.refused`; nothing is dropped silently.
"""

from __future__ import annotations

from ..contract import events as ev
from ..contract.decisions import Command, Decision, InboxItem
from ..contract.lifecycle import Stage
from ..contract.messages import Message, Producer
from ..contract.phases import BETWEEN_STEPS, LEAVING, CallAt
from ..contract.rows import CallRow, CancelWish, Sent
from ..contract.waiting import text_size
from .decisions import act, cancelled, expire, refuse
from .ending import end, lose_bodies
from .pauses import decide_hold, expire_hold, find_hold, pause
from .state import Draft


def command_arrived(d: Draft, item: InboxItem) -> None:
    """Consume the next inbox item."""
    if item.position <= d.inbox:
        return
    if item.position != d.inbox + 1:
        raise ValueError(f"run {d.info.run_id}: inbox item {item.position} after {d.inbox}")
    _consume(d, item)
    command = item.command
    match command.kind:
        case "cancel":
            _cancel(d, command)
        case "send":
            _send(d, command)
        case "pause":
            pause(d, command)
        case "decide" | "expire":
            _decide(d, command)


def _consume(d: Draft, item: InboxItem) -> None:
    d.inbox, d.changed, d.followed = item.position, True, True


def cancel_unowned(d: Draft, items: tuple[InboxItem, ...]) -> None:
    """Nobody can work on the run: its cancel is obeyed, everything else in the inbox is refused with an event."""
    lose_bodies(d)
    for item in items:
        if item.position != d.inbox + 1:
            continue
        _consume(d, item)
        command = item.command
        if command.kind == "cancel":
            _note_cancel(d, command)
        elif command.kind == "send":
            _send(d, command)
        elif command.kind == "pause":
            pause(d, command)
        elif command.kind == "decide" and command.decision is not None:
            refuse(d, command.decision, "run_done", "the run was cancelled while nobody could work on it")
    if d.cancel is not None:
        end(d, cancelled(d.cancel))


def _note_cancel(d: Draft, command: Command) -> CancelWish:
    d.emit(
        "run.cancel.requested",
        ev.CancelRequested(command_id=command.command_id, mode=command.mode, by=command.by, reason=command.reason),
    )
    d.cancel = CancelWish(mode=command.mode, by=command.by, reason=command.reason)
    return d.cancel


def _cancel(d: Draft, command: Command) -> None:
    wish = _note_cancel(d, command)
    if command.mode == "now" or d.stage is Stage.NEEDS_APPROVAL or d.cursor in BETWEEN_STEPS:
        end(d, cancelled(wish))


def _send(d: Draft, command: Command) -> None:
    message = Message(
        id=d.new_message_id(),
        role="user",
        content=command.text,
        producer=Producer(run_id=d.info.run_id, step=d.step),
    )
    d.pending_input += (message,)
    size = text_size(command.text)
    d.sent += (Sent(number=d.message_count, step=d.step, command_id=command.command_id, size=size),)
    d.emit(
        "run.input.received",
        ev.InputReceived(command_id=command.command_id, message_id=message.id, text=command.text, by=command.by),
    )
    d.unheard = command.by or ""


# --- decisions -------------------------------------------------------------------------------------------------------


def _decide(d: Draft, command: Command) -> None:
    decision = command.decision
    if decision is None:
        return
    hold = find_hold(d, decision.target)
    if hold is not None and d.cursor not in LEAVING:
        if command.kind == "expire":
            expire_hold(d, hold, command.command_id)
        else:
            decide_hold(d, hold, decision)
        return
    call = _target(d, decision.target)
    waits = call is not None and call.at is CallAt.PARKED and d.in_tools
    if command.kind == "expire":
        if call is not None and waits:
            expire(d, call)
    elif d.cursor in LEAVING:
        refuse(d, decision, "run_done", "the run was on its way out when the decision arrived")
    elif command.early and call is not None and not call.settled:
        d.early = {**d.early, call.call_id: decision}  # judged as soon as there is a ticket, which may be now
    elif call is not None and waits and not _replaced(call, decision):
        act(d, call, decision)
    else:
        _too_late(d, command, decision, call)


def _too_late(d: Draft, command: Command, decision: Decision, call: CallRow | None) -> None:
    if command.early and (call is None or call.ticket is None):
        refuse(d, decision, "unused", "the call ended without asking for a decision")
    elif call is not None and _replaced(call, decision):
        refuse(d, decision, "fingerprint_mismatch", "the tool has changed since; the run has asked again")
    else:
        refuse(d, decision, "already_decided", "the ticket was closed before the decision arrived")


def _target(d: Draft, target: str) -> CallRow | None:
    call = d.calls.get(target)
    if call is not None:
        return call
    return next((call for call in d.calls.values() if target in _tickets(call)), None)


def _tickets(call: CallRow) -> tuple[str | None, ...]:
    """The call's ticket, and the one in whose place that is."""
    return () if call.ticket is None else (call.ticket.ticket_id, call.ticket.replaces)


def _replaced(call: CallRow, decision: Decision) -> bool:
    """True if the decision lets go what another ticket asks about now; a denial is for that, too."""
    return call.ticket is not None and call.ticket.replaces == decision.target and decision.action == "resume"
