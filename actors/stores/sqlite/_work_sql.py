"""Statements about work: which runs of a SQLite file need an owner, and the queues in which new ones wait.

The one process that has the file open owns the runs whose token is above the base of this opening. A run that was
created without a claim is marked (`unclaimed`), and indexed by queue and rank, until its first claim. A commit writes
none of these columns, so it costs nothing more.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Final

import attrs

from ...contract import codec
from ...contract.claims import Claim
from ...contract.commits import NewRun
from ...contract.rows import RunInfo
from ...processes import Ability, QueueInfo, ReadyRun
from ..common._ranks import rank
from ..common._requests import QueueRequest
from ..common._timestamps import milliseconds, moment
from ._schema import BASE, DUE, OVERDUE, TO_DO

_COLUMNS: Final = "number, run_id, agent, dispatch = 'held', token, queue, rank, info"
_CLAIM: Final = (
    "UPDATE runs SET token = max(token, ?) + 1, unclaimed = 0 WHERE run_id = ? AND ended_at IS NULL"
    " RETURNING token, number, thread"
)
_READY: Final = "(ready_at <= ? OR ready_at <= created_at)"
"""A run that was not delayed is ready, also while the clock shows less than when the run was created."""
_DUE_RUNS: Final = (
    f"SELECT {_COLUMNS}, next_due AS at FROM runs INDEXED BY runs_due WHERE {DUE} AND next_due <= :now UNION ALL"  # noqa: S608 - constants
    f" SELECT {_COLUMNS}, next_due FROM runs INDEXED BY runs_overdue WHERE {OVERDUE} AND next_due <= :now ORDER BY at"
)
_WORKING: Final = f"{TO_DO} AND token > ? AND dispatch = 'ready'"


@attrs.frozen(order=True)
class ReadyRow:
    """A run that can be claimed; in the order of the claims."""

    rank: int
    number: int
    run_id: str = attrs.field(order=False)
    held: bool = attrs.field(order=False)
    token: int = attrs.field(order=False)
    queue: str = attrs.field(order=False)


def queue_columns(new: NewRun) -> tuple[str, int, int, str | None]:
    """Return the columns of a new run: queue, ready_at, rank, dedupe."""
    ready_at = new.ready_at or new.info.created_at
    at = milliseconds(ready_at)
    place = milliseconds(rank(ready_at, new.priority)) if new.priority else at
    return new.queue or new.info.agent, at, place, new.dedupe


def claim(connection: sqlite3.Connection, run_id: str, base: int) -> tuple[int, int, int] | None:
    """Give a run a new token; returns token, number and thread. None if no run has this id or it is done."""
    rows: list[tuple[int, int, int]] = connection.execute(_CLAIM, (base, run_id)).fetchall()
    return rows[0] if rows else None


def ready(
    connection: sqlite3.Connection, room: int, ability: Ability, now: datetime, base: int, *, older: bool, served: str
) -> tuple[Sequence[ReadyRow], bool]:
    """Return the runs to claim, and whether runs of earlier openings may be left.

    Args:
        connection: The connection of the writer.
        room: The largest number of runs.
        ability: The runs that this process can work on.
        now: the time.
        base: The base of the tokens of this opening.
        older: also look for runs that earlier openings have claimed.
        served: the queue of the run that was claimed last.
    """
    runs_of_queue = dict[str, list[ReadyRow]]()
    sql = f"SELECT {_COLUMNS} FROM runs INDEXED BY runs_ready WHERE unclaimed AND queue = ? AND {_READY}"  # noqa: S608 - constants
    for name in _names(connection):
        rows = connection.execute(f"{sql} ORDER BY rank, number", (name, milliseconds(now)))
        runs_of_queue[name] = list(islice(_able(rows, ability), room))
        rows.close()
    older_left = False
    if older:
        sql = f"SELECT {_COLUMNS}, {_READY} FROM runs INDEXED BY runs_to_do WHERE {TO_DO}"  # noqa: S608 - constants
        earlier = connection.execute(f"{sql} AND token <= ? AND NOT unclaimed", (milliseconds(now), base)).fetchall()
        older_left = bool(earlier)
        for row in _able(earlier, ability):
            runs_of_queue.setdefault(row.queue, []).append(row)
    for name, runs in runs_of_queue.items():
        runs.sort()
        del runs[_places(connection, name, room, base) :]
    return _in_turn(runs_of_queue, room, served), older_left


def _in_turn(queues: Mapping[str, Sequence[ReadyRow]], room: int, served: str) -> Sequence[ReadyRow]:
    """Return the first runs of each queue, then the second ones, and so on, beginning after the queue served last."""
    turns = [(index, row.queue <= served, row.queue, row) for runs in queues.values() for index, row in enumerate(runs)]
    return [row for *_, row in sorted(turns, key=lambda turn: turn[:3])[:room]]


def _names(connection: sqlite3.Connection) -> Iterator[str]:
    """Yield the queues with unclaimed runs, one lookup each."""
    sql = "SELECT min(queue) FROM runs INDEXED BY runs_ready WHERE unclaimed AND queue > ?"
    (name,) = connection.execute("SELECT min(queue) FROM runs INDEXED BY runs_ready WHERE unclaimed").fetchone()
    while name is not None:
        yield name
        (name,) = connection.execute(sql, (name,)).fetchone()


def _able(rows: Iterable[Sequence[Any]], ability: Ability) -> Iterator[ReadyRow]:
    for number, run_id, agent, held, token, queue, place, info, *due in rows:
        if due == [0] or (ability.agents is not None and agent not in ability.agents):
            continue
        if ability.deps and ability.places is None:  # its `RunInfo` need not be read
            yield ReadyRow(place, number, run_id, bool(held), token, queue)
            continue
        facts = codec.load(RunInfo, info)
        if ability.fits(agent, facts.place, has_deps=facts.has_deps):
            yield ReadyRow(place, number, run_id, bool(held), token, queue)


def _places(connection: sqlite3.Connection, queue: str, room: int, base: int) -> int:
    """Return how many more runs of a queue may work, at most `room`."""
    columns = connection.execute("SELECT max_running, paused FROM queues WHERE name = ?", (queue,)).fetchone()
    most, paused = columns or (None, False)
    if most is None or paused:
        return 0 if paused else room
    sql = f"SELECT count(*) FROM runs INDEXED BY runs_to_do WHERE {_WORKING} AND queue = ?"  # noqa: S608 - constants
    (working,) = connection.execute(sql, (base, queue)).fetchone()
    return max(0, min(room, int(most) - int(working)))


def due(connection: sqlite3.Connection, now: datetime, ability: Ability, limit: int) -> Sequence[ReadyRow]:
    """Return the runs that wait or are in a queue and whose timer fired, earliest first."""
    rows = connection.execute(_DUE_RUNS, {"now": milliseconds(now)})
    rows_due = list(islice(_able(rows, ability), limit))
    rows.close()
    return rows_due


def ready_run(row: ReadyRow, token: int) -> ReadyRun:
    """Return a claimed run."""
    return ReadyRun(claim=Claim(run_id=row.run_id, token=token), held=row.held)


def deduplicated(connection: sqlite3.Connection, dedupe: str) -> tuple[Any, ...] | None:
    """Return whether the open run with this key is held, and its info; None if no open run has it."""
    sql = (
        "SELECT dispatch = 'held', info FROM runs INDEXED BY runs_dedupe"
        " WHERE dedupe = ? AND dedupe IS NOT NULL AND ended_at IS NULL"
    )
    columns: tuple[Any, ...] | None = connection.execute(sql, (dedupe,)).fetchone()
    return columns


def add_queue(connection: sqlite3.Connection, name: str) -> None:
    """Write a queue, unless it exists."""
    connection.execute("INSERT OR IGNORE INTO queues(name) VALUES (?)", (name,))


def limit_queue(connection: sqlite3.Connection, request: QueueRequest) -> None:
    """Write the limits of a queue."""
    connection.execute(
        "INSERT OR REPLACE INTO queues(name, max_running, paused) VALUES (?, ?, ?)",
        (request.name, request.max_running, int(request.paused)),
    )


def queues(connection: sqlite3.Connection, now: datetime) -> Sequence[QueueInfo]:
    """Return the queues, by name."""
    (base,) = connection.execute(BASE).fetchone()
    sql = f"SELECT queue, count(*), min(ready_at) FROM runs INDEXED BY runs_to_do WHERE {TO_DO}"  # noqa: S608 - constants
    rows = connection.execute(f"{sql} AND token <= ? AND {_READY} GROUP BY queue", (base, milliseconds(now)))
    waiting = {name: (count, oldest) for name, count, oldest in rows}
    sql = f"SELECT queue, count(*) FROM runs INDEXED BY runs_to_do WHERE {_WORKING} GROUP BY queue"  # noqa: S608 - constants
    working = dict(connection.execute(sql, (base,)))
    sql = f"SELECT queue, count(*), min(ready_at) FROM runs INDEXED BY runs_ready WHERE unclaimed AND NOT {_READY}"  # noqa: S608 - constants
    rows = connection.execute(f"{sql} GROUP BY queue", (milliseconds(now),))
    later = {name: (count, next_) for name, count, next_ in rows}
    rows = connection.execute("SELECT name, max_running, paused FROM queues ORDER BY name")
    return [
        QueueInfo(
            name=name,
            max_running=most,
            paused=bool(paused),
            ready=waiting[name][0] if name in waiting else 0,
            working=working.get(name, 0),
            oldest=moment(waiting[name][1]) if name in waiting else None,
            scheduled=later[name][0] if name in later else 0,
            later=moment(later[name][1]) if name in later else None,
        )
        for name, most, paused in rows
    ]
