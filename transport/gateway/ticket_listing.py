"""Lists of open tickets for a principal: of visible runs only, each question once."""

from __future__ import annotations

from typing import Any, Final

import attrs
import msgspec
from msgspec.structs import replace

import greenroom as gr
from greenroom.actors.contract.plain import JSONObject
from greenroom.actors.contract.ticket_lists import ListedTicket, TicketQuery
from greenroom.actors.contract.titles import shown_line

from ..protocol.codes import Refused
from ..protocol.limits import PAGE_BYTES, ROW_BYTES
from ..protocol.lines import ListedTicketLine
from .access import Principal, everything
from .listing import SCAN, sealed, unsealed

_encode = msgspec.json.Encoder().encode


@attrs.frozen(kw_only=True)
class VisibleTickets:
    """A page of the open tickets that a principal may see.

    Attributes:
        rows: The tickets in the clients' form.
        cursor: For the next page; None on the last one.
    """

    rows: tuple[ListedTicketLine, ...]
    cursor: str | None


def ticket_query(who: Principal, fields: JSONObject) -> TicketQuery:
    """Build the query of a list of open tickets; the names are those of the frame `watchTickets`.

    Raises:
        Refused: not_allowed; unprocessable: a value is invalid.
    """
    who.need("follow")
    names = ("agent", "tool", "order", "limit", "cursor")
    values: dict[str, Any] = {name: fields[name] for name in names if fields.get(name) is not None}
    query = TicketQuery(**values)
    try:
        query.check()
    except gr.UsageError as error:
        raise Refused("unprocessable", str(error)) from error
    return query


async def visible_tickets(reader: gr.RunReader, who: Principal, query: TicketQuery) -> VisibleTickets:
    """Return a page of the open tickets: as long as the query says, or as `PAGE_BYTES` allows.

    Only the last page has no cursor, and no page is short because of hidden runs.

    Raises:
        UsageError: A value of the query is invalid, or its cursor is not of this query and principal.
        SeesFailed: The principal's predicate raised.
    """
    rows, size, last = list[ListedTicketLine](), 0, ""
    cursor = None if query.cursor is None else unsealed(who, query.cursor)
    scan = min(SCAN, query.limit + 1) if who.sees is everything else SCAN
    while True:
        page = await reader.tickets(attrs.evolve(query, limit=scan, cursor=cursor))
        for line in page.tickets:
            if not await is_listed(reader, who, line):
                continue
            if len(rows) >= query.limit or size >= PAGE_BYTES:
                return VisibleTickets(rows=tuple(rows), cursor=sealed(who, last))
            row, bytes_of_row = row_of(line, reader)
            rows.append(row)
            size, last = size + bytes_of_row, line.cursor
        cursor = page.cursor
        if cursor is None:
            return VisibleTickets(rows=tuple(rows), cursor=None)


async def is_listed(reader: gr.RunReader, who: Principal, line: ListedTicket) -> bool:
    """Return True if the principal may see the run, and the ticket mirrors none that is in the list itself.

    Raises:
        SeesFailed: The principal's predicate raised.
    """
    if not who.sees(line.info):
        return False
    child = line.ticket.child_run_id
    if child is None:
        return True
    info = await reader.info(child)
    return info is None or not who.sees(info)


def row_of(line: ListedTicket, reader: gr.RunReader) -> tuple[ListedTicketLine, int]:
    """Return a ticket's line and its size in bytes, at most about `ROW_BYTES`."""
    info, ticket = line.info, line.ticket
    row = ListedTicketLine(
        run_id=info.run_id,
        thread_id=info.thread_id,
        agent=info.agent,
        by=info.by,
        title=info.title or info.run_id,
        **{name: getattr(ticket, name) for name in _OF_TICKET},
    )
    size = len(_encode(row))
    if size > ROW_BYTES:
        texts = {name: shown_line(getattr(ticket, name), reader.redactor) for name in ("action", "message")}
        row = replace(row, arguments={}, parameters={}, response_schema=None, reviewers=(), whole=False, **texts)
        size = len(_encode(row))
    return row, size


_OF_TICKET: Final = (
    *("ticket_id", "call_id", "tool", "arguments", "fingerprint", "reason", "action", "message", "parameters"),
    *("response_schema", "resume_mode", "requested_at", "expires_at", "on_expiry", "reviewers", "live"),
)
