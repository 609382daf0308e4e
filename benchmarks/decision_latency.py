"""How fast a person's decision acts while 100 other runs work: answered, and the body that it allows running."""

from __future__ import annotations

import time

import trio

import greenroom as gr

from .files import database
from .harness import Benchmark, Figure, Values, on_trio, percentile
from .workload import QuietModel, adding

MODEL_SECONDS = 0.2
"""What each answer of a live run's model takes: 100 such runs make some 500 durable steps per second."""
PAUSE = 0.01
"""Seconds between two decisions."""


async def _main(quick: bool) -> Values:
    live, decisions = (10, 10) if quick else (100, 300)
    began: dict[str, trio.Event] = {}
    started: dict[str, float] = {}

    @gr.tool(needs_approval=True, replay="unsafe")
    async def pay(ctx: gr.ToolContext[None], a: int, b: int) -> int:
        """Pay."""
        started[ctx.run_id] = time.perf_counter()
        began[ctx.run_id].set()
        return a + b

    working = adding(100_000, delay=MODEL_SECONDS)
    asking = gr.Agent("asking", tools=[pay], model=QuietModel(tool="pay"))
    answered, acted = [], []
    with database() as path:
        async with gr.open_runtime(path, agents=[working, asking], drain=0) as runtime:
            waiting = [await runtime.start(asking, "hi") for _ in range(decisions)]
            tickets = [(await run.wait()).tickets[0] for run in waiting]
            for _ in range(live):
                await runtime.start(working, "hi")
                await trio.sleep(MODEL_SECONDS / live)  # so that they do not march in step
            before, since = runtime.store.statistics(), time.perf_counter()
            for run, ticket in zip(waiting, tickets, strict=True):
                await trio.sleep(PAUSE)
                began[run.id] = trio.Event()
                sent = time.perf_counter()
                answer = await run.decide(ticket.approve())
                answered.append(time.perf_counter() - sent)
                assert answer.status == "accepted", answer
                await began[run.id].wait()
                acted.append(started[run.id] - sent)
            after, until = runtime.store.statistics(), time.perf_counter()
    return {
        "answered_p50": percentile(answered, 0.5) * 1e3,
        "answered_p99": percentile(answered, 0.99) * 1e3,
        "acted_p50": percentile(acted, 0.5) * 1e3,
        "acted_p99": percentile(acted, 0.99) * 1e3,
        "load": (after.commits - before.commits) / (until - since),
    }


BENCHMARK = Benchmark(
    name="decision_latency",
    about=f"300 approvals on SQLite while 100 runs work whose models take {MODEL_SECONDS} s per answer; wall time",
    cases={"100 live runs": on_trio(_main)},
    figures=(
        Figure(key="answered_p50", what="sent to answered, p50", unit="ms", at_most=5),
        Figure(key="answered_p99", what="sent to answered, p99", unit="ms", at_most=25),
        Figure(key="acted_p50", what="sent to the unsafe body running, p50", unit="ms", at_most=10),
        Figure(key="acted_p99", what="sent to the unsafe body running, p99", unit="ms", at_most=30),
        Figure(key="load", what="commits per second of all runs meanwhile", unit="/s", digits=0),
    ),
)
