"""Greenroom on PostgreSQL: the whole runtime, as `open_runtime("postgresql://...")` opens it.

More modes than the peers have: `one_unsafe` and `many_unsafe` (each body's start is durable before the body begins, as
the peers' steps are before the next one; without that, a step that may be repeated joins a later commit), `follow`
(events of another process), `claim` (20 of COUNT ready runs at a time), `idle` (COUNT waiting runs).
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

import trio

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from tests.support.postgres_copies import copy_run, rest, transactions

import greenroom as gr
from benchmarks.pg.spending import CONTENT, COUNT, LIVE, MODE, PAUSE, PORT, STEPS, Spent, latencies, say, say_steps, url
from benchmarks.workload import QuietModel
from greenroom.actors.processes import Ability
from greenroom.actors.store_events import Report, RunCommitted, StoreEvent
from greenroom.actors.stores.postgres.store import PostgresStore

FOLLOWED = 10
SECONDS = 6.0
"""For which events are followed."""
LATE = 12.0
"""Seconds after which the server has counted all transactions: those of connections at rest, up to ten seconds late."""
IDLE = 40.0
"""Seconds for which a process at rest is watched."""


@gr.tool(replay="safe")
async def work(a: int, b: int) -> str:
    """One step that may be repeated: its result joins a later commit."""
    return CONTENT


@gr.tool(name="work")
async def act(a: int, b: int) -> str:
    """One step that must not be repeated unasked: its start is durable, too."""
    return CONTENT


def agent(steps: int, tool: Any = work, key: str = "steps", delay: float = 0.0) -> gr.Agent[str]:
    """An agent of so many steps."""
    return gr.Agent(
        key, tools=[tool], model=QuietModel(steps, tool="work", delay=delay), stop=[gr.stop.MaxRounds(steps + 2)]
    )


async def complete(runtime: gr.Runtime, which: gr.Agent[str]) -> None:
    """One run to its end."""
    outcome = await (await runtime.start(which, "hi")).result()
    assert isinstance(outcome, gr.Completed), outcome


async def steps() -> None:
    """Modes `one`, `many` and theirs with unsafe steps."""
    single = MODE.startswith("one")
    which = agent(COUNT if single else STEPS, act if MODE.endswith("unsafe") else work)
    async with gr.open_runtime(url(), agents=[which]) as runtime:
        await complete(runtime, agent(5, key="warm"))
        with Spent() as cost:
            async with trio.open_nursery() as nursery:
                for _ in range(1 if single else COUNT):
                    nursery.start_soon(complete, runtime, which)
    say_steps(cost, COUNT if single else COUNT * STEPS)


# --- two processes ---------------------------------------------------------------------------------------------------


act_times: list[tuple[str, float]] = []


@gr.tool(needs_approval=True)
async def pay(ctx: gr.ToolContext[None], a: int, b: int) -> str:
    """Acts when it is allowed."""
    act_times.append((ctx.run_id, time.monotonic()))
    return "paid"


async def owner() -> None:
    """The other process: 100 runs that live there, until stdin ends; then what it has noted."""
    times: list[tuple[str, int, float]] = []

    class Store(PostgresStore):
        async def run(self, report: Report, **options: Any) -> None:
            def timed(event: StoreEvent) -> None:
                if isinstance(event, RunCommitted):
                    times.append((event.run_id, event.last, time.monotonic()))
                report(event)

            await super().run(timed, **options)

    asking = gr.Agent("asking", tools=[pay], model=QuietModel(COUNT, tool="pay"), stop=[gr.stop.MaxRounds(COUNT + 2)])
    working = agent(100_000, key="working", delay=0.5)
    async with gr.open_runtime(Store(url()), agents=[asking, working], drain=0, passivate_after=None) as runtime:
        which = working if MODE == "follow_owner" else asking
        runs = []
        for _ in range(LIVE):
            runs.append(await runtime.start(which, "hi"))
            await trio.sleep(0.5 / LIVE)  # so that they do not march in step
        print(json.dumps([run.id for run in runs]), flush=True)
        await trio.to_thread.run_sync(sys.stdin.read)
        print(json.dumps([act_times, times]), flush=True)


@asynccontextmanager
async def another_process(mode: str) -> AsyncIterator[tuple[list[str], "subprocess.Popen[str]"]]:
    """A process with runs of its own, and their ids."""
    command = [sys.executable, __file__, str(PORT), mode, str(COUNT)]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **streams) as process:  # type: ignore[call-overload]  # noqa: ASYNC220, S603 - this script
        assert process.stdout is not None
        yield json.loads(await trio.to_thread.run_sync(process.stdout.readline)), process


async def noted(process: "subprocess.Popen[str]") -> Any:
    """What the other process has noted, at its end."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    return json.loads(await trio.to_thread.run_sync(process.stdout.readline))


async def send() -> None:
    """Decisions for runs of another process, one at a time."""
    async with another_process("owner") as (ids, process), gr.open_runtime(url()) as runtime:
        runs = [await runtime.get(run_id) for run_id in ids]
        accept_seconds, send_times = [], []
        for number in range(COUNT):
            run = runs[number % LIVE]
            await trio.sleep(
                PAUSE
            )  # the work of the decision before is done: nothing of it, nor the look here, is measured
            while not (tickets := (await run.view()).tickets):  # noqa: ASYNC110 - another process opens it
                await trio.sleep(0.01)
            await trio.sleep(PAUSE)
            began = time.monotonic()
            answer = await run.decide(tickets[0].approve())
            accept_seconds.append(time.monotonic() - began)
            assert answer.status == "accepted", answer
            send_times.append((run.id, began))
        await trio.sleep(1.0)
        moments: dict[str, list[float]] = {}
        for run_id, moment in (await noted(process))[0]:
            moments.setdefault(run_id, []).append(moment)
    wake_seconds = [moments[run_id].pop(0) - began for run_id, began in send_times]
    say(**latencies(accepted=accept_seconds, acted=wake_seconds))


async def follow() -> None:
    """Events of another process: durable there, in an iterator here."""
    arrivals: dict[tuple[str, int], float] = {}
    async with another_process("follow_owner") as (ids, process), gr.open_runtime(url()) as runtime:

        async def read(run_id: str) -> None:
            async with (await runtime.get(run_id)).events() as events:
                async for event in events:
                    arrivals[run_id, event.sequence] = time.monotonic()

        with trio.move_on_after(SECONDS):
            async with trio.open_nursery() as nursery:
                for run_id in ids[:FOLLOWED]:
                    nursery.start_soon(read, run_id)
        until = time.monotonic() - 0.5
        times = (await noted(process))[1]
    late = [
        arrivals[run, last] - moment
        for run, last, moment in times
        if (run, last) in arrivals and moment > until - SECONDS / 2
    ]
    unseen = [
        1 for run, last, moment in times if run in ids[:FOLLOWED] and moment < until and (run, last) not in arrivals
    ]
    assert not unseen, unseen
    say(**latencies(followed=late))


# --- work ------------------------------------------------------------------------------------------------------------


async def fill(status: str) -> None:
    """COUNT runs, as copies of the rows of one that the runtime has made."""
    asking = gr.Agent("asking", tools=[pay], model=QuietModel(1, tool="pay"))
    async with gr.open_runtime(url(), agents=[asking]) as runtime:
        run = await runtime.start(asking, "hi")
        await run.wait()
    copy_run(url(), run.id, COUNT, status=f"'{status}'")


async def claim() -> None:
    """Claims of 20 from a backlog, by the store alone."""
    await fill("running")
    store = PostgresStore(url())
    durations = []

    class Hooks:
        def __getattr__(self, name: str) -> Any:
            return lambda *_: None

    async with trio.open_nursery() as nursery:
        await nursery.start(store.run, Hooks())
        for _ in range(100):
            began = time.monotonic()
            claims = await store.claim_ready(20, Ability(), datetime.now(UTC))
            durations.append(time.monotonic() - began)
            assert len(claims) == 20, len(claims)
        nursery.cancel_scope.cancel()
    say(**latencies(claim=durations), claims_per_second=20 * len(durations) / sum(durations))


async def idle() -> None:
    """Transactions of a process at rest in a database of waiting runs, and how long the process takes to open."""
    await fill("waiting")
    rest(url())
    asking = gr.Agent("asking", tools=[pay], model=QuietModel(1, tool="pay"))
    began = time.monotonic()
    async with gr.open_runtime(url(), agents=[asking]):
        seconds = time.monotonic() - began
        await trio.sleep(LATE)  # what the opening took is not counted as rest
        before = transactions(url())
        await trio.sleep(IDLE)
        after = transactions(url())
    say(opened_ms=seconds * 1e3, statements_per_second=(after - before) / IDLE)


async def jobs() -> None:
    """Runs that wait in a queue, each claimed, answered by a model and done: whole runs, not empty jobs."""
    echo = gr.Agent("echo", model=QuietModel(0))
    async with gr.open_runtime(url()) as runtime:
        async with trio.open_nursery() as nursery:
            for number in range(COUNT):
                nursery.start_soon(partial(runtime.start, echo, "hi", run_id=f"r{number}", background=True))
    async with gr.open_runtime(url(), agents=[echo], max_running=50) as runtime:
        with Spent() as cost:
            async with trio.open_nursery() as nursery:
                for number in range(COUNT):
                    run = await runtime.get(f"r{number}")
                    nursery.start_soon(run.result)
    say(jobs_per_second=COUNT / cost.wall)


MODES = {
    "owner": owner,
    "follow_owner": owner,
    "send": send,
    "follow": follow,
    "claim": claim,
    "idle": idle,
    "jobs": jobs,
}

if __name__ == "__main__":
    trio.run(MODES.get(MODE, steps))
