"""What is large in a request costs itself and no other: the sum of a batch and the time of a statement are bounded."""

import sqlite3
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

import greenroom as gr
from greenroom.actors.contract.commits import Receipt
from greenroom.actors.contract.recording import RecordEntry
from greenroom.actors.contract.sizes import COMMIT_LIMIT, TooLarge, measured, oversized
from greenroom.actors.engine.recording import RecordGap
from greenroom.actors.store_events import ignore
from greenroom.actors.stores.common._encoding import EncodedRows, encode_again, encode_new
from greenroom.actors.stores.common._write_queue import LARGEST_BYTES, WriteQueue
from greenroom.actors.stores.common.faults import Outage
from greenroom.actors.stores.postgres._connect import SLOWEST, Link
from greenroom.actors.stores.postgres._target import PgTarget
from greenroom.actors.testing.store_kit._tools import NOW, create, frame, message, new_run
from greenroom.actors.testing.store_kit.kit import opened

MIB = 2**20


@pytest.mark.parametrize(
    ("value", "size"),
    [("", 0), ("abc", 3), (b"ab", 2), (["a", "b"], 4), ({"key": "v"}, 5), ([[["x"]]], 4), (7, 0), ((None, {1}), 3)],
)
def test_the_texts_and_items_of_a_value_are_counted(value: object, size: int):
    assert measured(value, 100) == size
    assert oversized(value, 100) == 0
    assert oversized(value, size - 1) == (size if size else 0)


def test_counting_ends_with_the_first_excess():
    loop: list[Any] = ["x" * 10]
    loop.append(loop)
    assert oversized(loop, 100) > 100, "also of a value that holds itself"
    assert measured(["x"] * 10**6, 10) == 10**6, "no item was looked at"


class Waiting:
    """A writer that takes nothing by itself."""

    def stop(self) -> None:
        """Never called."""

    async def serve(self) -> None:
        """Never called."""


class Weighed:
    """A request of a size."""

    def __init__(self, size: int) -> None:
        self.size = size


def taken(sizes: Sequence[int]) -> list[list[int]]:
    queue = WriteQueue(lambda _: Waiting())
    queue.open(ignore)
    for size in sizes:
        queue.put(Weighed(size))  # type: ignore[arg-type]  # all that a queue looks at
    batches = []
    while batch := queue.take(100)[0]:
        batches.append([request.size for request in batch])
    return batches


def test_a_batch_is_bounded_in_bytes():
    half = LARGEST_BYTES // 2
    assert taken([1, 1, 1]) == [[1, 1, 1]]
    assert taken([half, half, half, 1]) == [[half, half], [half, 1]]
    assert taken([COMMIT_LIMIT, 1]) == [[COMMIT_LIMIT], [1]]


@pytest.mark.parametrize("make", [gr.MemoryStore, lambda: None], ids=["memory", "sqlite"])
async def test_a_commit_that_is_too_large_fails_alone(make, tmp_path):
    store = make() or gr.SQLiteStore(tmp_path / "runs.db", writer="inline")
    async with opened(store):
        large, small = await create(store, new_run("r1", "t1")), await create(store, new_run("r2", "t2"))
        sent = large.send(large.make(messages=(message("m1", "x" * COMMIT_LIMIT),)))
        receipt = await sent.receipt()
        assert receipt.kind == "failed"
        assert isinstance(receipt.error.__cause__, TooLarge)
        assert f"at most {COMMIT_LIMIT:,} are written together" in str(receipt.error)
        assert (await small.send(small.make()).receipt()).kind == "committed"


@pytest.mark.parametrize("place", ["frames", "record", "messages", "row"])
async def test_what_sqlite_refuses_as_too_big_is_no_outage(tmp_path, autojump_clock, place):
    """SQLite's own limit is lowered for this connection. The events of a whole batch are written at its end."""
    store = gr.SQLiteStore(tmp_path / "runs.db", writer="inline")
    async with opened(store) as hooks:
        large, small = await create(store, new_run("r1", "t1")), await create(store, new_run("r2", "t2"))
        assert store._transactor is not None
        store._transactor._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 50_000)
        big = "x" * 100_000
        parts: dict[str, Any] = {
            "record": {"taken": (RecordEntry(NOW, RecordGap(why=big)),)},
            "messages": {"messages": (message("m1", big),)},
        }
        commit = large.make(1, **parts.get(place, {}))
        if place == "row":
            commit = replace(commit, row=replace(commit.row, answer=big))
        frames = [big.encode() if place == "frames" else frame("r1", 2)]
        receipts: list[Receipt] = []
        store.submit(large.claim, commit, frames, receipts.append)
        assert [receipt.kind for receipt in receipts] == ["failed"]
        assert "too big" in str(receipts[0].error)
        assert (await small.send(small.make()).receipt()).kind == "committed"
        assert hooks.outages == []


async def test_a_fork_may_have_a_longer_history_than_a_commit_carries():
    new, large = new_run("r1", "t1"), (message("m1", "x" * COMMIT_LIMIT),)
    with pytest.raises(Exception, match="are written together"):
        encode_new(replace(new, messages=large), frame("r1", 1))
    assert isinstance(encode_new(replace(new, messages=large, thread_parent=("t0", 1)), frame("r1", 1)), EncodedRows)


async def test_what_finds_no_memory_twice_is_an_outage():
    store = gr.MemoryStore()
    async with opened(store):
        commit = (await create(store, new_run("r1", "t1"))).make()

    class Scarce(tuple[Any, ...]):
        __slots__ = ()

        def __iter__(self) -> Any:
            raise MemoryError

    with pytest.raises(Outage):
        encode_again(replace(commit, messages=Scarce([1])), [])
    rows, error = encode_again(replace(commit, messages=(object(),)), [])
    assert rows is None
    assert error is not None


def test_the_answer_to_a_large_statement_has_more_time():
    link = Link(PgTarget.parse("postgresql://127.0.0.1/x"), "test")
    link.since, link.carries = 100.0, 20 * SLOWEST
    assert not link.cut_late(10.0, 129.0)
    assert link.cut_late(10.0, 131.0)
    link.since, link.carries = 100.0, 0
    assert link.cut_late(10.0, 111.0)
