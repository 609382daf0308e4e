"""Threads in a SQLite file: their list, and pages of their messages."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from operator import itemgetter
from typing import Final

from ...contract import codec
from ...contract.messages import Message
from ...contract.rows import RunInfo
from ...contract.threads.lists import (
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
from ._lists import line_of
from ._sql import OPEN, load_row

_END: Final = 1 << 62
"""Above every number and position."""
_NEWEST: Final = (
    "SELECT number, thread FROM runs AS r WHERE number < ?"
    " AND number = (SELECT max(number) FROM runs AS o INDEXED BY runs_thread WHERE o.thread = r.thread)"
    " ORDER BY number DESC"
)
_NEWEST_BY: Final = (
    "SELECT max(number) AS newest, thread FROM runs INDEXED BY runs_by WHERE started_by = ?2"
    " GROUP BY thread HAVING newest < ?1 ORDER BY newest DESC"
)
_THREAD: Final = "SELECT thread_id, owner, created_at, runs FROM threads WHERE number = ?"
_EDGE: Final = "SELECT number, run_id, title, created_at FROM runs INDEXED BY runs_thread WHERE thread = ? ORDER BY"
_OPEN_RUNS: Final = f"FROM {OPEN} WHERE thread = ? AND ended_at IS NULL ORDER BY number"
_FORWARD: Final = "SELECT pos, body, length(body) FROM messages WHERE thread = ? AND pos > ? ORDER BY pos"
_BACKWARD: Final = "SELECT pos, body, length(body) FROM messages WHERE thread = ? AND pos < ? ORDER BY pos DESC"


def page(connection: sqlite3.Connection, query: ThreadQuery, behind: int | None) -> ThreadPage:
    """Return a page of the threads behind a run's number."""
    return page_of(query, _lines(connection, query, _END if behind is None else behind))


def _lines(connection: sqlite3.Connection, query: ThreadQuery, behind: int) -> Iterator[ThreadLine]:
    values = (behind,) if query.by is None else (behind, query.by)
    with closing(connection.execute(_NEWEST if query.by is None else _NEWEST_BY, values)) as rows:
        for number, thread in rows:  # row by row, only to the end of the page
            yield number, *_line(connection, thread)


def _line(connection: sqlite3.Connection, thread: int) -> tuple[ThreadSummary | str, int]:
    name, owner, began, runs = connection.execute(_THREAD, (thread,)).fetchone()
    _, oldest, title, _ = connection.execute(f"{_EDGE} number LIMIT 1", (thread,)).fetchone()
    newest, _, _, at = connection.execute(f"{_EDGE} number DESC LIMIT 1", (thread,)).fetchone()
    first_open = connection.execute(f"SELECT number {_OPEN_RUNS} LIMIT 1", (thread,)).fetchone()
    run, size = line_of(connection, newest if first_open is None else first_open[0])
    if isinstance(run, str):
        return run, size
    line = ThreadSummary(
        thread_id=name, owner=owner, created_at=moment(began), runs=runs, title=title or oldest,
        newest_at=moment(at), run=run,
    )  # fmt: skip
    return line, size


def history(connection: sqlite3.Connection, thread_id: str, query: HistoryQuery) -> HistoryPage | None:
    """Return a part of a thread's history."""
    columns = connection.execute("SELECT number FROM threads WHERE thread_id = ?", (thread_id,)).fetchone()
    if columns is None:
        return None
    thread: int = columns[0]
    forward, edge = query.after is not None, query.before or _END
    values = (thread, query.after if forward else edge)
    with closing(connection.execute(_FORWARD if forward else _BACKWARD, values)) as rows:
        pairs = ((position, codec.load(Message, body), size) for position, body, size in rows)
        messages = sorted(within_bytes(pairs, query.limit), key=itemgetter(0))
    (newest,) = connection.execute("SELECT coalesce(max(pos), 0) FROM messages WHERE thread = ?", (thread,)).fetchone()
    newest_run = connection.execute(f"{_EDGE} number DESC LIMIT 1", (thread,)).fetchone()
    return HistoryPage(
        messages=tuple(messages),
        newest=newest,
        newest_run=None if newest_run is None else newest_run[1],
        open_runs=tuple(_open_runs(connection, thread)),
        infos=dict(_infos(connection, producers(messages))),
    )


def _infos(connection: sqlite3.Connection, run_ids: Iterable[str]) -> Iterator[tuple[str, RunInfo]]:
    for run_id in run_ids:
        columns = connection.execute("SELECT info FROM runs WHERE run_id = ?", (run_id,)).fetchone()
        if columns is not None:
            yield run_id, codec.load(RunInfo, columns[0])


def _open_runs(connection: sqlite3.Connection, thread: int) -> Iterator[OpenRun]:
    rows = connection.execute(f"SELECT number, run_id, agent, row {_OPEN_RUNS} LIMIT {MOST_OPEN}", (thread,))
    for number, run_id, agent, blob in rows.fetchall():
        after = codec.glance(PlacedRow, blob).placed
        yield open_run(run_id, agent, after, load_row(connection, number, run_id, blob) if after else None)
