"""Lists of open tickets, the same for every database: the statement of a page, and the page of its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import attrs

from ...contract import codec
from ...contract.decisions import Ticket
from ...contract.rows import RunInfo
from ...contract.ticket_lists import ListedTicket, TicketPage, TicketQuery
from . import _paging
from ._paging import Position
from ._run_pages import PAGE_BYTES

BATCH: Final = 200
"""Tickets that are read together; a filter by tool reads tickets that are not of its list."""

Row = tuple[int, int, bytes, bytes]
"""When the ticket was opened (milliseconds), its number, the facts of its run, and the ticket."""


@attrs.frozen(kw_only=True)
class TicketDialect:
    """The parts of the statement that each database writes in its own way.

    Attributes:
        mark: stands for a value.
        source: the tables `t` (tickets) and `r` (runs), joined, for the tickets of all runs.
        source_of_runs: the same, for those of some runs.
        number: the column that numbers tickets.
        time: milliseconds since 1970 -> the value of a column of times.
    """

    mark: str
    source: str
    source_of_runs: str
    number: str
    time: Callable[[int], object]

    def statement(self, query: TicketQuery, behind: Position | None, most: int) -> tuple[str, tuple[object, ...]]:
        """Return the statement, and its values, for at most `most` rows behind a position."""
        mark, order = self.mark, f"t.requested_at, {self.number}"
        conditions, values = ["t.status = 'open'", "r.ended_at IS NULL"], list[object]()
        if query.agent is not None:
            conditions.append(f"r.agent = {mark}")
            values.append(query.agent)
        if query.run_ids is not None:
            conditions.append(f"r.run_id IN ({', '.join([mark] * len(query.run_ids)) or 'NULL'})")
            values += query.run_ids
        if behind is not None:
            conditions.append(f"({order}) {'>' if query.order == 'oldest' else '<'} ({mark}, {mark})")
            values += self.time(behind[0]), behind[1]
        sql = (
            f"SELECT {order}, r.info, t.body"  # noqa: S608 - constants
            f" FROM {self.source if query.run_ids is None else self.source_of_runs}"
            f" WHERE {' AND '.join(conditions)}"
            f" ORDER BY {order if query.order == 'oldest' else f't.requested_at DESC, {self.number} DESC'}"
            f" LIMIT {mark}"
        )
        return sql, (*values, most)


def rows_of(
    query: TicketQuery, behind: Position | None, find: Callable[[Position | None, int], Sequence[Any]]
) -> Iterator[Row]:
    """Yield the rows of a list behind a position; `find` reads at most so many behind another one."""
    most = min(BATCH, query.limit + 1)
    while True:
        rows = find(behind, most)
        yield from rows
        if len(rows) < most:
            return
        behind, most = (rows[-1][0], rows[-1][1]), BATCH


def page_of(query: TicketQuery, rows: Iterable[Row]) -> TicketPage:
    """Return the first page of the rows; the rest is not read. A ticket that cannot be read is left out."""
    tickets, size = list[ListedTicket](), 0
    for at, number, info, body in rows:
        try:
            one = codec.load(RunInfo, info), codec.load(Ticket, body)
        except codec.SchemaError:
            continue  # every other way to the run reports it
        if not query.matches(*one):
            continue
        if len(tickets) >= query.limit or size >= PAGE_BYTES:
            return TicketPage(tickets=tuple(tickets), cursor=tickets[-1].cursor)
        tickets.append(line_of(query, *one, (at, number)))
        size += len(info) + len(body)
    return TicketPage(tickets=tuple(tickets), cursor=None)


def line_of(query: TicketQuery, info: RunInfo, ticket: Ticket, position: Position) -> ListedTicket:
    """Return the line of a ticket."""
    return ListedTicket(info=info, ticket=ticket, cursor=_paging.encode_tickets(query, position))
