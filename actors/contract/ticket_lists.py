"""Tickets in lists: a summary in the line of a run, and whole tickets in the list of the open ones of all runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, Literal, get_args

import attrs

from ..errors import UsageError
from .decisions import Ticket, TicketReason
from .plain import encodable
from .rows import RunInfo
from .secrets.redaction import Redactor
from .titles import shown_line

LARGEST_PAGE: Final = 1_000
"""Most lines per page of a list: a larger page would occupy a reader and its snapshot too long."""
TicketOrder = Literal["oldest", "newest"]
TICKET_ORDERS: Final[tuple[str, ...]] = get_args(TicketOrder)


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


@attrs.frozen(kw_only=True)
class TicketQuery:
    """The filters and the order of a list of open tickets. A cursor is valid only for the query that it came from.

    Attributes:
        agent: the key of the agent with which the run was started.
        tool: the tool that would run.
        run_ids: the tickets of these runs only; None for those of all runs.
        order: "oldest" (the ticket that was opened first is first) or "newest".
        limit: most tickets of the page, 1 to 1,000.
        cursor: from the previous page, or of a ticket (`ListedTicket.cursor`).
    """

    agent: str | None = None
    tool: str | None = None
    run_ids: Sequence[str] | None = None
    order: TicketOrder = "oldest"
    limit: int = 100
    cursor: str | None = None

    def check(self) -> None:
        """Check the values of the query; the store checks the cursor.

        Raises:
            UsageError: a value is invalid; the message names it and says what to give.
        """
        for name in ("agent", "tool", "cursor"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not encodable(value) or "\0" in value):
                raise UsageError(f"{name}={value!r:.200}: give a str without lone surrogates and NUL characters")
        if type(self.limit) is not int or not 1 <= self.limit <= LARGEST_PAGE:
            way = f"give 1 to {LARGEST_PAGE:,}, and take the next page with the cursor"
            raise UsageError(f"limit={self.limit!r:.100}: {way}")
        if self.order not in TICKET_ORDERS:
            raise UsageError(f"order={self.order!r:.100} is not known; use one of {', '.join(TICKET_ORDERS)}")

    def matches(self, info: RunInfo, ticket: Ticket) -> bool:
        """Return True if an open ticket of a run is in this query's list, on any page."""
        return (
            self.agent in (None, info.agent)
            and self.tool in (None, ticket.tool)
            and (self.run_ids is None or info.run_id in self.run_ids)
        )


@attrs.frozen(kw_only=True)
class ListedTicket:
    """One line of a list of open tickets.

    Attributes:
        info: the constant facts of the run.
        ticket: the ticket.
        cursor: of the page behind this ticket.
    """

    info: RunInfo
    ticket: Ticket
    cursor: str


@attrs.frozen(kw_only=True)
class TicketPage:
    """A page of a list of open tickets, in the order of its query.

    Attributes:
        tickets: the lines.
        cursor: for the next page; None on the last page.
    """

    tickets: tuple[ListedTicket, ...]
    cursor: str | None
