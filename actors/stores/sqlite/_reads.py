"""Queries: each is one short read transaction, a snapshot that is released before the caller gets the result."""

from __future__ import annotations

import math
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from typing import Concatenate, Final, Literal, ParamSpec, TypeVar

from ...contract import codec
from ...contract.codec import SchemaError
from ...contract.decisions import InboxItem, Ticket
from ...contract.messages import Message
from ...contract.pending_input import with_calls
from ...contract.recording import RecordDelta
from ...contract.rows import CallRow, RunInfo, RunOutline, RunRecord, ThreadInfo
from ...contract.state import StateWrite
from ...errors import StoreDown, StoreError, StoreOpenError, UnknownRun
from ...stored_values import StoredValue
from ..common import _paging
from ..common._outages import Damaged, UnreadableData, is_outage, is_suspect, no_answer, passes
from ..common._record_codec import load_taken
from ..common._row_values import check_stage, items_of, outline_of, thread_of, writes_of
from ..common._timestamps import moment
from ..common.faults import READ, Faults
from ._schema import BASE, DUE, OVERDUE, TO_DO
from ._sql import OPEN, active_run, find_ticket, load_row

T = TypeVar("T")
P = ParamSpec("P")

# The newest row of a key has the largest rowid; the values of older rows are not read.
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
"""Connections kept open for the next reader: as many as read concurrently."""

BELIEVED: Final = 30.0
"""Seconds for which a checked file counts as sound, so that readers that fail together do not all check it."""


class ReadConnections:
    """Read-only connections. Usable from any thread; a connection serves one reader at a time."""

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        *,
        faults: Faults | None = None,
        examine: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`connect` opens a connection; `examine` checks the whole file: the damage, or None if it is sound."""
        self._connect, self._faults, self._examine = connect, faults, examine
        self._examining = threading.Lock()
        self._sound_until = -math.inf
        self._idle: deque[sqlite3.Connection] = deque()
        self._closed = False

    def read(self, query: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a query in one read transaction.

        Raises:
            StoreUnavailable: the file does not answer.
            StoreError: the file is damaged.
            StoreDown: the store is closed.
        """
        try:
            with self._snapshot() as connection:
                if self._faults is not None:
                    self._faults(READ)
                return query(connection, *args, **kwargs)
        except StoreOpenError as error:  # raised by opening a new connection
            if passes(error):
                raise no_answer(error) from error
            raise
        except (sqlite3.Error, OSError, MemoryError) as error:
            if is_suspect(error):
                raise self._looked_at(error) from error
            if is_outage(error):
                raise no_answer(error) from error
            raise StoreError(f"the store cannot be read: {error}") from error
        except SchemaError as error:
            raise StoreError(f"a row of the store cannot be read: {error}") from error

    def _looked_at(self, error: Exception) -> StoreError:
        """Return the error for a report of damage: one reader checks the file, the others wait for its finding."""
        with self._examining:
            try:
                finding = None if time.monotonic() < self._sound_until else self._examine()
            except UnreadableData as unread:
                return unread
            if finding is not None:
                return Damaged(f"the store cannot be read: the file is damaged ({finding}); restore it from a backup")
            self._sound_until = max(self._sound_until, time.monotonic() + BELIEVED)
        return UnreadableData(f"the store was misread ({error}), and its file is sound; try again")

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
        except (sqlite3.Error, OSError, MemoryError):
            connection.close()  # its cache may hold the misread page
            raise
        except BaseException:  # a statement that is not finished would hold on to this snapshot
            connection.close()
            raise
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
        """Close idle connections; a connection in use is closed after its read."""
        self._closed = True
        self._close_idle(0)


def epoch(connection: sqlite3.Connection) -> str:
    """Return the epoch.

    Raises:
        StoreError: the file has none.
    """
    row = connection.execute("SELECT value FROM about WHERE name = 'epoch'").fetchone()
    if row is None:
        raise StoreError("its log has no name; restore it from a backup")
    return str(row[0])


def open_runs(connection: sqlite3.Connection) -> Sequence[tuple[str, bool]]:
    """Return all runs that are not done, oldest first, each with whether it is held."""
    sql = f"SELECT run_id, dispatch = 'held' FROM {OPEN} WHERE ended_at IS NULL ORDER BY number"  # noqa: S608 - a constant
    return tuple((name, bool(held)) for name, held in connection.execute(sql))


def next_due(connection: sqlite3.Connection) -> datetime | None:
    """Return when the earliest timer of a run that waits or is in a queue fires."""
    waiting = f"SELECT min(next_due) FROM runs INDEXED BY runs_due WHERE {DUE}"  # noqa: S608 - constants
    queued = f"SELECT min(next_due) FROM runs INDEXED BY runs_overdue WHERE {OVERDUE}"  # noqa: S608 - constants
    moments = [at for (at,) in (*connection.execute(waiting), *connection.execute(queued)) if at is not None]
    return moment(min(moments)) if moments else None


def load(connection: sqlite3.Connection, run_id: str, calls: Literal["step", "all"]) -> RunRecord | None:
    """Return a run's rows."""
    sql = "SELECT number, thread, step, consumed, stage, info, row FROM runs WHERE run_id = ?"
    columns = connection.execute(sql, (run_id,)).fetchone()
    if columns is None:
        return None
    number, thread, step, consumed, stage, info, blob = columns
    row = load_row(connection, number, run_id, blob)
    check_stage(row, run_id, stage)
    rows = _calls(connection, number, None if calls == "all" else step)
    names = connection.execute("SELECT call_id FROM calls WHERE run = ?", (number,))
    return RunRecord(
        info=codec.load(RunInfo, info),
        row=with_calls(row, rows),
        calls=rows,
        tickets=_tickets(connection, number, None if calls == "all" else frozenset(call.call_id for call in rows)),
        inbox=_inbox(connection, number, consumed),
        call_ids=frozenset(name for (name,) in names),
        state=_state(connection, number, thread, _STATE_NOW),
    )


def outline(connection: sqlite3.Connection, run_id: str) -> RunOutline | None:
    """Return a run's own row, also if a part of it is unreadable."""
    name = "(SELECT thread_id FROM threads WHERE number = thread)"
    held = "dispatch = 'held' AND ended_at IS NULL"
    waits = f"{TO_DO} AND (unclaimed OR token <= ({BASE})), queue, ready_at, queues.paused, queues.max_running"
    columns = f"thread, agent, stage, step, last_seq, posted, consumed, {held}, created_at, info, row, {name}, {waits}"
    sql = f"SELECT {columns} FROM runs LEFT JOIN queues ON queues.name = runs.queue WHERE run_id = ?"  # noqa: S608 - constants
    values = connection.execute(sql, (run_id,)).fetchone()
    if values is None:
        return None
    thread, *run_columns = values
    behind = active_run(connection, thread) if run_columns[6] else None
    return outline_of(run_id, (*run_columns[:11], behind, *run_columns[11:]))


def ticket(connection: sqlite3.Connection, run_id: str, target: str) -> Ticket | None:
    """Return the ticket with that id, else the newest of the call with that id."""
    row = connection.execute("SELECT number FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    return None if row is None else find_ticket(connection, row[0], target)


def thread(connection: sqlite3.Connection, thread_id: str) -> ThreadInfo | None:
    """Return the facts of a thread."""
    sql = "SELECT number, owner, created_at, runs FROM threads WHERE thread_id = ?"
    columns = connection.execute(sql, (thread_id,)).fetchone()
    if columns is None:
        return None
    number, owner, created, runs = columns
    pruned_facts = connection.execute("SELECT info FROM members WHERE thread = ? ORDER BY facts", (number,)).fetchall()
    rows_of_runs = connection.execute("SELECT info FROM runs WHERE thread = ? ORDER BY number", (number,)).fetchall()
    return thread_of(thread_id, owner, created, runs, (info for (info,) in (*pruned_facts, *rows_of_runs)))


def _calls(connection: sqlite3.Connection, number: int, step: int | None) -> tuple[CallRow, ...]:
    sql = "SELECT body FROM calls WHERE run = ?1 AND (?2 IS NULL OR step = ?2) ORDER BY step, idx"
    return tuple(codec.load(CallRow, body) for (body,) in connection.execute(sql, (number, step)).fetchall())


def _tickets(connection: sqlite3.Connection, number: int, calls: frozenset[str] | None) -> tuple[Ticket, ...]:
    """Return all tickets, or the open ones and those of the calls, in the order of their creation."""
    if calls is None:
        numbered = connection.execute(
            "SELECT rowid, body FROM tickets WHERE run = ? ORDER BY rowid", (number,)
        ).fetchall()
    else:
        sql = "SELECT rowid, body FROM tickets INDEXED BY tickets_open WHERE run = ? AND status = 'open'"
        rows = dict(connection.execute(sql, (number,)))
        for call_id in calls:
            sql = "SELECT rowid, body FROM tickets INDEXED BY tickets_call WHERE run = ? AND call_id = ?"
            rows.update(connection.execute(sql, (number, call_id)))
        numbered = sorted(rows.items())
    return tuple(codec.load(Ticket, body) for _, body in numbered)


def _inbox(connection: sqlite3.Connection, number: int, consumed: int) -> tuple[InboxItem, ...]:
    sql = "SELECT position, body FROM inbox WHERE run = ? AND position > ? ORDER BY position"
    return items_of(connection.execute(sql, (number, consumed)).fetchall())


def state_at(connection: sqlite3.Connection, run_id: str, step: int) -> tuple[StateWrite, ...]:
    """Return the state keys as of the end of a step.

    Raises:
        UnknownRun: no run has this id.
    """
    columns = connection.execute("SELECT number, thread FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    if columns is None:
        raise UnknownRun(run_id)
    number, thread = columns
    return _state(connection, number, thread, _STATE_AT, step)


def _state(
    connection: sqlite3.Connection, number: int, thread: int, which: str, step: int = 0
) -> tuple[StateWrite, ...]:
    """Return the newest value of each of the run's and its thread's keys; values of other runs have revision 0."""
    return writes_of(connection.execute(which, {"run": number, "thread": thread, "step": step}).fetchall(), number)


def events(
    connection: sqlite3.Connection, run_id: str, after: int, limit: int, max_bytes: int | None
) -> Sequence[bytes]:
    """Return a page of encoded events, in order."""
    sql = (
        "SELECT frame FROM events WHERE run = (SELECT number FROM runs WHERE run_id = ?) AND seq > ?"
        " ORDER BY seq LIMIT ?"
    )
    # read row by row, only to the end of the page
    with closing(connection.execute(sql, (run_id, after, limit))) as rows:
        return _paging.page((_frame(run_id, frame) for (frame,) in rows), max_bytes)


def _frame(run_id: str, frame: object) -> bytes:
    if type(frame) is not bytes:  # SQLite keeps any type in any column
        raise SchemaError(f"an event of run {run_id} is {type(frame).__name__}, not bytes")
    return frame


def commands(connection: sqlite3.Connection, run_id: str) -> Sequence[InboxItem]:
    """Return every accepted command of a run, in order."""
    columns = connection.execute("SELECT number FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    return () if columns is None else _inbox(connection, columns[0], 0)


def record(connection: sqlite3.Connection, run_id: str, after: int, limit: int) -> Sequence[RecordDelta]:
    """Return a page of a run's record. Commands are stored in the inbox only, and filled in from there."""
    sql = (
        "SELECT last, body FROM record WHERE run = (SELECT number FROM runs WHERE run_id = ?)"
        " ORDER BY rowid LIMIT ? OFFSET ?"
    )
    columns = connection.execute(sql, (run_id, limit, after)).fetchall()
    items = {item.position: item for item in commands(connection, run_id)} if columns else {}
    return tuple(RecordDelta(last, load_taken(body, items)) for last, body in columns)


def parts(connection: sqlite3.Connection, thread_id: str, digests: Sequence[str]) -> Mapping[str, bytes]:
    """Return the bytes of a thread's images and files, by digest."""
    sql = "SELECT body FROM parts WHERE thread = (SELECT number FROM threads WHERE thread_id = ?) AND sha256 = ?"
    rows = ((name, connection.execute(sql, (thread_id, name)).fetchone()) for name in digests)
    return {name: columns[0] for name, columns in rows if columns is not None}


def messages(connection: sqlite3.Connection, thread_id: str) -> Sequence[Message]:
    """Return a thread's history, in order."""
    sql = "SELECT body FROM messages WHERE thread = (SELECT number FROM threads WHERE thread_id = ?) ORDER BY pos"
    return tuple(codec.load(Message, body) for (body,) in connection.execute(sql, (thread_id,)).fetchall())


_VALUES: Final = (
    "SELECT name, value, revision FROM stored_values INDEXED BY stored_values_name"
    " WHERE space = ? AND name > ? ORDER BY name LIMIT ?"
)


def values(connection: sqlite3.Connection, space: str, after: str, limit: int) -> Sequence[StoredValue]:
    """Return a page of the values of a space."""
    # read row by row, only to the end of the page
    with closing(connection.execute(_VALUES, (space, after, limit))) as rows:
        return _paging.values_page((_value(*columns) for columns in rows), limit)


def _value(name: str, value: object, revision: int) -> StoredValue:
    if type(value) is not bytes:  # SQLite keeps any type in any column
        raise SchemaError(f"the stored value {name} is {type(value).__name__}, not bytes")
    return StoredValue(name=name, value=value, revision=revision)
