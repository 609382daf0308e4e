"""Lists of runs: find the run numbers of a page from indexes alone, then read the rows of that page."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import attrs
from msgspec.structs import replace

from ..contract import codec
from ..contract.lifecycle import RunStatus
from ..contract.rows import RunInfo, RunRow
from ..contract.run_lists import ASKED, RunCounts, RunPage, RunQuery, RunSummary
from ..contract.ticket_summary import TicketSummary
from . import _paging
from ._schema import TO_DO, WAITS
from ._timestamps import milliseconds, moment

LAST: Final = "\U0010ffff"
"""Sorts behind every other character."""

PAGE_BYTES: Final = 8 * 2**20
"""Bytes of rows after which a page ends, because a row may hold a whole answer of a model."""

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


@attrs.define
class _Where:
    """The conditions of a statement, and their values."""

    conditions: list[str] = attrs.field(factory=lambda: ["1"])
    values: list[object] = attrs.field(factory=list)

    def add(self, condition: str, *values: object) -> None:
        self.conditions.append(condition)
        self.values += values


def page(connection: sqlite3.Connection, query: RunQuery, behind: _paging.Position | None) -> RunPage:
    """Return a page of runs behind a position."""
    runs, unreadable, size, last, more = list[RunSummary](), list[str](), 0, None, False
    for position in _positions(connection, query, behind):
        if len(runs) >= query.limit or size >= PAGE_BYTES:
            more = True
            break
        line, read = _line(connection, position[1])
        if isinstance(line, str):
            unreadable.append(line)
        else:
            runs.append(line)
        last, size = position, size + read
    return RunPage(
        runs=tuple(runs),
        cursor=_paging.encode(query, last) if more and last is not None else None,
        counts=counts(connection) if query.counts else None,
        unreadable=tuple(unreadable),
    )


def _positions(
    connection: sqlite3.Connection, query: RunQuery, behind: _paging.Position | None
) -> Iterator[_paging.Position]:
    """Yield the runs of a list behind a position, one lookup per page: a page with unreadable rows needs more runs."""
    while True:
        numbers = _numbers(connection, query, behind)
        yield from numbers
        if len(numbers) <= query.limit:
            return
        behind = numbers[-1]


def _numbers(
    connection: sqlite3.Connection, query: RunQuery, behind: _paging.Position | None
) -> Sequence[_paging.Position]:
    """Return position and number of a page's runs, and of one more run if there is one."""
    where = _where(query)
    longest = query.order == "waiting_longest"
    if behind is not None:
        since, number = behind
        if longest:
            where.add("(waiting_since, number) > (?, ?)", since, number)
        else:
            where.add("number < ?", number)
    sql = (
        f"SELECT {'waiting_since' if longest else '0'}, number FROM {_table(query)}"  # noqa: S608 - only constants
        f" WHERE {' AND '.join(where.conditions)}"
        f" ORDER BY {'waiting_since, number' if longest else 'number DESC'} LIMIT ?"
    )
    return connection.execute(sql, (*where.values, query.limit + 1)).fetchall()


def _where(query: RunQuery) -> _Where:
    where = _Where()
    _add_status(where, query)
    for column, value in (("agent", query.agent), ("started_by", query.by)):
        if value is not None:
            where.add(f"{column} = ?", value)
    if query.thread_id is not None:
        where.add("thread = (SELECT number FROM threads WHERE thread_id = ?)", query.thread_id)
    if query.prefix:
        by_prefix = "number IN (SELECT number FROM runs WHERE run_id >= ? AND run_id < ?)"  # uses the index of the ids
        where.add(by_prefix, query.prefix, query.prefix + LAST)
    if query.since is not None:
        where.add("created_at >= ?", milliseconds(query.since))
    if query.until is not None:
        where.add("created_at < ?", milliseconds(query.until))
    if query.text is not None:
        where.add("instr(search, ?) > 0", query.text.casefold())
    return where


def _add_status(where: _Where, query: RunQuery) -> None:
    if query.order == "waiting_longest" or query.status is RunStatus.WAITING:
        where.add(WAITS)
    elif query.status is RunStatus.DONE:
        where.add("ended_at IS NOT NULL")
    elif query.status is not None:
        where.add(f"{TO_DO} AND status = ?", query.status.value)


def _table(query: RunQuery) -> str:
    """Return the table with the index that reads the fewest runs; the planner does not know how many runs wait."""
    if query.thread_id is not None:
        return "runs INDEXED BY runs_thread"
    if query.order == "waiting_longest":
        return "runs INDEXED BY runs_longest"
    if query.status is RunStatus.WAITING:
        return "runs INDEXED BY runs_waiting"
    if query.status in (RunStatus.CREATED, RunStatus.RUNNING):
        return "runs INDEXED BY runs_to_do"
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
    return "runs INDEXED BY runs_done" if query.status is RunStatus.DONE else "runs"


def _line(connection: sqlite3.Connection, number: int) -> tuple[RunSummary | str, int]:
    """Return a line of a list (for an unreadable run, its id), and the bytes read for it."""
    columns = connection.execute(_LINE, (number,)).fetchone()
    run_id, *_, blob, row = columns
    size = sum(len(part) for part in (blob, row) if isinstance(part, bytes))  # a damaged row may hold any type
    try:
        line, briefs = _readable(connection, number, columns)
    except codec.SchemaError:
        return run_id, size
    return line, size + briefs


def _readable(connection: sqlite3.Connection, number: int, columns: tuple[Any, ...]) -> tuple[RunSummary, int]:
    _, pending, held, ended, since, title, queue, blob, row = columns
    info = codec.load(RunInfo, blob)
    if title != info.title:  # an older file: the title was derived from the first event
        info = replace(info, title=title)
    tickets, count, size = _asked(connection, number) if ended is None else ((), 0, 0)
    summary = RunSummary(
        info=info,
        row=codec.load(RunRow, row),
        pending=pending,
        held=bool(held) and ended is None,
        ended_at=None if ended is None else moment(ended),
        waiting_since=None if since is None else moment(since),
        asked=tickets,
        asked_count=count,
        queue=queue,
    )
    return summary, size


def _asked(connection: sqlite3.Connection, number: int) -> tuple[tuple[TicketSummary, ...], int, int]:
    """Return the first open tickets, their total number, and the bytes read."""
    sql = f"SELECT brief {_OPEN_TICKETS} ORDER BY rowid LIMIT ?"
    briefs = [brief for (brief,) in connection.execute(sql, (number, ASKED + 1))]
    count = len(briefs)
    if count > ASKED:
        count = connection.execute(f"SELECT count(*) {_OPEN_TICKETS}", (number,)).fetchone()[0]
    known = [brief for brief in briefs[:ASKED] if brief is not None]  # a damaged row of an older file has no brief
    return (
        tuple(codec.load(TicketSummary, brief) for brief in known),
        count,
        sum(len(brief) for brief in known if isinstance(brief, bytes)),
    )


def counts(connection: sqlite3.Connection) -> RunCounts:
    """Return how many runs are not done."""
    others = dict(connection.execute(_COUNT_OTHERS).fetchall())
    (waiting,) = connection.execute(_COUNT_WAITING).fetchone()
    return RunCounts(created=others.get("created", 0), running=others.get("running", 0), waiting=waiting)


def summaries(connection: sqlite3.Connection, run_ids: Iterable[str], counted: bool) -> RunPage:
    """Return the lines of these runs, in this order."""
    lines, unreadable = list[RunSummary](), list[str]()
    for run_id in run_ids:
        number = connection.execute("SELECT number FROM runs WHERE run_id = ?", (run_id,)).fetchone()
        if number is None:
            continue
        line, _ = _line(connection, number[0])
        if isinstance(line, str):
            unreadable.append(line)
        else:
            lines.append(line)
    return RunPage(
        runs=tuple(lines),
        cursor=None,
        counts=counts(connection) if counted else None,
        unreadable=tuple(unreadable),
    )
