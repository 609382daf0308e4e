"""A file is an inode: one owner under all its names, and a store that notices when its file is no longer there."""
# ruff: noqa: PT012 - the whole life of a store is inside `raises`: its run() is what raises

import errno
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

import greenroom as gr
from greenroom.actors.errors import StoreDown, StoreOpenError
from greenroom.actors.stores.sqlite._lock import FileLock
from greenroom.actors.stores.sqlite._open_file import OpenFile, is_owned
from greenroom.actors.stores.sqlite.store import Owner, SQLiteStore, lock_path, owner_of
from greenroom.actors.testing.store_kit.kit import ReportLog, create, new_run, opened
from greenroom.testing import ScriptedModel

OWNER = """
import sys, trio
from greenroom.actors.stores.sqlite.store import SQLiteStore
from greenroom.actors.testing.store_kit.kit import ReportLog
async def main():
    async with trio.open_nursery() as nursery:
        await nursery.start(SQLiteStore(sys.argv[1]).run, ReportLog())
        {then}
        print("open", flush=True)
        await trio.sleep_forever()
trio.run(main)
"""

ASKING = """
import pathlib, sys
from greenroom.actors.stores.sqlite.store import owner_of
print(owner_of(pathlib.Path(sys.argv[1])))
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


def store_at(path: Path, **options) -> SQLiteStore:
    return SQLiteStore(path, **({"writer": "inline"} | options))


async def refusal(path: Path, **options) -> str:
    with pytest.raises(StoreOpenError) as caught:
        await store_at(path, **options).run(ReportLog())
    return str(caught.value)


@contextmanager
def another_owner(path: Path, then: str = "pass") -> Iterator[subprocess.Popen[str]]:
    """A process that has the file open."""
    code = OWNER.format(then=then)
    with subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        try:
            yield process
        finally:
            process.kill()


def linked(path: Path, how: str) -> Path:
    """Another name of a file."""
    folder = path.parent / "elsewhere"
    match how:
        case "a symbolic link":
            folder.mkdir()
            (folder / "other.db").symlink_to(path)
            return folder / "other.db"
        case "a link to its folder":
            folder.symlink_to(path.parent)
            return folder / path.name
        case "a relative spelling":
            (path.parent / "deep").mkdir()
            return path.parent / "deep" / ".." / path.name
        case _:
            folder.mkdir()
            (folder / "other.db").hardlink_to(path)
            return folder / "other.db"


SPELLINGS = ["a symbolic link", "a link to its folder", "a relative spelling"]


@pytest.mark.slow
@pytest.mark.parametrize("how", [*SPELLINGS, "a hard link"])
async def test_a_file_has_one_owner_under_all_its_names(path, how):
    """The second name of a file was another lock: both processes wrote, and each voided the other's claims."""
    async with opened(store_at(path)):
        pass
    with another_owner(path) as process:
        other = linked(path, how)
        assert "one process owns a file" in await refusal(other)
        owner = owner_of(other)
        assert owner == Owner(pid=0 if how == "a hard link" else process.pid)
        async with opened(store_at(other, read_only=True)) as _:
            pass
    assert owner_of(other) is None


@pytest.mark.parametrize("how", [*SPELLINGS, "a hard link"])
async def test_one_process_opens_a_file_once_under_all_its_names(path, how):
    async with opened(store_at(path)):
        other = linked(path, how)
        assert "open already in this process" in await refusal(other)
        assert owner_of(other) is not None
    assert owner_of(other) is None


async def test_a_link_to_a_file_that_is_still_to_be_made_is_followed(path, tmp_path):
    (tmp_path / "link.db").symlink_to(path)
    async with opened(store_at(tmp_path / "link.db")):
        assert path.exists()
        assert lock_path(tmp_path / "link.db") == lock_path(path)
        assert "open already in this process" in await refusal(path)


async def test_links_in_a_circle_are_refused(tmp_path):
    (tmp_path / "a.db").symlink_to(tmp_path / "b.db")
    (tmp_path / "b.db").symlink_to(tmp_path / "a.db")
    assert str(tmp_path / "a.db") in await refusal(tmp_path / "a.db")


async def test_a_file_with_two_names_is_not_opened_for_writing(path):
    """SQLite keeps the WAL beside one name: what a killed process wrote would be missing under the other."""
    async with opened(store_at(path)):
        pass
    other = linked(path, "a hard link")
    assert "has 2 names (hard links)" in await refusal(path)
    other.unlink()
    async with opened(store_at(path)):
        pass


async def test_changing_the_working_directory_changes_nothing(path, tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    store = store_at(Path("runs.db"))
    async with opened(store):
        author = await create(store, new_run("r1", "t1"))
        monkeypatch.chdir(tmp_path / "other")
        for _ in range(3):
            await author.write()
        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(store.events, "r1")
    assert os.listdir(tmp_path / "other") == []


# --- locks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_said_so(path, number):
    def refuses(_descriptor: int, _operation: int) -> None:
        raise OSError(number, os.strerror(number))

    with pytest.raises(StoreOpenError, match=r"refuses locks .*keep the database on a local disk"):
        FileLock(path, refuses).acquire()


FORKS = (
    "import os, time; r, w = os.pipe(); os.read(r, 1) if os.fork() else (os.write(w, b'.'), time.sleep(3), os._exit(0))"
)
"""The child closes its copies as `fork` returns in it, so the parent is "open" only after the child's word."""


@pytest.mark.slow
@pytest.mark.parametrize("then", ["pass", FORKS])
async def test_a_killed_owner_leaves_no_lock(path, then):
    """Nor does a child that it has forked, which lives on with copies of all descriptors."""
    with another_owner(path, then) as process:
        process.send_signal(signal.SIGKILL)
        await trio.to_thread.run_sync(process.wait)
        assert owner_of(path) is None
        async with opened(store_at(path)):
            pass


@pytest.mark.slow
async def test_a_forked_child_neither_holds_nor_drops_the_lock(path):
    """Its copies of the descriptors are closed at once, which takes nothing from the parent."""
    async with opened(store_at(path)):
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)  # noqa: ASYNC222 - it ends at once
        reported = await trio.run_process([sys.executable, "-c", ASKING, str(path)], capture_stdout=True)
        assert f"pid={os.getpid()}" in reported.stdout.decode()
        assert is_owned(path)


def test_asking_for_the_owner_of_a_file_in_use_takes_no_lock_from_it(path):
    """Closing any descriptor of a file drops the POSIX locks of the process on it."""
    path.write_bytes(b"")
    hold = OpenFile(path)
    assert hold.own()
    with path.open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 10)
        assert owner_of(path) == Owner(pid=0)
        code = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+b'), fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 10)"
        other = subprocess.run([sys.executable, "-c", code, path], capture_output=True, check=False)
        assert other.returncode != 0
    hold.close()


# --- a file that goes away -------------------------------------------------------------------------------------------


def removed(path: Path) -> None:
    path.unlink()


def replaced(path: Path) -> None:
    path.with_name("copy").write_bytes(path.read_bytes())
    path.with_name("copy").rename(path)


def renamed(path: Path) -> None:
    path.rename(path.with_name("old"))


GOING = [removed, replaced, renamed]


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
@pytest.mark.parametrize("going", GOING, ids=lambda going: going.__name__)
@pytest.mark.parametrize("writer", ["inline", "thread"])
async def test_nothing_is_acknowledged_into_a_file_that_is_gone(path, writer, going, suffix):
    """40 of 40 runs were accepted into a removed file, and lost."""
    store = store_at(path, writer=writer)
    with pytest.RaisesGroup(
        pytest.RaisesExc(StoreDown, match=rf"runs.db{suffix} was re.* while it was open.*start again")
    ):
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run, ReportLog())
            author = await create(store, new_run("r1", "t1"))
            going(path.with_name(path.name + suffix))
            assert (await author.send(author.make()).receipt()).kind == "down"
            with pytest.raises(StoreDown):
                await create(store, new_run("r2", "t2"))


async def test_a_folder_that_is_renamed_takes_the_file_away(tmp_path):
    (tmp_path / "place").mkdir()
    store = store_at(tmp_path / "place" / "runs.db")
    with pytest.RaisesGroup(pytest.RaisesExc(StoreDown, match="was removed or renamed")):
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run, ReportLog())
            author = await create(store, new_run("r1", "t1"))
            (tmp_path / "place").rename(tmp_path / "moved")
            assert (await author.send(author.make()).receipt()).kind == "down"
    async with opened(store_at(tmp_path / "moved" / "runs.db")) as _:
        pass


@pytest.mark.slow
async def test_an_idle_runtime_notices_within_seconds_that_its_file_is_gone(path):
    with trio.fail_after(10), pytest.raises(gr.RuntimeFailed, match="was removed or renamed while it was open"):
        async with gr.open_runtime(path):
            path.unlink()
            await trio.sleep_forever()


@pytest.mark.slow
async def test_every_start_after_the_file_is_gone_is_refused(path):
    agent = gr.Agent("a", model=ScriptedModel(["done"] * 50))
    accepted = []
    with trio.fail_after(20), pytest.raises(gr.RuntimeFailed, match="replaced while it was open"):
        async with gr.open_runtime(path, agents=[agent]) as runtime:
            await (await runtime.start(agent, "hi", run_id="before")).result()
            replaced(path)
            while True:
                accepted.append(await runtime.start(agent, "hi"))
    assert accepted == []


async def test_what_was_committed_before_the_wal_was_removed_is_not_lost(path):
    store = store_at(path)
    with pytest.RaisesGroup(StoreDown):
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run, ReportLog())
            author = await create(store, new_run("r1", "t1"))
            await author.write(3)
            path.with_name("runs.db-wal").unlink()
            author.send(author.make())
            await trio.sleep_forever()
    again = store_at(path)
    async with opened(again):
        assert len(await again.events("r1")) >= 4


async def test_a_store_that_lost_its_file_leaves_the_new_one_alone(path):
    """SQLite removes the WAL when the last connection is closed, by its name: that of the new file must stay."""
    first, second = store_at(path), store_at(path)
    with pytest.RaisesGroup(StoreDown):
        async with trio.open_nursery() as nursery:
            await nursery.start(first.run, ReportLog())
            author = await create(first, new_run("r1", "t1"))
            for suffix in ("", "-wal", "-shm", ".lock"):
                path.with_name(f"runs.db{suffix}").unlink()
            with trio.CancelScope(shield=True):
                async with opened(second):
                    other = await create(second, new_run("r2", "t2"))
                    await other.write()
                    author.send(author.make())
                    await trio.testing.wait_all_tasks_blocked()
                    assert "inline, closed" in repr(first)
                    await other.write()
                    assert path.with_name("runs.db-wal").exists()
    async with opened(second):
        assert len(await second.events("r2")) == 3
