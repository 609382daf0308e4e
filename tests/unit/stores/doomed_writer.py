"""A process of its own for the tests that kill a writer, or take its disk away. Prints one JSON line at the end.

python doomed_writer.py kill FOLDER ROUNDS SEED
python doomed_writer.py full FOLDER
"""

import json
import os
import random
import resource
import select
import signal
import sys
from pathlib import Path

import trio

from greenroom.actors.store_events import StoreEvent
from greenroom.actors.stores.sqlite.store import SQLiteStore
from greenroom.actors.testing.store_kit.kit import Author, ReportLog, create, new_run, opened

RUNS = 5


async def write_for_ever(path: Path, pipe: int) -> None:
    """Several runs commit as fast as they can; each acknowledged commit is reported through the pipe, when it is."""
    store = SQLiteStore(path)

    async def work(author: Author) -> None:
        while True:
            receipt = await author.write(3)
            os.write(pipe, f"{author.run_id} {receipt.last}\n".encode())

    async with opened(store), trio.open_nursery() as nursery:
        for name in [f"r{i}" for i in range(RUNS)]:
            record = await store.load(name)
            claim = await store.claim(name)
            if record is None or claim is None:
                author = await create(store, new_run(name, name))
            else:
                author = Author(store, claim, record.row)
            nursery.start_soon(work, author)


def kill_once(path: Path, rng: random.Random) -> dict[str, int]:
    """Start a writer, kill it in the middle of its work, and say what it had acknowledged."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        trio.run(write_for_ever, path, writing)
        os._exit(1)
    os.close(writing)
    said = os.read(reading, 1 << 16)
    select.select([], [], [], rng.uniform(0, 0.03))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while chunk := os.read(reading, 1 << 16):
        said += chunk
    os.close(reading)
    lines = said.decode().split("\n")[:-1]
    return {name: int(last) for name, last in (line.split() for line in lines)}


async def check(path: Path, acknowledged: dict[str, int]) -> int:
    """Every acknowledged event is there, contiguous, and the row is of the newest one."""
    store = SQLiteStore(path, writer="inline")
    total = 0
    async with opened(store):
        for name, last in acknowledged.items():
            frames = await store.events(name, limit=10**6)
            numbers = [int(json.loads(frame)["id"].split("-")[1]) for frame in frames]
            record = await store.load(name)
            assert record is not None, name
            assert numbers == list(range(1, len(numbers) + 1)), name
            assert len(numbers) >= last, (name, len(numbers), last)
            assert record.row.last_sequence == len(numbers), name
            total += len(numbers)
    return total


def kill(folder: Path, rounds: int, seed: int) -> dict[str, int]:
    rng, path, total, acknowledged = random.Random(seed), folder / "runs.db", 0, dict[str, int]()
    for _ in range(rounds):
        acknowledged |= kill_once(path, rng)
        total = trio.run(check, path, acknowledged)
    return {"events": total, "acknowledged": sum(acknowledged.values())}


class Noticing(ReportLog):
    """Whose first outage can be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.noticed = trio.Event()

    def __call__(self, event: StoreEvent) -> None:
        super().__call__(event)
        if self.outages:
            self.noticed.set()


async def full(folder: Path) -> dict[str, object]:
    """The file may not grow any more (RLIMIT_FSIZE); then it may again."""
    store, reports = SQLiteStore(folder / "runs.db", patience=20.0), Noticing()
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run, reports)
        author = await create(store, new_run("r1", "r1"))
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
        sent = [author.send(author.make(50)) for _ in range(100)]
        await reports.noticed.wait()
        waiting = sum(not one.receipts for one in sent)
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        kinds = {(await one.receipt()).kind for one in sent}
        events = len(await store.events("r1", limit=10**6))
        nursery.cancel_scope.cancel()
    outages = [error and type(error).__name__ for error in reports.outages]
    return {"waiting": waiting, "kinds": sorted(kinds), "events": events, "outages": outages}


if __name__ == "__main__":
    if sys.argv[1] == "kill":
        found = kill(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    else:
        found = trio.run(full, Path(sys.argv[2]))
    sys.stdout.write(json.dumps(found))
