"""The tables on a real server: made once, checked at each opening; what errors of a connection mean."""

import itertools
import re
import threading
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.support.postgres import Server

from greenroom.actors.errors import StoreDown, StoreOpenError
from greenroom.actors.stores.common.faults import Outage
from greenroom.actors.stores.postgres import _schema as _pg_schema
from greenroom.actors.stores.postgres._connect import Again, Link
from greenroom.actors.stores.postgres._indexes import missing_indexes
from greenroom.actors.stores.postgres._schema import (
    PG_MIGRATIONS,
    TABLES,
    PgIndex,
    PgMigration,
    check,
    lacking_rights,
    migrate,
)
from greenroom.actors.stores.postgres._values import Bigints, Blobs, Moment, Moments, Texts


def made(link: Link, migrations=PG_MIGRATIONS) -> int:
    return migrate(link, link.target.schema, migrations, make_epoch=lambda: "e")


def test_the_tables_are_made_once(link_to: Callable[[str], Link], postgres_url: str) -> None:
    link = link_to(postgres_url)
    assert check(link, link.target.schema) == 0
    assert (made(link), made(link)) == (len(PG_MIGRATIONS), 0)
    sql = "SELECT tablename FROM pg_tables WHERE schemaname = %s"
    assert sorted(name for (name,) in link.execute(sql, (link.target.schema,))) == sorted(TABLES)
    assert link.execute("SELECT name, value FROM {s}.about ORDER BY name") == [
        ("epoch", "e"),
        ("oldest", "1"),
        ("schema", str(len(PG_MIGRATIONS))),
    ]
    assert missing_indexes(link, link.target.schema) == []
    assert lacking_rights(link, link.target.schema) == []


def test_ids_are_ordered_as_in_python_whatever_the_locale_of_the_database(
    link_to: Callable[[str], Link], postgres_url: str
) -> None:
    """Of the texts in an index only those are ordered as the database likes whose order nobody asks for."""
    link = link_to(postgres_url)
    made(link)
    sql = (
        "SELECT DISTINCT c.relname || '.' || a.attname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " JOIN pg_index i ON i.indrelid = c.oid JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY(i.indkey)"
        " WHERE n.nspname = %s AND a.atttypid = 'text'::regtype AND a.attcollation <> 'pg_catalog.\"C\"'::regcollation"
    )
    assert {name for (name,) in link.execute(sql, (link.target.schema,))} == {
        *("about.name", "processes.name", "agents.agent", "garbage.kind", "runs.status"),
    }


def test_processes_that_open_together_migrate_once(link_to: Callable[[str], Link], postgres_url: str) -> None:
    applied: list[int] = []
    links = [link_to(postgres_url) for _ in range(4)]
    threads = [threading.Thread(target=lambda link=link: applied.append(made(link))) for link in links]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(applied) == len(PG_MIGRATIONS)


def test_a_migration_that_fails_leaves_nothing(link_to: Callable[[str], Link], postgres_url: str) -> None:
    link = link_to(postgres_url)
    made(link)
    broken = PgMigration(summary="x", statements=("CREATE TABLE {s}.more(a int)", "SELECT 1/0"))
    with pytest.raises(Exception, match="division by zero"):
        made(link, (*PG_MIGRATIONS, broken))
    assert check(link, link.target.schema) == len(PG_MIGRATIONS)
    good = PgMigration(
        summary="x",
        statements=("CREATE TABLE {s}.more(a int)",),
        indexes=(PgIndex("more_a", "more(a)"),),
    )
    assert made(link, (*PG_MIGRATIONS, good)) == 1
    assert made(link) == 0  # an older release works on tables that a newer one has added to
    assert [index.name for index, _ in missing_indexes(link, link.target.schema, (*PG_MIGRATIONS, good))] == ["more_a"]
    assert missing_indexes(link, link.target.schema) == []  # and leaves their indexes alone


def test_tables_that_an_older_release_cannot_work_on_refuse_it(
    link_to: Callable[[str], Link], postgres_url: str
) -> None:
    link = link_to(postgres_url)
    known = len(PG_MIGRATIONS)
    breaking = PgMigration(summary="x", statements=("ALTER TABLE {s}.runs DROP COLUMN place",), oldest=known + 1)
    assert made(link, (*PG_MIGRATIONS, breaking)) == known + 1
    text = f"needs a release of schema version {known + 1} or newer, and this release knows {known}"
    with pytest.raises(StoreOpenError, match=text):
        made(link)


def additive(migration: PgMigration) -> bool:
    """Whether older releases can write and read beside a migration: it only adds, and nothing that they must write."""
    return all(
        re.fullmatch(r"CREATE (?:UNLOGGED )?(?:TABLE|INDEX) .*", statement, re.DOTALL)
        or (
            re.fullmatch(r"ALTER TABLE \S+ ADD COLUMN \w+ .*", statement, re.DOTALL)
            and ("NOT NULL" not in statement or "DEFAULT" in statement)
        )
        for statement in migration.statements
    )


def test_older_releases_can_work_beside_each_migration_or_are_stopped_by_it() -> None:
    for version, (before, migration) in enumerate(itertools.pairwise(PG_MIGRATIONS), start=2):
        assert migration.oldest >= before.oldest
        assert additive(migration) or migration.oldest == version, migration.summary


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE {s}.runs ADD COLUMN more text NOT NULL",
        "ALTER TABLE {s}.runs DROP COLUMN place",
        "ALTER TABLE {s}.runs ALTER COLUMN place SET NOT NULL",
        "CREATE UNIQUE INDEX more ON {s}.runs(title)",
        "DROP TABLE {s}.garbage",
    ],
)
def test_a_migration_that_older_releases_cannot_work_beside_is_found(statement: str) -> None:
    assert not additive(PgMigration(summary="x", statements=(statement,)))


def test_tables_of_another_program_are_left_alone(link_to: Callable[[str], Link], postgres_url: str) -> None:
    link = link_to(postgres_url)
    link.execute("CREATE SCHEMA {s}")
    link.execute("CREATE TABLE {s}.about(what int)")
    with pytest.raises(StoreOpenError, match="another program"):
        made(link)
    link.execute("DROP TABLE {s}.about")
    assert made(link) == len(PG_MIGRATIONS)


def test_a_role_without_rights_is_named_what_it_lacks(link_to: Callable[[str], Link], postgres_url: str) -> None:
    link = link_to(postgres_url)
    made(link)
    role = "reader_" + parse_qs(urlsplit(postgres_url).query)["schema"][0]
    link.execute(f"CREATE ROLE {role} LOGIN")
    try:
        link.execute(f"GRANT USAGE ON SCHEMA {{s}} TO {role}")
        link.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {{s}} TO {role}")
        other = link_to(postgres_url.replace(f"//{urlsplit(postgres_url).username}@", f"//{role}@"))
        assert "INSERT on runs" in lacking_rights(other, other.target.schema)
        with pytest.raises(StoreDown, match=r"permission denied for table queues.*grant the role"):
            other.execute("INSERT INTO {s}.queues(name) VALUES ('x')")
    finally:
        link.execute(f"DROP OWNED BY {role}")
        link.execute(f"DROP ROLE {role}")


def test_values_come_back_as_they_went(link_to: Callable[[str], Link], postgres_url: str) -> None:
    link = link_to(postgres_url)
    given = (Bigints([1, -(2**62)]), Texts(["ä", None]), Blobs([None, b"\0"]), Moments([None, 1_700_000_000_123]))
    sql = "SELECT * FROM unnest(%s::bigint[], %s::text[], %s::bytea[], %s::timestamptz[])"
    assert link.execute(sql, given) == [(1, "ä", None, None), (-(2**62), None, b"\0", 1_700_000_000_123)]
    assert link.execute(sql, (Bigints(), Texts(), Blobs(), Moments())) == []
    assert link.execute("SELECT %s, %s", (Moment(-5), Moment(0))) == [(-5, 0)]


@pytest.mark.slow
def test_what_an_error_means(link_to: Callable[[str], Link]) -> None:
    """An outage closes the connection, and the next statement opens another one."""
    with Server() as server:
        link = link_to(server.url())
        made(link)
        with pytest.raises(Exception, match="division by zero") as caught:
            link.execute("SELECT 1/0")
        assert not isinstance(caught.value, Outage | Again | StoreDown)
        with pytest.raises(StoreDown, match="migrate"):
            link.execute("SELECT * FROM {s}.unknown")
        link.execute("SET statement_timeout = '20ms'")
        with pytest.raises(Again):
            link.execute("SELECT pg_sleep(5)")
        server.crash()
        for _ in range(2):
            with pytest.raises(Outage):
                link.execute("SELECT 1")
        server.start()
        assert link.execute("SELECT 1") == [(1,)]
        cutter = threading.Timer(0.2, link.cut)
        cutter.start()
        with pytest.raises(Outage):
            link.execute("SELECT pg_sleep(20)")
        cutter.join()
        assert link.execute("SELECT count(*) FROM {s}.runs") == [(0,)]


def test_a_schema_needs_a_name_that_a_schema_can_have() -> None:
    assert _pg_schema.quoted('a"b') == '"a""b"'
    for name in ("", "pg_mine", "x" * 64, "a\0"):
        with pytest.raises(StoreOpenError):
            _pg_schema.quoted(name)
