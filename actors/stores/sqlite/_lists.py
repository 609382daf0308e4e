"""Lists of runs in a SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from ...contract import codec
from ...contract.lifecycle import STATUS, RunStatus, Stage
from ...contract.rows import RunInfo
from ...contract.run_lists import ASKED, Backlog, EndedRuns, RunCounts, RunPage, RunQuery, RunSummary
from ...contract.ticket_lists import TicketPage, TicketQuery
from ..common import _ticket_pages
from ..common._paging import Position
from ..common._run_pages import HOUR, Line, ListDialect, ended_of, moment_of, page_of, positions, summary_of, whole_page
from ..common._text_search import Shown, TextSearch
from ._schema import TO_DO, WAITS

_LINE: Final = (
    "SELECT run_id, posted - consumed, dispatch = 'held', ended_at, waiting_since, title, queue, info, row"
    " FROM runs WHERE number = ?"
)
_ENDS: Final = (
    "SELECT run_id, (SELECT frame FROM events WHERE run = number AND seq = 1),"
    " CASE WHEN ended_at IS NOT NULL THEN (SELECT frame FROM events WHERE run = number AND seq = last_seq) END"
    " FROM runs WHERE number = ?"
)
_ENDED: Final = (
    f"SELECT ended_at / {HOUR}, stage, code IS NOT NULL, count(*) FROM runs INDEXED BY runs_ended"  # noqa: S608 - constants
    " WHERE ended_at >= ? GROUP BY 1, 2, 3"
)
_OPEN_TICKETS: Final = "FROM tickets INDEXED BY tickets_open WHERE run = ? AND status = 'open'"
_COUNT_WAITING: Final = f"SELECT count(*) FROM runs INDEXED BY runs_waiting WHERE {WAITS}"  # noqa: S608 - constants
_COUNT_OTHERS: Final = (
    f"SELECT status, count(*) FROM runs INDEXED BY runs_to_do WHERE {TO_DO}"  # noqa: S608 - constants
    " AND status <> 'waiting' GROUP BY status"
)
_OPEN_THREADS: Final = "SELECT count(DISTINCT thread) FROM runs INDEXED BY runs_open WHERE ended_at IS NULL"
_ASKED_NOW: Final = (
    "SELECT count(*), min(t.requested_at) FROM tickets t INDEXED BY tickets_oldest CROSS JOIN runs r"
    " ON r.number = t.run WHERE t.status = 'open' AND r.ended_at IS NULL"
)
_DIALECT: Final = ListDialect(
    mark="?",
    to_do=TO_DO,
    waits=WAITS,
    prefix="number IN (SELECT number FROM runs WHERE run_id >= ? AND run_id < ?)",  # uses the index of the ids
    among="run_id IN (SELECT value FROM json_each(?))",
    ids=lambda run_ids: msgspec.json.encode(run_ids).decode(),
    time=int,
)


def page(
    connection: sqlite3.Connection,
    query: RunQuery,
    behind: Position | None,
    among: Sequence[str] | None = None,
    shown: Shown | None = None,
) -> RunPage:
    """Return a page of runs behind a position."""
    lines = _lines(connection, query, behind, among, TextSearch.of(query.text, shown))
    return page_of(query, lines, counts(connection) if query.counts else None)


def _lines(
    connection: sqlite3.Connection,
    query: RunQuery,
    behind: Position | None,
    among: Sequence[str] | None,
    search: TextSearch | None,
) -> Iterator[Line]:
    """Yield the runs of a list behind a position."""
    table = _table(query) if among is None else "runs"

    def find(after: Position | None) -> Sequence[Position]:
        return connection.execute(*_DIALECT.statement(query, after, table, among)).fetchall()

    for candidates in positions(query, behind, find):
        for position in candidates:
            is_hit, read = (True, 0) if search is None else _is_hit(connection, position[1], search)
            line, size = line_of(connection, position[1]) if is_hit else (None, 0)
            yield position, line, read + size


def _is_hit(connection: sqlite3.Connection, number: int, search: TextSearch) -> tuple[bool, int]:
    """Return whether the text is in a run, and the bytes read for that."""
    run_id, first, last = connection.execute(_ENDS, (number,)).fetchone()
    return search.finds(run_id, first, last), len(first or b"") + len(last or b"")


def _table(query: RunQuery) -> str:
    """Return the table with the index that reads the fewest runs; the planner does not know how many runs wait."""
    if query.thread_id is not None:
        return "runs INDEXED BY runs_thread"
    if query.order == "waiting_longest":
        return "runs INDEXED BY runs_longest"
    if query.status in (Stage.FAILED, Stage.CANCELLED) or query.code or query.outcome not in (None, "completed"):
        return "runs"  # the planner sees that the index of the stage or the code fits
    status = STATUS[query.status] if isinstance(query.status, Stage) else query.status
    if status not in (None, RunStatus.DONE):
        return f"runs INDEXED BY {'runs_waiting' if status is RunStatus.WAITING else 'runs_to_do'}"
    if query.prefix:
        return "runs"
    filters = [query.agent, query.by, query.since, query.until, query.text, query.tool]
    if sum(condition is not None for condition in filters) == 1:
        if query.agent is not None:
            return "runs INDEXED BY runs_agent"
        if query.by is not None:
            return "runs INDEXED BY runs_by"
    if any(condition is not None for condition in filters):
        return "runs INDEXED BY runs_list"
    done = status is RunStatus.DONE or query.outcome is not None
    return "runs INDEXED BY runs_done" if done else "runs"


def line_of(connection: sqlite3.Connection, number: int) -> tuple[RunSummary | str, int]:
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


def throughput(connection: sqlite3.Connection, since: int) -> tuple[EndedRuns, ...]:
    """Count the runs that have ended since a time, by hour and outcome."""
    return ended_of(connection.execute(_ENDED, (since,)))


def backlog(connection: sqlite3.Connection) -> Backlog:
    """Count what is not done."""
    (threads,) = connection.execute(_OPEN_THREADS).fetchone()
    tickets, oldest = connection.execute(_ASKED_NOW).fetchone()
    return Backlog(runs=counts(connection), threads=threads, tickets=tickets, oldest_ticket=moment_of(oldest))


def summaries(connection: sqlite3.Connection, run_ids: Iterable[str], counted: bool) -> RunPage:
    """Return the lines of these runs, in this order."""
    sql = "SELECT number FROM runs WHERE run_id = ?"
    rows = (connection.execute(sql, (run_id,)).fetchone() for run_id in run_ids)
    lines = (line_of(connection, number[0])[0] for number in rows if number is not None)
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
