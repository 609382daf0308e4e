"""The HTTP route of open tickets: what people are asked, over all runs."""

from __future__ import annotations

from typing import Final

import greenroom as gr

from ..protocol.codes import Refused
from ..protocol.limits import PAGE_BYTES
from .gateway import Gateway
from .http import Request, Response, Route, json_response
from .ticket_listing import ticket_query, visible_tickets

PAGE: Final = 50
MOST: Final = 1000
"""Maximum number of tickets per page."""


async def list_tickets(gateway: Gateway, request: Request) -> Response:
    """List a page of open tickets."""
    fields = {**request.query, "limit": request.number("limit", PAGE, least=1, most=MOST)}
    query = ticket_query(request.who, fields)
    try:
        page = await visible_tickets(gateway.runtime.reader, request.who, query)
    except gr.UsageError as error:
        raise Refused("unprocessable", str(error)) from error
    return json_response({"tickets": page.rows, "cursor": page.cursor})


_LIST: Final = {
    "agent": "an agent's key",
    "tool": "a tool's name",
    "order": "oldest (default): the ticket that was opened first is first; or newest",
    "limit": f"at most so many, 1 to {MOST} (default {PAGE}); a page ends after {PAGE_BYTES} bytes, too",
    "cursor": "from the page before; good for the same query only",
}
ROUTES: Final[tuple[Route[Gateway], ...]] = (
    Route(
        method="GET", template="/v1/tickets", handler=list_tickets, scope="follow",
        summary="List the open tickets of all runs", query=_LIST, responses={200: ("A page.", "TicketList")},
    ),
)  # fmt: skip
