"""Opening a SQLite file: what is right, and a clear word with the way out for everything that is not."""

import contextlib
import fcntl
import json
import os
import resource
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
import trio
import trio.testing
from msgspec.structs import replace

from greenroom.actors.contract import codec
from greenroom.actors.contract.commits import NewRun
from greenroom.actors.contract.lifecycle import Stage
from greenroom.actors.contract.rows import RunRow
from greenroom.actors.contract.run_lists import RunCounts, RunQuery
from greenroom.actors.contract.state import StateWrite
from greenroom.actors.errors import StoreDown, StoreError, StoreOpenError
from greenroom.actors.processes import Ability
from greenroom.actors.stores.sqlite._lock import FileLock
from greenroom.actors.stores.sqlite._schema import APPLICATION_ID, MIGRATIONS, Migration
from greenroom.actors.stores.sqlite.store import Owner, SQLiteStore, lock_path, owner_of
from greenroom.actors.testing.store_kit._tools import NOW, ticket_row
from greenroom.actors.testing.store_kit.kit import Author, ReportLog, create, new_run, opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


def put(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def get(path: Path) -> bytes:
    return path.read_bytes()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def allow(path: Path, bits: int) -> None:
    path.chmod(bits)


def remove(path: Path) -> None:
    path.unlink()


def files(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir())


@contextlib.contextmanager
def no_room() -> Iterator[None]:
    """No file of this process can grow or be written, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def store_at(path: Path, **options) -> SQLiteStore:
    return SQLiteStore(path, writer="inline", **options)


async def refusal(path: Path, **options) -> str:
    """The text of the StoreOpenError that opening raises before it has started."""
    with pytest.raises(StoreOpenError) as caught:
        await store_at(path, **options).run(ReportLog())
    return str(caught.value)


async def filled(path: Path) -> None:
    """A store with a run of some events, closed in order."""
    store = store_at(path)
    async with opened(store):
        author = await create(store, new_run("r1", "t1"))
        for _ in range(20):
            await author.write(10)


async def test_the_file_is_private_and_ours(path: Path) -> None:
    """0600, WAL, with application id and schema version."""
    async with opened(store_at(path)):
        assert mode(path) == 0o600
        assert mode(lock_path(path)) == 0o600
        with sqlite3.connect(path) as look:
            assert look.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
            assert look.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
            assert look.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        look.close()


async def test_a_second_store_on_the_file_is_shown_who_has_it(path: Path) -> None:
    """The lock holds within one process too; it names the pid and goes when the owner closes."""
    first = store_at(path)
    async with opened(first):
        assert owner_of(path) == Owner(pid=os.getpid())
        text = await refusal(path)
        assert str(os.getpid()) in text
        assert "already" in text
        with pytest.raises(StoreOpenError, match="already by this store"):
            await first.run(ReportLog())
        first.announce("http://127.0.0.1:7777", f"{path}.token")
        assert owner_of(path) == Owner(pid=os.getpid(), url="http://127.0.0.1:7777", token_file=f"{path}.token")
    assert owner_of(path) is None
    async with opened(store_at(path)):
        pass


async def test_another_process_is_shown_who_has_it(path: Path) -> None:
    """And where to talk to the owner, once it has said so."""
    code = "import sys, trio; import greenroom; trio.run(greenroom.SQLiteStore(sys.argv[1]).run, None)"
    store = store_at(path)
    async with opened(store):
        store.announce("http://127.0.0.1:7777")
        other = await trio.to_thread.run_sync(
            lambda: subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
        )
    assert other.returncode != 0
    assert f"process {os.getpid()}" in other.stderr
    assert "http://127.0.0.1:7777" in other.stderr


async def test_a_lock_file_without_an_owner_is_no_obstacle(path: Path) -> None:
    """What a killed process left behind, or nonsense, does not matter: the OS lock counts."""
    for text in (json.dumps({"pid": 1}), "nonsense", ""):
        put(lock_path(path), text.encode())
        assert owner_of(path) is None
        async with opened(store_at(path)):
            pass


@pytest.mark.parametrize("content", [b"hello, I am a text", b"SQLite format 4\x00" + b"x" * 5000, b"x"])
async def test_a_file_that_is_no_database_is_refused(path: Path, content: bytes) -> None:
    put(path, content)
    assert "is not a database" in await refusal(path)
    assert get(path) == content


async def test_a_cut_off_file_is_refused(path: Path) -> None:
    """In the header, or anywhere after it."""
    await filled(path)
    whole = get(path)
    for size in (50, 100, 4096, len(whole) - 1):
        put(path, whole[:size])
        assert "cut off" in await refusal(path)


async def test_a_damaged_file_is_refused_after_an_unclean_end(path: Path) -> None:
    await filled(path)
    damaged = bytearray(get(path))
    damaged[4096 : 4096 + 2048] = b"\xff" * 2048
    put(path, damaged)
    put(path.with_name("runs.db-wal"), b"\x00" * 32)
    assert "is damaged" in await refusal(path)


async def test_a_damaged_first_page_is_refused(path: Path) -> None:
    await filled(path)
    damaged = bytearray(get(path))
    damaged[100:4000] = b"\xff" * 3900
    put(path, damaged)
    assert "is damaged" in await refusal(path)


async def test_the_database_of_another_program_is_refused(path: Path) -> None:
    """With another application id, or with tables and none."""
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE theirs(x)")
    assert "another program" in await refusal(path)
    with other:
        other.execute("PRAGMA application_id = 7")
    other.close()
    assert "another program" in await refusal(path)


async def test_a_newer_file_is_refused(path: Path) -> None:
    """It is not touched, and the way out is an upgrade; also for readers."""
    await filled(path)
    with sqlite3.connect(path) as newer:
        newer.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    newer.close()
    assert "upgrade Greenroom" in await refusal(path)
    assert "upgrade Greenroom" in await refusal(path, read_only=True)


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    assert "does not exist" in await refusal(tmp_path / "nowhere" / "runs.db")
    assert "is a folder" in await refusal(tmp_path)


async def test_a_read_only_file_is_refused_for_writing(path: Path) -> None:
    await filled(path)
    allow(path, 0o400)
    assert "read-only" in await refusal(path)
    async with opened(store_at(path, read_only=True)) as _:
        pass


async def test_a_file_in_a_forbidden_place_is_refused(tmp_path: Path) -> None:
    """A folder that is in truth a file represents whatever the system forbids, also to root."""
    put(tmp_path / "file", b"")
    assert str(tmp_path) in await refusal(tmp_path / "file" / "runs.db")


async def test_what_fails_to_open_lets_go_of_the_lock(path: Path) -> None:
    put(path, b"not a database at all")
    await refusal(path)
    remove(path)
    async with opened(store_at(path)):
        pass


async def test_a_full_disk_is_reported_and_lets_go_of_the_lock(path: Path) -> None:
    """Who holds the lock cannot be written into it either; that is no reason to keep it."""
    await filled(path)
    with no_room():
        assert f"{path} " in await refusal(path, patience=0)
    async with opened(store_at(path)):
        assert owner_of(path) == Owner(pid=os.getpid())


def test_a_reader_of_the_lock_is_not_taken_for_its_owner(path: Path) -> None:
    """`greenroom runs` in a loop beside a server that starts: looking takes a shared lock, for some microseconds."""
    lock = FileLock(path)
    with lock_path(path).open("w") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        threading.Timer(0.05, fcntl.flock, (looking, fcntl.LOCK_UN)).start()
        lock.acquire()
    assert owner_of(path) == Owner(pid=os.getpid())
    lock.release()


async def test_a_lock_without_an_owner_line_stops_no_opening(path: Path) -> None:
    store = store_at(path)
    async with opened(store):
        with no_room():
            store.announce("http://127.0.0.1:8765")
        assert owner_of(path) is not None
        store.announce("http://127.0.0.1:8765")
        assert owner_of(path) == Owner(pid=os.getpid(), url="http://127.0.0.1:8765")


SECOND = Migration(summary="a column more", statements=("ALTER TABLE threads ADD COLUMN title TEXT",))
BROKEN = Migration(
    summary="fails half-way",
    statements=("ALTER TABLE threads ADD COLUMN note TEXT", "ALTER TABLE nothing ADD COLUMN x"),
)


async def test_an_older_file_is_migrated(path: Path) -> None:
    """Each migration once, in order; the data stays, and the older release refuses the file from then on."""
    await filled(path)
    for _ in range(2):
        store = store_at(path, migrations=(*MIGRATIONS, SECOND))
        async with opened(store):
            assert len(await store.events("r1", limit=500)) == 201
    assert f"schema version {len(MIGRATIONS) + 1}" in await refusal(path)
    look = sqlite3.connect(path)
    assert look.execute("SELECT thread_id, title FROM threads").fetchall() == [("t1", None)]
    look.close()


async def old_file(path: Path, new: NewRun, migrations: Sequence[Migration], created: bytes = b"{}") -> RunRow:
    """A file of an older release with one run, written without this release's statements."""
    async with opened(store_at(path, migrations=migrations)):
        pass
    info = new.info
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("INSERT INTO threads(thread_id) VALUES (?)", (info.thread_id,))
        file.execute(
            "INSERT INTO runs(run_id, thread, agent, status, stage, step, last_seq, token, dispatch, created_at,"
            " info, row) VALUES (?, 1, ?, ?, ?, ?, 1, 1, 'ready', 1234, ?, ?)",
            (info.run_id, info.agent, new.row.status, new.row.stage, 0, codec.dump(info), codec.dump(new.row)),
        )
        file.execute("INSERT INTO events(run, seq, frame) VALUES (1, 1, ?)", (created,))
    return new.row


async def test_runs_of_an_older_file_have_titles_and_say_what_they_ask(path: Path) -> None:
    """Lists show and find them as if this release had written them; what cannot be read keeps no file closed."""
    frame = msgspec.json.encode(
        {"id": "r1-1", "sequence": 1, "type": "run.created", "version": 1, "runId": "r1", "sessionId": None}
        | {"agentId": "clerk", "timestamp": "2026-03-01T12:00:00.000Z", "payload": {"input": " \nRefund Order 7\nnow"}}
    )
    new = new_run("r1", "t1", stage=Stage.NEEDS_APPROVAL)
    new = replace(new, info=replace(new.info, by="ann"))
    await old_file(path, new, MIGRATIONS[:4], frame)
    tickets = [ticket_row("r1", 1, "a"), replace(ticket_row("r1", 2, "b"), message="May it?")]
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as file:
        rows = [(ticket.ticket_id, ticket.call_id, ticket.status, codec.dump(ticket)) for ticket in tickets]
        rows.append(("damaged", "c", "closed", b"what?"))
        file.executemany("INSERT INTO tickets(run, ticket_id, call_id, status, body) VALUES (1, ?, ?, ?, ?)", rows)
        file.execute("UPDATE tickets SET body = x'00' WHERE ticket_id = 'r1.t1'")
    store = store_at(path)
    async with opened(store):
        query = RunQuery(text="REFUND order", by="ann", order="waiting_longest", counts=True)
        page = await store.runs(query)
        (line,) = page.runs
        assert line.title == "Refund Order 7"
        assert (line.waiting_since, page.counts) == (NOW, RunCounts(waiting=1))
        assert ([request.message for request in line.asked], line.asked_count) == (["May it?"], 2)


@pytest.mark.parametrize("column", ["info", "row"])
async def test_runs_whose_rows_cannot_be_read_break_no_list(path: Path, column: str) -> None:
    """Pages are as long as asked for, their cursors lead on, and the runs that have no line are named."""
    store = store_at(path)
    async with opened(store):
        for number in range(12):
            await create(store, new_run(f"r{number:02}", f"t{number}"))
    bad = {"r03", "r04", "r05", "r09", "r10", "r11"}
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as file:
        for run_id in bad:
            file.execute(f"UPDATE runs SET {column} = x'00' WHERE run_id = ?", (run_id,))  # noqa: S608 - a constant
    store = store_at(path)
    async with opened(store):
        pages = [await store.runs(RunQuery(limit=2))]
        while pages[-1].cursor is not None:
            pages.append(await store.runs(RunQuery(limit=2, cursor=pages[-1].cursor)))
        lines = [[line.info.run_id for line in page.runs] for page in pages]
        assert [names for names in lines if names] == [["r08", "r07"], ["r06", "r02"], ["r01", "r00"]]
        assert {run_id for page in pages for run_id in page.unreadable} == bad
        some = await store.summaries(["r03", "r08", "nothing"])
        assert ([line.info.run_id for line in some.runs], some.unreadable) == (["r08"], ("r03",))


async def test_state_keys_of_an_older_file_have_no_revision(path: Path) -> None:
    """A file from before revisions were kept: its values are there as of every step, and written on."""
    row = await old_file(path, new_run("r1", "t1"), MIGRATIONS[:3])
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as file:
        values = [(1, None, "k", 1, 1), (1, None, "k", 2, 2), (1, 1, "k", 1, "ours")]
        rows = [(*head, codec.dump(value)) for *head, value in values]
        file.executemany("INSERT INTO state(run, thread, key, step, value) VALUES (?, ?, ?, ?, ?)", rows)
    store = store_at(path)
    async with opened(store):
        claim = await store.claim("r1")
        assert claim is not None
        ours = StateWrite(key="k", scope="thread", value="ours")
        assert [write.value for write in await store.state_at("r1", 1)] == [1, "ours"]
        record = await store.load("r1")
        assert record is not None
        assert record.state == (StateWrite(key="k", scope="run", value=2), ours)
        new = StateWrite(key="k", scope="run", value=3, revision=1)
        await Author(store, claim, row).write(row=replace(row, step=3), state=(new,))
        assert await store.state_at("r1", 3) == (new, ours)


async def test_a_migration_that_fails_changes_nothing(path: Path) -> None:
    """The ones before it stay; the same file opens with a release that can."""
    await filled(path)
    assert "cannot be used" in await refusal(path, migrations=(*MIGRATIONS, SECOND, BROKEN))
    store = store_at(path, migrations=(*MIGRATIONS, SECOND))
    async with opened(store):
        assert await store.load("r1") is not None
    look = sqlite3.connect(path)
    names = [name for _, name, *_ in look.execute("PRAGMA table_info(threads)")]
    assert ("title" in names, "note" in names) == (True, False)
    look.close()


async def test_a_reader_does_not_migrate(path: Path) -> None:
    await filled(path)
    assert "open it for writing once" in await refusal(path, read_only=True, migrations=(*MIGRATIONS, SECOND))


async def test_a_read_only_store_looks_while_the_owner_lives(path: Path) -> None:
    """It sees what is committed, takes no lock, voids no claim, and writes nothing."""
    owner, reader = store_at(path), store_at(path, read_only=True)
    async with opened(owner), opened(reader):
        author = await create(owner, new_run("r1", "t1"))
        await author.write(4)
        assert len(await reader.events("r1")) == 5
        assert (await reader.runs(RunQuery())).runs[0].row == author.row
        await author.write()
        assert len(await reader.events("r1")) == 6
        assert [*await reader.open_runs()] == [("r1", False)]
        assert (await reader.claim_ready(9, Ability(), NOW), await reader.claim_due(NOW, Ability())) == ((), ())
        for call in (reader.claim("r1"), reader.create_run(new_run("r2", "t2"), b"{}")):
            with pytest.raises(StoreDown, match="read_only"):
                await call
        author.store = reader
        assert (await author.send(author.make()).receipt()).kind == "down"


async def test_a_read_only_store_looks_at_a_closed_file(path: Path) -> None:
    assert "does not exist" in await refusal(path, read_only=True)
    await filled(path)
    store = store_at(path, read_only=True)
    async with opened(store):
        assert len(await store.events("r1", limit=500)) == 201
    assert files(path.parent) == ["runs.db", "runs.db.lock"]


async def test_a_backup_is_a_whole_store(path: Path, tmp_path: Path) -> None:
    store = store_at(path)
    async with opened(store):
        author = await create(store, new_run("r1", "t1"))
        await author.write(3)
        await store.backup(tmp_path / "copy.db")
        await author.write(3)
        with pytest.raises(StoreError, match="name a new file"):
            await store.backup(tmp_path / "copy.db")
        epoch = store.epoch
    copy = store_at(tmp_path / "copy.db")
    assert mode(tmp_path / "copy.db") == 0o600
    async with opened(copy):
        assert len(await copy.events("r1")) == 4
        assert copy.epoch != epoch, "it may grow other events under the same sequences"


async def test_a_backup_that_finds_no_room_leaves_nothing_behind(path: Path, tmp_path: Path) -> None:
    """An empty or half file would be taken for a backup, and its journal be rolled back into the next one."""
    (place := tmp_path / "backups").mkdir()
    store = store_at(path)
    async with opened(store):
        author = await create(store, new_run("r1", "t1"))
        await author.write(3)
        with no_room(), pytest.raises(StoreError):
            await store.backup(place / "copy.db")
        assert files(place) == []
        await store.backup(place / "copy.db")
    copy = store_at(place / "copy.db", read_only=True)
    async with opened(copy):
        assert len(await copy.events("r1")) == 4


async def test_a_file_whose_log_has_no_name_is_refused_and_let_go_of(path: Path) -> None:
    """Opening fails late, and leaves no lock and no connection behind: a backup can be put in its place."""
    store = store_at(path)
    async with opened(store):
        await store.backup(path.with_name("backup.db"))
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("DELETE FROM about")
        other.commit()
    for options in ({}, {"read_only": True}):
        assert f"{path} cannot be read: " in await refusal(path, **options)
    broken = store_at(path)
    for _ in range(2):
        with pytest.raises(StoreOpenError, match="restore it from a backup"):
            await broken.run(ReportLog())
    assert owner_of(path) is None
    path.with_name("backup.db").rename(path)
    async with opened(broken):
        assert len(broken.epoch) == 16


async def test_opening_in_a_thread_reports_the_same_way(path: Path) -> None:
    put(path, b"not a database at all")
    with pytest.raises(StoreOpenError, match="is not a database"):
        await SQLiteStore(path).run(ReportLog())


def test_the_writer_must_be_known(path: Path) -> None:
    with pytest.raises(ValueError, match="'thread' or 'inline'"):
        SQLiteStore(path, writer="process")  # type: ignore[arg-type]


def test_a_folder_is_no_database_and_gets_no_lock_file(tmp_path):
    folder = tmp_path / "here"
    folder.mkdir()
    with pytest.raises(StoreOpenError, match="is a folder"):
        SQLiteStore(folder)
    assert list(tmp_path.iterdir()) == [folder]
