"""The same run, every commit durable: SQLite with synchronous=FULL, alone and 100 at once."""

from __future__ import annotations

import gc

import greenroom as gr

from .files import database
from .harness import Benchmark, Figure, Spent, Values, on_trio
from .workload import adding, run_once, together, warm


def _case(label: str, at_once: int, full: int) -> object:
    async def main(quick: bool) -> Values:
        runs = max(at_once, 10) if quick else full
        agent = adding()
        with database() as path:
            async with gr.open_runtime(path, agents=[agent]) as runtime:
                await warm(runtime, agent)
                before = runtime.store.statistics()
                gc.collect()
                with Spent() as cost:
                    for _ in range(runs // at_once):
                        await together(at_once, lambda: run_once(runtime, agent))
                after = runtime.store.statistics()
        return {
            f"{label}_cpu_ms": cost.cpu / runs * 1e3,
            f"{label}_wall_ms": cost.wall / runs * 1e3,
            f"{label}_transactions": (after.transactions - before.transactions) / runs,
        }

    return main


BENCHMARK = Benchmark(
    name="run_durable",
    about="the one-tool run with SQLite, WAL, synchronous=FULL; CPU of all threads",
    cases={"alone": on_trio(_case("alone", 1, 200)), "100 at once": on_trio(_case("hundred", 100, 500))},
    figures=(
        Figure(key="hundred_cpu_ms", what="100 runs at once, CPU per run", unit="ms", at_most=1.0),
        Figure(key="hundred_wall_ms", what="100 runs at once, wall per run", unit="ms"),
        Figure(key="hundred_transactions", what="100 runs at once, transactions per run", unit=""),
        Figure(key="alone_cpu_ms", what="one run after the other, CPU per run", unit="ms", at_most=1.8),
        Figure(key="alone_wall_ms", what="one run after the other, wall per run", unit="ms"),
        Figure(key="alone_transactions", what="one run after the other, transactions per run", unit=""),
    ),
)
