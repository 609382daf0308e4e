"""Every fault that passes, in reading, writing and opening: waited for, and what was accepted meanwhile is done."""
# ruff: noqa: PT012 - the whole life of a store is inside `raises`: its run() is what raises

import contextlib
import os
import resource
import sqlite3
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import trio.testing

import greenroom as gr
from greenroom.actors.contract.decisions import Command, CommandResult
from greenroom.actors.errors import StoreDown, StoreError, StoreOpenError, StoreUnavailable
from greenroom.actors.stores.common._encoding import EncodedRows
from greenroom.actors.stores.common._outages import UnreadableData, examine
from greenroom.actors.stores.common._requests import CommitRequest
from greenroom.actors.stores.common.faults import OPEN, POINTS, READ, disk, passing
from greenroom.actors.stores.sqlite._open_file import OpenFile
from greenroom.actors.stores.sqlite.store import SQLiteStore
from greenroom.actors.testing.store_kit.kit import ReportLog, create, new_run, opened
from greenroom.testing import ScriptedModel, call

from ...support.exhaustion import in_thread, no_threads, refuse_pages

WRITING = POINTS[:-1]


class Disk:
    """Faults: while `error` is set, every visit of `point` meets it."""

    def __init__(self) -> None:
        self.point, self.error, self.hits = "", None, 0

    def __call__(self, point: str) -> None:
        if self.error is not None and point == self.point:
            self.hits += 1
            raise self.error

    @contextlib.contextmanager
    def failing(self, point: str, error: Exception) -> Iterator[None]:
        self.point, self.error, self.hits = point, error, 0
        yield
        self.error = None


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.mark.parametrize("name", list(passing()))
@pytest.mark.parametrize("point", WRITING)
async def test_a_write_waits_for_every_fault_that_passes(path, autojump_clock, point, name):
    disk_, error = Disk(), passing()[name]
    store = SQLiteStore(path, writer="inline", faults=disk_)
    async with opened(store) as reports:
        author = await create(store, new_run("r1", "t1"))
        with disk_.failing(point, error):
            sent = author.send(author.make(2))
            await trio.sleep(10)
            assert sent.receipts == []
            assert disk_.hits > 2
            assert len(reports.outages) == 1, "it is told once"
            with pytest.raises(StoreUnavailable):
                await store.claim("r1")
        assert (await sent.receipt()).kind == "committed"
        assert reports.outages[-1] is None
        assert len(await store.events("r1")) == 3


@pytest.mark.parametrize("name", list(passing()))
@pytest.mark.parametrize("writer", ["inline", "thread"])
async def test_a_read_that_meets_a_fault_that_passes_can_be_tried_again(path, writer, name):
    disk_, error = Disk(), passing()[name]
    store = SQLiteStore(path, writer=writer, faults=disk_)
    async with opened(store):
        author = await create(store, new_run("r1", "t1"))
        await author.write(2)
        with disk_.failing(READ, error):
            for _ in range(3):
                with pytest.raises(StoreUnavailable):
                    await store.events("r1")
            assert (await author.send(author.make()).receipt()).kind == "committed", "writing needs no reading"
        assert len(await store.events("r1")) == 4


@pytest.mark.parametrize("name", list(passing()))
async def test_a_store_that_only_reads_waits_a_while(path, autojump_clock, name):
    """As the commands that look do: nothing around them asks again."""
    disk_, error = Disk(), passing()[name]
    async with opened(SQLiteStore(path, writer="inline")) as _, trio.open_nursery() as nursery:
        store = SQLiteStore(path, writer="inline", read_only=True, faults=disk_)
        await nursery.start(store.run, ReportLog())
        with disk_.failing(READ, error):
            with pytest.raises(StoreUnavailable):
                await store.events("r1")
            assert 4.9 <= trio.current_time() <= 5.1
            nursery.start_soon(store.events, "r1")
            await trio.sleep(2)
        await trio.sleep(2)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("name", list(passing()))
async def test_a_run_is_finished_through_reads_that_fail(path, autojump_clock, name):
    """Its rows and its thread are read again until they can be; before, the third failure in a minute ended it."""
    disk_, error = Disk(), passing()[name]

    @gr.tool(needs_approval=True)
    async def pay() -> str:
        return "paid"

    agent = gr.Agent("a", model=ScriptedModel([call("pay", id="c1"), "done"]), tools=[pay])
    store = SQLiteStore(path, writer="inline", faults=disk_)
    async with gr.open_runtime(store, agents=[agent], passivate_after=1.0) as runtime:
        run = await runtime.start(agent, "hi")
        ticket = (await run.wait()).tickets[0]
        await trio.sleep(10)
        with disk_.failing(READ, error):
            command = Command(command_id="d1", kind="decide", decision=ticket.approve())
            answer = await store.post(run.id, command, lambda _facts, _command: CommandResult(status="accepted"))
            assert answer.status == "accepted"
            await trio.sleep(100)
            assert disk_.hits > 100
        assert (await run.result()).output == "done"


@pytest.mark.parametrize("name", list(passing()))
async def test_a_follower_waits_for_reads_that_fail(path, autojump_clock, name):
    disk_, error = Disk(), passing()[name]
    agent = gr.Agent("a", model=ScriptedModel(["done"]))
    store = SQLiteStore(path, writer="inline", faults=disk_)
    async with gr.open_runtime(store, agents=[agent]) as runtime, trio.open_nursery() as nursery:
        run = await runtime.start(agent, "hi")
        await run.result()
        seen = []

        async def look() -> None:
            async with run.events() as events:
                seen.extend([event.type async for event in events])

        with disk_.failing(READ, error):
            nursery.start_soon(look)
            await trio.sleep(20)
            assert seen == []
        await trio.sleep(1)
        assert seen[-1] == "run.completed"


@pytest.mark.parametrize("name", [name for name in passing() if name not in ("SQLITE_CORRUPT", "SQLITE_NOTADB")])
async def test_an_opening_waits_a_while_for_what_passes(path, autojump_clock, name):
    disk_ = Disk()
    with disk_.failing(OPEN, passing()[name]):
        with pytest.raises(StoreOpenError):
            await SQLiteStore(path, writer="inline", faults=disk_).run(ReportLog())
        assert 4.9 <= trio.current_time() <= 5.1
        async with trio.open_nursery() as nursery:
            store = SQLiteStore(path, writer="inline", faults=disk_)
            nursery.start_soon(store.run, ReportLog())
            await trio.sleep(2)
            disk_.error = None
            await trio.sleep(3)
            await create(store, new_run("r1", "t1"))
            nursery.cancel_scope.cancel()


# --- damage, and what only looks like it -----------------------------------------------------------------------------


def overwrite(path: Path, offset: int, data: bytes) -> bytes:
    """Write over bytes of the file; what was there. By a process of its own, as the world outside would."""
    code = (
        "import os, sys; f = os.open(sys.argv[1], os.O_RDWR); o = int(sys.argv[2]); d = sys.stdin.buffer.read();"
        "sys.stdout.buffer.write(os.pread(f, len(d), o)); os.pwrite(f, d, o)"
    )
    command = [sys.executable, "-c", code, path, str(offset)]
    return subprocess.run(command, input=data, capture_output=True, check=True).stdout


async def filled(path: Path) -> int:
    """A store with a run of some events, closed in order; the size of the file."""
    store = SQLiteStore(path, writer="inline")
    async with opened(store):
        author = await create(store, new_run("r1", "t1"))
        for _ in range(40):
            await author.write(10)
    return path.stat().st_size  # noqa: ASYNC240 - a local file


@pytest.mark.slow
@pytest.mark.parametrize("writer", ["inline", "thread"])
async def test_a_file_is_damaged_when_the_check_of_the_whole_file_says_so(path, writer):
    """Real damage: reads say so, a write ends the store at its second try, and the next opening says so."""
    size = await filled(path)
    store = SQLiteStore(path, writer=writer)
    with pytest.RaisesGroup(pytest.RaisesExc(StoreDown, match=r"is damaged .*restore it from a backup$")):
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run, ReportLog())
            overwrite(path, 4096, b"\xff" * (size - 4096))
            with pytest.raises(StoreError, match="is damaged"):
                while True:
                    await store.events("r1", limit=1000)
            with pytest.raises(StoreDown):
                await store.claim("r1")
    with pytest.raises(StoreOpenError, match=r"is damaged .*restore it from a backup$"):
        await SQLiteStore(path, writer=writer).run(ReportLog())


@pytest.mark.slow
@pytest.mark.parametrize("writer", ["inline", "thread"])
async def test_a_page_that_is_misread_for_a_while_is_no_damage(path, writer):
    """The file reads wrong, and then right again: the writer and the readers forget what they saw."""
    size = await filled(path)
    store = SQLiteStore(path, writer=writer)
    async with opened(store):
        author = await create(store, new_run("r2", "t2"))
        with contextlib.closing(sqlite3.connect(path)) as checkpoint:
            checkpoint.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        was = overwrite(path, 4096, b"\xff" * (size - 4096))
        with pytest.raises(StoreError):
            await store.events("r1", limit=1000)
        overwrite(path, 4096, was)
        assert len(await store.events("r1", limit=1000)) == 401
        assert (await author.send(author.make()).receipt()).kind == "committed"


async def test_a_page_that_cannot_be_read_is_no_damage(path):
    """A real EIO: SQLite's check writes the page into its findings, as it does with damage."""
    size = await filled(path)
    file = OpenFile(path)

    def examined() -> str | None:
        refuse_pages(size - 2 * 4096)
        return examine(file, 1.0)

    with pytest.raises(UnreadableData, match="cannot be read now"):
        in_thread(examined)
    assert examine(file, 1.0) is None, "the file itself is sound"
    file.close()


async def test_a_store_whose_pages_cannot_be_read_does_not_ask_for_a_backup(path):
    """For as long as its patience it waits; then it says to look at the disk, and the file serves again."""
    size, disk_ = await filled(path), Disk()

    async def live() -> None:
        store = SQLiteStore(path, writer="inline", patience=5.0, faults=disk_)
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run, ReportLog())
            refuse_pages(size - 2 * 4096)
            with disk_.failing("begin", disk("SQLITE_CORRUPT", "database disk image is malformed")):
                await store.claim("r1")

    def alone() -> None:
        trio.run(live, clock=trio.testing.MockClock(autojump_threshold=0))

    down = pytest.RaisesExc(StoreDown, match="look at the disk")
    with pytest.RaisesGroup(down, down) as caught:
        in_thread(alone)
    assert "from a backup" not in "".join(traceback.format_exception(caught.value))
    async with opened(SQLiteStore(path, writer="inline")) as _:
        pass


@pytest.mark.parametrize("again", [None, "Page 3: btreeInitPage() returns error code 11"])
async def test_a_finding_is_damage_if_it_comes_again(path, again):
    """A short read, which SQLite fills with zeros, looks like damage once."""
    await filled(path)
    file, findings = OpenFile(path), ["Page 3: btreeInitPage() returns error code 11", again]
    assert examine(file, 1.0, lambda _path, _busy: findings.pop(0)) == again
    assert findings == []
    file.close()


async def test_an_opening_that_misreads_a_sound_file_does_not_call_it_damaged(path, autojump_clock):
    await filled(path)
    disk_ = Disk()
    with disk_.failing(READ, disk("SQLITE_CORRUPT", "database disk image is malformed")):
        with pytest.raises(StoreOpenError) as caught:
            await SQLiteStore(path, writer="inline", faults=disk_).run(ReportLog())
    assert "is sound" in str(caught.value)
    assert "backup" not in str(caught.value)


async def test_a_value_that_finds_no_memory_when_it_is_encoded_is_encoded_again(path):
    store = SQLiteStore(path, writer="inline")
    async with opened(store):
        author = await create(store, new_run("r1", "t1"))
        commit, frames, receipts = author.make(), [b"{}"], []
        request = CommitRequest(author.claim, commit, frames, receipts.append, error=MemoryError())
        store._queue.put(request)
        assert [receipt.kind for receipt in receipts] == ["committed"]
        assert isinstance(request.blobs, EncodedRows)


# --- threads ---------------------------------------------------------------------------------------------------------


async def test_without_threads_reads_are_refused_and_writes_are_not(path):
    store = SQLiteStore(path)
    async with opened(store):
        author = await create(store, new_run("r1", "t1"))
        with no_threads():
            with pytest.raises(StoreUnavailable, match="gives no thread"):
                await store.load("r1")
            assert (await author.send(author.make()).receipt()).kind == "committed"
        assert len(await store.events("r1")) == 2


@pytest.mark.slow
async def test_a_run_that_is_accepted_while_there_are_no_threads_is_finished(path):
    """Started, decided, woken, with a tool that needs a thread: three seconds without any lose nothing."""
    started = []

    @gr.tool(needs_approval=True)
    def pay() -> str:
        started.append(1)
        return "paid"

    script = [call("pay", id="c1"), "done"]
    agent = gr.Agent("a", model=ScriptedModel(script * 3), tools=[pay])
    async with gr.open_runtime(path, agents=[agent], passivate_after=0.0) as runtime:
        waiting = await runtime.start(agent, "hi", thread_id="t")
        ticket = (await waiting.wait()).tickets[0]
        await trio.sleep(0.2)
        with no_threads():
            fresh = await runtime.start(agent, "hi")
            command = Command(command_id="d1", kind="decide", decision=ticket.approve(), by="ada")
            answer = await runtime.store.post(
                waiting.id, command, lambda _facts, _command: CommandResult(status="accepted")
            )
            assert answer.status == "accepted"
            behind = await runtime.start(agent, "more", thread_id="t")
            await trio.sleep(3)
            assert started == []
        with trio.fail_after(20):
            assert (await waiting.result()).output == "done"
            for run in (fresh, behind):
                await run.decide((await run.wait()).tickets[0].approve())
                assert (await run.result()).output == "done"


@pytest.mark.slow
async def test_a_store_is_opened_and_closed_without_threads(path):
    async with trio.open_nursery() as nursery:
        store = SQLiteStore(path)
        with no_threads():
            nursery.start_soon(store.run, ReportLog())
            await trio.sleep(0.5)
        with trio.fail_after(20):
            while not store.epoch:  # noqa: ASYNC110 - a thread opens the file
                await trio.sleep(0.05)
            await trio.sleep(0.2)
            await create(store, new_run("r1", "t1"))
        with no_threads():
            nursery.cancel_scope.cancel()
            await trio.lowlevel.cancel_shielded_checkpoint()
            with trio.CancelScope(shield=True), trio.fail_after(20):
                while "thread, open" in repr(store):  # noqa: ASYNC110 - no thread is there to tell
                    await trio.sleep(0.01)
    async with opened(SQLiteStore(path, writer="inline")) as _:
        pass


async def test_without_descriptors_an_opening_waits(path):
    """A real EMFILE: all descriptors of the process are taken."""
    await filled(path)
    store, taken = SQLiteStore(path), []
    async with trio.open_nursery() as nursery:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
        try:
            with contextlib.suppress(OSError):
                while True:  # noqa: ASYNC913 - each time round waits, or ends the loop
                    taken.append(os.open("/dev/null", os.O_RDONLY))
            nursery.start_soon(store.run, ReportLog())
            await trio.sleep(0.1)
            assert "thread, closed" in repr(store)
        finally:
            for descriptor in taken:
                os.close(descriptor)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        with trio.fail_after(20):
            while not store.epoch:  # noqa: ASYNC110 - a thread opens the file
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
