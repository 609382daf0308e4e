"""Lists of runs in a SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from msgspec.structs import replace

from ...contract import codec
from ...contract.lifecycle import STATUS, RunStatus, Stage
from ...contract.rows import RunInfo
from ...contract.run_lists import ASKED, RunCounts, RunPage, RunQuery, RunSummary
from ...contract.ticket_lists import TicketPage, TicketQuery
from ..common import _ticket_pages
from ..common._paging import Position
from ..common._run_pages import Line, ListDialect, page_of, positions, summary_of, whole_page
from ._schema import TO_DO, WAITS

_LINE: Final = (
    "SELECT run_id, posted - consumed, dispatch = 'held', ended_at, waiting_since, title, queue, info, row"
    " FROM runs WHERE number = ?"
)
_OPEN_TICKETS: Final = "FROM tickets INDEXED BY tickets_open WHERE run = ? AND status = 'open'"
_COUNT_WAITING: Final = f"SELECT count(*) FROM runs INDEXED BY runs_waiting WHERE {WAITS}"  # noqa: S608 - constants
_COUNT_OTHERS: Final = (
    f"SELECT status, count(*) FROM runs INDEXED BY runs_to_do WHERE {TO_DO}"  # noqa: S608 - constants
    " AND status <> 'waiting' GROUP BY status"
)
_DIALECT: Final = ListDialect(
    mark="?",
    to_do=TO_DO,
    waits=WAITS,
    prefix="number IN (SELECT number FROM runs WHERE run_id >= ? AND run_id < ?)",  # uses the index of the ids
    text="instr(search, ?) > 0",
    time=int,
)


def page(connection: sqlite3.Connection, query: RunQuery, behind: Position | None) -> RunPage:
    """Return a page of runs behind a position."""
    return page_of(query, _lines(connection, query, behind), counts(connection) if query.counts else None)


def _lines(connection: sqlite3.Connection, query: RunQuery, behind: Position | None) -> Iterator[Line]:
    """Yield the runs of a list behind a position."""

    def find(after: Position | None) -> Sequence[Position]:
        return connection.execute(*_DIALECT.statement(query, after, _table(query))).fetchall()

    for candidates in positions(query, behind, find):
        for position in candidates:
            yield position, *_line(connection, position[1])


def _table(query: RunQuery) -> str:
    """Return the table with the index that reads the fewest runs; the planner does not know how many runs wait."""
    if query.thread_id is not None:
        return "runs INDEXED BY runs_thread"
    if query.order == "waiting_longest":
        return "runs INDEXED BY runs_longest"
    if query.status in (Stage.FAILED, Stage.CANCELLED):
        return "runs"  # the planner sees that the index of the stage fits
    status = STATUS[query.status] if isinstance(query.status, Stage) else query.status
    if status not in (None, RunStatus.DONE):
        return f"runs INDEXED BY {'runs_waiting' if status is RunStatus.WAITING else 'runs_to_do'}"
    if query.prefix:
        return "runs"
    filters = [query.agent, query.by, query.since, query.until, query.text]
    if sum(condition is not None for condition in filters) == 1:
        if query.agent is not None:
            return "runs INDEXED BY runs_agent"
        if query.by is not None:
            return "runs INDEXED BY runs_by"
    if any(condition is not None for condition in filters):
        return "runs INDEXED BY runs_list"
    return "runs INDEXED BY runs_done" if status is RunStatus.DONE else "runs"


def _line(connection: sqlite3.Connection, number: int) -> tuple[RunSummary | str, int]:
    """Return a line of a list (for an unreadable run, its id), and the bytes read for it."""
    columns = connection.execute(_LINE, (number,)).fetchone()
    run_id, _, _, ended, *_, blob, row = columns
    briefs, count = _asked(connection, number) if ended is None else ([], 0)
    size = sum(len(part) for part in (blob, row, *briefs) if isinstance(part, bytes))  # a damaged row: any type
    try:
        return _summary(columns, briefs, count), size
    except codec.SchemaError:
        return run_id, size


def _summary(columns: Sequence[Any], briefs: Sequence[bytes], count: int) -> RunSummary:
    _, pending, held, ended, since, title, queue, blob, row = columns
    info = codec.load(RunInfo, blob)
    if title != info.title:  # an older file: the title was derived from the first event
        info = replace(info, title=title)
    return summary_of(
        info,
        row,
        pending=pending,
        held=bool(held) and ended is None,
        ended=ended,
        since=since,
        briefs=briefs,
        count=count,
        queue=queue,
    )


def _asked(connection: sqlite3.Connection, number: int) -> tuple[list[bytes], int]:
    """Return the first open tickets, and their total number."""
    sql = f"SELECT brief {_OPEN_TICKETS} ORDER BY rowid LIMIT ?"
    briefs = [brief for (brief,) in connection.execute(sql, (number, ASKED + 1))]
    count = len(briefs)
    if count > ASKED:
        count = connection.execute(f"SELECT count(*) {_OPEN_TICKETS}", (number,)).fetchone()[0]
    # a damaged row of an older file has no brief
    return [brief for brief in briefs[:ASKED] if brief is not None], count


def counts(connection: sqlite3.Connection) -> RunCounts:
    """Return how many runs are not done."""
    others = dict(connection.execute(_COUNT_OTHERS).fetchall())
    (waiting,) = connection.execute(_COUNT_WAITING).fetchone()
    return RunCounts(created=others.get("created", 0), running=others.get("running", 0), waiting=waiting)


def summaries(connection: sqlite3.Connection, run_ids: Iterable[str], counted: bool) -> RunPage:
    """Return the lines of these runs, in this order."""
    sql = "SELECT number FROM runs WHERE run_id = ?"
    rows = (connection.execute(sql, (run_id,)).fetchone() for run_id in run_ids)
    lines = (_line(connection, number[0])[0] for number in rows if number is not None)
    return whole_page(lines, counts(connection) if counted else None)


_TICKETS: Final = _ticket_pages.TicketDialect(
    mark="?",
    source="tickets t INDEXED BY tickets_oldest CROSS JOIN runs r ON r.number = t.run",
    source_of_runs="runs r CROSS JOIN tickets t INDEXED BY tickets_open ON r.number = t.run",
    number="t.rowid",
    time=int,
)


def tickets(connection: sqlite3.Connection, query: TicketQuery, behind: Position | None) -> TicketPage:
    """Return a page of open tickets behind a position."""

    def find(after: Position | None, most: int) -> Sequence[Any]:
        return connection.execute(*_TICKETS.statement(query, after, most)).fetchall()

    return _ticket_pages.page_of(query, _ticket_pages.rows_of(query, behind, find))
