"""What a run costs in memory while it waits for a person: with one parked call, and for each further one."""

from __future__ import annotations

import gc

import trio

import greenroom as gr

from .files import database
from .harness import Benchmark, Figure, Values, on_trio, resident
from .workload import QuietModel

MANY = 9


@gr.tool(needs_approval=True)
async def ask(a: int, b: int) -> int:
    """Add two numbers if a person agrees."""
    return a + b


def _case(label: str, calls: int, full: int) -> object:
    async def main(quick: bool) -> Values:
        runs = 40 if quick else full
        agent = gr.Agent("asking", tools=[ask], model=QuietModel(calls=calls, tool="ask"))
        with database() as path:
            async with gr.open_runtime(path, agents=[agent], drain=0) as runtime:
                await _wait_for(runtime, agent, 100)
                gc.collect()
                before = resident()
                await _wait_for(runtime, agent, runs)
                gc.collect()
                return {label: (resident() - before) / runs}

    return main


async def _wait_for(runtime: gr.Runtime, agent: gr.Agent[str], runs: int) -> None:
    async def one() -> None:
        run = await runtime.start(agent, "hi")
        assert isinstance(await run.wait(), gr.Waiting)

    for first in range(0, runs, 50):
        async with trio.open_nursery() as nursery:
            for _ in range(min(50, runs - first)):
                nursery.start_soon(one)


BENCHMARK = Benchmark(
    name="waiting_memory",
    about="growth of resident memory by runs that are parked on an approval; their rows are in SQLite",
    cases={"one call": on_trio(_case("one", 1, 2_000)), f"{MANY} calls": on_trio(_case("many", MANY, 500))},
    derive=lambda values: {
        "one_kb": values["one"] / 1024,
        "further_kb": (values["many"] - values["one"]) / (MANY - 1) / 1024,
    },
    figures=(
        Figure(key="one_kb", what="a waiting run with one parked call", unit="KiB", at_most=15, digits=1),
        Figure(key="further_kb", what="each further parked call of a run", unit="KiB", at_most=6, digits=1),
    ),
)
