"""Durable steps: how many per second, what one costs in short and in long threads, what it leaves in the file."""

from __future__ import annotations

import gc

import greenroom as gr

from .files import database, size
from .harness import Benchmark, Figure, Spent, Values, on_trio
from .workload import adding, run_once, together, warm

LENGTHS = (50, 100, 200, 1_000)


def _many(label: str, runs: int) -> object:
    async def main(quick: bool) -> Values:
        steps = 10 if quick else 200
        count = min(runs, 5) if quick else runs
        agent = adding(steps)
        with database() as path:
            async with gr.open_runtime(path, agents=[agent]) as runtime:
                before = runtime.store.statistics()
                gc.collect()
                with Spent() as cost:
                    await together(count, lambda: run_once(runtime, agent))
                after = runtime.store.statistics()
        total = count * steps
        return {
            f"{label}_per_second": total / cost.wall,
            f"{label}_per_cpu_second": total / cost.cpu,
            f"{label}_commits": (after.commits - before.commits) / total,
            f"{label}_transactions": (after.transactions - before.transactions) / total,
        }

    return main


async def _lengths(quick: bool) -> Values:
    """One run of each length, in a file of its own; the empty file's size is known from a run of no step."""
    values: Values = {}
    empty = 0
    async with gr.open_runtime(agents=[adding()]) as runtime:
        await warm(runtime, adding())
    for length in (0, *LENGTHS):
        steps = length // 10 if quick else length
        agent = adding(steps)
        with database() as path:
            async with gr.open_runtime(path, agents=[agent]) as runtime:
                gc.collect()
                with Spent() as cost:
                    await run_once(runtime, agent)
            file_size = size(path)
        empty = empty or file_size
        if length:
            values[f"cpu_ms_{length}"] = cost.cpu / steps * 1e3
            values[f"bytes_{length}"] = (file_size - empty) / steps
    return values


def _derive(values: Values) -> Values:
    ratios = {f"linear_{length}": values[f"cpu_ms_{length}"] / values["cpu_ms_50"] for length in LENGTHS[1:]}
    ratios["linear_bytes"] = values["bytes_1000"] / values["bytes_200"]
    return ratios


BENCHMARK = Benchmark(
    name="durable_steps",
    about="threads of many steps (model, one tool) into SQLite, synchronous=FULL",
    cases={
        "one run of 200 steps": on_trio(_many("one", 1)),
        "100 runs of 200 steps": on_trio(_many("hundred", 100)),
        "50, 100, 200, 1000 steps": on_trio(_lengths),
    },
    derive=_derive,
    figures=(
        Figure(
            key="hundred_per_second", what="100 runs together, steps per second", unit="/s", at_least=2000, digits=0
        ),
        Figure(key="hundred_per_cpu_second", what="100 runs together, steps per CPU second", unit="/s", digits=0),
        Figure(key="one_per_second", what="one run, steps per second", unit="/s", digits=0),
        Figure(key="one_per_cpu_second", what="one run, steps per CPU second", unit="/s", digits=0),
        Figure(key="one_commits", what="one run, commits per step", unit=""),
        Figure(
            key="one_transactions", what="one run, transactions per step (no less than awaited)", unit="", at_most=2
        ),
        Figure(key="cpu_ms_50", what="thread of 50 steps, CPU per step", unit="ms", digits=3),
        Figure(key="linear_100", what="the same with 100 steps, against 50", unit="x", at_most=1.25),
        Figure(key="linear_200", what="the same with 200 steps, against 50", unit="x", at_most=1.25),
        Figure(key="linear_1000", what="the same with 1,000 steps, against 50", unit="x", at_most=1.25),
        Figure(
            key="bytes_200",
            what="200 steps, bytes of file per step, content included",
            unit="B",
            at_most=4600,
            digits=0,
        ),
        Figure(
            key="bytes_1000",
            what="1,000 steps, bytes of file per step, content included",
            unit="B",
            at_most=4600,
            digits=0,
        ),
        Figure(key="linear_bytes", what="bytes per step, 1,000 steps against 200", unit="x", at_most=1.25),
    ),
)
