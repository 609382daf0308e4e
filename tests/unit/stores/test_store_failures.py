"""When the whole store fails: what waits, what is told, what is written, and that nobody stays parked."""
# ruff: noqa: PT012 - the whole life of a store stands inside `raises`: its run() is what raises

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from greenroom.actors.abc import Store
from greenroom.actors.contract.commits import Receipt
from greenroom.actors.contract.decisions import Command, CommandResult
from greenroom.actors.contract.lifecycle import RunStatus
from greenroom.actors.contract.run_lists import RunQuery
from greenroom.actors.contract.state import StateWrite
from greenroom.actors.errors import StoreDown, StoreError, StoreUnavailable
from greenroom.actors.stores.common.faults import POINTS, Faults, InjectedCrash
from greenroom.actors.stores.memory.store import MemoryStore
from greenroom.actors.stores.sqlite.store import SQLiteStore
from greenroom.actors.testing.store_kit.kit import Author, ReportLog, SubmittedCommit, create, new_run, opened

Make = Callable[[Faults | None], Store]


class Plan:
    """Faults: raises what is planned for a point, once per plan entry. Empty plans do nothing."""

    def __init__(self) -> None:
        self.left: list[tuple[str, Exception]] = []
        self.always: tuple[str, Exception] | None = None

    def __call__(self, point: str) -> None:
        if self.always is not None and self.always[0] == point:
            raise self.always[1]
        if self.left and self.left[0][0] == point:
            raise self.left.pop(0)[1]


def full() -> Exception:
    return sqlite3.OperationalError("database or disk is full")


@pytest.fixture
def plan() -> Plan:
    return Plan()


@pytest.fixture(params=["memory", "inline"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Stores that are safe under virtual time."""
    if request.param == "memory":
        return lambda faults: MemoryStore(faults=faults, patience=30)
    return lambda faults: SQLiteStore(tmp_path / "runs.db", writer="inline", faults=faults, patience=30)


def allow(_facts: object, _command: object) -> CommandResult:
    return CommandResult(status="accepted")


async def test_an_outage_is_waited_out(make: Make, plan: Plan, autojump_clock: trio.testing.MockClock) -> None:
    """Receipts wait, commands are refused at once, the runtime is told once; then everything is written in order."""
    store = make(plan)
    async with opened(store) as reports:
        author = await create(store, new_run("r1", "t1"))
        error = full()
        plan.always = ("before_commit", error)
        sent = [author.send(author.make(2)) for _ in range(3)]
        assert [one.receipts for one in sent] == [[], [], []]
        assert reports.outages == [error]
        assert store.statistics().queued == 3
        with pytest.raises(StoreUnavailable, match="disk is full"):
            await store.claim("r1")
        assert len(await store.events("r1")) == 1
        await trio.sleep(10)
        assert reports.outages == [error]
        plan.always = None
        assert [(await one.receipt()).last for one in sent] == [3, 5, 7]
        assert reports.outages == [error, None]
        assert await store.claim("r1") is not None
        assert len(await store.events("r1")) == 7
    assert autojump_clock.current_time() < 13


async def test_commands_in_flight_survive_an_outage(
    make: Make, plan: Plan, autojump_clock: trio.testing.MockClock
) -> None:
    """They wait with the receipts, shielded, and are answered when the store answers."""
    store = make(plan)
    async with opened(store) as reports:
        await create(store, new_run("r1", "t1"))
        plan.left = [("before_commit", full()), ("before_commit", full())]
        with trio.move_on_after(0.01) as scope:
            answer = await store.post("r1", Command(command_id="c1", kind="send"), allow)
            assert answer.status == "accepted"
        assert scope.cancel_called
        assert [name for name, _ in reports.items] == ["r1"]


async def test_patience_has_an_end(make: Make, plan: Plan, autojump_clock: trio.testing.MockClock) -> None:
    """Then the store is down: run raises, every receipt is down, and so is all that comes later."""
    store, reports = make(plan), ReportLog()
    later: list[Receipt] = []
    with pytest.RaisesGroup(StoreDown) as caught:
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run, reports)
            author = await create(store, new_run("r1", "t1"))
            plan.always = ("before_commit", full())
            sent = author.send(author.make())
    assert 29.9 <= autojump_clock.current_time() <= 30.1
    (down,) = caught.value.exceptions
    assert isinstance(down.__cause__, sqlite3.OperationalError)
    assert [receipt.kind for receipt in sent.receipts] == ["down"]
    store.submit(author.claim, author.make(), [b"{}"], later.append)
    assert [receipt.kind for receipt in later] == ["down"]
    with pytest.raises(StoreDown):
        await store.claim("r1")


async def test_closing_in_an_outage_tries_once_more(
    make: Make, plan: Plan, autojump_clock: trio.testing.MockClock
) -> None:
    """If that fails too, the receipts are down; nobody waits for the end of the patience."""
    for heals, kind in ((True, "committed"), (False, "down")):
        store = make(plan)
        async with opened(store):
            author = await create(store, new_run(f"r{heals}", f"t{heals}"))
            plan.always = ("before_commit", full())
            sent = author.send(author.make())
            plan.always = None if heals else plan.always
        assert [receipt.kind for receipt in sent.receipts] == [kind]
        plan.always = None
    assert autojump_clock.current_time() < 1


@pytest.mark.parametrize("point", POINTS)
async def test_a_crash_of_the_writer_parks_nobody(tmp_path: Path, plan: Plan, point: str) -> None:
    """Whatever it did: receipts are down, run raises StoreDown, and the file holds all of the commit or nothing."""
    for writer in ("inline", "thread"):
        path = tmp_path / f"{writer}.db"
        store = SQLiteStore(path, writer=writer, faults=plan)
        with pytest.RaisesGroup(StoreDown):
            async with trio.open_nursery() as nursery:
                await nursery.start(store.run, ReportLog())
                author = await create(store, new_run("r1", "t1"))
                plan.left = [(point, InjectedCrash(point))]
                sent = author.send(author.make(3))
                with pytest.raises(StoreDown):
                    while True:
                        await store.claim("r1")
        assert [receipt.kind for receipt in sent.receipts] == ["down"]
        again = SQLiteStore(path, writer="inline")
        async with opened(again):
            assert len(await again.events("r1")) == (4 if point == "after_commit" else 1)


async def test_memory_keeps_what_a_crash_left(plan: Plan) -> None:
    """before_commit: nothing was written; after_commit: it was, and nobody was told."""
    for point, events in (("before_commit", 1), ("after_commit", 2)):
        store = MemoryStore(faults=plan)
        with pytest.RaisesGroup(StoreDown):
            async with trio.open_nursery() as nursery:
                await nursery.start(store.run, ReportLog())
                author = await create(store, new_run("r1", "t1"))
                plan.left = [(point, InjectedCrash(point))]
                assert (await author.send(author.make()).receipt()).kind == "down"
        async with opened(store):
            assert len(await store.events("r1")) == events
            assert await store.claim("r1") is not None


@pytest.mark.parametrize("point", ["begin", "write", "before_commit"])
async def test_every_point_before_the_commit_can_fail_for_a_while(tmp_path: Path, plan: Plan, point: str) -> None:
    """The batch is rolled back and written again as one; the thread's way, in real time (0.05 s)."""
    store = SQLiteStore(tmp_path / "runs.db", faults=plan)
    async with opened(store) as reports:
        author = await create(store, new_run("r1", "t1"))
        other = await create(store, new_run("r2", "t2"))
        plan.left = [(point, full())]
        sent = [one.send(one.make(2)) for one in (author, other, author)]
        assert [(await one.receipt()).kind for one in sent] == ["committed"] * 3
        assert [error is None for error in reports.outages] == [False, True]
        assert (len(await store.events("r1")), len(await store.events("r2"))) == (5, 3)


async def test_the_threads_patience_has_an_end_too(tmp_path: Path, plan: Plan) -> None:
    store = SQLiteStore(tmp_path / "runs.db", faults=plan, patience=0.01)
    with pytest.RaisesGroup(StoreDown):
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run, ReportLog())
            author = await create(store, new_run("r1", "t1"))
            plan.always = ("begin", full())
            sent = [author.send(author.make()) for _ in range(5)]
    assert [[receipt.kind for receipt in one.receipts] for one in sent] == [["down"]] * 5


async def test_a_foreign_lock_is_an_outage(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """Somebody else writes into the file: the commit waits until they have finished."""
    path = tmp_path / "runs.db"
    store = SQLiteStore(path, writer="inline")
    async with opened(store) as reports:
        author = await create(store, new_run("r1", "t1"))
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        sent = author.send(author.make())
        await trio.sleep(5)
        assert sent.receipts == []
        assert "locked" in str(reports.outages[0])
        assert len(await store.events("r1")) == 1
        other.close()
        assert (await sent.receipt()).kind == "committed"
        assert reports.outages[1:] == [None]


@pytest.mark.parametrize("writer", ["inline", "thread"])
async def test_a_value_without_a_form_in_json_fails_its_commit_alone(tmp_path: Path, writer: str) -> None:
    """In its turn, and nothing else; a run that cannot be encoded is not created."""
    store = SQLiteStore(tmp_path / "runs.db", writer=writer)
    async with opened(store):
        author = await create(store, new_run("r1", "t1"))
        strange = (StateWrite(key="k", scope="run", value=object()),)
        sent = [author.send(author.make()), author.send(author.make(state=strange)), author.send(author.make())]
        receipts = [await one.receipt() for one in sent]
        assert [receipt.kind for receipt in receipts] == ["committed", "failed", "lease_lost"]
        assert "r1" in str(receipts[1].error)
        with pytest.raises(StoreError, match="r2"):
            await store.create_run(new_run("r2", "t2", state=strange), b"{}")
        assert await store.load("r2") is None


async def test_a_value_that_changes_later_is_written_as_it_was(tmp_path: Path) -> None:
    """Rows are encoded in submit, not when the thread gets to them."""
    store = SQLiteStore(tmp_path / "runs.db")
    async with opened(store):
        author = await create(store, new_run("r1", "t1"))
        value = {"n": 1}
        sent = author.send(author.make(state=(StateWrite(key="k", scope="run", value=value),)))
        value["n"] = 2
        await sent.receipt()
        record = await store.load("r1")
        assert record is not None
        assert record.state == (StateWrite(key="k", scope="run", value={"n": 1}),)


async def test_what_waits_becomes_one_transaction(tmp_path: Path) -> None:
    """Group commit: what gathered while the writer was busy is written together; a bad one among it harms nobody."""
    gate, armed = threading.Event(), threading.Event()

    def faults(point: str) -> None:
        if point == "begin" and armed.is_set():
            gate.wait()

    store = SQLiteStore(tmp_path / "runs.db", faults=faults)
    async with opened(store):
        authors = [await create(store, new_run(f"r{i}", f"t{i}")) for i in range(30)]
        before = store.statistics()
        armed.set()
        sent = [author.send(author.make(2)) for author in authors for _ in range(2)]
        bad = SubmittedCommit()
        store.submit(authors[0].claim, authors[0].make(2), [b"one frame"], bad.deliver)
        gate.set()
        assert {(await one.receipt()).kind for one in sent} == {"committed"}
        assert (await bad.receipt()).kind == "failed"
        after = store.statistics()
        assert after.commits - before.commits == 60
        assert after.transactions - before.transactions <= 2
        assert after.events - before.events == 120
        assert after.bytes_written > before.bytes_written
        assert after.queued == 0


@pytest.mark.parametrize("writer", ["inline", "thread"])
async def test_a_receiver_that_raises_ends_the_store_and_parks_nobody(tmp_path: Path, writer: str) -> None:
    """It must not raise; if it does, the others still hear of their commits."""
    store = SQLiteStore(tmp_path / "runs.db", writer=writer)

    def broken(_: Receipt) -> None:
        raise ZeroDivisionError

    with pytest.RaisesGroup(StoreDown):
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run, ReportLog())
            author = await create(store, new_run("r1", "t1"))
            other = await create(store, new_run("r2", "t2"))
            store.submit(author.claim, author.make(), [b"{}"], broken)
            sent = other.send(other.make())
            await sent.receipt()
            await trio.sleep_forever()
    assert sent.receipts[0].kind in ("committed", "down")


@pytest.mark.parametrize("writer", ["memory", "inline"])
async def test_a_receiver_that_raises_at_the_end_of_an_outage_parks_nobody(
    tmp_path: Path, writer: str, plan: Plan, autojump_clock: trio.testing.MockClock
) -> None:
    """The requests behind it are settled, too: the task of a command waits shielded, and could not be cancelled."""
    options = {"faults": plan, "patience": 1.0}
    store = MemoryStore(**options) if writer == "memory" else SQLiteStore(tmp_path / "r.db", writer="inline", **options)

    def broken(receipt: Receipt) -> None:
        raise ZeroDivisionError(receipt.kind)

    with trio.fail_after(60), pytest.RaisesGroup(StoreDown):
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run, ReportLog())
            author = await create(store, new_run("r1", "t1"))
            other = await create(store, new_run("r2", "t2"))
            plan.always = ("before_commit", full())
            store.submit(author.claim, author.make(), [b"{}"], broken)
            sent = other.send(other.make())
            await trio.sleep_forever()
    assert [receipt.kind for receipt in sent.receipts] == ["down"]
    assert store.statistics().queued == 0


async def test_the_threaded_store_says_so(tmp_path: Path) -> None:
    assert SQLiteStore(tmp_path / "a.db").threaded
    assert not SQLiteStore(tmp_path / "a.db", writer="inline").threaded
    assert not MemoryStore().threaded
    assert "inline, closed" in repr(SQLiteStore(tmp_path / "a.db", writer="inline"))
    assert "0 runs, closed" in repr(MemoryStore())


async def test_readers_work_beside_each_other(tmp_path: Path) -> None:
    """Many reads at once while somebody writes; the connections are used again."""
    store = SQLiteStore(tmp_path / "runs.db")
    async with opened(store):
        author: Author = await create(store, new_run("r1", "t1"))
        await author.write(50)

        async def read() -> None:
            for _ in range(5):
                assert len(await store.events("r1")) >= 51

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(read)
            for _ in range(10):
                await author.write()


@pytest.mark.parametrize("writer", ["memory", "inline", "thread"])
async def test_one_object_can_be_opened_again(tmp_path: Path, writer: str, plan: Plan) -> None:
    """After closing in order and after a crash: what was written is there, earlier claims are void, all works."""
    path = tmp_path / "runs.db"
    store = MemoryStore(faults=plan) if writer == "memory" else SQLiteStore(path, writer=writer, faults=plan)
    async with opened(store):
        author = await create(store, new_run("r1", "t1"))
        await author.write()
    with pytest.RaisesGroup(StoreDown):
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run, ReportLog())
            plan.left = [("before_commit", InjectedCrash("now"))]
            assert (await author.send(author.make()).receipt()).kind == "down"
    async with opened(store):
        record, claim = await store.load("r1"), await store.claim("r1")
        assert record is not None
        assert claim is not None
        assert (await author.send(author.make()).receipt()).kind == "lease_lost"
        await Author(store, claim, record.row).write()
        assert store.statistics().commits == 1


async def test_lists_of_open_runs_read_only_those(tmp_path: Path) -> None:
    """However many runs are done: the statements use the index of the open ones (they would fail without it)."""
    store = SQLiteStore(tmp_path / "runs.db", writer="inline")
    async with opened(store):
        for i in range(5):
            author = await create(store, new_run(f"r{i}", "t"))
            if i < 3:
                await author.end()
        assert await store.open_runs() == (("r3", False), ("r4", True))
        for status, count in ((RunStatus.CREATED, 2), (RunStatus.DONE, 3), (RunStatus.WAITING, 0)):
            assert len((await store.runs(RunQuery(status=status))).runs) == count
