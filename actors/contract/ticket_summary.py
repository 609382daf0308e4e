"""Tickets in lists of runs: a ticket without its arguments."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import attrs

from .decisions import Ticket, TicketReason
from .secrets.redaction import Redactor
from .titles import shown_line


@attrs.frozen(kw_only=True)
class TicketSummary:
    """An open ticket in a list of runs: a `Ticket` without arguments, parameters and schema.

    Attributes:
        ticket_id, call_id: targets of a decision; call_id is None for a ticket of the run itself.
        tool: the tool that would run; empty for a ticket of the run itself.
        reason: tool_permission, user_input, outcome_unknown, manual_pause, external_event or child_approval.
        action, message: for the deciding person.
        requested_at, expires_at: UTC.
        on_expiry: "deny", "cancel_run" or "set_result".
        reviewers: principals that may decide; empty: every principal with the scope for it.
        live: a process waits for the decision; see `Ticket`.
    """

    ticket_id: str
    call_id: str | None
    tool: str
    reason: TicketReason
    requested_at: datetime
    action: str = ""
    message: str = ""
    expires_at: datetime | None = None
    on_expiry: Literal["deny", "cancel_run", "set_result"] = "deny"
    reviewers: tuple[str, ...] = ()
    live: bool = False


def summary_of(ticket: Ticket) -> TicketSummary:
    """Return a ticket's summary; private, as the ticket is."""
    return TicketSummary(
        ticket_id=ticket.ticket_id,
        call_id=ticket.call_id,
        tool=ticket.tool,
        reason=ticket.reason,
        requested_at=ticket.requested_at,
        action=ticket.action,
        message=ticket.message,
        expires_at=ticket.expires_at,
        on_expiry=ticket.on_expiry,
        reviewers=ticket.reviewers,
        live=ticket.live,
    )


def redacted_summary(summary: TicketSummary, redactor: Redactor) -> TicketSummary:
    """Return the summary as people may see it: redacted, each text one line of at most `titles.LINE` characters."""
    return attrs.evolve(
        summary, action=shown_line(summary.action, redactor), message=shown_line(summary.message, redactor)
    )
