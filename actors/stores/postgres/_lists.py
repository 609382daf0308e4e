"""Lists of runs in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Final, Literal

from ...contract import codec
from ...contract.rows import RunInfo
from ...contract.run_lists import ASKED, Backlog, EndedRuns, RunCounts, RunPage, RunProgress, RunQuery, RunSummary
from ...contract.ticket_lists import TicketPage, TicketQuery
from ..common import _ticket_pages
from ..common._paging import Position
from ..common._run_pages import Line, ListDialect, ended_of, moment_of, page_of, positions, summary_of, whole_page
from ..common._text_search import Shown, TextSearch
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
_ENDS: Final = """SELECT r.number, r.run_id, f.frame, l.frame
FROM unnest(%s::bigint[]) WITH ORDINALITY AS w(number, ord) JOIN {s}.runs r USING (number)
LEFT JOIN {s}.events f ON f.run = r.number AND f.seq = 1
LEFT JOIN {s}.events l ON l.run = r.number AND l.seq = r.last_seq AND r.ended_at IS NOT NULL ORDER BY w.ord"""
_ENDED: Final = """SELECT floor(extract(epoch FROM ended_at) / 3600)::bigint, stage, code IS NOT NULL, count(*)
FROM {s}.runs WHERE ended_at >= %s GROUP BY 1, 2, 3"""
_COUNTS: Final = f"""SELECT status, count(*) FROM {{s}}.runs WHERE {TO_DO} AND status <> 'waiting' GROUP BY status
UNION ALL SELECT 'waiting', count(*) FROM {{s}}.runs WHERE {WAITS}"""
_BACKLOG: Final = f"""SELECT count(*) FILTER (WHERE {TO_DO} AND status = 'created'),
  count(*) FILTER (WHERE {TO_DO} AND status = 'running'), count(*) FILTER (WHERE {WAITS}), count(DISTINCT thread),
  t.count, t.oldest
FROM {{s}}.runs, (SELECT count(*) AS count, min(t.requested_at) AS oldest FROM {{s}}.tickets t
  JOIN {{s}}.runs r ON r.number = t.run WHERE t.status = 'open' AND r.ended_at IS NULL) t
WHERE ended_at IS NULL GROUP BY t.count, t.oldest"""
_PROGRESS: Final = """SELECT run_id, last_seq, status = 'waiting' AND ended_at IS NULL, ended_at IS NOT NULL,
  owner IS NOT NULL AND ended_at IS NULL, dead FROM {s}.runs WHERE run_id = ANY(%s)"""
_DIALECT: Final = ListDialect(
    mark="%s",
    schema="{s}.",
    to_do=TO_DO,
    waits=WAITS,
    prefix="run_id >= %s AND run_id < %s",
    among="run_id = ANY(%s)",
    ids=Texts,
    time=Moment,
)


def page(
    link: Link,
    query: RunQuery,
    behind: Position | None,
    among: Sequence[str] | None = None,
    shown: Shown | None = None,
) -> RunPage:
    """Return a page of runs behind a position."""
    lines = _lines(link, query, behind, among, TextSearch.of(query.text, shown))
    return page_of(query, lines, counts(link) if query.counts else None)


def _lines(
    link: Link, query: RunQuery, behind: Position | None, among: Sequence[str] | None, search: TextSearch | None
) -> Iterator[Line]:
    """Yield the runs of a list behind a position."""

    def find(after: Position | None) -> list[Position]:
        statement = _DIALECT.statement(query, after, "runs", among)
        return [(since, number) for since, number in link.execute(*statement)]

    for candidates in positions(query, behind, find):
        for start in range(0, len(candidates), _LINES):
            some = {number: (since, number) for since, number in candidates[start : start + _LINES]}
            hits, sizes = _hits(link, search, some)
            lines = {number: (line, read) for number, line, read in lines_of(link, "number", Bigints(hits))}
            for number, position in some.items():
                line, read = lines.get(number, (None, 0))
                yield position, line, sizes.get(number, 0) + read


def _hits(link: Link, search: TextSearch | None, numbers: Iterable[int]) -> tuple[list[int], dict[int, int]]:
    """Return those of the runs that have the text, and the bytes read for each of all."""
    if search is None:
        return [*numbers], {}
    hits, sizes = list[int](), dict[int, int]()
    for number, run_id, first, last in link.execute(_ENDS, (Bigints(numbers),)):
        sizes[number] = len(first or b"") + len(last or b"")
        if search.finds(run_id, first, last):
            hits.append(number)
    return hits, sizes


def lines_of(
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


def throughput(link: Link, since: int) -> tuple[EndedRuns, ...]:
    """Count the runs that have ended since a time, by hour and outcome."""
    return ended_of(link.execute(_ENDED, (Moment(since),)))


def backlog(link: Link) -> Backlog:
    """Count what is not done, in one statement."""
    rows = list(link.execute(_BACKLOG)) or [(0, 0, 0, 0, 0, None)]
    to_begin, running, waiting, threads, tickets, oldest = rows[0]
    return Backlog(
        runs=RunCounts(created=to_begin, running=running, waiting=waiting),
        threads=threads,
        tickets=tickets,
        oldest_ticket=moment_of(oldest),
    )


def summaries(link: Link, run_ids: Sequence[str], counted: bool) -> RunPage:
    """Return the lines of these runs, in this order."""
    with link.transaction(SNAPSHOT) if counted else nullcontext():
        lines = (line for _, line, _ in lines_of(link, "run_id", Texts(run_ids)))
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
