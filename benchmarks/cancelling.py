"""What it costs to cancel one of many live runs, all of them, or to close the runtime over them."""

from __future__ import annotations

import gc
import math
import time

import trio

import greenroom as gr
from greenroom.models import OpenAIChat
from greenroom.testing import open_fault_server, reply

from .harness import Benchmark, Figure, Spent, Values, on_trio
from .workload import adding


async def _live(runtime: gr.Runtime, agent: gr.Agent[str], count: int) -> list[gr.Run[str]]:
    """So many runs, each asking a model that never answers."""
    runs = [await runtime.start(agent, "hi") for _ in range(count)]
    for _ in range(10):
        await trio.lowlevel.checkpoint()
    gc.collect()
    return runs


async def _cancel(run: gr.Run[str]) -> None:
    await run.cancel()
    assert isinstance(await run.result(), gr.Cancelled)


async def _watch(pauses: list[float]) -> None:
    last = time.perf_counter()
    while True:
        await trio.lowlevel.checkpoint()
        here = time.perf_counter()
        pauses.append(here - last)
        last = here


async def _commands(quick: bool) -> Values:
    count, single = (40, 10) if quick else (1_000, 100)
    agent = adding(delay=math.inf)
    pauses: list[float] = []
    async with gr.open_runtime(agents=[agent], drain=0) as runtime:
        runs = await _live(runtime, agent, count + single)
        with Spent() as one:
            for run in runs[:single]:
                await _cancel(run)
        with Spent() as rest:
            async with trio.open_nursery() as nursery:
                for run in runs[single:]:
                    nursery.start_soon(_cancel, run)
        runs = await _live(runtime, agent, count)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch, pauses)
            await trio.lowlevel.checkpoint()
            pauses.clear()
            for run in runs:
                await run.cancel()
            for run in runs:
                await run.result()
            nursery.cancel_scope.cancel()
    return {
        "one_ms": one.cpu / single * 1e3,
        "all_ms": rest.cpu / count * 1e3,
        "pause_ms": max(pauses) * 1e3,
    }


async def _closing(quick: bool) -> Values:
    count = 40 if quick else 1_000
    agent = adding(delay=math.inf)
    cost = Spent()
    async with gr.open_runtime(agents=[agent], drain=0) as runtime:
        await _live(runtime, agent, count)
        cost.__enter__()
    cost.__exit__()
    return {"close_ms": cost.cpu / count * 1e3}


async def _streams(quick: bool) -> Values:
    """Cancel runs whose answers hang on real connections; none is left open."""
    count = 40 if quick else 1_000
    async with open_fault_server(*[reply("On", begun=True, hang=True) for _ in range(count)]) as server:
        model = OpenAIChat("small", base_url=server.base_url("chat"), api_key="none")
        agent = gr.Agent("asks", model=model)
        async with gr.open_runtime(agents=[agent]) as runtime:
            runs = [await runtime.start(agent, "hi") for _ in range(count)]
            for _ in runs:
                await server.begun.acquire()
            with Spent() as cost:
                async with trio.open_nursery() as nursery:
                    for run in runs:
                        nursery.start_soon(_cancel, run)
                open_still = sum(not request.closed_by_peer() for request in server.requests)
    return {"stream_ms": cost.cpu / count * 1e3, "open": open_still}


BENCHMARK = Benchmark(
    name="cancelling",
    about="1,000 live runs in memory, each in a model request that never ends",
    cases={"by command": on_trio(_commands), "by closing": on_trio(_closing), "streams": on_trio(_streams)},
    figures=(
        Figure(key="one_ms", what="cancel one, until its outcome is there, CPU", unit="ms", digits=3),
        Figure(key="all_ms", what="cancel 1,000 together, CPU per run", unit="ms", digits=3),
        Figure(key="pause_ms", what="longest pause of a bystander meanwhile, wall", unit="ms", at_most=100, digits=1),
        Figure(key="stream_ms", what="cancel 1,000 that stream over HTTP, CPU per run", unit="ms", digits=3),
        Figure(key="open", what="connections that are open when their runs have ended", unit="", at_most=0, digits=0),
        Figure(key="close_ms", what="close the runtime over 1,000 live runs, CPU per run", unit="ms", digits=3),
    ),
)
