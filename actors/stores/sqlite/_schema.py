"""The tables of the SQLite file, and the migrations from files of older releases.

`PRAGMA application_id` marks the file as ours, `PRAGMA user_version` is the number of applied migrations. Each
migration is one transaction. Rowid tables with unique indexes, because WITHOUT ROWID doubles the file at pages of 4
KiB. Times are milliseconds since 1970, UTC; bodies are rows of `contract.codec`; `run` is `runs.number`, `thread` is
`threads.number`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

import attrs

from ._derived import define_functions

APPLICATION_ID: Final = 0x47724E72
"""The letters "GrNr", big-endian."""


@attrs.frozen(kw_only=True)
class Migration:
    """The step from one schema version to the next: statements, executed in one transaction."""

    summary: str
    statements: tuple[str, ...]


_FIRST: Final = Migration(
    summary="the tables of the first release",
    statements=(
        """CREATE TABLE threads(
            number INTEGER PRIMARY KEY,
            thread_id TEXT NOT NULL UNIQUE)""",
        # Append-only. pos counts from 1; run and step produced it.
        """CREATE TABLE messages(
            thread INTEGER NOT NULL, pos INTEGER NOT NULL, id TEXT NOT NULL,
            run INTEGER NOT NULL, step INTEGER NOT NULL, body BLOB NOT NULL)""",
        "CREATE UNIQUE INDEX messages_pos ON messages(thread, pos)",
        "CREATE UNIQUE INDEX messages_id ON messages(thread, id)",
        # token: the fencing token. posted, consumed: newest accepted and newest consumed position of the inbox.
        # dispatch: 'held' while another run of the thread is active, else 'ready'. ended_at is set with status 'done'.
        # info is written once, row with each commit. AUTOINCREMENT: the number of a pruned run is never given again.
        """CREATE TABLE runs(
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            run_id TEXT NOT NULL UNIQUE, thread INTEGER NOT NULL, agent TEXT NOT NULL,
            status TEXT NOT NULL, stage TEXT NOT NULL, step INTEGER NOT NULL, last_seq INTEGER NOT NULL,
            token INTEGER NOT NULL, posted INTEGER NOT NULL DEFAULT 0, consumed INTEGER NOT NULL DEFAULT 0,
            dispatch TEXT NOT NULL CHECK(dispatch IN ('ready', 'held')),
            created_at INTEGER NOT NULL, ended_at INTEGER, next_due INTEGER,
            info BLOB NOT NULL, row BLOB NOT NULL)""",
        "CREATE INDEX runs_open ON runs(thread, number) WHERE ended_at IS NULL",
        "CREATE INDEX runs_ended ON runs(ended_at) WHERE ended_at IS NOT NULL",
        "CREATE INDEX runs_thread ON runs(thread, number)",
        "CREATE INDEX runs_agent ON runs(agent, number)",
        "CREATE TABLE events(run INTEGER NOT NULL, seq INTEGER NOT NULL, frame BLOB NOT NULL)",
        "CREATE UNIQUE INDEX events_seq ON events(run, seq)",
        """CREATE TABLE calls(
            run INTEGER NOT NULL, call_id TEXT NOT NULL, step INTEGER NOT NULL, idx INTEGER NOT NULL,
            status TEXT NOT NULL, body BLOB NOT NULL)""",
        "CREATE UNIQUE INDEX calls_id ON calls(run, call_id)",
        # A call that suspends twice has two; the newest has the largest rowid.
        """CREATE TABLE tickets(
            run INTEGER NOT NULL, ticket_id TEXT NOT NULL, call_id TEXT, status TEXT NOT NULL, body BLOB NOT NULL)""",
        "CREATE UNIQUE INDEX tickets_id ON tickets(run, ticket_id)",
        "CREATE INDEX tickets_call ON tickets(run, call_id)",
        """CREATE TABLE inbox(
            run INTEGER NOT NULL, position INTEGER NOT NULL, command_id TEXT NOT NULL, kind TEXT NOT NULL,
            target_key TEXT, body BLOB NOT NULL, answer BLOB NOT NULL)""",
        "CREATE UNIQUE INDEX inbox_position ON inbox(run, position)",
        "CREATE UNIQUE INDEX inbox_command ON inbox(run, command_id)",
        "CREATE UNIQUE INDEX inbox_target ON inbox(run, target_key) WHERE target_key IS NOT NULL",
        # One row per key and step, so that a step costs what changed and a fork finds the value as of its step.
        # thread is null for a key of the run; the newest row of a thread's key has the largest rowid.
        """CREATE TABLE state(
            run INTEGER NOT NULL, thread INTEGER, key TEXT NOT NULL, step INTEGER NOT NULL, value BLOB NOT NULL)""",
        "CREATE UNIQUE INDEX state_run ON state(run, key, step, coalesce(thread, 0))",
        "CREATE INDEX state_thread ON state(thread, key) WHERE thread IS NOT NULL",
    ),
)

_WAS_TO_DO: Final = "ended_at IS NULL AND (status <> 'waiting' OR posted > consumed)"
TO_DO: Final = f"{_WAS_TO_DO[:-1]} OR leaving)"
"""Not at rest: the run needs an owner. A waiting run that is ending does not rest, either."""
DUE: Final = "ended_at IS NULL AND status = 'waiting' AND next_due IS NOT NULL"
"""Waits for a timer, not for people alone."""
OVERDUE: Final = "ended_at IS NULL AND unclaimed AND next_due IS NOT NULL"
"""Is in a queue, and has a deadline."""

_SECOND: Final = Migration(
    summary="the log has a name; opening costs what there is to do, not what waits",
    statements=(
        "CREATE TABLE about(name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL)",
        "INSERT INTO about(name, value) VALUES ('epoch', lower(hex(randomblob(8)))), ('generation', '0')",
        # What an opening has to look at, however many runs wait for people.
        f"CREATE INDEX runs_to_do ON runs(number) WHERE {_WAS_TO_DO}",
        f"CREATE INDEX runs_due ON runs(next_due) WHERE {DUE}",
    ),
)

_THIRD: Final = Migration(
    summary="a run that is on its way out is distinguished from one that waits",
    statements=(
        # leaving: the run has its termination, but not its terminal event. For the stored runs that is unknown without
        # reading them, so an owner takes each up once, and its next commit sets the column.
        "ALTER TABLE runs ADD COLUMN leaving INTEGER NOT NULL DEFAULT 0",
        "UPDATE runs SET leaving = 1 WHERE ended_at IS NULL",
        "DROP INDEX runs_to_do",
        f"CREATE INDEX runs_to_do ON runs(number) WHERE {TO_DO}",
    ),
)

_FOURTH: Final = Migration(
    summary="a state key's value has the revision that its run wrote it with",
    statements=(
        # 0: unknown. That is safe: no body runs while the file is migrated, so no batch is older than a stored value.
        "ALTER TABLE state ADD COLUMN revision INTEGER NOT NULL DEFAULT 0",
    ),
)

WAITS: Final = "waiting_since IS NOT NULL"
_ABOUT: Final = "agent, started_by, created_at, search"
"""Immutable columns that lists filter by: indexes contain them, so that a filter reads no whole rows."""
_OLDEST_OPEN: Final = "SELECT min(requested_at) FROM tickets WHERE run = runs.number AND tickets.status = 'open'"
_WAITING: Final = "status = 'waiting'"

_FIFTH: Final = Migration(
    summary="lists of runs: titles, open tickets, the principal, since when a run waits",
    statements=(
        # search: title and id in lower case. waiting_since: with status 'waiting' only. brief: of an open ticket.
        "ALTER TABLE runs ADD COLUMN title TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE runs ADD COLUMN search TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE runs ADD COLUMN started_by TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE runs ADD COLUMN waiting_since INTEGER",
        "ALTER TABLE tickets ADD COLUMN requested_at INTEGER",
        "ALTER TABLE tickets ADD COLUMN brief BLOB",
        "UPDATE tickets SET requested_at = greenroom_requested(body) WHERE status = 'open'",
        "UPDATE tickets SET brief = greenroom_brief(body) WHERE status = 'open'",
        "CREATE INDEX tickets_open ON tickets(run) WHERE status = 'open'",
        "UPDATE runs SET started_by = greenroom_by(info)",
        "UPDATE runs SET title = greenroom_title((SELECT frame FROM events WHERE run = runs.number AND seq = 1))",
        "UPDATE runs SET search = greenroom_search(title, run_id)",
        f"UPDATE runs SET waiting_since = coalesce(({_OLDEST_OPEN}), created_at) WHERE ended_at IS NULL AND {_WAITING}",  # noqa: S608
        f"CREATE INDEX runs_list ON runs(number, {_ABOUT})",
        "CREATE INDEX runs_by ON runs(started_by, number)",
        "CREATE INDEX runs_done ON runs(number) WHERE ended_at IS NOT NULL",
        f"CREATE INDEX runs_waiting ON runs(number, {_ABOUT}) WHERE {WAITS}",
        f"CREATE INDEX runs_longest ON runs(waiting_since, number, {_ABOUT}) WHERE {WAITS}",
        # With the status, so that those that work can be counted without a look at their rows.
        "DROP INDEX runs_to_do",
        f"CREATE INDEX runs_to_do ON runs(number, status) WHERE {TO_DO}",
    ),
)

_SIXTH: Final = Migration(
    summary="a thread has an owner; pruned run ids are remembered; pruning works in slices",
    statements=(
        # owner: the principal whose run began the thread; '' if that is not known. runs: how many were ever created in
        # the thread. vacant: no run of it is left.
        "ALTER TABLE threads ADD COLUMN owner TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE threads ADD COLUMN created_at INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE threads ADD COLUMN runs INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE threads ADD COLUMN vacant INTEGER NOT NULL DEFAULT 0",
        """UPDATE threads SET
            runs = (SELECT count(*) FROM runs WHERE thread = threads.number),
            created_at = coalesce((SELECT min(created_at) FROM runs WHERE thread = threads.number), 0),
            vacant = NOT EXISTS (SELECT 1 FROM runs WHERE thread = threads.number)""",
        # The oldest run that is left has begun the thread, unless messages of a run that was pruned precede it: such a
        # thread has an unknown owner.
        """UPDATE threads SET owner = (
            SELECT started_by FROM runs WHERE thread = threads.number ORDER BY number LIMIT 1)
            WHERE NOT vacant AND NOT EXISTS (
                SELECT 1 FROM messages WHERE thread = threads.number AND run NOT IN (SELECT number FROM runs))""",
        "CREATE INDEX threads_vacant ON threads(number) WHERE vacant",
        # The ids of pruned runs, with the digests of what was asked for ('' if that is not known). The input of a run
        # is its first message.
        "CREATE TABLE pruned(run_id TEXT NOT NULL PRIMARY KEY, content TEXT NOT NULL) WITHOUT ROWID",
        """INSERT OR IGNORE INTO pruned(run_id, content)
            SELECT substr(id, 1, length(id) - 3), '' FROM messages
            WHERE id LIKE '%.m1' AND run NOT IN (SELECT number FROM runs)""",
        # Of the pruned runs whose messages are left in a thread: the facts of one run for each combination.
        """CREATE TABLE members(
            thread INTEGER NOT NULL, facts TEXT NOT NULL, info BLOB NOT NULL,
            PRIMARY KEY(thread, facts)) WITHOUT ROWID""",
        # Runs and threads that are pruned and whose rows in other tables are still to be deleted. No number is reused.
        """CREATE TABLE garbage(
            kind TEXT NOT NULL CHECK(kind IN ('run', 'thread')), number INTEGER NOT NULL,
            PRIMARY KEY(kind, number)) WITHOUT ROWID""",
    ),
)

_SEVENTH: Final = Migration(
    summary="the record of a run: what its machine took, commit by commit",
    statements=(
        # In the order of the commits; last: sequence of the newest event after the commit.
        "CREATE TABLE record(run INTEGER NOT NULL, last INTEGER NOT NULL, body BLOB NOT NULL)",
        "CREATE INDEX record_run ON record(run)",
    ),
)

_EIGHTH: Final = Migration(
    summary="the fields of an event's payload are in camelCase",
    statements=("UPDATE events SET frame = greenroom_recased(frame)",),
)

_NINTH: Final = Migration(
    summary="the bytes of images and files, once for each thread and digest",
    statements=(
        "CREATE TABLE parts(thread INTEGER NOT NULL, sha256 TEXT NOT NULL, body BLOB NOT NULL)",
        "CREATE UNIQUE INDEX parts_sha256 ON parts(thread, sha256)",
    ),
)

_TENTH: Final = Migration(
    summary="queues of runs that wait for an owner",
    statements=(
        # ready_at: when the run may be claimed; rank: its place in its queue, lower first. unclaimed: created without a
        # claim, and not claimed yet. dedupe: at most one open run has it. A commit writes none of these.
        "ALTER TABLE runs ADD COLUMN queue TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE runs ADD COLUMN ready_at INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE runs ADD COLUMN rank INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE runs ADD COLUMN unclaimed INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE runs ADD COLUMN dedupe TEXT",
        "UPDATE runs SET queue = agent, ready_at = created_at, rank = created_at",
        "CREATE INDEX runs_ready ON runs(queue, rank) WHERE unclaimed",
        "CREATE UNIQUE INDEX runs_dedupe ON runs(dedupe) WHERE dedupe IS NOT NULL AND ended_at IS NULL",
        # max_running: null for no limit.
        """CREATE TABLE queues(
            name TEXT NOT NULL PRIMARY KEY, max_running INTEGER, paused INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID""",
        "INSERT INTO queues(name) SELECT DISTINCT agent FROM runs",
    ),
)

NEXT_GENERATION: Final = "UPDATE about SET value = value + 1 WHERE name = 'generation'"
"""Run at every opening: the tokens of new claims are above the generation's base, so all older claims are void."""
BASE: Final = "SELECT value << 32 FROM about WHERE name = 'generation'"
"""The base of a generation, which has room for 2**32 tokens."""

NEW_EPOCH: Final = "UPDATE about SET value = lower(hex(randomblob(8))) WHERE name = 'epoch'"
"""For a copy: from here on it may have other events than the original under the same sequences."""

_ELEVENTH: Final = Migration(
    summary="deadlines of runs that are in a queue",
    statements=(f"CREATE INDEX runs_overdue ON runs(next_due) WHERE {OVERDUE}",),
)

_TWELFTH: Final = Migration(
    summary="lists of the runs that failed or were cancelled, few among many that completed",
    statements=tuple(
        f"CREATE INDEX runs_{stage} ON runs(number) WHERE stage = '{stage}'" for stage in ("failed", "cancelled")
    ),
)

_THIRTEENTH: Final = Migration(
    summary="values beside the runs",
    statements=(
        # AUTOINCREMENT: a revision is never given again, also not after a removal.
        """CREATE TABLE stored_values(
            revision INTEGER PRIMARY KEY AUTOINCREMENT,
            space TEXT NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL)""",
        "CREATE UNIQUE INDEX stored_values_name ON stored_values(space, name)",
    ),
)

_FOURTEENTH: Final = Migration(
    summary="lists of runs by the code of their end, and by a tool that they have called",
    statements=(
        # code: of the termination; of the completed runs, those have one that a stop condition has stopped.
        "ALTER TABLE runs ADD COLUMN code TEXT",
        "UPDATE runs SET code = greenroom_code(row) WHERE ended_at IS NOT NULL",
        "CREATE INDEX runs_code ON runs(code, number) WHERE code IS NOT NULL",
        "DROP INDEX runs_ended",
        "CREATE INDEX runs_ended ON runs(ended_at, stage, code) WHERE ended_at IS NOT NULL",
        "CREATE INDEX runs_stopped ON runs(number) WHERE stage = 'completed' AND code IS NOT NULL",
        "ALTER TABLE calls ADD COLUMN tool TEXT NOT NULL DEFAULT ''",
        "UPDATE calls SET tool = greenroom_tool(body)",
        "CREATE INDEX calls_tool ON calls(tool, run)",
    ),
)

_FIFTEENTH: Final = Migration(
    summary="lists of the open tickets of all runs",
    statements=("CREATE INDEX tickets_oldest ON tickets(requested_at) WHERE status = 'open'",),
)

MIGRATIONS: Final[Sequence[Migration]] = (
    _FIRST,
    _SECOND,
    _THIRD,
    _FOURTH,
    _FIFTH,
    _SIXTH,
    _SEVENTH,
    _EIGHTH,
    _NINTH,
    _TENTH,
    _ELEVENTH,
    _TWELFTH,
    _THIRTEENTH,
    _FOURTEENTH,
    _FIFTEENTH,
)
"""In order, never changed once released: the n-th makes version n from version n - 1."""


def version_of(connection: sqlite3.Connection) -> int:
    """Return the number of migrations applied to the file; 0 for a new one."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(connection: sqlite3.Connection, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Bring the file to the newest version, one transaction per migration; a crash leaves no migration half done.

    Raises:
        sqlite3.Error: a statement failed; that migration has changed nothing.
    """
    define_functions(connection)
    for version in range(version_of(connection) + 1, len(migrations) + 1):
        connection.execute("BEGIN EXCLUSIVE")
        try:
            for statement in migrations[version - 1].statements:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {version}")
            connection.execute("COMMIT")
        except sqlite3.Error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
