"""The tables in PostgreSQL, and the migrations from schemas of older releases.

All tables are in one schema (default `greenroom`), and statements name it: `{s}` in a statement's text is the quoted
schema. `about` marks the schema as ours; its row `schema` is the number of applied migrations. A migration is one
transaction under an advisory lock, so that processes that open the store together apply it once. Indexes that must not
block writers are made outside of it (`_pg_indexes`).

Bodies are rows of `contract.codec`, never queried. Times are passed in by the store, in whole milliseconds. Ids and
state keys are COLLATE "C": prefixes and orders are Python's, whatever the locale of the database. There are no foreign
keys, triggers or stored functions. `run` is `runs.number`, `thread` is `threads.number`, `process` and `owner` are
`processes.number`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import attrs

from ...contract.codec import SCHEMA_VERSION
from ...errors import StoreOpenError

SCHEMA: Final = "greenroom"
"""The schema that the tables are in, if the URL names no other."""

LEVEL: Final = SCHEMA_VERSION
"""Version of the rows that this release writes; it claims no run whose row has a higher one."""

OLDEST_SERVER: Final = 140000
"""`server_version_num`: PostgreSQL 14."""


UNCHECKED: Final = "SQL_ASCII"
"""The encoding of a database whose server takes bytes for text. What a process writes is UTF-8 there, too."""
ENCODINGS: Final = frozenset({"UTF8", UNCHECKED})
"""Encodings of a database that keep every character."""


@attrs.frozen
class PgIndex:
    """An index that only makes statements faster, so that the store works without it.

    Attributes:
        name: unique in the schema.
        on: table, columns and predicate, without the schema.
    """

    name: str
    on: str

    def create(self, how: str = "") -> str:
        """Return the statement that makes the index; `how`: "CONCURRENTLY", or nothing for a table without rows."""
        return f"CREATE INDEX {how} IF NOT EXISTS {self.name} ON {{s}}.{self.on}"


@attrs.frozen(kw_only=True)
class PgMigration:
    """The step from one schema version to the next.

    Attributes:
        summary: one line.
        statements: executed in one transaction.
        indexes: made after it, CONCURRENTLY; in the transaction if the schema is new.
        oldest: schema version of the oldest release that can work on the tables after this step. A migration only adds
            to the tables, so processes of that release continue, also if they are started again; what the release reads
            is removed by a migration with a higher `oldest`, one release later.
    """

    summary: str
    statements: tuple[str, ...]
    indexes: tuple[PgIndex, ...] = ()
    oldest: int = 1


TO_DO: Final = "ended_at IS NULL AND (status <> 'waiting' OR posted > consumed OR leaving)"
"""Not at rest: the run needs an owner."""
READY: Final = f"owner IS NULL AND {TO_DO} AND (NOT held AND dead IS NULL OR posted > consumed)"
"""May be claimed, once its time has come; a held run and a dead letter only if an unread command cancels them."""
DUE: Final = "ended_at IS NULL AND status = 'waiting' AND next_due IS NOT NULL"
"""Waits for a timer, not for people alone."""
OVERDUE: Final = "owner IS NULL AND ended_at IS NULL AND status <> 'waiting' AND next_due IS NOT NULL"
"""Has a timer that must act although no process works on the run: it is in a queue, or held, or its agent is gone."""
UNREAD: Final = "ended_at IS NULL AND posted > consumed"
"""Has commands that its owner has not consumed."""
WAITS: Final = "waiting_since IS NOT NULL"
WORKS: Final = "owner IS NOT NULL AND ended_at IS NULL AND NOT held AND status <> 'waiting'"
"""Has an owner, and does not wait for people."""

_FIRST: Final = PgMigration(
    summary="the tables of the first release with PostgreSQL",
    statements=(
        # schema: number of applied migrations. oldest: `PgMigration.oldest`. epoch, system, timeline: identity
        # of the logs, and the server's identity that it is bound to.
        "CREATE TABLE {s}.about(name text PRIMARY KEY, value text NOT NULL)",
        # One row for each open store. room: for how many more runs it has room; null: no limit.
        """CREATE TABLE {s}.processes(
            number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE,
            host text NOT NULL, pid bigint NOT NULL, version text NOT NULL, url text, level integer NOT NULL,
            beat bigint NOT NULL DEFAULT 0, dead boolean NOT NULL DEFAULT false, room integer DEFAULT 0,
            started_at timestamptz NOT NULL)""",
        # The agents of each process.
        """CREATE TABLE {s}.agents(
            process bigint NOT NULL, agent text NOT NULL, digest text NOT NULL, PRIMARY KEY(agent, process))""",
        # A row appears with the first run of a queue. max_running: null: no limit.
        """CREATE TABLE {s}.queues(
            name text COLLATE "C" PRIMARY KEY, max_running integer, paused boolean NOT NULL DEFAULT false)""",
        # The row that orders a thread. owner: the principal whose run began it. runs: how many were ever created in it;
        # kept: how many are not pruned; open: not done; late: done, with input that is not placed yet. newest: position
        # of the newest message.
        """CREATE TABLE {s}.threads(
            number bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, thread_id text COLLATE "C" NOT NULL UNIQUE,
            owner text NOT NULL, created_at timestamptz NOT NULL, runs bigint NOT NULL, kept bigint NOT NULL,
            open bigint NOT NULL, late bigint NOT NULL DEFAULT 0, newest bigint NOT NULL) WITH (fillfactor = 70)""",
        # Append-only; positions from 1. run and step produced the message.
        """CREATE TABLE {s}.messages(
            thread bigint NOT NULL, pos bigint NOT NULL, id text COLLATE "C" NOT NULL, run bigint NOT NULL,
            step integer NOT NULL, body bytea NOT NULL, PRIMARY KEY(thread, pos), UNIQUE(thread, id))""",
        """CREATE TABLE {s}.parts(
            thread bigint NOT NULL, sha256 text COLLATE "C" NOT NULL, body bytea NOT NULL,
            PRIMARY KEY(thread, sha256))""",
        # token: the fencing token, a counter above 31 random bits. commits: number of the newest commit under the
        # token. owner: the process that works on the run. held: another run works on the thread. late: done before it
        # was admitted, and its input is not placed yet. dead: why the run is a dead letter. queue, ready_at, rank,
        # priority, crashes, dedupe: see `Claims.claim_ready`. posted, consumed: newest accepted and newest consumed
        # position of the inbox. facts counts changes of what a judge looks at; judged: digest of the part of it that is
        # in the row's body. leaving: a waiting run that still needs an owner. waiting_since: with status 'waiting'.
        # info is written once, row with each commit. A running step changes no indexed column.
        """CREATE TABLE {s}.runs(
            number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, run_id text COLLATE "C" NOT NULL UNIQUE,
            thread bigint NOT NULL, agent text COLLATE "C" NOT NULL, status text NOT NULL, stage text NOT NULL,
            step integer NOT NULL, last_seq bigint NOT NULL, token bigint NOT NULL, commits bigint NOT NULL DEFAULT 0,
            owner bigint, held boolean NOT NULL, late boolean NOT NULL DEFAULT false, dead text,
            leaving boolean NOT NULL DEFAULT false, needs_deps boolean NOT NULL DEFAULT false, place text,
            queue text COLLATE "C" NOT NULL, ready_at timestamptz NOT NULL, rank timestamptz NOT NULL,
            priority smallint NOT NULL DEFAULT 0, crashes smallint NOT NULL DEFAULT 0, dedupe text COLLATE "C",
            level integer NOT NULL, posted bigint NOT NULL DEFAULT 0, consumed bigint NOT NULL DEFAULT 0,
            facts bigint NOT NULL DEFAULT 0, judged bigint NOT NULL DEFAULT 0, created_at timestamptz NOT NULL,
            ended_at timestamptz, next_due timestamptz, waiting_since timestamptz, title text NOT NULL,
            search text NOT NULL, started_by text COLLATE "C" NOT NULL, info bytea NOT NULL, row bytea NOT NULL)
            WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02)""",
        f"CREATE INDEX runs_ready ON {{s}}.runs(agent, queue, rank, number) WHERE {READY}",
        "CREATE INDEX runs_owner ON {s}.runs(owner) WHERE owner IS NOT NULL AND ended_at IS NULL",
        f"CREATE INDEX runs_unread ON {{s}}.runs(owner) WHERE owner IS NOT NULL AND {UNREAD}",
        "CREATE INDEX runs_held ON {s}.runs(thread, number) WHERE held AND ended_at IS NULL",
        "CREATE INDEX runs_late ON {s}.runs(thread, number) WHERE late",
        "CREATE INDEX runs_open ON {s}.runs(thread, number) WHERE ended_at IS NULL",
        "CREATE INDEX runs_dead ON {s}.runs(number) WHERE dead IS NOT NULL AND ended_at IS NULL",
        "CREATE INDEX runs_thread ON {s}.runs(thread, number)",
        "CREATE INDEX runs_agent ON {s}.runs(agent, number)",
        "CREATE INDEX runs_by ON {s}.runs(started_by, number)",
        f"CREATE INDEX runs_due ON {{s}}.runs(next_due) WHERE {DUE}",
        f"CREATE INDEX runs_to_do ON {{s}}.runs(number, status) WHERE {TO_DO}",
        f"CREATE INDEX runs_waiting ON {{s}}.runs(number) WHERE {WAITS}",
        f"CREATE INDEX runs_longest ON {{s}}.runs(waiting_since, number) WHERE {WAITS}",
        "CREATE INDEX runs_done ON {s}.runs(number) WHERE ended_at IS NOT NULL",
        "CREATE INDEX runs_ended ON {s}.runs(ended_at) WHERE ended_at IS NOT NULL",
        "CREATE UNIQUE INDEX runs_dedupe ON {s}.runs(dedupe) WHERE dedupe IS NOT NULL AND ended_at IS NULL",
        """CREATE TABLE {s}.events(
            run bigint NOT NULL, seq bigint NOT NULL, frame bytea NOT NULL, PRIMARY KEY(run, seq))
            WITH (autovacuum_vacuum_scale_factor = 0.01)""",
        # In the order of the commits; last: sequence of the newest event after the commit.
        """CREATE TABLE {s}.record(
            run bigint NOT NULL, number bigint GENERATED ALWAYS AS IDENTITY, last bigint NOT NULL, body bytea NOT NULL,
            PRIMARY KEY(run, number))""",
        """CREATE TABLE {s}.calls(
            run bigint NOT NULL, call_id text COLLATE "C" NOT NULL, step integer NOT NULL, idx integer NOT NULL,
            status text NOT NULL, body bytea NOT NULL, PRIMARY KEY(run, call_id))""",
        # A call that suspends twice has two; the newest has the largest number. brief: of an open ticket.
        """CREATE TABLE {s}.tickets(
            run bigint NOT NULL, ticket_id text COLLATE "C" NOT NULL, number bigint GENERATED ALWAYS AS IDENTITY,
            call_id text COLLATE "C", status text NOT NULL, requested_at timestamptz NOT NULL, brief bytea,
            body bytea NOT NULL, PRIMARY KEY(run, ticket_id))""",
        "CREATE INDEX tickets_call ON {s}.tickets(run, call_id, number)",
        "CREATE INDEX tickets_open ON {s}.tickets(run, number) WHERE status = 'open'",
        # nonce: tells the poster of a repeated statement its own row.
        """CREATE TABLE {s}.inbox(
            run bigint NOT NULL, position bigint NOT NULL, command_id text COLLATE "C" NOT NULL, kind text NOT NULL,
            target_key text COLLATE "C", nonce bigint NOT NULL, body bytea NOT NULL, answer bytea NOT NULL,
            PRIMARY KEY(run, position), UNIQUE(run, command_id))""",
        "CREATE UNIQUE INDEX inbox_target ON {s}.inbox(run, target_key) WHERE target_key IS NOT NULL",
        # One row per key and step. thread is null for a key of the run; the newest write has the largest number.
        """CREATE TABLE {s}.state(
            number bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, run bigint NOT NULL, thread bigint,
            key text COLLATE "C" NOT NULL, step integer NOT NULL, revision bigint NOT NULL, value bytea NOT NULL)""",
        "CREATE UNIQUE INDEX state_run ON {s}.state(run, key, step, coalesce(thread, 0))",
        "CREATE INDEX state_thread ON {s}.state(thread, key, number) WHERE thread IS NOT NULL",
        # Ids of pruned runs, with the digests of what was asked for.
        """CREATE TABLE {s}.pruned(run_id text COLLATE "C" PRIMARY KEY, content text NOT NULL)""",
        # Of the pruned runs whose messages are left in a thread: the facts of one run for each combination.
        """CREATE TABLE {s}.members(
            thread bigint NOT NULL, facts text COLLATE "C" NOT NULL, info bytea NOT NULL,
            PRIMARY KEY(thread, facts))""",
        # Runs and threads that are pruned and whose rows in other tables are still to be deleted. fresh: the new number
        # of such a thread; no new thread gets one of these numbers.
        """CREATE TABLE {s}.garbage(
            kind text NOT NULL, number bigint NOT NULL, PRIMARY KEY(kind, number),
            fresh bigint GENERATED ALWAYS AS IDENTITY (START WITH 4611686018427387904))""",
        # Which processes follow runs of other processes, and until when. Lost in a crash of the server, and renewed.
        """CREATE UNLOGGED TABLE {s}.watches(
            run bigint NOT NULL, process bigint NOT NULL, until timestamptz NOT NULL, PRIMARY KEY(run, process))""",
        "CREATE INDEX watches_process ON {s}.watches(process)",
    ),
)

_SECOND: Final = PgMigration(
    summary="when each process's newest beat came; indexes for the limits of queues, and for deadlines in them",
    # By the server's clock; null: the process's release does not write it. For people: whether a process is dead is
    # judged by watching its beat.
    statements=("ALTER TABLE {s}.processes ADD COLUMN beat_at timestamptz",),
    indexes=(
        PgIndex("runs_working", f"runs(queue) WHERE {WORKS}"),
        PgIndex("runs_overdue", f"runs(next_due) WHERE {OVERDUE}"),
    ),
)

_THIRD: Final = PgMigration(
    summary="indexes for lists of the runs that failed or were cancelled, few among many that completed",
    statements=(),
    indexes=tuple(
        PgIndex(f"runs_{stage}", f"runs(number) WHERE stage = '{stage}'") for stage in ("failed", "cancelled")
    ),
)

_FOURTH: Final = PgMigration(
    summary="the workspaces of each process, and where they are",
    # Parallel arrays: the n-th workspace is at the n-th place. A run whose `place` is not null is claimed there only; a
    # process of an older release claims none of them.
    statements=tuple(
        f"ALTER TABLE {{s}}.processes ADD COLUMN {name} text[] NOT NULL DEFAULT ARRAY[]::text[]"
        for name in ("workspaces", "places")
    ),
)

_FIFTH: Final = PgMigration(
    summary="values beside the runs",
    statements=(
        # revision: drawn by the writer of the value.
        """CREATE TABLE {s}.stored_values(
            space text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL, value bytea NOT NULL,
            revision bigint NOT NULL, PRIMARY KEY(space, name))""",
    ),
)

_SIXTH: Final = PgMigration(
    summary="lists of runs by the code of their end, and by a tool that they have called",
    # code: of the termination; of the completed runs, those have one that a stop condition has stopped. Both columns
    # are null in rows of older releases: such runs are in no list of a code or a tool, and a stopped one counts as
    # completed.
    statements=(
        'ALTER TABLE {s}.runs ADD COLUMN code text COLLATE "C"',
        'ALTER TABLE {s}.calls ADD COLUMN tool text COLLATE "C"',
    ),
    indexes=(
        PgIndex("runs_code", "runs(code, number) WHERE code IS NOT NULL"),
        PgIndex("runs_stopped", "runs(number) WHERE stage = 'completed' AND code IS NOT NULL"),
        PgIndex("calls_tool", "calls(tool, run) WHERE tool IS NOT NULL"),
    ),
)

_SEVENTH: Final = PgMigration(
    summary="an index for lists of the open tickets of all runs",
    statements=(),
    indexes=(PgIndex("tickets_oldest", "tickets(requested_at, number) WHERE status = 'open'"),),
)

PG_MIGRATIONS: Final[Sequence[PgMigration]] = (_FIRST, _SECOND, _THIRD, _FOURTH, _FIFTH, _SIXTH, _SEVENTH)
"""In order, never changed once released: the n-th makes version n from version n - 1."""

TABLES: Final = (
    "about", "processes", "agents", "queues", "threads", "messages", "parts", "runs", "events", "record", "calls",
    "tickets", "inbox", "state", "pruned", "members", "garbage", "watches", "stored_values",
)  # fmt: skip
"""The tables that a process needs SELECT, INSERT, UPDATE and DELETE on."""

_LONGEST: Final = 63
"""Bytes of a name in PostgreSQL; what is longer is cut off there."""
_DIGITS: Final = 10
"""More than a version has."""
_UNFIT: Final = frozenset("%{}")
"""Characters that mean something in the text of a statement here."""
_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended('greenroom ' || %s, 0))"
_LOCK_TABLES: Final = "LOCK TABLE {s}.about IN SHARE ROW EXCLUSIVE MODE"
_COUNTS: Final = """SELECT count(*) = 0 OR bool_or(has_database_privilege(a.usesysid, current_database(), 'CREATE')
  OR coalesce((SELECT has_schema_privilege(a.usesysid, oid, 'CREATE') FROM pg_namespace WHERE nspname = %s), false))
FROM pg_locks l JOIN pg_stat_activity a USING (pid)
WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted AND a.datname = current_database()
  AND (l.classid::bigint << 32) | l.objid::bigint = hashtextextended(%s || %s::text, 0)"""
_ABOUT: Final = (
    "INSERT INTO {s}.about(name, value) VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
)


class SchemaSession(Protocol):
    """The part of a connection that migrations need; `_pg_connect.Link` has it."""

    def execute(self, text: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        """Execute a statement and return its rows."""

    def transaction(self) -> Any:
        """Return a context that is one transaction."""


def quoted(name: str) -> str:
    """Return an identifier with quotes.

    Raises:
        StoreOpenError: no schema can have this name.
    """
    fits = name.isprintable() and not _UNFIT & {*name} and not name.startswith("pg_")
    if not fits or not 0 < len(name.encode()) <= _LONGEST:
        raise StoreOpenError(
            f"schema={name!r:.100}: a schema's name has 1 to 63 bytes, all printable and none of %, {{ and }}, and does"
            " not begin with pg_"
        )
    return '"' + name.replace('"', '""') + '"'


def whole_number(text: str | None) -> int | None:
    """Return the number that a row of `about` has; None if another program has written something else there."""
    return int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < _DIGITS else None


def version_of(session: SchemaSession, schema: str) -> int | None:
    """Return the number of applied migrations; 0: the schema is missing or empty; None: it is not ours."""
    sql = (
        "SELECT c.relname = 'about' FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s"
    )
    names = [about for (about,) in session.execute(sql, (schema,))]
    if not any(names):
        return None if names else 0
    columns = "SELECT count(*) FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attname IN ('name', 'value')"
    if session.execute(columns, (f"{quoted(schema)}.about",)) != [(2,)]:
        return None
    rows = session.execute("SELECT value FROM {s}.about WHERE name = 'schema'")
    return whole_number(rows[0][0]) if rows else None


def outdated(schema: str, version: int, oldest: int) -> str:
    """Return the sentence for a release that cannot work on the tables any more, because they need a newer one."""
    return (
        f"the schema {schema!r} needs a release of schema version {oldest} or newer, and this release knows"
        f" {version}; upgrade Greenroom"
    )


def check_server(session: SchemaSession) -> None:
    """Check that the server and the encoding of the database fit.

    Raises:
        StoreOpenError: the server is too old, or the database cannot keep every character.
    """
    ((number, version, encoding, name),) = session.execute(
        "SELECT current_setting('server_version_num')::int, current_setting('server_version'),"
        " current_setting('server_encoding'), current_database()::text"
    )
    if number < OLDEST_SERVER:
        raise StoreOpenError(f"this is PostgreSQL {version}; version 14 or newer is needed")
    if encoding not in ENCODINGS:
        raise StoreOpenError(
            f"the database {name!r} has the encoding {encoding}, which has not every character; make one with UTF8"
            " (createdb -E UTF8 -T template0 --locale=C NAME), and write its name into the address"
        )


def check(session: SchemaSession, schema: str, migrations: Sequence[PgMigration] = PG_MIGRATIONS) -> int:
    """Return the version of the schema, which this release can work with or migrate.

    A schema may have a higher version than this release knows: a newer release has added to its tables.

    Raises:
        StoreOpenError: see `check_server`; or the schema is another program's, or newer than this release knows.
    """
    check_server(session)
    version = version_of(session, schema)
    if version is None:
        raise StoreOpenError(f"the schema {schema!r} has tables of another program; name another one with ?schema=")
    if version > len(migrations):
        rows = session.execute("SELECT value FROM {s}.about WHERE name = 'oldest'")
        oldest = (whole_number(rows[0][0]) if rows else None) or version
        if oldest > len(migrations):
            raise StoreOpenError(outdated(schema, len(migrations), oldest))
    return version


def migrate(
    session: SchemaSession,
    schema: str,
    migrations: Sequence[PgMigration] = PG_MIGRATIONS,
    *,
    make_epoch: Callable[[], str],
) -> int:
    """Bring the schema to the newest version; returns the number of migrations that this call applied.

    Each is one transaction under an advisory lock: processes that migrate concurrently wait for each other, and a crash
    leaves no migration half done. The indexes of tables that were there before are left to `_pg_indexes.make_indexes`.

    Raises:
        StoreOpenError: see `check`.
        psycopg.Error: a statement failed; that migration has changed nothing.
    """
    applied, new = 0, False
    while (version := check(session, schema, migrations)) < len(migrations):
        migration = migrations[version]
        with session.transaction():
            if lock_counts(session, "greenroom ", schema):
                session.execute(_LOCK, (schema,))
            if version:
                session.execute(_LOCK_TABLES)  # also against a process that found the other lock in foreign hands
            if check(session, schema, migrations) != version:
                continue  # another process was faster
            if not session.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)):
                session.execute("CREATE SCHEMA {s}")
            new = new or version == 0
            indexes = [index.create() for index in migration.indexes] if new else ()
            for statement in (*migration.statements, *indexes):
                session.execute(statement)
            session.execute(_ABOUT, ("schema", str(version + 1)))
            session.execute(_ABOUT, ("oldest", str(migration.oldest)))
            if version == 0:
                session.execute(_ABOUT, ("epoch", make_epoch()))
        applied += 1
    return applied


def lock_counts(session: SchemaSession, purpose: str, schema: str) -> bool:
    """Return whether an advisory lock is free, or held by a role that may make tables or indexes.

    Any role with CONNECT can take any such lock. One that only strangers hold keeps nothing in order.
    """
    return bool(session.execute(_COUNTS, (schema, purpose, schema))[0][0])


def lacking_rights(session: SchemaSession, schema: str) -> list[str]:
    """Return the rights on the tables that the connection's role lacks, such as "INSERT on runs".

    Tables that a migration will make are left out.
    """
    sql = (
        "SELECT t.name, p.name FROM unnest(%s::text[]) AS t(name),"
        " unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS p(name)"
        " WHERE NOT CASE WHEN to_regclass(format('%%I.%%I', %s::text, t.name)) IS NULL THEN true"
        " ELSE has_table_privilege(format('%%I.%%I', %s::text, t.name), p.name) END"
    )
    return [f"{right} on {table}" for table, right in session.execute(sql, (list(TABLES), schema, schema))]
