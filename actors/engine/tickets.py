"""Open and close tickets; suspend, resolve and close calls.

Theory of operation. A call that suspends twice gets two tickets, so that a decision is about exactly one question.
Every ticket is written and announced in the same commit as the call's move, and closed exactly once: approved, denied,
expired or withdrawn.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final, Literal

from msgspec.structs import replace

from ..contract import events as ev
from ..contract.calls import POSITIONS, CallPosition, CallStatus
from ..contract.decisions import SetResult, Suspend, Ticket
from ..contract.envelope import timestamp
from ..contract.excerpt import Large
from ..contract.facts import NestedAnswer
from ..contract.ids import fingerprint as fingerprint_of
from ..contract.phases import TOOLS, Phase
from ..contract.rows import CallRow
from .body_inputs import CallSuspended
from .effects import AnswerBody, ParkCall, ReleaseCall, RunPhase
from .state import ENGINE, StepBuilder, milliseconds


def open_ticket(builder: StepBuilder, call: CallRow, suspend: Suspend, *, replaces: str | None = None) -> CallRow:
    """Suspend a call: open a ticket, emit its events, and park the call's actor."""
    ticket = new_ticket(builder, suspend, ticket_id=builder.new_ticket_id(), fingerprint=call.fingerprint, call=call)
    ticket = ticket if replaces is None else replace(ticket, replaces=replaces)
    call = builder.put(call, at=CallPosition.PARKED, ticket=ticket)
    builder.emit(
        "run.tool.suspended",
        ev.ToolSuspended(call_id=call.call_id, status=call.status, ticket_id=ticket.ticket_id),
    )
    announce(builder, ticket)
    builder.waiting_calls.append(call.call_id)
    if call.parent is None:
        builder.do(ParkCall(call_id=call.call_id, ticket=ticket))
    return call


def ask_afresh(builder: StepBuilder, call: CallRow, ticket: Ticket, reason: str) -> CallRow:
    """Replace a ticket that does not fit the present action by a new one."""
    call = withdraw(builder, call, by=ENGINE, reason=reason)
    if call.status is not CallStatus.SUSPENDED:
        return open_ticket(
            builder, builder.put(call, decision=None), suspend_of_ticket(ticket), replaces=ticket.ticket_id
        )
    name = builder.new_ticket_id()
    new = new_ticket(builder, suspend_of_ticket(ticket), ticket_id=name, fingerprint=call.fingerprint, call=call)
    new = replace(new, replaces=ticket.ticket_id)
    call = builder.put(call, at=CallPosition.PARKED, ticket=new, decision=None)
    announce(builder, new)
    builder.waiting_calls.append(call.call_id)
    builder.do(ParkCall(call_id=call.call_id, ticket=new))
    return call


def ask_for_body(builder: StepBuilder, call: CallRow, message: CallSuspended) -> None:
    """Ask people the question of a body; or, before the body, about the tool of a toolset that is another one now."""
    tool = message.offered
    if tool is None:
        open_ticket(builder, builder.put(call, body_question=True), message.suspend)
        return
    text = f"the tool {call.tool} of {call.call_id} was {call.definition} when called, and is {tool.definition} now"
    builder.emit("run.degraded", ev.RunDegraded(reason="tool_changed", detail=text))
    mark = fingerprint_of(builder.spec.key, call.tool, call.arguments, tool.definition)
    facts: dict[str, Any] = {"offered": tool, "definition": tool.definition, "fingerprint": mark}
    open_ticket(builder, builder.put(call, **facts, decision=None, body_question=False), message.suspend)


def new_ticket(
    builder: StepBuilder, suspend: Suspend, *, ticket_id: str, fingerprint: str, call: CallRow | None = None
) -> Ticket:
    """Return a ticket for a `Suspend`, of a call or of the run itself."""
    result = suspend.on_expiry if isinstance(suspend.on_expiry, SetResult) else None
    return Ticket(
        ticket_id=ticket_id,
        run_id=builder.info.run_id,
        call_id=None if call is None else call.call_id,
        tool="" if call is None else call.tool,
        arguments={} if call is None else call.arguments,
        fingerprint=fingerprint,
        reason=suspend.reason,
        requested_at=builder.now,
        action=suspend.action or ("" if call is None else f"tool:{call.tool}"),
        message=suspend.message,
        parameters=suspend.parameters,
        response_schema=suspend.response_schema,
        resume_mode=suspend.resume_mode,
        expires_at=None if suspend.expires_after is None else builder.now + timedelta(seconds=suspend.expires_after),
        on_expiry=suspend.on_expiry if not isinstance(suspend.on_expiry, SetResult) else "set_result",
        expiry_result=None if result is None else result.value,
        expiry_code=None if result is None else result.code,
        reviewers=suspend.reviewers,
        live=call is not None and call.parent is not None,
    )


_NO_TIME: Final = 1e-9
"""Seconds that a ticket waited which expired at the moment of its creation."""


def suspend_of_ticket(ticket: Ticket) -> Suspend:
    """Return the `Suspend` from which a ticket was made; the expiry counts from the beginning again."""
    seconds = None if ticket.expires_at is None else (ticket.expires_at - ticket.requested_at).total_seconds()
    on_expiry: Any = ticket.on_expiry
    return Suspend(
        action=ticket.action,
        message=ticket.message,
        parameters=ticket.parameters,
        response_schema=ticket.response_schema,
        resume_mode=ticket.resume_mode,
        expires_after=None if seconds is None else max(seconds, _NO_TIME),
        on_expiry=SetResult(ticket.expiry_result, ticket.expiry_code) if on_expiry == "set_result" else on_expiry,
        reviewers=ticket.reviewers,
        reason=ticket.reason,
    )


def announce(builder: StepBuilder, ticket: Ticket) -> None:
    """Write a new ticket and emit its event."""
    builder.tickets.append(ticket)
    builder.emit(
        "run.approval.requested",
        ev.ApprovalRequested(
            ticket_id=ticket.ticket_id,
            call_id=ticket.call_id,
            tool=ticket.tool,
            arguments=ticket.arguments,
            fingerprint=ticket.fingerprint,
            reason=ticket.reason,
            action=ticket.action,
            message=ticket.message,
            parameters=ticket.parameters or None,
            response_schema=ticket.response_schema,
            resume_mode=ticket.resume_mode,
            expires_at=None if ticket.expires_at is None else timestamp(ticket.expires_at),
            # msgspec omits a default by identity, so the literal is passed
            on_expiry="deny" if ticket.on_expiry == "deny" else ticket.on_expiry,
            reviewers=ticket.reviewers,
            replaces=ticket.replaces,
            child_run_id=ticket.child_run_id,
            child_ticket_id=ticket.child_ticket_id,
            live=ticket.live,
        ),
    )


Resolution = Literal["approved", "denied", "expired", "withdrawn"]


def resolve(builder: StepBuilder, call: CallRow, how: Resolution, *, by: str | None, reason: str | None) -> CallRow:
    """Close the call's open ticket."""
    ticket = call.ticket
    if ticket is None or ticket.status != "open":
        return call
    return builder.put(call, ticket=closed(builder, ticket, how, by=by, reason=reason))


def closed(
    builder: StepBuilder, ticket: Ticket, how: Resolution, *, by: str | None, reason: str | None, edited: bool = False
) -> Ticket:
    """Write an open ticket as closed, emit its event, and return it."""
    ticket = replace(ticket, status=how, decided_by=by, decided_at=builder.now, decision_reason=reason)
    builder.tickets.append(ticket)
    builder.emit(
        "run.approval.resolved",
        ev.ApprovalResolved(
            ticket_id=ticket.ticket_id, call_id=ticket.call_id, resolution=how, by=by, reason=reason, edited=edited
        ),
    )
    return ticket


def withdraw(builder: StepBuilder, call: CallRow, *, by: str | None, reason: str) -> CallRow:
    """Close an open ticket that will not be decided any more."""
    return resolve(builder, call, "withdrawn", by=by, reason=reason)


def close_call(
    builder: StepBuilder,
    call: CallRow,
    status: CallStatus,
    *,
    result: object,
    shown: str,
    code: str | None = None,
    large: bool = False,
    error_id: str | None = None,
    hooks: bool = True,
) -> CallRow:
    """End a call. after_tool_execute runs once, also for failed calls and set results, but not for cancelled calls.

    The event holds the result itself, or only the model's text if the call failed or its result is large. `hooks`:
    False for a nested call that its parent's end cuts off. A nested call that ends before its work answers its body.
    """
    has_hooks = (
        hooks
        and builder.row.position is TOOLS
        and status is not CallStatus.CANCELLED
        and Phase.AFTER_TOOL_EXECUTE in builder.spec.hooked
    )
    # the body has returned; a call that merely may run again has not
    ran = POSITIONS[call.at].status is CallStatus.RUNNING
    if call.parent is not None:
        if call.ask and not call.attempts:
            refusal = NestedAnswer(
                call_id=call.call_id, status=status, text=shown, result=result, decision=call.decision
            )
            builder.do(AnswerBody(ask=call.ask, value=refusal))
    elif call.ticket is not None and call.status in (CallStatus.SUSPENDED, CallStatus.RESUMING):
        builder.do(ReleaseCall(call_id=call.call_id))
    call = builder.put(
        call,
        at=CallPosition.AFTER if has_hooks else CallPosition.SETTLED,
        outcome=status,
        result=result,
        shown=shown,
        code=code,
    )
    duration_ms = milliseconds(call.started_at, builder.now) if ran and call.started_at is not None else 0
    builder.emit(
        "run.tool.result",
        ev.ToolResult(
            call_id=call.call_id,
            tool=call.tool,
            status=status,
            result=Large(result) if large else shown if status is not CallStatus.SUCCEEDED else result,
            code=code,
            attempts=call.attempts,
            duration_ms=duration_ms,
            error_id=error_id,
        ),
    )
    if has_hooks:
        after = Phase.AFTER_TOOL_EXECUTE
        builder.do(
            RunPhase(phase=after, step=builder.row.step, call_id=call.call_id, state=builder.snapshot, durable=True)
        )
    return call
