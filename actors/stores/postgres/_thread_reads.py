"""Threads in PostgreSQL: their list, and pages of their messages."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import Final

from ...contract import codec
from ...contract.messages import Message
from ...contract.rows import RunInfo
from ...contract.threads.lists import (
    MESSAGE_BYTES,
    MOST_OPEN,
    HistoryPage,
    HistoryQuery,
    OpenRun,
    ThreadPage,
    ThreadQuery,
    ThreadSummary,
    producers,
    within_bytes,
)
from ..common._thread_pages import PlacedRow, ThreadLine, open_run, page_of
from ..common._timestamps import moment
from ._connect import Link
from ._lists import lines_of
from ._reads import load_row
from ._values import Bigints, Texts

_END: Final = 1 << 62
"""Above every number and position."""
_CHUNK: Final = 51
"""Threads read together: a page of the usual size, and one more."""

_NEWEST: Final = """SELECT r.number, r.thread FROM {s}.runs r WHERE r.number < %s
  AND r.number = (SELECT max(o.number) FROM {s}.runs o WHERE o.thread = r.thread) ORDER BY r.number DESC LIMIT %s"""
_NEWEST_BY: Final = """SELECT max(number), thread FROM {s}.runs WHERE started_by = %s GROUP BY thread
  HAVING max(number) < %s ORDER BY 1 DESC LIMIT %s"""
_THREADS: Final = """SELECT t.number, t.thread_id, t.owner, t.created_at, t.runs, a.run_id, a.title, z.created_at,
  coalesce((SELECT o.number FROM {s}.runs o WHERE o.thread = t.number AND o.ended_at IS NULL
    ORDER BY o.number LIMIT 1), z.number)
FROM {s}.threads t
JOIN LATERAL (SELECT run_id, title FROM {s}.runs WHERE thread = t.number ORDER BY number LIMIT 1) a ON true
JOIN LATERAL (SELECT number, created_at FROM {s}.runs WHERE thread = t.number ORDER BY number DESC LIMIT 1) z ON true
WHERE t.number = ANY(%s)"""
_MESSAGES: Final = f"""SELECT pos, body, octet_length(body) FROM (
  SELECT pos, body, sum(octet_length(body)) OVER (ORDER BY pos #ORDER#) - octet_length(body) AS before
  FROM {{s}}.messages WHERE thread = %s AND pos #EDGE# %s ORDER BY pos #ORDER# LIMIT %s) m
WHERE before < {MESSAGE_BYTES} ORDER BY pos #ORDER#"""
_FORWARD: Final = _MESSAGES.replace("#ORDER#", "").replace("#EDGE#", ">")
_BACKWARD: Final = _MESSAGES.replace("#ORDER#", "DESC").replace("#EDGE#", "<")
_THREAD: Final = """SELECT t.number, coalesce((SELECT max(pos) FROM {s}.messages WHERE thread = t.number), 0),
  (SELECT run_id FROM {s}.runs WHERE thread = t.number ORDER BY number DESC LIMIT 1)
FROM {s}.threads t WHERE t.thread_id = %s"""
_OPEN_RUNS: Final = f"""SELECT number, run_id, agent, row FROM {{s}}.runs WHERE thread = %s AND ended_at IS NULL
  ORDER BY number LIMIT {MOST_OPEN}"""


def page(link: Link, query: ThreadQuery, behind: int | None) -> ThreadPage:
    """Return a page of the threads behind a run's number."""
    return page_of(query, _lines(link, query, _END if behind is None else behind))


def _lines(link: Link, query: ThreadQuery, behind: int) -> Iterator[ThreadLine]:
    """Yield the threads of a list behind a run's number."""
    size = min(_CHUNK, query.limit + 1)
    while True:
        values = (behind, size) if query.by is None else (query.by, behind, size)
        places = link.execute(_NEWEST if query.by is None else _NEWEST_BY, values)
        yield from _read(link, [(number, thread) for number, thread in places])
        if len(places) < size:
            return
        behind = places[-1][0]


def _read(link: Link, places: list[tuple[int, int]]) -> Iterator[ThreadLine]:
    rows = link.execute(_THREADS, (Bigints(thread for _, thread in places),))
    facts = {thread: columns for thread, *columns in rows}
    current_runs = Bigints(columns[-1] for columns in facts.values())
    runs = {number: (run, read) for number, run, read in lines_of(link, "number", current_runs)}
    for number, thread in places:
        if thread not in facts or facts[thread][-1] not in runs:  # pruned between two statements
            yield number, None, 0
            continue
        name, owner, began, count, oldest, title, at, current = facts[thread]
        run, read = runs[current]
        line = run if isinstance(run, str) else ThreadSummary(
            thread_id=name, owner=owner, created_at=moment(began), runs=count, title=title or oldest,
            newest_at=moment(at), run=run,
        )  # fmt: skip
        yield number, line, read


def history(link: Link, thread_id: str, query: HistoryQuery) -> HistoryPage | None:
    """Return a part of a thread's history."""
    threads = link.execute(_THREAD, (thread_id,))
    if not threads:
        return None
    thread, newest, newest_run = threads[0]
    forward, edge = query.after is not None, query.before or _END
    values = (thread, query.after if forward else edge, query.limit)
    rows = link.execute(_FORWARD if forward else _BACKWARD, values)
    pairs = ((position, codec.load(Message, body), size) for position, body, size in rows)
    messages = sorted(within_bytes(pairs, query.limit), key=itemgetter(0))
    sql = "SELECT run_id, info FROM {s}.runs WHERE run_id = ANY(%s)"
    infos = link.execute(sql, (Texts(producers(messages)),))
    return HistoryPage(
        messages=tuple(messages),
        newest=newest,
        newest_run=newest_run,
        open_runs=tuple(_open_runs(link, thread)),
        infos={run_id: codec.load(RunInfo, blob) for run_id, blob in infos},
    )


def _open_runs(link: Link, thread: int) -> Iterator[OpenRun]:
    for number, run_id, agent, blob in link.execute(_OPEN_RUNS, (thread,)):
        after = codec.glance(PlacedRow, blob).placed
        yield open_run(run_id, agent, after, load_row(link, number, run_id, blob) if after else None)
