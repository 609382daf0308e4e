"""Processes on PostgreSQL when connections are cut, answers do not come, the server restarts, or fails over."""

import subprocess
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
import trio
from tests.support.cutting_proxy import MODES, CuttingProxy, Mode
from tests.support.postgres import Server, need_binaries

import greenroom as gr
from greenroom.actors.abc import Store
from greenroom.actors.contract.claims import Claim
from greenroom.actors.errors import NewerRelease, StoreDown, StoreOpenError, StoreUnavailable
from greenroom.actors.processes import Ability
from greenroom.actors.store_events import ClaimsVoided, StoreEvent
from greenroom.actors.stores.common._process import Standing
from greenroom.actors.stores.postgres._schema import PG_MIGRATIONS, PgMigration
from greenroom.actors.stores.postgres.store import PostgresStore
from greenroom.actors.testing.store_kit._tools import frame, judge, message, say
from greenroom.actors.testing.store_kit.kit import Author, ReportLog, create, new_run, opened
from greenroom.supervision import open_collapsing_nursery
from greenroom.testing import ScriptedModel

pytestmark = [pytest.mark.slow, pytest.mark.no_cover]

TIMES: dict[str, Any] = {"lease": 3.0, "turn": 0.25, "margin": 0.6, "answer": 1.5}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as own:
        yield own


@pytest.fixture(autouse=True)
def running_again(server: Server) -> Iterator[None]:
    yield
    if server.pid is None:
        server.start()


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[CuttingProxy]:
    with CuttingProxy(urlsplit(postgres_url).port or 5432) as proxy:
        yield proxy


def through(url: str, proxy: CuttingProxy, **options: Any) -> PostgresStore:
    """A store on this schema behind the proxy."""
    return PostgresStore(url.replace(f":{urlsplit(url).port}/", f":{proxy.port}/"), **{**TIMES, **options})


async def eventually(check: Callable[[], object], seconds: float = 10.0) -> None:
    """Wait until a check is true."""
    with trio.fail_after(seconds):
        while not check():  # noqa: ASYNC110 - threads and servers change it
            await trio.sleep(0.02)


async def patiently(call: Callable[[], Any], seconds: float = 10.0) -> Any:
    """Call until the store answers, as a client does."""
    with trio.fail_after(seconds):
        while True:
            try:
                return await call()
            except StoreUnavailable:
                await trio.sleep(0.05)


async def owners(store: Store, *run_ids: str) -> list[str | None]:
    return [line.owner for line in (await store.summaries(run_ids)).runs]


async def ready(store: Store, agent: str, room: int = 10) -> list[Any]:
    return list(await store.claim_ready(room, Ability(agents=frozenset({agent})), datetime.now(UTC)))


# --- cuts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
async def test_each_request_acts_once_though_its_connection_is_cut(
    mode: Mode, proxy: CuttingProxy, postgres_url: str
) -> None:
    """Before the server has the request, after it has done it, and while the outcome is unknown: one outcome, once."""
    proxy.hole = 0.3
    store = through(postgres_url, proxy)
    watcher = PostgresStore(postgres_url, **TIMES)
    async with opened(store), opened(watcher):
        proxy.arm(mode, containing=b"made")
        author = await patiently(lambda: create(store, new_run("made", "t", agent="a")))
        proxy.arm(mode, containing=b"UPDATE")
        receipt = await author.send(author.make(2)).receipt()
        assert (receipt.kind, receipt.last) == ("committed", 3)
        author.row = (await watcher.load("made")).row  # type: ignore[union-attr]
        proxy.arm(mode, containing=b"once")
        result = await patiently(lambda: store.post("made", say("once"), judge))
        assert result.status in ("accepted", "duplicate")
        assert len(await watcher.commands("made")) == 1
        for number in range(5):
            await watcher.create_run(
                new_run(f"q{number}", f"q{number}", agent="q"), frame(f"q{number}", 1), claim=False
            )
        proxy.arm(mode, containing=b"pair AS")
        claimed = await patiently(lambda: ready(store, "q"))
        assert len(claimed) == 5
        proxy.arm(mode, containing=b"owner = NULL")
        await patiently(lambda: store.give_back([run.claim for run in claimed]))
        assert await owners(watcher, *(f"q{number}" for number in range(5))) == [None] * 5
    assert proxy.cuts[mode] >= 4


async def test_what_a_process_did_among_others_is_counted(postgres_url: str) -> None:
    calm: dict[str, Any] = {"lease": 60.0, "turn": 20.0}
    a, b, c = (PostgresStore(postgres_url, name=name, **calm) for name in "abc")
    async with opened(a) as reports, opened(b):
        await create(a, new_run("created", "t1"))
        await a.create_run(new_run("queued", "t2"), frame("queued", 1), claim=False)
        assert len(await a.claim_ready(5, Ability(), datetime.now(UTC))) == 1
        await a.create_run(new_run("named", "t3"), frame("named", 1), claim=False)
        assert isinstance(await a.claim("named"), Claim)
        assert a.statistics().claims == 3
        await eventually(lambda: (b.statistics().hints_sent, a.statistics().hints_received) == (1, 1))  # b has joined
        await b.post("created", say("s"), judge)
        await eventually(lambda: reports.items)
        assert (b.statistics().hints_sent, a.statistics().hints_received) == (2, 2)
        async with opened(c):
            for number in range(3):
                await create(c, new_run(f"c{number}", f"c{number}"))
            assert await b.bury("c")
            await eventually(lambda: a.statistics().freed + b.statistics().freed == 3)  # a turn of a's may be faster
            assert a.statistics().dead_letters + b.statistics().dead_letters == 0
            assert (b.statistics().reconnects, b.statistics().repeated) == (0, 0)


@pytest.mark.parametrize("request_of", ["commit", "post"])
async def test_connections_opened_again_and_statements_sent_again_are_counted(
    proxy: CuttingProxy, postgres_url: str, request_of: str
) -> None:
    store = through(postgres_url, proxy)
    async with opened(store):
        author = await create(store, new_run("r", "t"))
        await author.write(1)
        counts = store.statistics()
        assert (counts.reconnects, counts.repeated) == (0, 0)
        proxy.arm("after", containing=b"needle")
        if request_of == "commit":
            receipt = await author.send(author.make(0, messages=(message("needle"),))).receipt()
            assert receipt.kind == "committed"
        else:
            assert (await store.post("r", say("needle"), judge)).status == "accepted"
        assert proxy.cuts["after"] == 1
        counts = store.statistics()
        assert (counts.reconnects, counts.repeated) == (1, 1)


async def test_a_lost_claim_is_given_back_though_its_caller_went_away(proxy: CuttingProxy, postgres_url: str) -> None:
    """The rows call a run mine, and no actor knows it: a turn gives such a run back."""
    store = through(postgres_url, proxy)
    watcher = PostgresStore(postgres_url, **TIMES)
    async with opened(store), opened(watcher):
        author = await create(store, new_run("r", "t", agent="q"))
        store._book.forget("r", author.claim.token)

        async def free() -> bool:
            return await owners(watcher, "r") == [None]

        with trio.fail_after(10):
            while not await free():  # noqa: ASYNC110 - another process changes it
                await trio.sleep(0.05)
        assert len(await ready(watcher, "q")) == 1


async def test_an_answer_that_does_not_come_is_not_waited_for(proxy: CuttingProxy, postgres_url: str) -> None:
    """The watchdog ends the connection; the commit is sent again and written once."""
    store = through(postgres_url, proxy, lease=20.0)
    async with opened(store) as reports:
        author = await create(store, new_run("r", "t"))
        proxy.frozen = True
        begun = time.monotonic()
        late = author.send(author.make(2))
        await eventually(lambda: reports.outages, 15.0)
        assert time.monotonic() - begun < 10.0, "one answer and one attempt to connect"
        with pytest.raises(StoreUnavailable):
            await store.post("r", say("c"), judge)
        proxy.frozen = False
        receipt = await late.receipt()
        assert (receipt.kind, receipt.last) == ("committed", 3)
        assert reports.voids == 0
        assert store.statistics().reconnects > 0
        assert list(await store.events("r", after=1)) == [frame("r", 2), frame("r", 3)]


async def test_hints_of_a_process_that_leaves_at_once_arrive(postgres_url: str) -> None:
    """As a command line does: it posts a command or starts a run, and ends. The others' next turns are far away."""
    owner = PostgresStore(postgres_url, lease=60.0, turn=20.0)
    async with opened(owner) as reports:
        owner.publish({"a": "digest"}, room=9)
        await create(owner, new_run("r", "t"))
        await trio.sleep(0.3)
        for number in range(3):
            works, name = reports.works, f"q{number}"
            poster = PostgresStore(postgres_url, lease=60.0, turn=20.0)
            async with opened(poster):
                await poster.post("r", say(f"c{number}"), judge)
                await poster.create_run(new_run(name, name, agent="a"), frame(name, 1), claim=False)
            await eventually(lambda number=number: len(reports.items) > number, 5.0)  # type: ignore[misc]
            await eventually(lambda works=works: reports.works > works, 5.0)  # type: ignore[misc]


# --- the server ------------------------------------------------------------------------------------------------------


async def test_a_restart_of_the_server_voids_no_claim_and_hints_come_again(server: Server) -> None:
    a, b = (PostgresStore(server.url(schema="restarted"), **{**TIMES, "turn": 2.0, "lease": 12.0}) for _ in "ab")
    async with opened(a) as log_a, opened(b):
        author = await create(a, new_run("r", "t"))
        await trio.to_thread.run_sync(server.restart)
        assert (await author.send(author.make(1)).receipt()).kind == "committed"
        await patiently(lambda: b.post("r", say("first"), judge))
        await eventually(lambda: log_a.items)
        await eventually(lambda: b.unready is None and a.unready is None)
        await trio.sleep(0.3)  # the listener has its new connection
        begun = time.monotonic()
        await b.post("r", say("second"), judge)
        await eventually(lambda: len({item.position for _, item in log_a.items}) == 2)
        assert time.monotonic() - begun < 1.0, "by a hint, not by the turn"
        assert log_a.voids == 0


async def test_while_claims_are_not_good_none_is_made(postgres_url: str) -> None:
    """From the end of the lease until the runs are given back."""
    store = PostgresStore(postgres_url, lease=60.0, turn=20.0)
    async with opened(store):
        await store.create_run(new_run("q", "q"), frame("q", 1), claim=False)
        machine = store._peers.lease.machine  # type: ignore[union-attr]
        machine.standing = Standing.VOID  # the state lasts for a moment only, on a machine that is not stopped
        asking: list[Callable[[], Awaitable[object]]] = [
            lambda: store.claim("q"),
            lambda: store.claim_ready(5, Ability(), datetime.now(UTC)),
            lambda: store.claim_due(datetime.now(UTC), Ability()),
            lambda: store.create_run(new_run("r", "r"), frame("r", 1)),
        ]
        for ask in asking:
            with pytest.raises(StoreUnavailable, match="the lease of this process has run out"):
                await ask()
        assert "the lease of this process has run out" in (store.unready or "")
        machine.standing = Standing.GOOD
        assert store.unready is None
        (run,) = await store.claim_ready(5, Ability(), datetime.now(UTC))
        assert run.claim.run_id == "q"
        (info,) = await store.processes()
        assert info.runs == 1


async def test_a_run_of_a_newer_release_is_not_claimed_by_its_id(postgres_url: str) -> None:
    store = PostgresStore(postgres_url, lease=60.0, turn=20.0)
    async with opened(store):
        await store.create_run(new_run("r", "t"), frame("r", 1), claim=False)
        schema = store.target.schema
        with psycopg.connect(postgres_url.partition("?")[0], autocommit=True) as connection:
            connection.execute(f'UPDATE "{schema}".runs SET level = 99'.encode())  # noqa: S608
        with pytest.raises(NewerRelease, match="written by a newer release"):
            await store.claim("r")
        (info,) = await store.processes()
        assert info.runs == 0


async def test_the_clock_of_the_server_is_known_by_the_shortest_round_trip(postgres_url: str) -> None:
    store = PostgresStore(postgres_url, lease=60.0, turn=20.0)
    async with opened(store):
        assert abs(store.offset) < 1.0
        samples = store._peers.lease._samples  # type: ignore[union-attr]
        samples.clear()
        samples.extend([(5.0, 0.2), (3.0, 0.1), (4.0, 0.3)])
        assert store.offset == 3.0


async def test_an_outage_longer_than_the_lease_buries_no_process(server: Server) -> None:
    """Both void their claims by themselves, and go on under their names once the server answers."""
    a, b = (PostgresStore(server.url(schema="outage"), **TIMES) for _ in "ab")
    async with opened(a) as log_a, opened(b) as log_b:
        author = await create(a, new_run("r", "t", agent="q"))
        names = [a.process, b.process]
        server.stop()
        assert a.unready is None
        await eventually(lambda: log_a.voids and log_b.voids)
        assert a.good_until < trio.current_time()
        assert a.unready is not None
        await trio.sleep(2 * TIMES["lease"])
        server.start()
        await eventually(lambda: a.good_until > trio.current_time() < b.good_until)
        assert [a.process, b.process] == names
        assert {info.name: info.dead for info in await patiently(a.processes)} == dict.fromkeys(names, False)
        assert (await author.send(author.make(0)).receipt()).kind == "lease_lost"
        (run,) = await patiently(lambda: ready(b, "q"))
        row = (await b.load("r")).row  # type: ignore[union-attr]
        assert (await Author(b, run.claim, row).write()).kind == "committed"
        assert log_a.voids == log_b.voids == 1


async def test_a_server_that_became_read_only_is_waited_for(server: Server) -> None:
    """As an old primary after a failover: each connection is opened anew, until one leads to a server that writes."""
    store = PostgresStore(server.url(schema="readonly"), **{**TIMES, "lease": 20.0})
    async with opened(store) as reports:
        author = await create(store, new_run("r", "t"))
        set_read_only(server, "on")
        late = author.send(author.make(1))
        await eventually(lambda: reports.outages)
        await eventually(lambda: store.unready is not None)
        assert "the newest beat of this process was confirmed" in (store.unready or "")
        set_read_only(server, "off")
        receipt = await late.receipt()
        assert (receipt.kind, receipt.last) == ("committed", 2)
        assert reports.outages[-1] is None
        assert reports.voids == 0


def set_read_only(server: Server, value: str) -> None:
    """Let new and present connections write no more, or again."""
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only = off")
        connection.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}".encode())
        connection.execute("SELECT pg_reload_conf()")
        time.sleep(0.2)  # noqa: TID251 - the server's processes read it by themselves


async def test_a_receiver_that_raises_ends_the_store(server: Server) -> None:
    """The error is the store's end, and is not lost; the runs are given back all the same."""

    def broken(event: StoreEvent) -> None:
        if isinstance(event, ClaimsVoided):
            raise ZeroDivisionError("a fault of the receiver")

    store, watcher = (PostgresStore(server.url(schema="broken"), **TIMES) for _ in "ab")
    async with opened(watcher):

        async def buried() -> None:
            async with open_collapsing_nursery() as nursery:
                await nursery.start(store.run, broken)
                await create(store, new_run("r", "t", agent="q"))
                assert await watcher.bury(store.process)
                await trio.sleep(10)

        with pytest.raises(StoreDown, match="a fault of the receiver"):
            await buried()
        assert await owners(watcher, "r") == [None]


@pytest.mark.parametrize("damage", ["DROP SCHEMA {s} CASCADE", "DROP TABLE {s}.processes", "DROP TABLE {s}.runs"])
async def test_tables_that_are_gone_end_a_runtime_with_one_sentence(server: Server, damage: str) -> None:
    """Several tasks of the store meet the fault at the same time."""
    schema = f"gone_{damage.count(' ')}{len(damage)}"
    agent = gr.Agent("a", model=ScriptedModel(["done"] * 200))

    async def worked() -> None:
        async with gr.open_runtime(PostgresStore(server.url(schema=schema), **TIMES), agents=[agent]) as runtime:
            for number in range(60):
                if number == 20:
                    await trio.to_thread.run_sync(execute, server.url(), damage.format(s=schema))
                with suppress(gr.StoreError):
                    await runtime.start(agent, "go")
            await runtime.closed()

    with trio.fail_after(20), pytest.raises(gr.RuntimeFailed, match=r"PostgreSQL refuses \(relation") as caught:
        await worked()
    assert "db migrate" in str(caught.value)


def execute(url: str, statement: str) -> None:
    """Execute a statement of an administrator."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET client_min_messages = warning")
        connection.execute(statement.encode())


async def test_no_thread_is_left_when_a_store_closes_in_an_outage(server: Server) -> None:
    store = PostgresStore(server.url(schema="closing"), **TIMES, patience=1.0)
    before = {thread.name for thread in threading.enumerate()}
    async with opened(store):
        await create(store, new_run("r", "t"))
        server.stop()
        await trio.sleep(0.3)
        begun = time.monotonic()
    assert time.monotonic() - begun < 5.0
    with trio.fail_after(5):
        while any(  # noqa: ASYNC110 - threads end by themselves
            thread.name.startswith("greenroom") for thread in threading.enumerate()
        ):
            await trio.sleep(0.05)
    assert {name for name in before if name.startswith("greenroom")} == set()


async def test_a_process_whose_server_is_cut_off_for_good_leaves_in_time(
    proxy: CuttingProxy, postgres_url: str
) -> None:
    store = through(postgres_url, proxy)
    with trio.fail_after(20):
        async with opened(store):
            await create(store, new_run("r", "t"))
            proxy.frozen = True


# --- another server --------------------------------------------------------------------------------------------------


def basebackup(primary: Server, folder: str) -> None:
    """Make a standby of a server; its folder is what `Server` runs from."""
    command = [need_binaries() / "pg_basebackup", "-D", folder, "-R", "-h", "127.0.0.1", "-p", str(primary.port), "-U"]
    subprocess.run([*command, urlsplit(primary.url()).username or "", "-X", "stream"], check=True, **_as_owner(primary))


def _as_owner(server: Server) -> dict[str, Any]:
    return server._as


@asynccontextmanager
async def failing_over() -> AsyncIterator[tuple[Server, Server]]:
    """A primary and its standby, both running."""
    with ExitStack() as stack:
        primary = stack.enter_context(Server(settings={"wal_level": "replica", "max_wal_senders": "4"}))
        standby = Server()
        stack.callback(standby.close)

        def follow() -> None:
            subprocess.run(["rm", "-rf", str(standby.folder / "data")], check=True)
            basebackup(primary, str(standby.folder / "data"))
            standby.start()

        await trio.to_thread.run_sync(follow)
        yield primary, standby


async def test_a_failover_gives_the_logs_one_new_name_in_every_process() -> None:
    """Several hosts in the address: each process finds the new primary by itself, and continues."""
    async with failing_over() as (primary, standby):
        user = urlsplit(primary.url()).username
        url = f"postgresql://{user}@127.0.0.1:{primary.port},127.0.0.1:{standby.port}/postgres?schema=over"
        a, b = (PostgresStore(url, **{**TIMES, "lease": 20.0}) for _ in "ab")
        async with opened(a) as log_a, opened(b) as log_b:
            before = a.epoch
            author = await create(a, new_run("r", "t"))
            await author.write()
            await trio.sleep(0.5)  # the standby has it
            await trio.to_thread.run_sync(primary.crash)
            command = [need_binaries() / "pg_ctl", "promote", "-w", "-D", str(standby.folder / "data")]
            await trio.to_thread.run_sync(
                lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **_as_owner(standby))
            )
            assert (await author.send(author.make(1)).receipt()).kind == "committed"
            await eventually(lambda: log_a.epochs and log_b.epochs, 20.0)
            assert a.epoch == b.epoch == log_a.epochs[-1] == log_b.epochs[-1] != before
            assert len(log_a.epochs) == len(log_b.epochs) == 1
            assert list(await b.events("r")) == [frame("r", number) for number in (1, 2, 3)]
            assert log_a.voids == log_b.voids == 0


async def test_a_process_stops_in_order_when_the_tables_need_a_newer_release(postgres_url: str) -> None:
    """Its runs are given back, its store says why, and a process of the newer release takes them."""
    known = len(PG_MIGRATIONS)
    breaking = PgMigration(summary="x", statements=("ALTER TABLE {s}.runs DROP COLUMN place",), oldest=known + 1)
    text = f"needs a release of schema version {known + 1} or newer, and this release knows {known}"
    old, reports = PostgresStore(postgres_url, **TIMES), ReportLog()
    newer = PostgresStore(postgres_url, migrations=(*PG_MIGRATIONS, breaking), **TIMES)

    async def outdated() -> None:
        async with open_collapsing_nursery() as nursery:
            await nursery.start(old.run, reports)
            await create(old, new_run("r1", "t1"))
            async with opened(newer):
                await trio.sleep_forever()

    with pytest.raises(StoreDown, match=text):
        await outdated()
    assert reports.voids == 1
    async with opened(newer):
        assert isinstance(await newer.claim("r1"), Claim)
    with pytest.raises(StoreOpenError, match=text):
        await old.run(reports)
