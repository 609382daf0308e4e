"""Roles and processes that are not ours on the database of a store: what they send ends nothing, and delays nothing."""

import secrets
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import UTC, datetime
from typing import Any

import psycopg
import psycopg.sql
import pytest
import trio
from tests.support.postgres import Server
from tests.support.postgres_rows import add_runs, tables

from greenroom.actors.processes import Ability
from greenroom.actors.stores.postgres import admin as postgres_admin
from greenroom.actors.stores.postgres._heard import MOST_BYTES
from greenroom.actors.stores.postgres._hints import channel_prefix
from greenroom.actors.stores.postgres.store import PostgresStore
from greenroom.actors.testing.store_kit._tools import frame, judge, say
from greenroom.actors.testing.store_kit.kit import ReportLog, create, new_run, opened

pytestmark = [pytest.mark.slow, pytest.mark.no_cover]

TIMES: dict[str, Any] = {"lease": 3.0, "turn": 0.25, "margin": 0.6, "answer": 1.5}

ODD = (
    *("", ":", "x", "c:", "c:x", "c:1 x", f"c:{1 << 70}", "c:-1", "c:" + "9" * 7_990, "h:one", "h:" + "1 " * 3_990),
    *(
        "m:",
        "m:1",
        "m:1:",
        "m:x:1",
        f"m:1:{1 << 70}",
        "w:",
        "w:x:agent",
        "w:1",
        f"w:0:{'a' * 7_990}",
        "s:",
        "s:1",
        "k:",
    ),
)
"""Payloads of every kind that no process of ours sends."""


@pytest.fixture
def stranger(postgres_server: str) -> Iterator[str]:
    """The URL of a role with nothing but CONNECT."""
    name = f"stranger_{secrets.token_hex(4)}"
    with psycopg.connect(postgres_server, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {name} LOGIN".encode())
        try:
            yield postgres_server.replace("//greenroom@", f"//{name}@")
        finally:
            admin.execute(f"DROP OWNED BY {name}".encode())
            admin.execute(f"DROP ROLE {name}".encode())


async def eventually(check: Callable[[], object], seconds: float = 10.0) -> None:
    with trio.fail_after(seconds):
        while not check():  # noqa: ASYNC110 - threads and servers change it
            await trio.sleep(0.02)


def notify(url: str, channel: str, *payloads: str) -> None:
    """Send notifications."""
    with psycopg.connect(url.partition("?")[0], autocommit=True) as session:
        for payload in payloads:
            session.execute("SELECT pg_notify(%s, %s)", (channel, payload))


def channels(url: str) -> str:
    """What the names of the channels of a schema begin with."""
    with tables(url) as link:
        return channel_prefix(link)


def numbers(url: str) -> dict[str, int]:
    """The number of each process, by name."""
    with tables(url) as link:
        return dict(link.execute("SELECT name, number FROM {s}.processes"))


# --- payloads --------------------------------------------------------------------------------------------------------


async def test_payloads_that_no_process_sends_end_no_store_and_are_counted(postgres_url: str) -> None:
    a, b = PostgresStore(postgres_url, **TIMES), PostgresStore(postgres_url, **TIMES)
    async with opened(a) as log, opened(b):
        author = await create(a, new_run("r", "t"))
        channel = f"{channels(postgres_url)}{numbers(postgres_url)[a.process]}"
        await trio.to_thread.run_sync(lambda: notify(postgres_url, channel, *ODD))
        await eventually(lambda: a.statistics().hints_dropped >= 15)
        assert (await b.post("r", say("c"), judge)).status == "accepted"
        await eventually(lambda: log.items)
        assert (await author.write(1)).kind == "committed"
        assert log.voids == 0


async def test_a_role_that_may_only_connect_knows_no_channel(postgres_url: str, stranger: str) -> None:
    """Neither can it send a hint, nor hear one."""
    schema = postgres_url.rpartition("=")[2]
    a, b = PostgresStore(postgres_url, **TIMES), PostgresStore(postgres_url, **TIMES)
    async with opened(a) as log, opened(b):
        await create(a, new_run("r", "t"))

        def attack() -> list[str]:
            for number in range(1, 9):
                notify(stranger, f"greenroom_{schema}_{number}", *ODD)
            with psycopg.connect(stranger, autocommit=True) as session:
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    session.execute(psycopg.sql.SQL("TABLE {}").format(psycopg.sql.Identifier(schema, "about")))
                seen = session.execute("SELECT coalesce(query, '') || application_name FROM pg_stat_activity")
                return [text for (text,) in seen]

        seen = await trio.to_thread.run_sync(attack)
        assert (await b.post("r", say("c"), judge)).status == "accepted"
        await eventually(lambda: log.items)
        assert a.statistics().hints_dropped == b.statistics().hints_dropped == 0
        prefix = channels(postgres_url)
        assert not [text for text in seen if prefix in text]


async def test_a_sequence_that_is_too_high_in_a_hint_hides_no_later_event(postgres_url: str) -> None:
    a, b = PostgresStore(postgres_url, **TIMES), PostgresStore(postgres_url, **TIMES)
    async with opened(a), opened(b) as log:
        author = await create(a, new_run("r", "t"))
        with b.watch("r"):
            await eventually(lambda: log.moves)
            channel = f"{channels(postgres_url)}{numbers(postgres_url)[b.process]}"
            with tables(postgres_url) as link:
                ((number,),) = link.execute("SELECT number FROM {s}.runs")
            await trio.to_thread.run_sync(lambda: notify(postgres_url, channel, f"m:{number}:{10**15}"))
            await eventually(lambda: ("r", 10**15) in log.moves)
            await author.write(1)
            await eventually(lambda: ("r", 2) in log.moves)


async def test_an_agent_whose_name_fits_into_no_hint_ends_no_store(postgres_url: str) -> None:
    a, b = PostgresStore(postgres_url, **TIMES), PostgresStore(postgres_url, **TIMES)
    agent = "a" * 9_000
    async with opened(a) as log, opened(b):
        b.publish({agent: "d"}, room=5)
        await trio.sleep(0.5)
        await a.create_run(new_run("r", "t", agent=agent), frame("r", 1), claim=False)
        await eventually(lambda: a.statistics().hints_dropped > 0)
        assert len(await b.claim_ready(5, Ability(agents=frozenset({agent})), datetime.now(UTC))) == 1
        assert log.voids == 0


async def test_a_version_in_a_row_that_is_no_number_ends_no_store(postgres_url: str) -> None:
    a = PostgresStore(postgres_url, **TIMES)
    async with opened(a) as log:
        author = await create(a, new_run("r", "t"))
        with tables(postgres_url) as link:
            link.execute("UPDATE {s}.about SET value = 'two' WHERE name = 'oldest'")
            ((before,),) = link.execute("SELECT max(beat) FROM {s}.processes")
            await eventually(lambda: link.execute("SELECT max(beat) FROM {s}.processes")[0][0] > before + 3)
        assert (await author.write(1)).kind == "committed"
        assert log.voids == 0


@pytest.mark.parametrize("moment", ["infinity", "-infinity", "20000-01-01", "0200-01-01 BC"])
async def test_a_time_that_python_cannot_have_ends_no_list(moment: str, postgres_url: str) -> None:
    a = PostgresStore(postgres_url, **TIMES)
    async with opened(a):
        with tables(postgres_url) as link:
            link.execute("UPDATE {s}.processes SET started_at = %s::timestamptz", (moment,))
            link.execute("INSERT INTO {s}.queues(name) VALUES ('q')")
            add_runs(link, "r", 1, queue="q", ready_at=moment)
        (process,) = await a.processes()
        assert process.started_at is not None
        assert [queue.name for queue in await a.queues()] == ["q"]


# --- floods ----------------------------------------------------------------------------------------------------------


@contextmanager
def flood(url: str, channel: str, payload: str, *, programs: int = 2) -> Iterator[list[int]]:
    """Programs that send notifications as fast as they can; yields how many each has sent."""
    over, sent = threading.Event(), [0] * programs
    statement = "SELECT pg_notify(%s, %s || i) FROM generate_series(1, %s::int) i"
    at_once = max(100, 200_000 // (1 + len(payload)))

    def run(place: int) -> None:
        with psycopg.connect(url.partition("?")[0], autocommit=True) as session:
            while not over.is_set():
                sent[place] += session.execute(statement, (channel, payload, at_once)).rowcount

    threads = [threading.Thread(target=run, args=(place,)) for place in range(programs)]
    for thread in threads:
        thread.start()
    try:
        yield sent
    finally:
        over.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("payload", ["c:", "p:", "w:0:x", "m:1:", "c:" + "1 " * 3_900, "?" * 7_900])
async def test_a_flood_of_hints_delays_no_beat_no_claim_and_no_commit(
    payload: str, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a program that may read the tables, so that it knows the channel."""
    times = TIMES | {"lease": 6.0, "margin": 1.2}  # the flood needs both cores of a small machine
    a, b = PostgresStore(postgres_url, **times), PostgresStore(postgres_url, **times)
    async with opened(a) as log, opened(b) as other:
        author = await create(a, new_run("r", "t"))
        channel = f"{channels(postgres_url)}{numbers(postgres_url)[a.process]}"
        with flood(postgres_url, channel, payload) as sent:
            for turn in range(14):
                await trio.sleep(0.5)
                assert (await author.write(1)).kind == "committed"
                await b.create_run(new_run(f"q{turn}", f"q{turn}", agent="q"), frame(f"q{turn}", 1), claim=False)
                assert len(await a.claim_ready(5, Ability(agents=frozenset({"q"})), datetime.now(UTC))) == 1
                assert a._peers is not None
                assert a._peers._links[0].payloads._size <= MOST_BYTES + 8_000
        assert sum(sent) > 1_000
        assert (log.voids, other.voids) == (0, 0)
        assert {process.name for process in await b.processes() if not process.dead} == {a.process, b.process}


# --- locks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("purpose", ["greenroom ", "greenroom indexes "])
async def test_a_lock_that_a_stranger_holds_keeps_no_process_and_no_owner_waiting(
    purpose: str, postgres_url: str, stranger: str
) -> None:
    """Any role can take any advisory lock."""
    schema = postgres_url.rpartition("=")[2]
    with psycopg.connect(stranger, autocommit=True) as session:
        session.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", (f"{purpose}{schema}",))
        with trio.fail_after(4):
            assert (await trio.to_thread.run_sync(postgres_admin.migrate, postgres_url))["applied"] > 0
            with tables(postgres_url) as link:
                link.execute("DROP INDEX {s}.runs_working")
            made = await trio.to_thread.run_sync(postgres_admin.migrate, postgres_url, abandon_on_cancel=True)
            assert "runs_working" in made["indexes"]
            async with opened(PostgresStore(postgres_url, **TIMES)) as log:
                assert log.voids == 0


# --- processes that join ---------------------------------------------------------------------------------------------


async def test_processes_that_join_take_the_lease_from_none(postgres_url: str) -> None:
    """Each one lets the others take a turn, and no turn may postpone the beats that follow."""
    first = PostgresStore(postgres_url, lease=4.0, turn=0.5, margin=1.0)
    async with opened(first) as log, AsyncExitStack() as stack:
        await create(first, new_run("r", "t"))
        for _ in range(12):
            await stack.enter_async_context(opened(PostgresStore(postgres_url, lease=4.0, turn=0.5, margin=1.0)))
        await trio.sleep(6.0)
        assert log.voids == 0
        assert not [process.name for process in await first.processes() if process.dead]


# --- a restart of the server -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as own:
        yield own


@asynccontextmanager
async def two(url: str) -> AsyncIterator[tuple[PostgresStore, ReportLog, PostgresStore]]:
    a, b = PostgresStore(url), PostgresStore(url)
    async with opened(a) as log, opened(b):
        yield a, log, b


def transactions(url: str) -> int:
    """Transactions of the database; a statement at rest is one."""
    with psycopg.connect(url, autocommit=True) as session:
        session.execute("SELECT pg_stat_clear_snapshot()")
        row = session.execute("SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()").fetchone()
    return int(row[0]) if row else 0


@pytest.mark.parametrize("crash", [True, False])
async def test_a_process_hears_again_after_a_restart_of_the_server(
    crash: bool, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    url = server.url(schema=f"deaf{crash}".lower())
    async with two(url) as (a, log, b):
        await create(a, new_run("r", "t"))
        await trio.sleep(1.0)
        await trio.to_thread.run_sync(lambda: server.restart(crash=crash))
        for store in (a, b):
            await eventually(lambda store=store: store._peers.keeper.hears, 20.0)  # type: ignore[misc]
        await trio.sleep(7.0)  # what is done anew after a connection is done
        before = await trio.to_thread.run_sync(transactions, server.url())
        await trio.sleep(6.0)
        after = await trio.to_thread.run_sync(transactions, server.url())
        assert (after - before) / 6.0 / 2 <= 2.0, "statements per second and process at rest"
        assert "no hint reaches" not in caplog.text
        assert log.voids == 0
        assert (await b.post("r", say("c"), judge)).status == "accepted"
        await eventually(lambda: log.items, 1.0)
