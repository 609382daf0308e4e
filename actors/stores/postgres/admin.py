"""Care for the database of a store in PostgreSQL: its state, migrations, levels, and copies put into use.

The functions take the URL of a store, open one connection, and return plain data. `greenroom db` shows them. None of
them works on a run, and a role without any right on the tables may call `show`.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final

from ...errors import StoreDown, StoreOpenError, StoreUnavailable
from ..common._leases import TURN
from ..common.faults import Outage
from ._connect import ANSWER, Again, Link, PgTrouble, hopeless
from ._driver import psycopg
from ._indexes import make_indexes, may_make_indexes, missing_indexes
from ._schema import LEVEL, PG_MIGRATIONS, TO_DO, UNCHECKED, check, check_server, lacking_rights, version_of
from ._schema import migrate as apply_migrations
from ._target import PgTarget

WATCHED: Final = 2 * TURN + 1
"""Seconds after which the beat of a live process has advanced."""

LOCK_ATTEMPTS: Final = 6
"""Attempts of a migration that meets a lock for longer than `lock_timeout`."""
_LOCK_PAUSE: Final = 1.0
"""Seconds between them, for the statements that wait behind the attempt."""
_INDEX_PAUSE: Final = 0.2
"""Seconds between two looks for an index that another session is making."""

_LOOKS: Final = 8
"""Looks of the watchdog in the time of an answer."""
_MIGRATING: Final = 30.0 + ANSWER
"""Seconds for a statement of a migration: the server itself ends it after 30."""

_NAME: Final = "greenroom db"

_SERVER: Final = """SELECT current_setting('server_version'), current_database(), current_user::text,
  current_setting('fsync'), current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),
  pg_is_in_recovery(), current_setting('max_connections')::int,
  coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false), current_setting('server_encoding')"""
_CONNECTIONS: Final = "SELECT count(*) FROM pg_stat_activity WHERE datname IS NOT NULL"
_STANDBYS: Final = "SELECT count(*), count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')) FROM pg_stat_replication"
_COUNTS: Final = f"""SELECT count(*) FILTER (WHERE {TO_DO}), count(*) FILTER (WHERE NOT ({TO_DO})),
  count(*) FILTER (WHERE dead IS NOT NULL) FROM {{s}}.runs WHERE ended_at IS NULL"""
# By way of JSON, because tables that are not migrated yet have no beat_at.
_PROCESSES: Final = """SELECT p.name, p.host, p.pid, p.version, p.level, p.beat, p.dead,
  round(extract(epoch FROM now() - (to_jsonb(p) ->> 'beat_at')::timestamptz), 1)::float8,
  (SELECT count(*) FROM {s}.runs r WHERE r.owner = p.number AND r.ended_at IS NULL)
FROM {s}.processes p ORDER BY p.number"""
_LEVELS: Final = "SELECT level, count(*) FROM {s}.runs WHERE ended_at IS NULL GROUP BY level ORDER BY level"
_ABOUT: Final = "SELECT value FROM {s}.about WHERE name = %s"

_ADOPT: Final = (
    "UPDATE {s}.about SET value = %s WHERE name = 'epoch'",
    # the counter of the token grows, so that no process of the original can write here
    """UPDATE {s}.runs SET owner = NULL, commits = 0,
  token = ((token >> 31) + 1 << 31) + (random() * 2147483647)::bigint WHERE ended_at IS NULL""",
    "DELETE FROM {s}.agents",
    "DELETE FROM {s}.watches",
    "DELETE FROM {s}.processes",
    "DELETE FROM {s}.about WHERE name = 'origin'",
)


_UNCHECKED: Final = (
    f"the encoding of the database is {UNCHECKED}, so the server does not check texts: what Greenroom writes is UTF-8,"
    " and what another program writes into the tables may be unreadable; a database with UTF8 refuses that"
)


def _new_epoch() -> str:
    return secrets.token_hex(8)


@contextmanager
def _watched(link: Link, answer: float) -> Iterator[Link]:
    """Cut the connection if a statement waits for longer than `answer` seconds; close it at the end of the block."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(answer / _LOOKS):
            link.cut_late(answer, time.monotonic())

    threading.Thread(target=watch, name="greenroom db watches", daemon=True).start()
    try:
        with closing(link):
            yield link
    finally:
        over.set()


@contextmanager
def _linked(url: str, answer: float = ANSWER) -> Iterator[Link]:
    """Open a connection for the block. A statement without an answer for `answer` seconds counts as an outage.

    Raises:
        StoreOpenError: the URL cannot be read, the server refuses the connection, or a right is missing.
        StoreUnavailable: the server does not answer now.
    """
    target = PgTarget.parse(url)
    with _watched(Link(target, _NAME), answer) as link:
        try:
            yield link
        except Outage as error:
            cause = error.__cause__ or error.error
            if hopeless(cause):
                raise StoreOpenError(f"{target.text}: {cause}") from None
            raise StoreUnavailable(f"{target.text}: {cause}") from None
        except (Again, PgTrouble, psycopg.Error) as error:
            raise StoreOpenError(f"{target.text}: {target.hidden(str(error))}") from None


def _optional(link: Link, statement: str, default: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the first row of a statement for which a right may be missing."""
    try:
        return next(iter(link.execute(statement)), default)
    except StoreDown:
        return default


def show(url: str) -> Mapping[str, Any]:
    """Return what the database is like: server, schema, replication, runs, processes, warnings.

    `lacking` are the rights that the role lacks; `fault` says why the schema cannot be used, or is None.

    Raises:
        StoreOpenError: the server refuses the connection.
        StoreUnavailable: the server does not answer now.
    """
    with _linked(url) as link:
        schema = link.target.schema
        version, name, user, fsync, commits, names, standby, most, encrypted, encoding = link.execute(_SERVER)[0]
        connected, synchronous = _optional(link, _STANDBYS, (None, None))
        version_of_tables, lacking, fault = _version_and_rights(link)
        facts: dict[str, Any] = {
            "server": f"PostgreSQL {version}, database {name}, role {user}",
            "connection": "encrypted" if encrypted else "not encrypted",
            "connections": f"{_optional(link, _CONNECTIONS, ('?',))[0]} of {most}",
            "schema": _version(schema, version_of_tables),
            "replication": _replication(connected, synchronous, names),
        }
        if version_of_tables and not lacking and fault is None:
            facts |= _contents(link)
        facts["warnings"] = _warnings(fsync=fsync, commits=commits, names=names, connected=connected, standby=standby)
        if encoding == UNCHECKED:
            facts["warnings"].append(_UNCHECKED)
        if version_of_tables and version_of_tables > 0:
            missing = [index.name for index, _ in missing_indexes(link, schema)] if not lacking else []
            facts["warnings"] += [_without(missing)] if missing else []
        return facts | {"lacking": lacking, "fault": fault}


def _version_and_rights(link: Link) -> tuple[int | None, Sequence[str], str | None]:
    """Return the version of the tables (-1: the role may not read it), missing rights, and why they cannot be used."""
    schema, fault = link.target.schema, None
    try:
        check_server(link)
    except StoreOpenError as error:
        fault = str(error)
    try:
        version = version_of(link, schema)
        missing = lacking_rights(link, schema) if version else ()
    except StoreDown:  # not even the version: the list says which rights to grant
        return -1, [f"USAGE on the schema {schema}", "SELECT, INSERT, UPDATE, DELETE on its tables"], fault
    if version == 0 and not link.execute("SELECT has_database_privilege(current_database(), 'CREATE')")[0][0]:
        return 0, ["CREATE on the database, to make the tables: let an owner run `greenroom db migrate`"], fault
    by_right: dict[str, list[str]] = {}
    for right, _, table in (one.partition(" on ") for one in missing):
        by_right.setdefault(right, []).append(table)
    lacking = [f"{right} on {', '.join(tables)}" for right, tables in by_right.items()]
    try:
        check(link, schema)
    except StoreOpenError as error:
        return version, lacking, str(error)
    return version, lacking, None


def _version(schema: str, version: int | None) -> str:
    if version is None:
        return f"{schema}: tables of another program"
    newest = len(PG_MIGRATIONS)
    if version < 0:
        return f"{schema}: the role may not read it"
    if version == 0:
        return f"{schema}: empty; the first process that opens the store, or `greenroom db migrate`, makes the tables"
    way = "" if version == newest else "; run `greenroom db migrate`" if version < newest else "; upgrade Greenroom"
    return f"{schema}: version {version} of {newest}{way}"


def _replication(connected: int | None, synchronous: int | None, names: str) -> str:
    if connected is None:
        return "unknown: the role may not read pg_stat_replication"
    if not connected and not names:
        return "none"
    kind = f"synchronous ({names})" if names else "asynchronous"
    return f"{kind}, {connected} connected, {synchronous} of them synchronous"


def _warnings(*, fsync: str, commits: str, names: str, connected: int | None, standby: bool) -> list[str]:
    warnings = []
    if standby:
        warnings.append("this server is a standby: a store needs the primary")
    if fsync != "on":
        warnings.append("fsync is off: a crash of the machine may damage the database")
    if commits == "off":
        warnings.append("synchronous_commit is off: a crash of the server loses commits that were confirmed")
    if connected and not names:
        lost = "a failover may lose commits that were confirmed; set synchronous_standby_names"
        warnings.append(f"replication is asynchronous: {lost}")
    return warnings


def _contents(link: Link) -> dict[str, Any]:
    working, waiting, dead = link.execute(_COUNTS)[0]
    return {
        "epoch": link.execute(_ABOUT, ("epoch",))[0][0],
        "runs": f"{working} to work on, {waiting} waiting, {dead} dead letters",
        "processes": _processes(link),
    }


def _processes(link: Link) -> list[dict[str, Any]]:
    rows = link.execute(_PROCESSES)
    names = ("name", "host", "pid", "version", "level", "beat", "dead", "beatAge", "runs")
    processes = [dict(zip(names, row, strict=True)) for row in rows]
    return [one | {"beatAge": _age(one["beatAge"])} for one in processes]


def _age(seconds: float | None) -> str:
    """Return how old a beat is, in words; a process of an older release does not say."""
    return "unknown" if seconds is None else f"{max(0.0, seconds):.1f} s"


def migrate(url: str) -> Mapping[str, Any]:
    """Make the tables, or bring them to this release; processes of the previous release may work meanwhile.

    Raises:
        StoreOpenError: the server refuses the connection, the schema is another program's or newer, or the role may not
            change the tables.
        StoreUnavailable: the server does not answer now; a migration that had begun has changed nothing.
    """
    with _linked(url, _MIGRATING) as link:
        applied = _migrated(link)
        version = check(link, link.target.schema)
        facts = {"schema": f"{link.target.schema}: version {version}", "applied": applied}
        return facts | _indexed(link)


def _migrated(link: Link) -> int:
    """Apply the migrations; a lock of another session (a backup, say) is waited for several times."""
    for attempt in range(1, LOCK_ATTEMPTS + 1):
        try:
            return apply_migrations(link, link.target.schema, make_epoch=_new_epoch)
        except Again:
            if attempt == LOCK_ATTEMPTS:
                raise
            threading.Event().wait(_LOCK_PAUSE)
    raise AssertionError("the last attempt returns or raises")


def _indexed(link: Link) -> dict[str, Any]:
    """Make the indexes that are missing; waits for a session that is making them."""
    names = [index.name for index, _ in missing_indexes(link, link.target.schema)]
    if not names:
        return {}
    direct = link.target.direct()
    if direct is None or not may_make_indexes(link, link.target.schema):
        return {"warnings": [_without(names)]}
    with closing(Link(direct, _NAME)) as session:
        while (made := make_indexes(session)) is None:
            threading.Event().wait(_INDEX_PAUSE)
    return {"indexes": f"made {', '.join(made)}"} if made else {}


def _without(names: Sequence[str]) -> str:
    way = "let the owner of the tables run `greenroom db migrate`, over an address without pooled=1"
    return f"some statements are slow without the index {', '.join(names)}, which is missing or invalid; {way}"


def level(url: str) -> Mapping[str, Any]:
    """Return the releases of the processes and the levels of the rows of open runs.

    Raises:
        StoreOpenError: the server refuses the connection, or a right is missing.
        StoreUnavailable: the server does not answer now.
    """
    with _linked(url) as link:
        _tables(link)
        oldest = link.execute(_ABOUT, ("oldest",))
        live = [one for one in _processes(link) if not one["dead"]]
        rows = [(number, runs) for number, runs in link.execute(_LEVELS)]
        return {
            "release": f"reads rows up to level {LEVEL}",
            "oldest": f"releases of schema version {oldest[0][0]} may still work" if oldest else None,
            "processes": [
                {name: one[name] for name in ("name", "version", "level", "beatAge", "runs")} for one in live
            ],
            "rows": [{"level": number, "runs": runs} for number, runs in rows],
            "leftAlone": [_left_alone(number, runs, older) for number, runs in rows if (older := _older(live, number))],
        }


def _older(live: Sequence[Mapping[str, Any]], level: int) -> list[str]:
    """Return the names of the processes that do not read rows of a level."""
    return [one["name"] for one in live if one["level"] < level]


def _left_alone(level: int, runs: int, older: Sequence[str]) -> str:
    counted = "1 run" if runs == 1 else f"{runs} runs"
    return f"{counted} of level {level}: an older release cannot read the rows, and so claims none: {', '.join(older)}"


def _tables(link: Link) -> None:
    """Check that the schema has our tables, of this release.

    Raises:
        StoreOpenError: it has not.
    """
    if check(link, link.target.schema) < len(PG_MIGRATIONS):
        raise StoreOpenError(f"{link.target.text} has no tables of this release; run `greenroom db migrate`")


def beats(url: str) -> Mapping[str, int]:
    """Return the beat of each process; the beats of live ones are others after `WATCHED` seconds.

    Raises:
        StoreOpenError, StoreUnavailable: see `level`.
    """
    with _linked(url) as link:
        _tables(link)
        return {one["name"]: one["beat"] for one in _processes(link)}


def adopt(url: str, before: Mapping[str, int]) -> Mapping[str, Any]:
    """Put a copy of a database into use: a new epoch, and every claim of the original is void.

    Needed for a copy on the same server (pg_dump into another database): a restored backup has another timeline, which
    the first process that opens the store finds by itself.

    Args:
        url: The address of the copy.
        before: the result of `beats`, `WATCHED` seconds ago.

    Raises:
        StoreOpenError: a process lives on this database, so that it is not a copy; or see `level`.
        StoreUnavailable: the server does not answer now; nothing was changed.
    """
    with _linked(url) as link:
        _tables(link)
        alive = [one["name"] for one in _processes(link) if before.get(one["name"]) != one["beat"]]
        if alive:
            raise StoreOpenError(f"{link.target.text} is in use: {alive[0]} beats; stop its processes first")
        epoch = _new_epoch()
        with link.transaction():
            for statement in _ADOPT:
                link.execute(statement, (epoch,) if "%s" in statement else ())
        return {"epoch": epoch, "processes": len(before)}
