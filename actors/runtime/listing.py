"""Lists of runs: from a caller's arguments to a query, and from a page of rows to redacted lines.

Theory of operation. Titles and tickets are stored redacted, because searches read them. They are redacted again when a
page is shown: the runtime that shows them may know other secrets than the one that wrote them. A line
without tickets whose title has no secret comes back as the same object, so most pages copy nothing.
"""

from __future__ import annotations

from typing import Any, Unpack

import attrs
from msgspec.structs import replace

from ..contract.run_lists import LISTED, RunFilters, RunPage, RunQuery, RunSummary, listed
from ..contract.secrets.redaction import Redactor
from ..contract.stepwise import Steps
from ..contract.ticket_lists import ListedTicket, TicketPage, redacted_summary
from ..options import unknown_option, unknown_value
from ..run.view import shown_ticket_steps


def query_of(**filters: Unpack[RunFilters]) -> RunQuery:
    """Return the query for a caller's arguments; the store checks all but the status (`RunQuery.check`).

    Raises:
        UsageError: a filter or the status is unknown.
    """
    filter_types = RunFilters.__annotations__
    if not filters.keys() <= filter_types.keys():
        raise unknown_option("runs", min(filters.keys() - filter_types.keys()), filter_types)
    values: dict[str, Any] = {**filters}
    status = values.pop("status", None)
    if values.get("prefix", "") is None:
        del values["prefix"]
    try:
        statuses = None if status is None else listed(status)
    except (ValueError, TypeError) as error:  # TypeError: a value that cannot be a name
        raise unknown_value("status", status, LISTED) from error
    return RunQuery(status=statuses, **values)


def shown_page(page: RunPage, redactor: Redactor) -> RunPage:
    """Return a page with redacted titles and questions; the rows stay private."""
    return attrs.evolve(page, runs=tuple(shown_summary(line, redactor) for line in page.runs))


def shown_summary(summary: RunSummary, redactor: Redactor) -> RunSummary:
    """Return a list line, redacted again: the runtime may have other secrets than when the row was written."""
    info, tickets = summary.info, summary.asked
    title = redactor.text(info.title)
    if title is info.title and not tickets:
        return summary
    return attrs.evolve(
        summary, info=replace(info, title=title), asked=tuple(redacted_summary(ticket, redactor) for ticket in tickets)
    )


def shown_ticket_page_steps(page: TicketPage, redactor: Redactor) -> Steps[TicketPage]:
    """Return a page of tickets with redacted tickets and titles, in steps: a model chooses how large they are."""
    lines = list[ListedTicket]()
    for line in page.tickets:
        ticket = yield from shown_ticket_steps(line.ticket, redactor.within(line.info.workspace))
        info = replace(line.info, title=redactor.text(line.info.title))
        lines.append(attrs.evolve(line, info=info, ticket=ticket))
    return attrs.evolve(page, tickets=tuple(lines))
