"""Lists of runs in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Final, Literal

from ...contract import codec
from ...contract.rows import RunInfo
from ...contract.run_lists import ASKED, RunCounts, RunPage, RunProgress, RunQuery, RunSummary
from ...contract.ticket_lists import TicketPage, TicketQuery
from ..common import _ticket_pages
from ..common._paging import Position
from ..common._run_pages import Line, ListDialect, page_of, positions, summary_of, whole_page
from ._connect import SNAPSHOT, Link
from ._schema import TO_DO, WAITS
from ._values import Bigints, Moment, Texts

_LINES: Final = 50
"""Rows read together, so that a page that ends by its bytes has read few rows too many."""

_COLUMNS: Final = f"""SELECT r.number, r.run_id, r.posted - r.consumed, r.held AND r.ended_at IS NULL, r.ended_at,
  r.waiting_since, r.queue, p.name, r.dead, r.info, r.row,
  CASE WHEN r.ended_at IS NULL THEN (SELECT array_agg(t.brief ORDER BY t.number) FROM (
    SELECT o.number, o.brief FROM {{s}}.tickets o WHERE o.run = r.number AND o.status = 'open'
    ORDER BY o.number LIMIT {ASKED}) t) END,
  CASE WHEN r.ended_at IS NULL THEN (SELECT count(*) FROM {{s}}.tickets o
    WHERE o.run = r.number AND o.status = 'open') ELSE 0 END
"""
_LINES_OF: Final = {
    key: f"""{_COLUMNS}FROM unnest(%s::{kind}[]) WITH ORDINALITY AS w({key}, ord) JOIN {{s}}.runs r USING ({key})
LEFT JOIN {{s}}.processes p ON p.number = r.owner ORDER BY w.ord"""
    for key, kind in (("number", "bigint"), ("run_id", "text"))
}
_COUNTS: Final = f"""SELECT status, count(*) FROM {{s}}.runs WHERE {TO_DO} AND status <> 'waiting' GROUP BY status
UNION ALL SELECT 'waiting', count(*) FROM {{s}}.runs WHERE {WAITS}"""
_PROGRESS: Final = """SELECT run_id, last_seq, status = 'waiting' AND ended_at IS NULL, ended_at IS NOT NULL,
  owner IS NOT NULL AND ended_at IS NULL, dead FROM {s}.runs WHERE run_id = ANY(%s)"""
_DIALECT: Final = ListDialect(
    mark="%s",
    schema="{s}.",
    to_do=TO_DO,
    waits=WAITS,
    prefix="run_id >= %s AND run_id < %s",
    text="strpos(search, %s) > 0",
    time=Moment,
)


def page(link: Link, query: RunQuery, behind: Position | None) -> RunPage:
    """Return a page of runs behind a position."""
    return page_of(query, _lines(link, query, behind), counts(link) if query.counts else None)


def _lines(link: Link, query: RunQuery, behind: Position | None) -> Iterator[Line]:
    """Yield the runs of a list behind a position."""

    def find(after: Position | None) -> list[Position]:
        return [(since, number) for since, number in link.execute(*_DIALECT.statement(query, after, "runs"))]

    for candidates in positions(query, behind, find):
        for start in range(0, len(candidates), _LINES):
            some = {number: (since, number) for since, number in candidates[start : start + _LINES]}
            for number, line, read in _read(link, "number", Bigints(some)):
                yield some[number], line, read


def _read(
    link: Link, key: Literal["number", "run_id"], values: Bigints | Texts
) -> Iterator[tuple[int, RunSummary | str, int]]:
    """Yield lines of a list (for an unreadable run, its id), and the bytes read for each."""
    for number, run_id, *columns, briefs, count in link.execute(_LINES_OF[key], (values,)):
        filled_briefs = [brief for brief in briefs or () if brief is not None]
        line: RunSummary | str
        try:
            line = _summary(columns, filled_briefs, count)
        except codec.SchemaError:
            line = run_id
        yield number, line, sum(map(len, (*columns[-2:], *filled_briefs)))


def _summary(columns: Sequence[Any], briefs: Sequence[bytes], count: int) -> RunSummary:
    pending, held, ended, since, queue, owner, dead, info, row = columns
    return summary_of(
        codec.load(RunInfo, info),
        row,
        pending=pending,
        held=held,
        ended=ended,
        since=since,
        briefs=briefs,
        count=count,
        queue=queue,
        owner=owner,
        dead=dead,
    )


def counts(link: Link) -> RunCounts:
    """Return how many runs are not done."""
    numbers = dict(link.execute(_COUNTS))
    return RunCounts(
        created=numbers.get("created", 0),
        running=numbers.get("running", 0),
        waiting=numbers["waiting"],
    )


def progress(link: Link, run_ids: Sequence[str]) -> Mapping[str, RunProgress]:
    """Return how far these runs are."""
    return {
        run_id: RunProgress(last=last, waits=waits, done=done, owned=owned, dead=dead)
        for run_id, last, waits, done, owned, dead in link.execute(_PROGRESS, (Texts(run_ids),))
    }


def summaries(link: Link, run_ids: Sequence[str], counted: bool) -> RunPage:
    """Return the lines of these runs, in this order."""
    with link.transaction(SNAPSHOT) if counted else nullcontext():
        lines = (line for _, line, _ in _read(link, "run_id", Texts(run_ids)))
        return whole_page(lines, counts(link) if counted else None)


_TICKETS: Final = _ticket_pages.TicketDialect(
    mark="%s",
    source="{s}.tickets t JOIN {s}.runs r ON r.number = t.run",
    source_of_runs="{s}.tickets t JOIN {s}.runs r ON r.number = t.run",
    number="t.number",
    time=Moment,
)


def tickets(link: Link, query: TicketQuery, behind: Position | None) -> TicketPage:
    """Return a page of open tickets behind a position."""

    def find(after: Position | None, most: int) -> Sequence[Any]:
        return link.execute(*_TICKETS.statement(query, after, most))

    return _ticket_pages.page_of(query, _ticket_pages.rows_of(query, behind, find))
