"""Lists of runs in PostgreSQL: the numbers of a page come from indexes, then the rows of that page are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import attrs

from ..contract import codec
from ..contract.lifecycle import RunStatus
from ..contract.rows import RunInfo, RunRow
from ..contract.run_lists import ASKED, RunCounts, RunPage, RunQuery, RunSummary
from ..contract.ticket_summary import TicketSummary
from . import _paging
from ._pg_connect import Link
from ._pg_schema import TO_DO, WAITS
from ._pg_values import Bigints, Moment, Texts
from ._timestamps import milliseconds, moment

LAST: Final = "\U0010ffff"
"""Sorts behind every other character."""
PAGE_BYTES: Final = 8 * 2**20
"""Bytes of rows after which a page ends, because a row may hold a whole answer of a model."""
_LINES: Final = 50
"""Rows read at once, so that a page that ends by its bytes has read few rows too many."""

_LINE: Final = f"""SELECT r.number, r.run_id, r.posted - r.consumed, r.held AND r.ended_at IS NULL, r.ended_at,
  r.waiting_since, r.queue, p.name, r.dead, r.info, r.row,
  CASE WHEN r.ended_at IS NULL THEN (SELECT array_agg(t.brief ORDER BY t.number) FROM (
    SELECT o.number, o.brief FROM {{s}}.tickets o WHERE o.run = r.number AND o.status = 'open'
    ORDER BY o.number LIMIT {ASKED}) t) END,
  CASE WHEN r.ended_at IS NULL THEN (SELECT count(*) FROM {{s}}.tickets o
    WHERE o.run = r.number AND o.status = 'open') ELSE 0 END
FROM unnest(%s::bigint[]) WITH ORDINALITY AS w(number, ord) JOIN {{s}}.runs r USING (number)
LEFT JOIN {{s}}.processes p ON p.number = r.owner ORDER BY w.ord"""
_COUNTS: Final = f"""SELECT status, count(*) FROM {{s}}.runs WHERE {TO_DO} AND status <> 'waiting' GROUP BY status
UNION ALL SELECT 'waiting', count(*) FROM {{s}}.runs WHERE {WAITS}"""


@attrs.define
class _Conditions:
    """The conditions of a statement, and their values."""

    conditions: list[str] = attrs.field(factory=lambda: ["true"])
    values: list[object] = attrs.field(factory=list)

    def add(self, condition: str, *values: object) -> None:
        self.conditions.append(condition)
        self.values += values


def page(link: Link, query: RunQuery, behind: _paging.Position | None) -> RunPage:
    """Return a page of runs behind a position."""
    runs, unreadable, size, last, more = list[RunSummary](), list[str](), 0, None, False
    for position, line, read in _lines(link, query, behind):
        if len(runs) >= query.limit or size >= PAGE_BYTES:
            more = True
            break
        if isinstance(line, str):
            unreadable.append(line)
        else:
            runs.append(line)
        last, size = position, size + read
    return RunPage(
        runs=tuple(runs),
        cursor=_paging.encode(query, last) if more and last is not None else None,
        counts=counts(link) if query.counts else None,
        unreadable=tuple(unreadable),
    )


def _lines(
    link: Link, query: RunQuery, behind: _paging.Position | None
) -> Iterator[tuple[_paging.Position, RunSummary | str, int]]:
    """Yield the runs of a list behind a position; a page with unreadable rows needs more runs than its limit."""
    while True:
        positions = _positions(link, query, behind)
        for start in range(0, len(positions), _LINES):
            some = {number: (since, number) for since, number in positions[start : start + _LINES]}
            for number, line, read in _read(link, list(some)):
                yield some[number], line, read
        if len(positions) <= query.limit:
            return
        behind = positions[-1]


def _positions(link: Link, query: RunQuery, behind: _paging.Position | None) -> Sequence[_paging.Position]:
    """Return position and number of a page's runs, and of one more run if there is one."""
    where = _where(query)
    longest = query.order == "waiting_longest"
    if behind is not None:
        since, number = behind
        if longest:
            where.add("(waiting_since, number) > (%s, %s)", Moment(since), number)
        else:
            where.add("number < %s", number)
    sql = (
        f"SELECT {'waiting_since' if longest else '0'}, number FROM {{s}}.runs"
        f" WHERE {' AND '.join(where.conditions)}"
        f" ORDER BY {'waiting_since, number' if longest else 'number DESC'} LIMIT %s"
    )
    return [(since, number) for since, number in link.execute(sql, (*where.values, query.limit + 1))]


def _where(query: RunQuery) -> _Conditions:
    where = _Conditions()
    _add_status(where, query)
    for column, value in (("agent", query.agent), ("started_by", query.by)):
        if value is not None:
            where.add(f"{column} = %s", value)
    if query.thread_id is not None:
        where.add("thread = (SELECT number FROM {s}.threads WHERE thread_id = %s)", query.thread_id)
    if query.prefix:
        where.add("run_id >= %s AND run_id < %s", query.prefix, query.prefix + LAST)
    if query.since is not None:
        where.add("created_at >= %s", Moment(milliseconds(query.since)))
    if query.until is not None:
        where.add("created_at < %s", Moment(milliseconds(query.until)))
    if query.text is not None:
        where.add("strpos(search, %s) > 0", query.text.casefold())
    return where


def _add_status(where: _Conditions, query: RunQuery) -> None:
    if query.order == "waiting_longest" or query.status is RunStatus.WAITING:
        where.add(WAITS)
    elif query.status is RunStatus.DONE:
        where.add("ended_at IS NOT NULL")
    elif query.status is not None:
        where.add(f"{TO_DO} AND status = %s", query.status.value)


def _read(link: Link, numbers: Sequence[int]) -> Iterator[tuple[int, RunSummary | str, int]]:
    """Yield lines of a list (for an unreadable run, its id), and the bytes read for each."""
    for number, run_id, *columns in link.execute(_LINE, (Bigints(numbers),)):
        size = sum(map(len, (columns[-4], columns[-3], *(brief for brief in columns[-2] or () if brief is not None))))
        try:
            yield number, _summary(columns), size
        except codec.SchemaError:
            yield number, run_id, size


def _summary(columns: Sequence[Any]) -> RunSummary:
    pending, held, ended, since, queue, owner, dead, info, row, briefs, count = columns
    return RunSummary(
        info=codec.load(RunInfo, info),
        row=codec.load(RunRow, row),
        pending=pending,
        held=held,
        ended_at=None if ended is None else moment(ended),
        waiting_since=None if since is None else moment(since),
        asked=tuple(codec.load(TicketSummary, brief) for brief in briefs or () if brief is not None),
        asked_count=count,
        queue=queue,
        owner=owner,
        dead=dead,
    )


def counts(link: Link) -> RunCounts:
    """Return how many runs are not done."""
    found = dict(link.execute(_COUNTS))
    return RunCounts(created=found.get("created", 0), running=found.get("running", 0), waiting=found["waiting"])


def summaries(link: Link, run_ids: Sequence[str], counted: bool) -> RunPage:
    """Return the lines of these runs, in this order."""
    lines, unreadable = list[RunSummary](), list[str]()
    sql = """SELECT r.number FROM unnest(%s::text[]) WITH ORDINALITY AS w(run_id, ord)
        JOIN {s}.runs r USING (run_id) ORDER BY w.ord"""
    for _, line, _ in _read(link, [number for (number,) in link.execute(sql, (Texts(run_ids),))]):
        if isinstance(line, str):
            unreadable.append(line)
        else:
            lines.append(line)
    return RunPage(
        runs=tuple(lines), cursor=None, counts=counts(link) if counted else None, unreadable=tuple(unreadable)
    )
