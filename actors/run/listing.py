"""Lists of runs: from a caller's arguments to a query, and from a page of rows to what people may see.

Theory of operation. Titles and tickets are stored redacted, because searches read them. They are redacted again when a
page is shown: the runtime that shows them may know other secrets than the one that wrote them. A line
without tickets whose title has no secret comes back as the same object, so most pages copy nothing.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import attrs
from msgspec.structs import replace

from ..abc import RunPage, RunQuery, RunSummary
from ..contract.lifecycle import RunStatus
from ..contract.redaction import Redactor
from ..contract.ticket_summary import redacted_summary
from ..errors import UsageError
from ..options import unknown_value


def query_of(*, status: Any, since: Any, until: Any, **given: Any) -> RunQuery:
    """Return the query for a caller's arguments.

    Raises:
        UsageError: an argument has a wrong type, or the status is unknown.
    """
    try:
        wanted = None if status is None else RunStatus(status)
    except ValueError as error:
        raise unknown_value("status", status, [item.value for item in RunStatus]) from error
    for name in ("agent", "thread_id", "by", "text", "cursor"):
        if given[name] is not None and not isinstance(given[name], str):
            raise UsageError(f"{name}={given[name]!r:.200}: give a str")
    if not isinstance(given["prefix"], str):
        raise UsageError(f"prefix={given['prefix']!r:.200}: give the beginning of a run's id")
    if not isinstance(given["limit"], int) or isinstance(given["limit"], bool):
        raise UsageError(f"limit={given['limit']!r:.200}: give a whole number")
    for name, moment in (("since", since), ("until", until)):
        if moment is not None and not isinstance(moment, datetime):
            raise UsageError(f"{name}={moment!r:.200}: give a datetime with a time zone")
    return RunQuery(status=wanted, since=since, until=until, **given)


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
