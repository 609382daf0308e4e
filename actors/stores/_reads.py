"""Queries: each is one short read transaction, a snapshot that is given up before the caller gets the result."""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Concatenate, Final, Literal, ParamSpec, TypeVar

from greenroom.actors.abc import RunPage, RunQuery, RunSummary
from greenroom.actors.contract import codec
from greenroom.actors.contract.decisions import Command, InboxItem, Ticket
from greenroom.actors.contract.lifecycle import RunStatus
from greenroom.actors.contract.messages import Message
from greenroom.actors.contract.rows import CallRow, RunInfo, RunRecord, RunRow
from greenroom.actors.contract.state import StateWrite
from greenroom.actors.errors import StoreDown, StoreError, StoreUnavailable, UnknownRun

from . import _paging
from ._moments import milliseconds, moment
from ._schema import DUE, TO_DO
from ._sql import OPEN

LAST: Final = "\U0010ffff"
"""What no other character sorts behind."""

T = TypeVar("T")
P = ParamSpec("P")

# The newest row of a key has the largest rowid; of the older ones no value is read.
_NEWEST: Final = (
    "SELECT run, thread, key, revision, value FROM state WHERE rowid IN ("
    "SELECT max(rowid) FROM state WHERE run = :run AND thread IS NULL{own} GROUP BY key"
    " UNION ALL SELECT max(rowid) FROM state WHERE thread = :thread{shared} GROUP BY key)"
    " ORDER BY thread IS NOT NULL, key"
)
_STATE_NOW: Final = _NEWEST.format(own="", shared="")
# One run at a time works on a thread, in the order of their numbers.
_STATE_AT: Final = _NEWEST.format(
    own=" AND step <= :step", shared=" AND (run < :run OR (run = :run AND step <= :step))"
)

_IDLE_READERS: Final = 4
"""Connections that are kept open for the next reader: as many as read at once."""


class Readers:
    """Connections that can only read. Usable from any thread; a connection serves one reader at a time."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._idle: deque[sqlite3.Connection] = deque()
        self._closed = False

    def read(self, query: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a query in one read transaction.

        Raises:
            StoreUnavailable: the file does not answer. StoreError: it is damaged. StoreDown: the store is closed.
        """
        try:
            with self._snapshot() as connection:
                return query(connection, *args, **kwargs)
        except sqlite3.OperationalError as error:
            raise StoreUnavailable(f"the store does not answer now: {error}; try again") from error
        except sqlite3.Error as error:
            raise StoreError(f"the store can not be read: {error}; restore it from a backup") from error

    @contextmanager
    def _snapshot(self) -> Iterator[sqlite3.Connection]:
        if self._closed:
            raise StoreDown("the store is closed")
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._connect()
        try:
            connection.execute("BEGIN")
            yield connection
        finally:
            self._give_back(connection)

    def _give_back(self, connection: sqlite3.Connection) -> None:
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            connection.close()
            return
        self._idle.append(connection)
        if self._closed or len(self._idle) > _IDLE_READERS:
            self._close_idle(0 if self._closed else _IDLE_READERS)

    def _close_idle(self, keep: int) -> None:
        while len(self._idle) > keep:
            try:
                connection = self._idle.popleft()
            except IndexError:
                return
            connection.close()

    def close(self) -> None:
        """Close what is idle; a connection that reads now is closed after that."""
        self._closed = True
        self._close_idle(0)


def epoch(connection: sqlite3.Connection) -> str:
    """The name of the log.

    Raises:
        StoreError: it has none.
    """
    found = connection.execute("SELECT value FROM about WHERE name = 'epoch'").fetchone()
    if found is None:
        raise StoreError("its log has no name; restore it from a backup")
    return str(found[0])


def open_runs(connection: sqlite3.Connection) -> Sequence[tuple[str, bool]]:
    """All runs that are not done, oldest first, each with whether it is held."""
    sql = f"SELECT run_id, dispatch = 'held' FROM {OPEN} WHERE ended_at IS NULL ORDER BY number"  # noqa: S608 - a constant
    return tuple((name, bool(held)) for name, held in connection.execute(sql))


def to_do(connection: sqlite3.Connection) -> Sequence[tuple[str, bool]]:
    """Runs that are not at rest, oldest first, each with whether it is held."""
    sql = f"SELECT run_id, dispatch = 'held' FROM runs INDEXED BY runs_to_do WHERE {TO_DO} ORDER BY number"  # noqa: S608 - constants
    return tuple((name, bool(held)) for name, held in connection.execute(sql))


def next_due(connection: sqlite3.Connection) -> datetime | None:
    """When the earliest timer of a waiting run fires."""
    sql = f"SELECT next_due FROM runs INDEXED BY runs_due WHERE {DUE} ORDER BY next_due LIMIT 1"  # noqa: S608 - constants
    found = connection.execute(sql).fetchone()
    return None if found is None else moment(found[0])


def due(connection: sqlite3.Connection, now: datetime, limit: int) -> Sequence[str]:
    """Waiting runs whose timer has fired, earliest first."""
    sql = f"SELECT run_id FROM runs INDEXED BY runs_due WHERE {DUE} AND next_due <= ? ORDER BY next_due LIMIT ?"  # noqa: S608 - constants
    return tuple(name for (name,) in connection.execute(sql, (milliseconds(now), limit)))


def load(connection: sqlite3.Connection, run_id: str, calls: Literal["step", "all"]) -> RunRecord | None:
    """A run's rows."""
    sql = "SELECT number, thread, step, consumed, info, row FROM runs WHERE run_id = ?"
    found = connection.execute(sql, (run_id,)).fetchone()
    if found is None:
        return None
    number, thread, step, consumed, info, row = found
    rows = _calls(connection, number, None if calls == "all" else step)
    names = connection.execute("SELECT call_id FROM calls WHERE run = ?", (number,))
    return RunRecord(
        info=codec.load(RunInfo, info),
        row=codec.load(RunRow, row),
        calls=rows,
        tickets=_tickets(connection, number, None if calls == "all" else frozenset(call.call_id for call in rows)),
        inbox=_inbox(connection, number, consumed),
        call_ids=frozenset(name for (name,) in names),
        state=_state(connection, number, thread, _STATE_NOW),
    )


def _calls(connection: sqlite3.Connection, number: int, step: int | None) -> tuple[CallRow, ...]:
    sql = "SELECT body FROM calls WHERE run = ?1 AND (?2 IS NULL OR step = ?2) ORDER BY step, idx"
    return tuple(codec.load(CallRow, body) for (body,) in connection.execute(sql, (number, step)))


def _tickets(connection: sqlite3.Connection, number: int, calls: frozenset[str] | None) -> tuple[Ticket, ...]:
    """All tickets, or the open ones and those of the calls."""
    sql = "SELECT call_id, status, body FROM tickets WHERE run = ? ORDER BY rowid"
    return tuple(
        codec.load(Ticket, body)
        for call_id, status, body in connection.execute(sql, (number,))
        if calls is None or status == "open" or call_id in calls
    )


def _inbox(connection: sqlite3.Connection, number: int, consumed: int) -> tuple[InboxItem, ...]:
    sql = "SELECT position, body FROM inbox WHERE run = ? AND position > ? ORDER BY position"
    rows = connection.execute(sql, (number, consumed))
    return tuple(InboxItem(position=position, command=codec.load(Command, body)) for position, body in rows)


def state_at(connection: sqlite3.Connection, run_id: str, step: int) -> tuple[StateWrite, ...]:
    """State keys as they were at the end of a step.

    Raises:
        UnknownRun: no such run.
    """
    found = connection.execute("SELECT number, thread FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    if found is None:
        raise UnknownRun(run_id)
    number, thread = found
    return _state(connection, number, thread, _STATE_AT, step)


def _state(
    connection: sqlite3.Connection, number: int, thread: int, which: str, step: int = 0
) -> tuple[StateWrite, ...]:
    """The newest value of each of the run's and its thread's keys; what others wrote has no revision of this run."""
    rows = connection.execute(which, {"run": number, "thread": thread, "step": step})
    return tuple(
        StateWrite(
            key=key,
            scope="run" if shared is None else "thread",
            value=codec.load(Any, value),
            revision=revision if writer == number else 0,
        )
        for writer, shared, key, revision, value in rows
    )


def events(connection: sqlite3.Connection, run_id: str, after: int, limit: int) -> Sequence[bytes]:
    """Encoded events, in order."""
    sql = (
        "SELECT frame FROM events WHERE run = (SELECT number FROM runs WHERE run_id = ?) AND seq > ?"
        " ORDER BY seq LIMIT ?"
    )
    return tuple(frame for (frame,) in connection.execute(sql, (run_id, after, limit)))


def commands(connection: sqlite3.Connection, run_id: str) -> Sequence[InboxItem]:
    """Every accepted command of a run, in order."""
    found = connection.execute("SELECT number FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    return () if found is None else _inbox(connection, found[0], 0)


def messages(connection: sqlite3.Connection, thread_id: str) -> Sequence[Message]:
    """A thread's history, in order."""
    sql = "SELECT body FROM messages WHERE thread = (SELECT number FROM threads WHERE thread_id = ?) ORDER BY pos"
    return tuple(codec.load(Message, body) for (body,) in connection.execute(sql, (thread_id,)))


def runs(connection: sqlite3.Connection, query: RunQuery, below: int | None) -> RunPage:
    """A page of runs, newest first, those with a number under `below`."""
    where, values, table = ["1"], list[Any](), "runs"
    if below is not None:
        where.append("number < ?")
        values.append(below)
    if query.status is not None:
        where.append(f"ended_at IS {'NOT' if query.status is RunStatus.DONE else ''} NULL AND status = ?")
        values.append(query.status.value)
        table = table if query.status is RunStatus.DONE else OPEN
    if query.agent is not None:
        where.append("agent = ?")
        values.append(query.agent)
    if query.thread_id is not None:
        where.append("thread = (SELECT number FROM threads WHERE thread_id = ?)")
        values.append(query.thread_id)
    if query.prefix:
        where.append("number IN (SELECT number FROM runs WHERE run_id >= ? AND run_id < ?)")  # by the index of the ids
        values += [query.prefix, query.prefix + LAST]
    sql = (
        f"SELECT number, posted - consumed, info, row FROM {table}"  # noqa: S608 - only the constants above
        f" WHERE {' AND '.join(where)} ORDER BY number DESC LIMIT ?"
    )
    found = connection.execute(sql, (*values, query.limit + 1)).fetchall()
    page = found[: query.limit]
    return RunPage(
        runs=tuple(
            RunSummary(info=codec.load(RunInfo, info), row=codec.load(RunRow, row), pending=pending)
            for _, pending, info, row in page
        ),
        cursor=_paging.encode(query, page[-1][0]) if len(found) > len(page) else None,
    )
