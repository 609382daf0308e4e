"""Tickets of the run itself: while one is open no step begins, and nothing else changes.

Theory of operation. Work in progress continues to its end, decisions about calls act, and input is queued. A pause
(`manual_pause`) stays pending until the run can be held: between two steps, or as soon as it waits for people or tasks.
A hook (`external_event`) opens its ticket at its own phase. Several tickets may hold a run; it continues when none is
open.
"""

from __future__ import annotations

from typing import Final

import attrs

from ..contract.decisions import Suspend, Ticket, TicketReason
from ..contract.ids import fingerprint
from .state import StepBuilder
from .tickets import Resolution, announce, closed, new_ticket

ACTION: Final = "run:resume"
"""Default action of a run's ticket."""


def open_run_ticket(builder: StepBuilder, suspend: Suspend) -> Ticket:
    """Hold the run with a ticket that belongs to no call. Several may be open; the run continues when none is.

    Resume continues the run, and a result joins the thread as a message; cancel ends the run. `resume_mode` has no
    meaning here, and every reason except manual_pause becomes external_event.
    """
    reason: TicketReason = "manual_pause" if suspend.reason == "manual_pause" else "external_event"
    suspend = attrs.evolve(suspend, reason=reason, action=suspend.action or ACTION, resume_mode="replay_tool_call")
    name = builder.new_ticket_id()
    mark = fingerprint(builder.spec.key, f"run:{reason}", {"ticket_id": name})
    ticket = new_ticket(builder, suspend, ticket_id=name, fingerprint=mark)
    builder.row.run_tickets += (ticket,)
    announce(builder, ticket)
    return ticket


def open_pause(builder: StepBuilder) -> None:
    """Turn a pending pause into a ticket."""
    pending, builder.row.pause = builder.row.pause, None
    if pending is None:
        return
    statement = "The run was paused" if pending.by is None else f"{pending.by} paused the run"
    message = f"{statement}." if pending.reason is None else f"{statement}: {pending.reason}"
    open_run_ticket(builder, Suspend(reason="manual_pause", message=message))


def close_run_ticket(
    builder: StepBuilder, ticket: Ticket, how: Resolution, *, by: str | None, reason: str | None
) -> None:
    """Close a ticket of the run."""
    builder.row.run_tickets = tuple(other for other in builder.row.run_tickets if other.ticket_id != ticket.ticket_id)
    closed(builder, ticket, how, by=by, reason=reason)


def rest(builder: StepBuilder, of_calls: tuple[str, ...] = ()) -> None:
    """Bring the run to rest: it waits for decisions about its own tickets and about these tickets of calls."""
    builder.rest((*of_calls, *(ticket.ticket_id for ticket in builder.row.run_tickets)))
