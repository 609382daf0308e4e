"""Indexes of migrations, made while processes work on the tables.

Theory of operation. An index that is made CONCURRENTLY blocks no writer, but cannot be part of the migration's
transaction. So an index may be missing on a schema of the newest version: the process that migrated ended between the
two, or the making failed and left an index that is marked invalid, which costs every write and serves no read. Each
opening and each `greenroom db migrate` therefore compares the indexes with the migrations. A missing index is made
beside the work of the process, and an invalid index is dropped first. Without these indexes the store only is slower.

Two sessions that make indexes of one table concurrently would wait for each other's snapshots, and PostgreSQL would end
one of them. A session that waits for an advisory lock has a snapshot, too. So the lock of this work is only tried; the
session that does not get it looks again later. Any role can take the lock, so one that is held by a role that may make
no index does not count.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import trio

from greenroom.supervision.nursery import open_collapsing_nursery

from ...errors import StoreDown
from ..common._write_queue import pauses
from ..common.faults import Outage
from ._connect import Again, Link
from ._driver import psycopg
from ._schema import PG_MIGRATIONS, PgIndex, PgMigration, SchemaSession, lock_counts, quoted, version_of

logger = logging.getLogger("greenroom.store")

_VALID: Final = """SELECT c.relname, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = ANY(%s)"""
_MAY: Final = """SELECT has_schema_privilege(%s, 'CREATE') AND coalesce(
  (SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = to_regclass(%s)), false)"""
_TRY: Final = "SELECT pg_try_advisory_lock(hashtextextended('greenroom indexes ' || %s, 0))"
_UNLOCK: Final = "SELECT pg_advisory_unlock(hashtextextended('greenroom indexes ' || %s, 0))"


def missing_indexes(
    session: SchemaSession, schema: str, migrations: Sequence[PgMigration] = PG_MIGRATIONS
) -> list[tuple[PgIndex, bool]]:
    """Return the indexes that are not there, or are invalid; each with whether it is invalid.

    An index that another session is making is invalid, too. Of tables of a newer version nothing is known here: the
    list is empty.
    """
    indexes = [index for migration in migrations for index in migration.indexes]
    if not indexes or version_of(session, schema) != len(migrations):
        return []
    validity = dict(session.execute(_VALID, (schema, [index.name for index in indexes])))
    return [(index, index.name in validity) for index in indexes if not validity.get(index.name)]


def may_make_indexes(session: SchemaSession, schema: str) -> bool:
    """Return whether the connection's role may make indexes: it owns the tables, and may create in the schema."""
    return bool(session.execute(_MAY, (schema, f"{quoted(schema)}.runs"))[0][0])


def make_indexes(link: Link, migrations: Sequence[PgMigration] = PG_MIGRATIONS) -> list[str] | None:
    """Make what is missing, however long it takes; returns the names, or None: another session makes indexes now.

    Args:
        link: a session of the server's, not one of a pool; the limits of its statements' times are removed.
        migrations: The migrations of this release.

    Raises:
        Outage, Again: nothing is lost; the next call begins where this one ended.
        StoreDown, psycopg.Error: PostgreSQL refuses an index.
    """
    schema = link.target.schema
    if not missing_indexes(link, schema, migrations):
        return []
    link.execute("SET statement_timeout = 0")
    link.execute("SET lock_timeout = 0")
    if link.execute(_TRY, (schema,)) != [(True,)] and lock_counts(link, "greenroom indexes ", schema):
        return None
    made = []
    for index, invalid in missing_indexes(link, schema, migrations):
        if invalid:
            link.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {{s}}.{index.name}")
        link.execute(index.create("CONCURRENTLY"))
        made.append(index.name)
    link.execute(_UNLOCK, (schema,))
    return made


class IndexMaker:
    """Makes indexes that are missing, in a thread, over a separate connection."""

    def __init__(self, link: Link, migrations: Sequence[PgMigration]) -> None:
        """Prepare; nothing is sent. `link` and `migrations`: see `make_indexes`."""
        self._link, self._migrations = link, migrations
        self._limiter = trio.CapacityLimiter(1)

    def __repr__(self) -> str:
        """Return the connection."""
        return f"<IndexMaker {self._link!r}>"

    async def serve(self) -> None:
        """Make them; never fails. A cancel cuts the connection: the server ends the index that it has begun."""
        try:
            for pause in pauses():
                try:
                    made = await self._try()
                except (Outage, Again, RuntimeError) as trouble:  # the last one: the system gave no thread
                    logger.info("indexes are made later: %s", trouble)
                except (StoreDown, psycopg.Error) as refused:
                    text = self._link.target.hidden(str(refused))
                    return logger.warning("an index is missing, so some statements are slow: %s", text)
                else:
                    if made:
                        logger.info("made the indexes %s", ", ".join(made))
                    if made is not None:
                        return None
                await trio.sleep(pause)
        finally:
            self._link.close()

    async def _try(self) -> list[str] | None:
        async with open_collapsing_nursery() as nursery:
            nursery.start_soon(self._cut_at_cancel)
            made = await trio.to_thread.run_sync(make_indexes, self._link, self._migrations, limiter=self._limiter)
            nursery.cancel_scope.cancel()
        return made

    async def _cut_at_cancel(self) -> None:
        """Let the thread end soon: it may wait for the server for very long."""
        try:
            await trio.sleep_forever()
        finally:
            self._link.cut()
