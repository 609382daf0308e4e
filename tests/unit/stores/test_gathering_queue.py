"""A queue that gives the writer in one go what the trio thread submits in one burst of work."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.actors.contract.commits import Receipt
from greenroom.actors.errors import StoreDown
from greenroom.actors.store_events import Report, RunCommitted, StoreEvent, ignore
from greenroom.actors.stores.common import _gathering_queue
from greenroom.actors.stores.common._gathering_queue import FULL, GatheringQueue
from greenroom.actors.stores.common._requests import CommitRequest
from greenroom.actors.stores.common._thread_writer import ThreadWriter
from greenroom.actors.stores.postgres._connect import Link
from greenroom.actors.stores.postgres._target import PgTarget
from greenroom.actors.stores.postgres.store import PostgresStore
from greenroom.actors.testing.store_kit._tools import create, frame, new_run
from greenroom.testing import ScriptedModel, call


class Noting:
    """A request that notes how it was settled."""

    size = 0

    def __init__(self) -> None:
        self.lost: StoreDown | None = None

    def lose(self, error: StoreDown, report: Report) -> None:
        self.lost = error


class Idle:
    """A writer that takes nothing by itself."""

    def stop(self) -> None:
        """Do nothing."""


@contextmanager
def queue() -> Iterator[Any]:
    made: Any = GatheringQueue(lambda _: Idle())  # type: ignore[arg-type,return-value]
    made.open(ignore)
    with made.gathering():
        yield made


def taken(queue: GatheringQueue) -> int:
    batch, _ = queue.take(1_000)
    queue.executed()
    return len(batch)


async def test_a_burst_is_kept_until_trio_waits(monkeypatch):
    monkeypatch.setattr(_gathering_queue, "LONGEST", 60.0)
    with queue() as kept:
        for number in range(5):
            kept.put(Noting())
            assert (taken(kept), kept.unsettled) == (0, number + 1)
            await trio.lowlevel.checkpoint()  # the task can run at once
        assert taken(kept) == 0
        await trio.sleep(0.001)
        assert taken(kept) == 5
        await trio.sleep(0.001)
        assert taken(kept) == 0


async def test_a_busy_thread_gives_after_a_while(monkeypatch):
    monkeypatch.setattr(_gathering_queue, "LONGEST", 60.0)
    with queue() as kept:
        for way in (trio.lowlevel.checkpoint, None):
            kept.put(Noting())
            assert taken(kept) == 0
            monkeypatch.setattr(_gathering_queue, "LONGEST", 0.0)
            if way is None:
                kept.put(Noting())  # the task itself is busy: trio does not look meanwhile
            else:
                await way()
            monkeypatch.setattr(_gathering_queue, "LONGEST", 60.0)
            assert taken(kept) == (2 if way is None else 1)


async def test_much_is_given_at_once(monkeypatch):
    monkeypatch.setattr(_gathering_queue, "LONGEST", 60.0)
    with queue() as kept:
        for _ in range(FULL - 1):
            kept.put(Noting())
        assert taken(kept) == 0
        kept.put(Noting())
        assert taken(kept) == FULL


async def test_a_writer_that_works_gets_each_request_at_once_and_in_order(monkeypatch):
    monkeypatch.setattr(_gathering_queue, "LONGEST", 60.0)
    with queue() as kept:
        requests = [Noting() for _ in range(5)]
        kept.put(requests[0])
        await trio.sleep(0.001)
        assert not kept._waiting.empty()
        kept.put(requests[1])  # given, but not taken yet
        batch, _ = kept.take(10)
        assert batch == requests[:2]
        kept.put(requests[2])  # taken, and not written yet
        assert not kept._waiting.empty()
        kept.executed()
        kept.put(requests[3])
        assert kept.take(10)[0] == requests[2:4]
        kept.executed()
        kept.put(requests[4])  # the writer has nothing to do
        assert kept.take(10)[0] == []
        assert kept.unsettled == 5


async def test_nothing_is_lost_or_stuck_if_memory_runs_out_in_the_instrument(caplog):
    """Trio takes an instrument away that raises."""

    class Full:
        def put(self, request: Any) -> None:
            raise MemoryError

    with queue() as kept:
        kept.put(Noting())
        kept.put(Noting())
        waiting, kept._waiting = kept._waiting, Full()
        kept.before_io_wait(1.0)
        await trio.sleep(0.001)
        kept._waiting = waiting
        assert taken(kept) == 0
        await trio.sleep(0.001)
        assert taken(kept) == 2
    assert not caplog.records


async def test_the_end_comes_after_what_was_kept():
    with queue() as kept:
        kept.put(Noting())
        kept.end()
        batch, more = kept.take(10)
        assert (len(batch), more) == (1, False)


async def test_what_is_kept_at_the_end_is_lost_once():
    with queue() as kept:
        request, late = Noting(), Noting()
        kept.put(request)
        kept.shut(StoreDown("closed"))
        kept.put(late)
        assert (str(request.lost), str(late.lost), kept.unsettled) == ("closed", "closed", 0)
        await trio.sleep(0.001)
        assert taken(kept) == 0


async def test_without_a_gathering_block_nothing_is_kept():
    with queue() as kept:
        kept.put(Noting())
    assert taken(kept) == 1  # the end of the block gives what was kept
    kept.put(Noting())
    assert taken(kept) == 1
    with kept.gathering():
        kept.put(Noting())
        await trio.sleep(0.001)
        assert taken(kept) == 1


@pytest.mark.slow
async def test_a_step_whose_start_is_durable_before_its_body_takes_one_transaction(postgres_url, monkeypatch):
    """Of a model that answers at once: the end of a call and the next answer are one transaction."""
    monkeypatch.setattr(_gathering_queue, "LONGEST", 60.0)  # however slow the machine is

    @gr.tool
    async def act(number: int) -> str:
        return f"{number}"

    steps = 30
    script = [call("act", number=number) for number in range(steps)]
    actor = gr.Agent("actor", tools=[act], model=ScriptedModel([*script, "done"]), stop=[gr.stop.MaxRounds(0)])
    store = PostgresStore(postgres_url, turn=20.0, lease=90.0)
    async with gr.open_runtime(store, agents=[actor]) as runtime:
        run = await runtime.start(actor, "hi")
        assert isinstance(await run.result(), gr.Completed)
        counts = store.statistics()
    assert counts.commits >= 2 * steps
    assert counts.transactions <= steps + 8


# --- nothing is seen before it is durable ----------------------------------------------------------------------------


def witness(report: Report, seen: "Seen") -> Report:
    """Look, by a connection of its own, whether what is reported is in the database."""

    def looking(event: StoreEvent) -> None:
        if isinstance(event, RunCommitted):
            seen.look("reported", event.run_id, event.last)
        report(event)

    return looking


class Seen:
    """What was seen, and of it what was not durable at that moment."""

    def __init__(self, url: str) -> None:
        self._link = Link(PgTarget.parse(url), "witness")
        self.looks = 0
        self.early: list[str] = []

    def look(self, what: str, run_id: str, last: int) -> None:
        self.looks += 1
        ((newest,),) = self._link.execute("SELECT last_seq FROM {s}.runs WHERE run_id = %s", (run_id,))
        ((count,),) = self._link.execute(
            "SELECT count(*) FROM {s}.events e JOIN {s}.runs r ON r.number = e.run WHERE r.run_id = %s", (run_id,)
        )
        if newest < last or count < last:
            self.early.append(f"{what}: {run_id} {last}, durable: {newest}")

    def begun(self, run_id: str, call_id: str) -> None:
        self.looks += 1
        rows = self._link.execute(
            "SELECT c.status FROM {s}.calls c JOIN {s}.runs r ON r.number = c.run WHERE r.run_id = %s AND call_id = %s",
            (run_id, call_id),
        )
        if rows != [("running",)]:
            self.early.append(f"body: {run_id} {call_id}, durable: {rows}")

    def close(self) -> None:
        self._link.close()


async def played(url: str) -> Seen:
    """Six runs at once, each of five steps whose start is durable before the body begins."""
    seen = Seen(url)

    class Witnessed(PostgresStore):
        async def run(self, report: Report, **options: Any) -> None:
            await super().run(witness(report, seen), **options)

    @gr.tool
    async def act(ctx: gr.ToolContext[None], number: int) -> str:
        seen.begun(ctx.run_id, ctx.call_id)
        await trio.sleep(0.001 * number)
        return f"{number}"

    def agent(key: str) -> gr.Agent[Any]:
        script = [call("act", number=number) for number in range(5)]
        return gr.Agent(key, tools=[act], model=ScriptedModel([*script, "done"]), stop=[gr.stop.MaxRounds(0)])

    agents = [agent(f"a{number}") for number in range(6)]
    try:
        async with gr.open_runtime(Witnessed(url, turn=20.0, lease=90.0), agents=agents) as runtime:
            runs = [await runtime.start(agent, "hi") for agent in agents]
            with trio.fail_after(20):
                for run in runs:
                    assert isinstance(await run.result(), gr.Completed)
    finally:
        seen.close()
    return seen


@pytest.mark.slow
async def test_no_event_is_reported_and_no_body_begins_before_the_commit(postgres_url, monkeypatch):
    monkeypatch.setattr(_gathering_queue, "LONGEST", 60.0)
    seen = await played(postgres_url)
    assert not seen.early, seen.early[:2]
    assert seen.looks > 6 * 5 * 2


@pytest.mark.slow
async def test_a_receipt_before_its_commit_is_found_by_that_test(postgres_url, monkeypatch):
    """A planted bug: the receipts of a batch are delivered, then the batch is written."""
    write = ThreadWriter._write

    def early(writer: ThreadWriter, batch: Any) -> Any:
        if not isinstance(batch[0], CommitRequest):
            return write(writer, batch)
        receipts = [Receipt(kind="committed", last=request.commit.last) for request in batch]
        writer._soon(writer._settle, batch, receipts)
        time.sleep(0.005)  # noqa: TID251 - in the writer's thread
        write(writer, batch)
        return [], []

    monkeypatch.setattr(ThreadWriter, "_write", early)
    seen = await played(postgres_url)
    assert {text.partition(":")[0] for text in seen.early} == {"reported", "body"}


@pytest.mark.slow
async def test_a_kept_commit_is_refused_if_its_run_was_taken_over_meanwhile(postgres_url, monkeypatch):
    monkeypatch.setattr(_gathering_queue, "LONGEST", 60.0)
    store, thief = PostgresStore(postgres_url), Link(PgTarget.parse(postgres_url), "thief")
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run, ignore)
        author = await create(store, new_run("r", "t"))
        await author.write()
        sent = author.send(author.make(2))
        thief.execute("UPDATE {s}.runs SET token = ((token >> 31) + 1 << 31) + 7, commits = 0, owner = NULL")
        receipt = await sent.receipt()
        assert (receipt.kind, receipt.last) == ("lease_lost", 0)
        assert thief.execute("SELECT last_seq FROM {s}.runs") == [(2,)]
        assert thief.execute("SELECT count(*) FROM {s}.events") == [(2,)]
        nursery.cancel_scope.cancel()
    thief.close()


@pytest.mark.slow
async def test_what_is_kept_when_the_store_is_cancelled_is_written_and_settled_once(postgres_url, monkeypatch):
    monkeypatch.setattr(_gathering_queue, "LONGEST", 60.0)
    store = PostgresStore(postgres_url)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run, ignore)
        author = await create(store, new_run("r", "t"))
        receipts: list[Receipt] = []
        for _ in range(3):
            commit = author.make(1)
            store.submit(author.claim, commit, [frame("r", commit.last)], receipts.append)
        nursery.cancel_scope.cancel()
    assert [(receipt.kind, receipt.last) for receipt in receipts] == [("committed", last) for last in (2, 3, 4)]
    assert store._commits.unsettled == 0


async def test_a_store_without_threads_keeps_nothing(postgres_url):
    store = PostgresStore(postgres_url, writer="inline")
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run, ignore)
        author = await create(store, new_run("r", "t"))
        commit, receipts = author.make(1), list[Receipt]()
        store.submit(author.claim, commit, [frame("r", commit.last)], receipts.append)
        assert [receipt.kind for receipt in receipts] == ["committed"]  # in the stretch of its author
        nursery.cancel_scope.cancel()
