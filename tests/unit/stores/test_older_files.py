"""Files of older releases: what a migration makes of them."""

import contextlib
import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from greenroom.actors.contract import codec
from greenroom.actors.contract.calls import CallPosition, CallStatus
from greenroom.actors.contract.commits import NewRun
from greenroom.actors.stores.common._timestamps import milliseconds
from greenroom.actors.stores.sqlite._opening import CHECKED_WHOLE
from greenroom.actors.stores.sqlite._schema import MIGRATIONS
from greenroom.actors.stores.sqlite.store import SQLiteStore
from greenroom.actors.testing.store_kit._tools import NOW, message, new_run, opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


def store_at(path: Path, **options: object) -> SQLiteStore:
    return SQLiteStore(path, writer="inline", **options)


async def older(path: Path, version: int, *new: NewRun) -> Sequence[NewRun]:
    """A file of an older release with these runs in it, numbered from 1, and their messages."""
    async with opened(store_at(path, migrations=MIGRATIONS[:version])):
        pass
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("PRAGMA auto_vacuum = NONE")
        file.execute("VACUUM")
        for one in new:
            info, row = one.info, one.row
            file.execute("INSERT OR IGNORE INTO threads(thread_id) VALUES (?)", (info.thread_id,))
            values = (info.run_id, info.agent, row.status.value, row.stage.value, row.step)
            values += (milliseconds(info.created_at), codec.dump(info), codec.dump(row), info.thread_id)
            file.execute(
                "INSERT INTO runs(run_id, agent, status, stage, step, created_at, info, row, last_seq, token, dispatch,"
                " thread) SELECT ?, ?, ?, ?, ?, ?, ?, ?, 1, 1, 'ready', number"
                " FROM threads WHERE thread_id = ?",
                values,
            )
            for message in one.messages:
                file.execute(
                    "INSERT INTO messages(thread, pos, id, run, step, body) SELECT thread,"
                    " (SELECT count(*) + 1 FROM messages WHERE thread = runs.thread), ?, number, 0, ?"
                    " FROM runs WHERE run_id = ?",
                    (message.id, codec.dump(message), info.run_id),
                )
    return new


def begun_by(name: str, run_id: str, thread_id: str) -> NewRun:
    """A run of a principal, with its input."""
    new = new_run(run_id, thread_id, messages=(message(f"{run_id}.m1"),))
    return replace(new, info=replace(new.info, by=name))


async def test_threads_of_an_older_file_have_owners(path: Path) -> None:
    """The principal of the first run; not known where the run that began the thread is pruned already."""
    runs = [
        begun_by("ann", "a1", "ta"),
        begun_by("bob", "a2", "ta"),
        begun_by("ann", "p", "tp"),
        begun_by("bob", "q", "tp"),
    ]
    await older(path, 4, *runs, begun_by("local", "l", "tl"), begun_by("ann", "gone", "empty"))
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("DELETE FROM runs WHERE run_id IN ('p', 'gone')")
    store = store_at(path)
    async with opened(store):
        found = [await store.thread(name) for name in ("ta", "tp", "tl", "empty")]
        assert [one and (one.owner, one.runs) for one in found] == [("ann", 2), ("", 1), ("local", 1), ("", 0)]
        taken = await store.create_run(new_run("p", "other"), b"{}")
        assert taken.pruned == ""  # its input is still in the thread
        pruned = await store.prune(NOW.replace(year=1980))
        assert (pruned.runs, pruned.messages) == (0, 1)  # what no run is left to read
        assert [one.id for one in await store.messages("tp")] == ["p.m1", "q.m1"]


async def test_calls_of_an_older_file_have_the_status_that_they_had(path: Path) -> None:
    """Their rows hold the status beside the position, in version 1; now it is derived."""
    await older(path, 4, new_run("r1", "t1"))
    request = {"call_id": "c", "tool": "pay", "arguments": {}}
    about = {"tool": "pay", "step": 0, "arguments": {}, "fingerprint": "f", "requested": request}
    stored = [
        {},
        {"at": "gating", "status": "resuming"},
        {"at": "allowed", "status": "running", "attempts": 1},
        {"at": "body", "status": "running", "attempts": 2},
        {"at": "parked", "status": "suspended", "attempts": 1},
        {"at": "settled", "status": "cancelled", "code": "approval_rejected"},
    ]
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as file:
        for index, row in enumerate(stored):
            body = json.dumps({"v": 1, "d": about | row | {"call_id": f"c{index}", "index": index}})
            file.execute(
                "INSERT INTO calls(run, call_id, step, idx, status, body) VALUES (1, ?, 0, ?, ?, CAST(? AS BLOB))",
                (f"c{index}", index, row.get("status", "new"), body),
            )
    store = store_at(path)
    async with opened(store):
        record = await store.load("r1", calls="all")
    assert record is not None
    reported = {call.at: call.status for call in record.calls}
    assert reported == {
        CallPosition.NEW: CallStatus.NEW,
        CallPosition.GATING: CallStatus.RESUMING,
        CallPosition.ALLOWED: CallStatus.RUNNING,
        CallPosition.BODY: CallStatus.RUNNING,
        CallPosition.PARKED: CallStatus.SUSPENDED,
        CallPosition.SETTLED: CallStatus.CANCELLED,
    }


async def test_an_older_file_learns_to_give_room_back(path: Path) -> None:
    """A small one at its next opening; a large one if that is asked for."""
    await older(path, 4, new_run("r1", "t1"))
    big = b"x" * CHECKED_WHOLE
    for compact in (None, False, True):
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as file:
            if compact is False:
                file.execute("PRAGMA auto_vacuum = NONE")
                file.execute("VACUUM")
                file.execute("INSERT INTO events(run, seq, frame) VALUES (1, 1, ?)", (big,))
        async with opened(store_at(path, compact=bool(compact))):
            pass
        with contextlib.closing(sqlite3.connect(path)) as file:
            assert file.execute("PRAGMA auto_vacuum").fetchone() == (0 if compact is False else 2,)
