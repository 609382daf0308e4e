"""Mirrors: the open tickets of child runs, as their parent run shows them.

Theory of operation. A child run owns its tickets: only its clock expires them and only its machine applies decisions.
Its parent shows each of them as a separate ticket (a mirror) with an id of the parent, so that a reviewer who follows
the parent sees the question and can decide. The mirrors are in the row of their call (`CallRow.mirrors`), so that one
decision writes the mirrors of one child run. A mirror is open until a decision about it is accepted, or the child's
ticket is closed; a decided mirror stays in the row until the child run has taken the decision, because a process may
end in between:

    open -> decided, forwarded -> gone     the parent's ticket was decided
    open -> closed as the child's -> gone  the child's ticket was decided, expired or withdrawn
"""

from __future__ import annotations

from msgspec.structs import replace

from ..contract import events as ev
from ..contract.decisions import Decision, Ticket
from ..contract.rows import CallRow, Mirror
from .state import ENGINE, StepBuilder
from .tickets import Resolution, announce, closed


def find_mirror(builder: StepBuilder, target: str) -> Mirror | None:
    """Return the open mirror with this ticket id, or the newest one of the call with this id; None if there is none."""
    call = builder.calls.of_mirror(target)
    for mirror in () if call is None else reversed(call.mirrors):
        if mirror.decision is None and target in (mirror.ticket.ticket_id, mirror.ticket.call_id):
            return mirror
    return None


def of_call(builder: StepBuilder, call_id: str) -> tuple[Mirror, ...]:
    """Return the mirrors of a call."""
    return builder.calls[call_id].mirrors


def _put(builder: StepBuilder, call_id: str, mirrors: tuple[Mirror, ...]) -> None:
    """Write the mirrors of a call."""
    call = builder.calls[call_id]
    builder.row.mirrored += len(mirrors) - len(call.mirrors)
    builder.put(call, mirrors=mirrors)


def adopt_mirrors(builder: StepBuilder) -> None:
    """Move the mirrors of a row of version 3 to the rows of their calls: an owner takes the run up."""
    mirrors, builder.row.mirrors = builder.row.mirrors, ()
    for mirror in mirrors:
        call_id = mirror.ticket.call_id or ""
        _put(builder, call_id, (*of_call(builder, call_id), mirror))


def new_mirror(builder: StepBuilder, call: CallRow, ticket: Ticket, replaces: str | None) -> Ticket:
    """Add a mirror of a child's open ticket to the row, without its event."""
    mirror = replace(
        ticket,
        ticket_id=builder.new_ticket_id(),
        run_id=builder.info.run_id,
        call_id=call.call_id,
        reason="child_approval",
        requested_at=builder.now,
        replaces=replaces,
        child_run_id=call.child_run,
        child_ticket_id=ticket.ticket_id,
    )
    _put(builder, call.call_id, (*of_call(builder, call.call_id), Mirror(ticket=mirror)))
    return mirror


def announce_mirrors(builder: StepBuilder, tickets: tuple[Ticket, ...]) -> None:
    """Write new mirrors and emit their events."""
    for ticket in tickets:
        announce(builder, ticket)


def drop(builder: StepBuilder, mirror: Mirror) -> None:
    """Remove a mirror from the row."""
    ticket_id, call_id = mirror.ticket.ticket_id, mirror.ticket.call_id or ""
    _put(builder, call_id, tuple(other for other in of_call(builder, call_id) if other.ticket.ticket_id != ticket_id))


def close_as(builder: StepBuilder, mirror: Mirror, theirs: Ticket | None) -> None:
    """Close an open mirror as the child's ticket was closed, and remove it; without a ticket it is withdrawn."""
    how: Resolution = "withdrawn"
    by: str | None = ENGINE
    reason: str | None = "the child run does not ask any more"
    if theirs is not None and theirs.status != "open":
        how, by, reason = theirs.status, theirs.decided_by, theirs.decision_reason
    closed(builder, mirror.ticket, how, by=by, reason=reason)
    drop(builder, mirror)


def mark_decided(builder: StepBuilder, mirror: Mirror, decision: Decision) -> None:
    """Close an open mirror as decided; the decision stays in the row until the child run has taken it."""
    how: Resolution = "denied" if decision.action == "cancel" else "approved"
    edited = decision.edited_arguments is not None
    ticket = closed(builder, mirror.ticket, how, by=decision.decided_by, reason=decision.reason, edited=edited)
    call_id, decided_mirror = ticket.call_id or "", Mirror(ticket=ticket, decision=decision)
    mirrors = tuple(decided_mirror if other is mirror else other for other in of_call(builder, call_id))
    _put(builder, call_id, mirrors)


def refuse_forwarded(builder: StepBuilder, mirror: Mirror, code: str, detail: str) -> None:
    """Emit that a decision which this run accepted did not act in the child run, and remove its mirror."""
    decision = mirror.decision
    if decision is not None:
        target = mirror.ticket.ticket_id
        builder.emit(
            "run.decision.refused",
            ev.DecisionRefused(command_id=decision.decision_id, target=target, code=code, detail=detail),
        )
    drop(builder, mirror)


def withdraw_mirrors(builder: StepBuilder, call_id: str | None, *, by: str | None, reason: str) -> None:
    """Close the mirrors of a call, or of all calls, that will not be decided any more."""
    if not builder.row.mirrored:
        return
    calls = builder.calls if call_id is None else [call_id]
    for mirror in [mirror for name in calls for mirror in of_call(builder, name)]:
        if mirror.decision is None:
            closed(builder, mirror.ticket, "withdrawn", by=by, reason=reason)
            drop(builder, mirror)
        else:
            refuse_forwarded(builder, mirror, "run_done", "the child run was not seen to take the decision")
