"""Delete done runs from a SQLite file, in slices: each is part of one transaction of the writer, and short.

Theory of operation. A run is pruned by one statement: its row is deleted, its id joins `pruned`, and its number joins
`garbage`, so that it is invisible immediately and whole for every reader. Rows of other tables under that number are
deleted by later slices, also of a later process: numbers are never reused, so no reader can find these rows. A thread
whose last run is pruned gets a new number, and the old one joins `garbage` likewise: its messages and state keys are
unreachable immediately, and a run started in the thread meanwhile begins without them. Finally free pages are returned
to the file system, a few per slice.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from typing import Final

from ...abc import Pruned
from ...contract.rows import RunInfo
from ..common._requests import PruneSlice
from ..common._row_values import facts_of, readable

SLICE: Final = 0.02
"""Seconds for one slice, because other requests wait meanwhile."""
_ROWS: Final = 64
"""Rows per statement, so that a slice ends soon after its time."""
_PAGES: Final = 16
"""Free pages returned per statement; each may move a page from the end of the file."""
INCREMENTAL: Final = 2
"""`PRAGMA auto_vacuum` of a file that can return pages without a rewrite."""

_RUN_TABLES: Final = ("events", "record", "calls", "tickets", "inbox")
# The remaining runs read their own writes, and of earlier writes only the newest.
_DROP_HIDDEN: Final = (
    "DELETE FROM state WHERE thread = :thread AND run < :oldest AND rowid NOT IN"
    " (SELECT max(rowid) FROM state WHERE thread = :thread AND run < :oldest GROUP BY key)"
)
_RENUMBER: Final = "UPDATE threads SET number = (SELECT max(number) + 1 FROM threads), vacant = 0 WHERE number = ?"
_ENDED: Final = "FROM runs WHERE ended_at < ? ORDER BY ended_at LIMIT ?"


def sweep(connection: sqlite3.Connection, before: int) -> PruneSlice:
    """Do one slice of work, inside the open transaction: garbage of earlier slices first, then further runs."""
    until = time.perf_counter() + SLICE
    runs = messages = 0
    for work in _work(connection, before):
        runs, messages = runs + work.runs, messages + work.messages
        if not work.more:
            return PruneSlice(runs, messages, more=False)
        if time.perf_counter() >= until:
            break
    return PruneSlice(runs, messages)


def _work(connection: sqlite3.Connection, before: int) -> Iterator[PruneSlice]:
    while True:
        yield (
            _clear(connection)
            or _take_runs(connection, before)
            or _take_vacant(connection)
            or _give_back(connection)
            or PruneSlice(more=False)
        )


# --- deleted rows ----------------------------------------------------------------------------------------------------


def _take_runs(connection: sqlite3.Connection, before: int) -> PruneSlice | None:
    rows = connection.execute(f"SELECT number, run_id, thread, info {_ENDED}", (before, _ROWS)).fetchall()
    if not rows:
        return None
    for number, run_id, thread, blob in rows:
        info = readable(RunInfo, blob)  # an unreadable run can still be deleted
        connection.execute("DELETE FROM runs WHERE number = ?", (number,))
        content = "" if info is None else info.content
        connection.execute("INSERT OR REPLACE INTO pruned(run_id, content) VALUES (?, ?)", (run_id, content))
        connection.execute("INSERT OR IGNORE INTO garbage(kind, number) VALUES ('run', ?)", (number,))
        if info is not None:
            row = (thread, facts_of(info), blob)
            connection.execute("INSERT OR IGNORE INTO members(thread, facts, info) VALUES (?, ?, ?)", row)
    for thread in {thread for _, _, thread, _ in rows}:
        oldest = _oldest_run(connection, thread)
        if oldest is None:
            _empty(connection, thread)
        else:
            connection.execute(_DROP_HIDDEN, {"thread": thread, "oldest": oldest})
    return PruneSlice(runs=len(rows))


def _take_vacant(connection: sqlite3.Connection) -> PruneSlice | None:
    """Empty threads whose runs were all pruned by an older release, which left the messages."""
    rows = connection.execute("SELECT number FROM threads WHERE vacant LIMIT ?", (_ROWS,)).fetchall()
    for (thread,) in rows:
        _empty(connection, thread)
    return PruneSlice() if rows else None


def _empty(connection: sqlite3.Connection, thread: int) -> None:
    """Turn the content of a thread without runs into garbage, under its old number."""
    connection.execute("INSERT OR IGNORE INTO garbage(kind, number) VALUES ('thread', ?)", (thread,))
    connection.execute("DELETE FROM members WHERE thread = ?", (thread,))
    connection.execute(_RENUMBER, (thread,))


def _clear(connection: sqlite3.Connection) -> PruneSlice | None:
    """Delete some rows of one garbage number."""
    row = connection.execute("SELECT kind, number FROM garbage LIMIT 1").fetchone()
    if row is None:
        return None
    kind, number = row
    if kind == "run":
        for table in _RUN_TABLES:
            if _delete(connection, table, "run = ?", number):
                return PruneSlice()
        if _delete(connection, "state", "run = ? AND thread IS NULL", number):
            return PruneSlice()
    elif count := _delete(connection, "messages", "thread = ?", number):
        return PruneSlice(messages=count)
    elif _delete(connection, "state", "thread = ?", number) or _delete(connection, "parts", "thread = ?", number):
        return PruneSlice()
    connection.execute("DELETE FROM garbage WHERE kind = ? AND number = ?", (kind, number))
    return PruneSlice()


def _delete(connection: sqlite3.Connection, table: str, where: str, number: int) -> int:
    rows = f"SELECT rowid FROM {table} WHERE {where} LIMIT {_ROWS}"  # noqa: S608 - constants
    return connection.execute(f"DELETE FROM {table} WHERE rowid IN ({rows})", (number,)).rowcount  # noqa: S608


def _give_back(connection: sqlite3.Connection) -> PruneSlice | None:
    if not free_pages(connection) or not incremental(connection):
        return None
    for _ in range(_PAGES):  # Python's sqlite3 executes one step of this statement, which frees one page
        connection.execute("PRAGMA incremental_vacuum(1)")
    return PruneSlice()


def _oldest_run(connection: sqlite3.Connection, thread: int) -> int | None:
    sql = "SELECT number FROM runs WHERE thread = ? ORDER BY number LIMIT 1"
    row = connection.execute(sql, (thread,)).fetchone()
    return None if row is None else int(row[0])


# --- counts ----------------------------------------------------------------------------------------------------------


def incremental(connection: sqlite3.Connection) -> bool:
    """Return True if the file can return free pages."""
    return bool(connection.execute("PRAGMA auto_vacuum").fetchone()[0] == INCREMENTAL)


def free_pages(connection: sqlite3.Connection) -> int:
    """Return the number of free pages in the file."""
    return int(connection.execute("PRAGMA freelist_count").fetchone()[0])


def sizes(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return the bytes of the file, and how many of them are free."""
    page = int(connection.execute("PRAGMA page_size").fetchone()[0])
    return int(connection.execute("PRAGMA page_count").fetchone()[0]) * page, free_pages(connection) * page


def forecast(connection: sqlite3.Connection, before: int) -> Pruned:
    """Return what a prune would delete. Reads the lengths of rows, not their content."""
    old = "SELECT number FROM runs WHERE ended_at < :before"
    threads = (
        f"SELECT thread FROM runs WHERE ended_at < :before EXCEPT SELECT thread FROM runs WHERE number NOT IN ({old})"  # noqa: S608 - constants
        " UNION SELECT number FROM threads WHERE vacant"
    )
    values = {"before": before}
    runs, size = connection.execute(
        "SELECT count(*), coalesce(sum(length(info) + length(row)), 0) FROM runs WHERE ended_at < :before", values
    ).fetchone()
    for table, column in (
        ("events", "frame"),
        ("record", "body"),
        ("calls", "body"),
        ("tickets", "body"),
        ("inbox", "body"),
    ):
        sql = f"SELECT coalesce(sum(length({column})), 0) FROM {table} WHERE run IN ({old})"  # noqa: S608 - constants
        size += connection.execute(sql, values).fetchone()[0]
    sql = f"SELECT count(*), coalesce(sum(length(body)), 0) FROM messages WHERE thread IN ({threads})"  # noqa: S608 - constants
    messages, more = connection.execute(sql, values).fetchone()
    sql = f"SELECT coalesce(sum(length(body)), 0) FROM parts WHERE thread IN ({threads})"  # noqa: S608 - constants
    more += connection.execute(sql, values).fetchone()[0]
    return Pruned(runs=runs, messages=messages, freed=size + more, reusable=sizes(connection)[1])
