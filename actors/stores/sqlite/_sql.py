"""Statements: how the rows of a run are written to the tables and read from them.

No transactions, threads or decisions.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...contract import codec
from ...contract.commits import Commit, NewRun
from ...contract.decisions import Command, CommandResult, InboxItem, Ticket
from ...contract.lifecycle import TERMINAL, WAITING
from ...contract.messages import Message
from ...contract.parts import Part
from ...contract.pending_input import waiting, whole
from ...contract.rows import CallRow, JudgedRow, RunInfo, RunRow
from ...contract.run_lists import code_of
from ...contract.titles import searched
from ..common._encoding import EncodedRows, Row, encode_messages, encode_parts
from ..common._timestamps import milliseconds
from ._work_sql import queue_columns

OPEN: Final = "runs INDEXED BY runs_open"
"""The runs that are not done. Without INDEXED BY the planner reads all runs of the file, for their order."""

_CHUNKS: Final = (128, 64, 32, 16, 8, 4, 2, 1)
"""Events per statement.

Every statement releases the interpreter's lock, and getting it back can take 5 ms while the trio thread computes: fewer
statements keep a commit's latency low under load.
"""

_INSERT_EVENTS: Final = {
    size: "INSERT INTO events(run, seq, frame) VALUES " + ", ".join(["(?, ?, ?)"] * size)  # noqa: S608 - constants
    for size in _CHUNKS
}
_INSERT_RECORD: Final = {
    size: "INSERT INTO record(run, last, body) VALUES " + ", ".join(["(?, ?, ?)"] * size)  # noqa: S608 - constants
    for size in _CHUNKS
}

_MOVE_RUN: Final = (
    "UPDATE runs SET row = ?, stage = ?, status = ?, step = ?, last_seq = ?, consumed = max(consumed, ?), next_due = ?,"
    " leaving = ?, waiting_since = CASE WHEN ? THEN coalesce(waiting_since, ?) END"
    " WHERE number = ? AND token = ? AND last_seq = ? AND ended_at IS NULL"
)
_END_RUN: Final = (
    "UPDATE runs SET row = ?, stage = ?, status = ?, step = ?, last_seq = ?, consumed = max(consumed, ?), next_due = ?,"
    " leaving = ?, waiting_since = NULL, ended_at = ?, code = ?"
    " WHERE number = ? AND token = ? AND last_seq = ? AND ended_at IS NULL AND posted <= max(consumed, ?)"
)
_INSERT_RUN: Final = (
    "INSERT INTO runs(run_id, thread, agent, status, stage, step, last_seq, token, dispatch, created_at, next_due,"
    " info, row, title, search, started_by, queue, ready_at, rank, dedupe, unclaimed)"
    " VALUES (?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_SINCE: Final = (
    "UPDATE runs SET waiting_since = min(waiting_since, coalesce((SELECT requested_at FROM tickets"
    " INDEXED BY tickets_open WHERE run = ?1 AND status = 'open' ORDER BY rowid LIMIT 1), waiting_since))"
    " WHERE number = ?1"
)
"""A run waits since its oldest open ticket is open, also if it worked between that one and the newest.

The rows of tickets are in the order in which the tickets were opened, so the first one is the oldest.
"""
_PUT_CALL: Final = (
    "INSERT INTO calls(run, call_id, step, idx, status, tool, body) VALUES (?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT(run, call_id) DO UPDATE SET step = excluded.step, idx = excluded.idx, status = excluded.status,"
    " body = excluded.body"
)
_PUT_TICKET: Final = (
    "INSERT INTO tickets(run, ticket_id, call_id, status, requested_at, brief, body) VALUES (?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT(run, ticket_id) DO UPDATE SET call_id = excluded.call_id, status = excluded.status,"
    " requested_at = excluded.requested_at, brief = excluded.brief, body = excluded.body"
)
_ADD_MESSAGE: Final = (
    "INSERT INTO messages(thread, pos, id, run, step, body)"
    " VALUES (?1, (SELECT coalesce(max(pos), 0) + 1 FROM messages WHERE thread = ?1), ?2, ?3, ?4, ?5)"
)
_PUT_STATE: Final = "INSERT OR REPLACE INTO state(run, thread, key, step, revision, value) VALUES (?, ?, ?, ?, ?, ?)"
_COPY_MESSAGES: Final = (
    "INSERT INTO messages(thread, pos, id, run, step, body)"
    " SELECT ?, pos, id, run, step, body FROM messages WHERE pos <= ?"
    " AND thread = (SELECT number FROM threads WHERE thread_id = ?) ORDER BY pos"
)


_ADD_PART: Final = "INSERT OR IGNORE INTO parts(thread, sha256, body) VALUES (?, ?, ?)"
_COPY_PART: Final = (
    "INSERT OR IGNORE INTO parts(thread, sha256, body) SELECT ?, sha256, body FROM parts"
    " WHERE thread = (SELECT number FROM threads WHERE thread_id = ?) AND sha256 = ?"
)


# --- writing ---------------------------------------------------------------------------------------------------------


def move_run(connection: sqlite3.Connection, number: int, token: int, commit: Commit, blob: bytes) -> bool:
    """Write the run row.

    Returns False if the claim is old, the commit does not follow, or it ends with unread commands.
    """
    row = commit.row
    consumed = max(row.inbox, commit.consumed)
    due = None if row.next_due is None else milliseconds(row.next_due)
    leaving = int(row.restless)
    head: Row = (blob, row.stage.value, row.status.value, row.step, commit.last, consumed, due, leaving)
    fence: Row = (number, token, commit.expected_last)
    if row.stage in TERMINAL:
        cursor = connection.execute(_END_RUN, (*head, milliseconds(commit.at), code_of(row), *fence, consumed))
    else:
        waits = row.status is WAITING
        cursor = connection.execute(_MOVE_RUN, (*head, waits, milliseconds(commit.at) if waits else None, *fence))
    return cursor.rowcount == 1


def insert_run(
    connection: sqlite3.Connection,
    new: NewRun,
    blobs: EncodedRows,
    *,
    thread: int,
    token: int,
    held: bool,
    claimed: bool,
) -> int:
    """Write a new run and return its number."""
    info, row = new.info, new.row
    due = None if row.next_due is None else milliseconds(row.next_due)
    values: Row = (info.run_id, thread, info.agent, row.status.value, row.stage.value, row.step)
    values += (token, "held" if held else "ready", milliseconds(info.created_at), due, blobs.info, blobs.row)
    values += (info.title, searched(info.title, info.run_id), info.by, *queue_columns(new), int(not claimed))
    return connection.execute(_INSERT_RUN, values).lastrowid or 0


def add_events(connection: sqlite3.Connection, values: Sequence[object]) -> None:
    """Append events: run, sequence and frame of each, in one flat sequence."""
    _add(connection, _INSERT_EVENTS, values)


def add_record(connection: sqlite3.Connection, values: Sequence[object]) -> None:
    """Append to records: run, sequence of the newest event and body of each, flat as for events."""
    _add(connection, _INSERT_RECORD, values)


def _add(connection: sqlite3.Connection, statements: Mapping[int, str], values: Sequence[Any]) -> None:
    start, remaining_rows = 0, len(values) // 3
    for size in _CHUNKS:
        while remaining_rows >= size:
            connection.execute(statements[size], values[start : start + 3 * size])
            start, remaining_rows = start + 3 * size, remaining_rows - size


def add_rows(connection: sqlite3.Connection, number: int, thread: int, step: int, blobs: EncodedRows) -> None:
    """Write calls, tickets, messages and, at a step, state keys."""
    for call in blobs.calls:
        connection.execute(_PUT_CALL, (number, *call))
    for ticket in blobs.tickets:
        connection.execute(_PUT_TICKET, (number, *ticket))
    for name, produced, body in blobs.messages:
        connection.execute(_ADD_MESSAGE, (thread, name, number, produced, body))
    for shared, key, revision, value in blobs.state:
        connection.execute(_PUT_STATE, (number, thread if shared else None, key, step, revision, value))
    for digest, data in blobs.parts:
        if data is not None:
            connection.execute(_ADD_PART, (thread, digest, data))


def wait_since(connection: sqlite3.Connection, number: int) -> None:
    """Update since when a waiting run waits, after its tickets were written."""
    connection.execute(_SINCE, (number,))


def find_thread(connection: sqlite3.Connection, thread_id: str) -> tuple[int, int] | None:
    """Return the thread's number, and how many runs were ever created in it; None if the thread does not exist."""
    sql = "SELECT number, runs FROM threads WHERE thread_id = ?"
    columns: tuple[int, int] | None = connection.execute(sql, (thread_id,)).fetchone()
    return columns


def join_thread(connection: sqlite3.Connection, thread: int | None, info: RunInfo) -> int:
    """Count one more run of the thread and return its number.

    A new thread (None) is created, owned by the run's principal.
    """
    if thread is not None:
        connection.execute("UPDATE threads SET runs = runs + 1, vacant = 0 WHERE number = ?", (thread,))
        return thread
    sql = "INSERT INTO threads(thread_id, owner, created_at, runs) VALUES (?, ?, ?, 1)"
    values = (info.thread_id, info.by, milliseconds(info.created_at))
    return connection.execute(sql, values).lastrowid or 0


def active_run(connection: sqlite3.Connection, thread: int) -> str | None:
    """Return the run that works on the thread, or None."""
    sql = f"SELECT run_id FROM {OPEN} WHERE thread = ? AND ended_at IS NULL AND dispatch = 'ready' LIMIT 1"  # noqa: S608 - a constant
    columns = connection.execute(sql, (thread,)).fetchone()
    return None if columns is None else str(columns[0])


def release(connection: sqlite3.Connection, number: int, thread: int, late_input: Sequence[Message]) -> str | None:
    """Let the oldest held run of the thread work, if the ended run was the active one; returns its id.

    `left`: input of the ended run, if it was never admitted. It is appended now, and so is the input of runs that ended
    while held, up to the run that may work now. The input of a held run stays in its row until its turn.
    """
    later = "SELECT 1 FROM runs AS later WHERE later.thread = ?1 AND later.number > ?2"
    sql = f"SELECT dispatch, EXISTS({later}) FROM runs WHERE number = ?2"  # noqa: S608 - a constant
    dispatch, followed = connection.execute(sql, (thread, number)).fetchone()
    if dispatch == "held":
        return None
    if not followed:  # most threads have one run; each statement competes for the interpreter's lock
        _append(connection, thread, number, late_input)
        return None
    held = "thread = ? AND ended_at IS NULL AND dispatch = 'held' ORDER BY number LIMIT 1"
    sql = f"SELECT number, run_id FROM {OPEN} WHERE {held}"  # noqa: S608 - constants
    columns = connection.execute(sql, (thread,)).fetchone()
    _append(connection, thread, number, late_input)
    _append_late(connection, thread, number, 1 << 62 if columns is None else int(columns[0]))
    if columns is None:
        return None
    connection.execute("UPDATE runs SET dispatch = 'ready' WHERE number = ?", (columns[0],))
    return str(columns[1])


def _append_late(connection: sqlite3.Connection, thread: int, after: int, before: int) -> None:
    """Append the input of runs between these numbers that ended while the thread held them."""
    sql = (
        "SELECT number, run_id, row FROM runs WHERE thread = ? AND number > ? AND number < ?"
        " AND dispatch = 'held' AND ended_at IS NOT NULL ORDER BY number"
    )
    for number, run_id, blob in connection.execute(sql, (thread, after, before)).fetchall():
        _append(connection, thread, number, load_row(connection, number, run_id, blob).pending_input)
        connection.execute("UPDATE runs SET dispatch = 'ready' WHERE number = ?", (number,))


def _append(connection: sqlite3.Connection, thread: int, number: int, messages: Sequence[Message]) -> None:
    for name, produced, body in encode_messages(messages):
        statement = "SELECT 1 FROM messages WHERE thread = ? AND id = ?"
        if connection.execute(statement, (thread, name)).fetchone() is None:
            connection.execute(_ADD_MESSAGE, (thread, name, number, produced, body))


def copy_messages(connection: sqlite3.Connection, thread: int, parent: tuple[str, int]) -> frozenset[str]:
    """Begin a new thread as a copy of another thread's first messages; returns all message ids of the thread."""
    sql = "SELECT id FROM messages WHERE thread = ?"
    if connection.execute(f"{sql} LIMIT 1", (thread,)).fetchone() is not None:
        return frozenset()
    connection.execute(_COPY_MESSAGES, (thread, parent[1], parent[0]))
    return frozenset(name for (name,) in connection.execute(sql, (thread,)))


def copy_parts(connection: sqlite3.Connection, thread: int, parent: str, blobs: EncodedRows) -> None:
    """Copy the bytes that a fork's history needs from the thread of its parent."""
    for digest, data in blobs.parts:
        if data is None:
            connection.execute(_COPY_PART, (thread, parent, digest))


def add_parts(connection: sqlite3.Connection, number: int, parts: Sequence[Part]) -> None:
    """Keep the bytes that come with a command, in the thread of its run."""
    (thread,) = connection.execute("SELECT thread FROM runs WHERE number = ?", (number,)).fetchone()
    for digest, data in encode_parts(parts):
        if data is not None:
            connection.execute(_ADD_PART, (thread, digest, data))


def add_command(
    connection: sqlite3.Connection, number: int, item: InboxItem, result: CommandResult, key: str | None
) -> None:
    """Journal an accepted command."""
    command = item.command
    connection.execute(
        "INSERT INTO inbox(run, position, command_id, kind, target_key, body, answer) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (number, item.position, command.command_id, command.kind, key, codec.dump(command), codec.dump(result)),
    )
    connection.execute("UPDATE runs SET posted = ? WHERE number = ?", (item.position, number))


# --- looking up one thing --------------------------------------------------------------------------------------------


def find_ticket(connection: sqlite3.Connection, number: int, target: str) -> Ticket | None:
    """Return the ticket with that id, else the newest of the call with that id."""
    for column in ("ticket_id", "call_id"):
        sql = f"SELECT body FROM tickets WHERE run = ? AND {column} = ? ORDER BY rowid DESC LIMIT 1"  # noqa: S608
        columns = connection.execute(sql, (number, target)).fetchone()
        if columns is not None:
            return codec.load(Ticket, columns[0])
    return None


def find_call(connection: sqlite3.Connection, number: int, call_id: str) -> CallRow | None:
    """Return the call with that id, or None."""
    sql = "SELECT body FROM calls WHERE run = ? AND call_id = ?"
    columns = connection.execute(sql, (number, call_id)).fetchone()
    return None if columns is None else codec.load(CallRow, columns[0])


def find_command(connection: sqlite3.Connection, number: int, command_id: str) -> tuple[Command, CommandResult] | None:
    """Return the accepted command with that id, and its result; or None."""
    sql = "SELECT body, answer FROM inbox WHERE run = ? AND command_id = ?"
    columns = connection.execute(sql, (number, command_id)).fetchone()
    return None if columns is None else (codec.load(Command, columns[0]), codec.load(CommandResult, columns[1]))


def find_target(connection: sqlite3.Connection, number: int, key: str) -> tuple[int, Command] | None:
    """Return the accepted decision that occupies a target, with its position; or None."""
    sql = "SELECT position, body FROM inbox WHERE run = ? AND target_key = ?"
    columns = connection.execute(sql, (number, key)).fetchone()
    return None if columns is None else (int(columns[0]), codec.load(Command, columns[1]))


def load_row(connection: sqlite3.Connection, number: int, run_id: str, blob: bytes) -> RunRow:
    """Return a run's row from its bytes, with the texts of pending input, which are in the inbox."""
    row = codec.load(RunRow, blob)
    commands: dict[str, Command] = {}
    for sent_text in row.sent:
        name = sent_text.command_id
        command = find_command(connection, number, name)
        commands[name] = Command(command_id=name, kind="send") if command is None else command[0]
    return whole(run_id, row, commands)


def waiting_input(connection: sqlite3.Connection, number: int, consumed: int) -> tuple[int, int]:
    """Return how many sent texts wait for a step of the run, and their bytes."""
    sql = "SELECT body FROM inbox WHERE run = ? AND position > ? AND kind = 'send'"
    unread = (codec.load(Command, body) for (body,) in connection.execute(sql, (number, consumed)))
    return waiting(judged_row(connection, number), unread)


def judged_row(connection: sqlite3.Connection, number: int) -> JudgedRow:
    """Return what a command is judged on of the run's row; costs little, however large the row is."""
    columns = connection.execute("SELECT row FROM runs WHERE number = ?", (number,)).fetchone()
    return codec.glance(JudgedRow, columns[0])
