"""Indexes of migrations: made beside the work of processes, and made good after a crash, a failure, or by others."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
import trio
from tests.support.postgres_rows import NOON, add_process, add_runs

from greenroom.actors.stores.postgres import _claims as _pg_claims
from greenroom.actors.stores.postgres import _reads as _pg_reads
from greenroom.actors.stores.postgres._connect import Link
from greenroom.actors.stores.postgres._indexes import make_indexes, missing_indexes
from greenroom.actors.stores.postgres._schema import PG_MIGRATIONS, migrate
from greenroom.actors.stores.postgres.admin import level, show
from greenroom.actors.stores.postgres.admin import migrate as migrate_as_owner
from greenroom.actors.stores.postgres.store import PostgresStore
from greenroom.actors.testing.store_kit.kit import opened

INDEXES = [index.name for migration in PG_MIGRATIONS for index in migration.indexes]
NAMES = ", ".join(INDEXES)
TIMES: dict[str, Any] = {"lease": 6.0, "turn": 0.5, "margin": 1.0}


@pytest.fixture
def link(link_to: Callable[[str], Link], postgres_url: str) -> Link:
    """Of a schema whose migration ended before its indexes: the tables of the first release, then only the rest."""
    link = link_to(postgres_url)
    assert migrate(link, link.target.schema, PG_MIGRATIONS[:1], make_epoch=lambda: "e") == 1
    assert migrate(link, link.target.schema, PG_MIGRATIONS, make_epoch=lambda: "e") == len(PG_MIGRATIONS) - 1
    return link


def missing(link: Link) -> list[tuple[str, bool]]:
    """The names of the indexes that are missing, each with whether it is invalid."""
    return [(index.name, invalid) for index, invalid in missing_indexes(link, link.target.schema)]


@contextmanager
def old_snapshot(url: str) -> Iterator[psycopg.Connection[Any]]:
    """A transaction with a snapshot, such as a backup's, for which an index is waited for."""
    with psycopg.connect(url.partition("?")[0]) as connection:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT 1")
        yield connection


async def eventually(check: Callable[[], Any], seconds: float = 20.0) -> Any:
    """The first true value of a check."""
    with trio.fail_after(seconds):
        while not (value := await trio.to_thread.run_sync(check)):  # noqa: ASYNC110 - the server changes it
            await trio.sleep(0.02)
    return value


def builders(link: Link, name: str = "%") -> list[int]:
    """The backends that make an index now."""
    sql = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'CREATE INDEX CONC%%' AND query LIKE %s AND pid <> %s"
    return [pid for (pid,) in link.execute(sql, (f"%{link.target.schema}%", 0))]


async def test_an_index_that_a_crash_left_out_is_made_by_the_next_opening(link: Link, postgres_url: str):
    assert missing(link) == [(name, False) for name in INDEXES]
    async with opened(PostgresStore(postgres_url, **TIMES)):
        await eventually(lambda: missing(link) == [])


async def test_an_index_whose_making_was_ended_is_dropped_and_made_again(link: Link, postgres_url: str):
    """The server marks such an index as invalid, and IF NOT EXISTS would keep it for ever."""
    with old_snapshot(postgres_url):
        async with opened(PostgresStore(postgres_url, **TIMES)):
            (pid,) = await eventually(lambda: builders(link))
            link.execute("SELECT pg_terminate_backend(%s)", (pid,))
            await eventually(lambda: pid not in builders(link))
            broken = [("runs_working", True), *((name, False) for name in INDEXES[1:])]
            assert missing(link) == broken
            index = PG_MIGRATIONS[1].indexes[0]
            link.execute(index.create())
            assert missing(link) == broken
    async with opened(PostgresStore(postgres_url, **TIMES)):
        await eventually(lambda: missing(link) == [])


async def test_a_process_that_leaves_does_not_wait_for_its_index(link: Link, postgres_url: str):
    with old_snapshot(postgres_url):
        async with opened(PostgresStore(postgres_url, **TIMES)):
            await eventually(lambda: builders(link))
            began = trio.current_time()
        assert trio.current_time() - began < 5.0
    await eventually(lambda: not builders(link))
    async with opened(PostgresStore(postgres_url, **TIMES)):
        await eventually(lambda: missing(link) == [])


async def test_processes_that_open_together_and_migrate_make_each_index_once(link_to, postgres_url: str, caplog):
    link = link_to(postgres_url)
    migrate(link, link.target.schema, PG_MIGRATIONS[:1], make_epoch=lambda: "e")
    caplog.set_level(logging.INFO, "greenroom.store")
    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(_open_until, postgres_url, lambda: missing(link) == [])
    assert [record.message for record in caplog.records if "made the" in record.message] == [
        f"made the indexes {NAMES}"
    ]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def _open_until(url: str, check: Callable[[], object]) -> None:
    async with opened(PostgresStore(url, **TIMES)):
        await eventually(check)
        await trio.sleep(0.5)  # those who found the lock taken look again


def test_sessions_that_make_indexes_at_once_do_not_deadlock(link: Link, link_to, postgres_url: str):
    made: list[list[str] | None] = []
    links = [link_to(postgres_url) for _ in range(6)]
    threads = [threading.Thread(target=lambda link=link: made.append(make_indexes(link))) for link in links]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made.count(INDEXES) == 1
    assert len(made) == 6
    assert missing(link) == []


@contextmanager
def service_role(link: Link, url: str) -> Iterator[str]:
    """The URL of a role that may use the tables, and not change them."""
    role = "service_" + parse_qs(urlsplit(url).query)["schema"][0]
    link.execute(f"CREATE ROLE {role} LOGIN")
    try:
        link.execute(f"GRANT USAGE ON SCHEMA {{s}} TO {role}")
        link.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {{s}} TO {role}")
        yield url.replace(f"//{urlsplit(url).username}@", f"//{role}@")
    finally:
        link.execute(f"DROP OWNED BY {role}")
        link.execute(f"DROP ROLE {role}")


async def test_a_service_role_works_without_the_index_and_the_owner_makes_it(link: Link, postgres_url: str, caplog):
    with service_role(link, postgres_url) as url:
        async with opened(PostgresStore(url, **TIMES)) as log:
            facts = await trio.to_thread.run_sync(show, url)
            assert (facts["lacking"], facts["fault"]) == ([], None)
            assert any(f"slow without the index {NAMES}" in line for line in facts["warnings"])
            assert log.voids == 0
        assert f"slow without the index {NAMES}: run `greenroom db migrate`" in caplog.text
        assert missing(link) == [(name, False) for name in INDEXES]
        refused = await trio.to_thread.run_sync(migrate_as_owner, url)
        assert refused["applied"] == 0
        assert "let the owner of the tables" in refused["warnings"][0]
        done = await trio.to_thread.run_sync(migrate_as_owner, postgres_url)
        assert (done["applied"], done["indexes"]) == (0, f"made {NAMES}")
        caplog.clear()
        async with opened(PostgresStore(url, **TIMES)):
            facts = await trio.to_thread.run_sync(show, url)
    assert not any("without the index" in line for line in facts["warnings"])
    assert caplog.text == ""


async def test_a_pool_makes_no_index_for_its_sessions_are_not_the_servers(link: Link, postgres_url: str, caplog):
    async with opened(PostgresStore(f"{postgres_url}&pooled=1", **TIMES)):
        assert f"slow without the index {NAMES}" in caplog.text
    assert missing(link) == [(name, False) for name in INDEXES]
    done = await trio.to_thread.run_sync(migrate_as_owner, f"{postgres_url}&pooled=1")
    assert "without pooled=1" in done["warnings"][0]
    direct = f"{postgres_url}&pooled=1&listen={postgres_url.partition('?')[0]}"
    async with opened(PostgresStore(direct, **TIMES)):
        await eventually(lambda: missing(link) == [])


def test_a_migration_by_hand_waits_for_a_short_lock_and_for_an_index_that_is_being_made(link_to, postgres_url: str):
    link = link_to(postgres_url)
    migrate(link, link.target.schema, PG_MIGRATIONS[:1], make_epoch=lambda: "e")
    done: list[Any] = []
    with old_snapshot(postgres_url) as holder:
        holder.execute(f'LOCK "{link.target.schema}".processes IN ACCESS SHARE MODE'.encode())  # as pg_dump takes it
        thread = threading.Thread(target=lambda: done.append(migrate_as_owner(postgres_url)))
        thread.start()
        thread.join(5.5)  # longer than the limit of a wait for a lock
        assert done == []
    thread.join(30)
    assert (done[0]["applied"], done[0]["indexes"]) == (len(PG_MIGRATIONS) - 1, f"made {NAMES}")


async def test_the_age_of_a_beat_is_known_except_of_a_release_that_does_not_say(link: Link, postgres_url: str):
    add_process(link, "older")
    async with opened(PostgresStore(postgres_url, **TIMES, name="newer")) as _:
        shown = await trio.to_thread.run_sync(partial(show, postgres_url))
        ages = {one["name"]: one["beatAge"] for one in shown["processes"]}
        assert ages["older"] == "unknown"
        assert 0.0 <= float(ages["newer"].removesuffix(" s")) < 5.0
        listed = {one["name"]: one["beatAge"] for one in level(postgres_url)["processes"]}
        assert listed["older"] == "unknown"
        assert {info.name: info.beat_age is None for info in _pg_claims.processes(link)} == {
            "older": True,
            "newer": False,
        }


def test_tables_of_the_first_release_are_shown_before_they_are_migrated(link_to, postgres_url: str):
    link = link_to(postgres_url)
    migrate(link, link.target.schema, PG_MIGRATIONS[:1], make_epoch=lambda: "e")
    add_process(link, "p")
    facts = show(postgres_url)
    assert facts["schema"].endswith(f"version 1 of {len(PG_MIGRATIONS)}; run `greenroom db migrate`")
    assert [one["beatAge"] for one in facts["processes"]] == ["unknown"]
    assert not any("without the index" in line for line in facts["warnings"])


def test_counting_what_works_in_a_queue_reads_no_other_run(link: Link):
    """10,000 live runs that wait for people, and 10,000 ready ones, share the queue with one that works."""
    make_indexes(link)
    process = add_process(link)
    add_runs(link, "waiting", 10_000, queue="q", owner=process, status="waiting")
    add_runs(link, "ready", 10_000, queue="q")
    add_runs(link, "working", 1, queue="q", owner=process, status="running")
    link.execute("VACUUM ANALYZE {s}.runs")
    sql = f"SELECT count(*) FROM {{s}}.runs WHERE queue = %s AND {_pg_claims.WORKS}"  # noqa: S608 - a condition of our own
    assert link.execute(sql, ("q",)) == [(1,)]
    plan = "\n".join(line for (line,) in link.execute(f"EXPLAIN (ANALYZE, BUFFERS) {sql}", ("q",)))
    assert "runs_working" in plan
    assert "Rows Removed" not in plan


def test_the_next_deadline_of_runs_in_queues_is_found_without_reading_the_queues(link: Link):
    make_indexes(link)
    process = add_process(link)
    add_runs(link, "ready", 10_000, queue="q")
    add_runs(link, "working", 1_000, queue="q", owner=process, status="running", next_due=NOON)
    add_runs(link, "timed", 100, queue="q", next_due=NOON + timedelta(hours=1))
    link.execute("VACUUM ANALYZE {s}.runs")
    assert _pg_reads.next_due(link) == NOON + timedelta(hours=1)
    plan = "\n".join(line for (line,) in link.execute(f"EXPLAIN (ANALYZE, BUFFERS) {_pg_reads._NEXT_DUE}"))
    assert "runs_overdue" in plan
    assert "runs_due" in plan
    assert "Rows Removed" not in plan
