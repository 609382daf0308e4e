"""Who works on what: queues that take turns, limits over processes, priorities, poison, and very many waiting runs."""

import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial

import psycopg
import pytest
import trio

import greenroom as gr

from ...support.postgres import Server
from ...support.postgres_copies import copy_run, transactions
from .nodes import AGENTS
from .scenes import eventually, marks, opened, select
from .swarm import CALM, LONG, Swarm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.no_cover]

FULL = os.environ.get("GREENROOM_CHAOS") == "full"
full_only = pytest.mark.skipif(not FULL, reason="takes long: `make chaos-postgres` runs it")
CROWD = 2_000 if FULL else 200
WAITING = 100_000 if FULL else 5_000
LIVE = 10_000 if FULL else 1_000
SLACK = 1 if FULL else 10
"""How much longer things may take beside other tests."""
WATCHED = 30.0 if FULL else 12.0
"""Seconds for which processes at rest are watched: the server counts some transactions ten seconds late."""


@pytest.fixture
def times() -> Mapping[str, float]:
    return CALM  # a lost lease would interrupt unsafe bodies, and their runs would wait for people


async def start_all(runtime: gr.Runtime, agent: str, names: list[str], **options: object) -> None:
    """Start runs in the background, all at once."""
    async with trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(partial(runtime.start, agent, "go", run_id=name, background=True, **options))


async def test_a_run_of_its_own_queue_starts_at_once_beside_a_long_queue(swarm: Swarm, server: Server):
    workers = [swarm.node(f"worker-{n}", agents=["slow"], runtime={"max_running": 10}) for n in range(2)]
    await opened(swarm, *workers)
    async with gr.open_runtime(server.url()) as runtime:
        await start_all(runtime, "slow", [f"r{number}" for number in range(CROWD)], queue="crowd")
        began = time.clock_gettime(time.CLOCK_BOOTTIME)
        await runtime.start("slow", "go", run_id="single", queue="other", background=True)
        mark = (await eventually(lambda: marks(swarm.folder, run="single")))[0]
        ready = next(queue.ready for queue in await runtime.store.queues() if queue.name == "crowd")
    print(f"\nbegan after {(mark['at'] - began) * 1e3:.0f} ms, with {ready} runs waiting in the other queue")  # noqa: T201
    assert ready > CROWD / 4
    assert mark["at"] - began < 1.0 * SLACK


async def test_a_limit_of_a_queue_holds_over_all_processes(swarm: Swarm, server: Server):
    async with gr.open_runtime(server.url()) as runtime:
        await runtime.store.set_queue("limited", max_running=5)
        few = {"max_running": 3}  # so that one process alone cannot fill the queue's limit
        workers = [swarm.node(f"worker-{number}", agents=["slow"], runtime=few) for number in range(3)]
        await opened(swarm, *workers)
        names = [f"r{number}" for number in range(60)]
        await start_all(runtime, "slow", names, queue="limited")
        for name in names:
            assert isinstance(await (await runtime.get(name)).result(), gr.Completed)
    moments = sorted((line["at"], 1 if line["what"] == "begin" else -1) for line in marks(swarm.folder))
    working = most = 0
    for _, change in moments:
        working += change
        most = max(most, working)
    pids = {line["pid"] for line in marks(swarm.folder)}
    print(f"\nat most {most} of 60 runs at once, in {len(pids)} processes")  # noqa: T201
    assert 1 < most <= 5  # five on a quiet machine
    assert len(pids) > 1


async def test_an_urgent_run_overtakes_later_ones_and_starves_no_earlier_one(swarm: Swarm, server: Server):
    """A step of priority counts like ten seconds of waiting."""
    async with gr.open_runtime(server.url()) as runtime:
        now = datetime.now(UTC)
        worker = swarm.node("worker", agents=["slow"], runtime={"max_running": 1})
        await opened(swarm, worker)
        await runtime.store.set_queue("q", paused=True)  # however slow the machine is, all are there before one begins
        await start_all(runtime, "slow", ["new"], queue="q", at=now)
        await start_all(runtime, "slow", ["urgent"], queue="q", at=now, priority=1)
        await start_all(runtime, "slow", ["old"], queue="q", at=now - timedelta(seconds=30))
        await runtime.store.set_queue("q")
        for name in ("old", "urgent", "new"):
            await (await runtime.get(name)).result()
    assert [line["run"] for line in marks(swarm.folder, what="begin")] == ["old", "urgent", "new"]


@full_only
async def test_a_poison_run_becomes_a_dead_letter_and_others_are_unharmed(swarm: Swarm, server: Server):
    async with gr.open_runtime(server.url()) as runtime:
        processes = [swarm.node("worker", agents=["poison", "slow"])]
        await opened(swarm, *processes)

        async def restart() -> None:
            while True:
                await eventually(lambda: not processes[-1].alive, 600)
                assert processes[-1].code == 99, swarm.errors()
                processes.append(swarm.again(processes[-1]))

        async def dead() -> str | None:
            (line,) = (await runtime.store.summaries(["poison"])).runs
            return line.dead

        async with trio.open_nursery() as nursery:
            nursery.start_soon(restart)
            await runtime.start("poison", "go", run_id="poison", background=True)
            others = [f"r{number}" for number in range(20)]
            for name in others:
                await runtime.start("slow", "go", run_id=name, background=True)
                await trio.sleep(0.3)
            reason = await eventually(dead, 120)
            crashes = len(processes) - 1
            for name in others:
                run = await runtime.get(name)
                while isinstance(outcome := await run.wait(), gr.Waiting):
                    await run.decide(outcome.tickets[0].approve())
                assert isinstance(outcome, gr.Completed)
            assert crashes == 5
            assert await runtime.store.revive_run("poison")
            await eventually(lambda: len(processes) - 1 > crashes, 120)
            reason = await eventually(dead, 120)
            print(f"\n{reason}; {len(processes) - 1} processes died")  # noqa: T201
            run = await runtime.get("poison")
            await run.cancel()
            assert isinstance(await run.result(), gr.Cancelled)
            nursery.cancel_scope.cancel()
        events = list(await runtime.store.events("poison", limit=100_000))
    assert sum(b'"run.cancelled"' in frame for frame in events) == 1


async def test_very_many_waiting_runs_cost_a_process_nothing(swarm: Swarm, server: Server):
    agents = [AGENTS["asker"]()]
    async with gr.open_runtime(server.url(), agents=agents) as runtime:
        run = await runtime.start("asker", "go", run_id="r")
        await run.wait()
    copy_run(server.url(), "r", WAITING)
    workers = []
    for number in range(3):
        began = time.monotonic()
        workers.append(swarm.node(f"worker-{number}", agents=["asker"], options=LONG))
        await opened(swarm, workers[-1])
        spent = time.monotonic() - began
        print(f"\nopened beside {WAITING:,} waiting runs in {spent * 1e3:.0f} ms")  # noqa: T201
        assert spent < 1.0 * SLACK
    await trio.sleep(11.0)
    before = transactions(server.url())
    await trio.sleep(WATCHED)
    rate = (transactions(server.url()) - before) / WATCHED / 3
    print(f"{rate:.2f} statements per second and process at rest")  # noqa: T201
    assert rate <= (2.0 if FULL else 2.25)  # the server counts up to ten seconds late: more than noise in a short watch


async def test_the_runs_of_a_killed_process_are_free_at_once_when_its_parent_buries_it(swarm: Swarm, server: Server):
    async with gr.open_runtime(server.url(), agents=[AGENTS["asker"]()]) as runtime:
        run = await runtime.start("asker", "go", run_id="r")
        await run.wait()
    worker = swarm.node("worker", agents=["asker"], options=LONG)
    await opened(swarm, worker)
    swarm.stop(worker)  # else it would give back what it does not know
    ((number, name),) = select(server.url(), "SELECT number, name FROM greenroom.processes WHERE pid = %s", worker.pid)
    copy_run(server.url(), "r", LIVE, owner=str(number))
    swarm.kill(worker)
    async with gr.open_runtime(server.url()) as runtime:
        began = time.monotonic()
        assert await runtime.store.bury(name)
        owned = "SELECT count(*) FROM greenroom.runs WHERE owner = %s"
        await eventually(lambda: select(server.url(), owned, number) == [(0,)])
        spent = time.monotonic() - began
    print(f"\n{LIVE:,} runs freed in {spent * 1e3:.0f} ms")  # noqa: T201
    assert spent < 2.0 * SLACK
    assert select(server.url(), "SELECT sum(crashes)::int FROM greenroom.runs") == [(0,)]


async def test_nothing_is_notified_about_a_run_that_no_other_process_follows(swarm: Swarm, server: Server):
    other = swarm.node("other", agents=["slow"])
    await opened(swarm, other)
    async with gr.open_runtime(server.url(), agents=[AGENTS["echo"]()]) as runtime:
        await (await runtime.start("echo", "go")).result()
        with psycopg.connect(server.url(), autocommit=True) as connection:
            for (number,) in select(server.url(), "SELECT number FROM greenroom.processes"):
                connection.execute(f"LISTEN greenroom_greenroom_{number}".encode())
            for _ in range(20):
                await (await runtime.start("echo", "go")).result()
            sent = list(connection.notifies(timeout=0.5))
    assert [hint.payload for hint in sent] == []
