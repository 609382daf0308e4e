"""While a store has its file, other processes know it: else the last of them to leave would delete the WAL.

POSIX drops every lock that a process has on a file as soon as the process closes any descriptor of it, also those that
SQLite holds (https://www.sqlite.org/howtocorrupt.html, section 2.2). So a store must not open its file a second time.
"""

import fcntl
import subprocess
import sys
from pathlib import Path

import trio

import greenroom as gr
from greenroom.actors.contract.run_lists import RunQuery
from greenroom.actors.store_events import ignore
from greenroom.testing import ScriptedModel

SHARED_FIRST, SHARED_SIZE = 0x40000002, 510
"""Bytes of the file that SQLite locks as long as a process has it open (https://www.sqlite.org/src/file/src/os.h)."""

OTHER = f"""
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, {SHARED_SIZE}, {SHARED_FIRST})
    except OSError:
        print("in use")
    else:
        print("free")
"""
LOOKS = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("SELECT count(*) FROM runs").fetchone()
connection.close()
"""


def other_process(script: str, path: Path) -> str:
    done = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, timeout=120, check=True)
    return done.stdout.strip()


async def look(store: gr.Store) -> None:
    """As many reads at once as there are connections for them."""
    async with trio.open_nursery() as nursery:
        for _ in range(8):
            nursery.start_soon(store.runs, RunQuery(limit=10))


async def test_a_store_that_is_read_keeps_its_file_in_use(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    agent = gr.Agent("a", model=ScriptedModel(["one"]))
    async with gr.open_runtime(path, agents=[agent]) as runtime:
        await look(runtime.store)
        assert other_process(OTHER, path) == "in use"
    assert other_process(OTHER, path) == "free"


async def test_a_second_store_of_the_process_that_only_looks_does_not_free_it(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    agent = gr.Agent("a", model=ScriptedModel(["one"]))
    async with gr.open_runtime(path, agents=[agent]) as runtime:
        async with trio.open_nursery() as nursery:
            looking = gr.SQLiteStore(path, read_only=True)
            await nursery.start(looking.run, ignore)
            await look(looking)
            assert other_process(OTHER, path) == "in use"
            nursery.cancel_scope.cancel()
        assert other_process(OTHER, path) == "in use"
        await look(runtime.store)


async def test_a_process_that_comes_and_goes_takes_nothing_away(tmp_path: Path) -> None:
    """What is written after it has gone is there."""
    path = tmp_path / "r.db"
    agent = gr.Agent("a", model=ScriptedModel(["one", "two"]))
    async with gr.open_runtime(path, agents=[agent]) as runtime:
        for number in range(3):
            await (await runtime.start(agent, "hi", run_id=f"r{number}")).result()
            await look(runtime.store)
            other_process(LOOKS, path)
            assert (tmp_path / "r.db-wal").exists()
    async with gr.open_runtime(path) as runtime:
        assert len((await runtime.runs()).runs) == 3


def test_the_probe_sees_what_is_free_and_what_is_not(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    assert other_process(OTHER, path) == "free"
    with path.open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_SH, SHARED_SIZE, SHARED_FIRST)
        assert other_process(OTHER, path) == "in use"
