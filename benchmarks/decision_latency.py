"""How fast a person's decision acts while 100 other runs work: answered, and the body that it allows running."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing

import trio

import greenroom as gr

from .files import database
from .harness import Benchmark, Case, Figure, Values, on_trio, percentile
from .workload import QuietModel, adding

PACES = {"calm": 1.0, "busy": 0.2}
"""Seconds that each answer of a live run's model takes: 100 such runs make some 100 or 500 durable steps per second."""
LIVE = 100
PAUSE = 0.01
"""Seconds between two decisions."""


def _case(pace: str) -> Case:
    return on_trio(lambda quick: _decide(pace, 10 if quick else LIVE, 10 if quick else 300))


async def _decide(pace: str, live: int, decisions: int) -> Values:
    delay = PACES[pace]
    began: dict[str, trio.Event] = {}
    body_starts: dict[str, float] = {}

    @gr.tool(needs_approval=True, replay="unsafe")
    async def pay(ctx: gr.ToolContext[None], a: int, b: int) -> int:
        """Pay."""
        body_starts[ctx.run_id] = time.perf_counter()
        began[ctx.run_id].set()
        return a + b

    working = adding(100_000, delay=delay)
    asking = gr.Agent("asking", tools=[pay], model=QuietModel(tool="pay"))
    answer_times, act_times = [], []
    with database() as path:
        async with gr.open_runtime(path, agents=[working, asking], drain=0) as runtime:
            waiting = [await runtime.start(asking, "hi") for _ in range(decisions)]
            tickets = [(await run.wait()).tickets[0] for run in waiting]
            for _ in range(live):
                await runtime.start(working, "hi")
                await trio.sleep(delay / live)  # so that they do not march in step
            before, since = runtime.store.statistics(), time.perf_counter()
            for run, ticket in zip(waiting, tickets, strict=True):
                await trio.sleep(PAUSE)
                began[run.id] = trio.Event()
                sent_at = time.perf_counter()
                answer = await run.decide(ticket.approve())
                answer_times.append(time.perf_counter() - sent_at)
                assert answer.status == "accepted", answer
                await began[run.id].wait()
                act_times.append(body_starts[run.id] - sent_at)
            after, until = runtime.store.statistics(), time.perf_counter()
    return {
        f"{pace}_answered_p50": percentile(answer_times, 0.5) * 1e3,
        f"{pace}_answered_p99": percentile(answer_times, 0.99) * 1e3,
        f"{pace}_acted_p50": percentile(act_times, 0.5) * 1e3,
        f"{pace}_acted_p99": percentile(act_times, 0.99) * 1e3,
        f"{pace}_load": (after.commits - before.commits) / (until - since),
    }


def _disk(quick: bool) -> Values:
    """What the disk allows just now: bare SQLite commits of 2 KB, as far apart as the decisions."""
    durations = []
    with database() as path, closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE t (a BLOB)")
        for _ in range(10 if quick else 300):
            time.sleep(PAUSE)  # noqa: TID251 - no event loop here
            began = time.perf_counter()
            connection.execute("INSERT INTO t VALUES (?)", (bytes(2_048),))
            durations.append(time.perf_counter() - began)
    return {"disk_p50": percentile(durations, 0.5) * 1e3, "disk_p99": percentile(durations, 0.99) * 1e3}


def _figures(pace: str) -> tuple[Figure, ...]:
    title = f"model answers in {PACES[pace]:g} s"
    return (
        Figure(key=f"{pace}_answered_p50", what=f"{title}: sent to answered, p50", unit="ms", at_most=5),
        Figure(key=f"{pace}_answered_p99", what=f"{title}: sent to answered, p99", unit="ms", at_most=25),
        Figure(key=f"{pace}_acted_p50", what=f"{title}: sent to the body running, p50", unit="ms", at_most=10),
        Figure(key=f"{pace}_acted_p99", what=f"{title}: sent to the body running, p99", unit="ms", at_most=30),
        Figure(key=f"{pace}_load", what=f"{title}: commits per second meanwhile", unit="/s", digits=0),
    )


BENCHMARK = Benchmark(
    name="decision_latency",
    about=f"300 approvals of unsafe calls on SQLite while {LIVE} runs work; wall time, so it hears of other processes",
    cases={"calm": _case("calm"), "disk": _disk, "busy": _case("busy")},
    figures=(
        *_figures("calm"),
        *_figures("busy"),
        Figure(key="disk_p50", what="beside it: a bare SQLite commit of 2 KB, p50", unit="ms"),
        Figure(key="disk_p99", what="beside it: a bare SQLite commit of 2 KB, p99", unit="ms"),
    ),
)
