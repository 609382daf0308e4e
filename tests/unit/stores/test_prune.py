"""What prune gives back of a thread's state keys: the store kit says what has to stay."""

import sqlite3
from contextlib import closing

import trio
from msgspec.structs import replace

import greenroom as gr
from greenroom.actors.contract.state import StateWrite
from greenroom.actors.stores.common._state_history import KeyVersion, StateHistory
from greenroom.actors.testing.store_kit._tools import NOW, create, new_run, opened

LATER = NOW.replace(year=NOW.year + 1)


async def test_a_thread_keeps_one_value_of_a_key_for_all_runs_that_are_gone(tmp_path):
    """A conversation of years must not carry every value that its state ever had."""
    store = gr.SQLiteStore(tmp_path / "s.db")
    async with opened(store):
        for run in range(3):
            author = await create(store, new_run(f"r{run}", "t"))
            for step in range(1, 6):
                write = StateWrite(key="k", scope="thread", value=[run, step], revision=step)
                await author.write(row=replace(author.row, step=step), state=(write,))
            await author.end(at=NOW.replace(year=NOW.year + (2 if run == 2 else 0)))
        assert await trio.to_thread.run_sync(values, tmp_path / "s.db") == 15
        await store.prune(LATER)
        assert await trio.to_thread.run_sync(values, tmp_path / "s.db") == 6  # r2's own, and the one that it began with
        await store.prune(LATER.replace(year=LATER.year + 2))
        assert await trio.to_thread.run_sync(values, tmp_path / "s.db") == 0  # with the last run


def values(path) -> int:
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute("SELECT count(*) FROM state").fetchone()[0]


def test_a_history_forgets_what_no_run_sees():
    history = StateHistory()
    for run in (1, 2, 4):
        for step in (1, 2):
            history.put(KeyVersion(run, step, StateWrite(key="k", scope="thread", value=[run, step], revision=step)))
    for oldest, left in ((1, 6), (2, 5), (3, 3), (None, 1), (9, 1)):
        history.forget(oldest)
        assert len(history) == left
    assert [one.value for one in history.newest(9)] == [[4, 2]]
