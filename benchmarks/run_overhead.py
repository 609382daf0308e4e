"""What the runtime costs: CPU of a run with one tool call, in memory, one after the other and many at once."""

from __future__ import annotations

import gc

import greenroom as gr

from .harness import Benchmark, Figure, Spent, Values, on_trio
from .raw_trio import raw_run
from .workload import adding, guarded, handing_over, run_once, together, warm, with_child


async def _alone(quick: bool) -> Values:
    """Blocks of runs and of raw loops in turn, in one process: their ratio does not depend on the machine's mood."""
    blocks, runs = (2, 10) if quick else (8, 50)
    agent = adding()
    ours = Spent()
    raw = Spent()
    cpu_ours = cpu_raw = 0.0
    async with gr.open_runtime(agents=[agent]) as runtime:
        await warm(runtime, agent)
        before = runtime.store.statistics()
        for _ in range(blocks):
            gc.collect()
            with ours:
                for _ in range(runs):
                    await run_once(runtime, agent)
            with raw:
                for _ in range(runs * 4):
                    await raw_run()
            cpu_ours += ours.cpu
            cpu_raw += raw.cpu / 4
        after = runtime.store.statistics()
    count = blocks * runs
    return {
        "cpu_ms": cpu_ours / count * 1e3,
        "raw_cpu_ms": cpu_raw / count * 1e3,
        "ratio": cpu_ours / cpu_raw,
        "events": (after.events - before.events) / count,
        "commits": (after.commits - before.commits) / count,
    }


async def _features(quick: bool) -> Values:
    """Blocks of runs with further parts beside blocks of the run with one tool, in turn, in one process."""
    blocks, runs = (2, 10) if quick else (8, 50)
    agents = {"tool": adding(), "child": with_child(), "handoff": handing_over(), "guardrails": guarded()}
    costs, cpu = {name: Spent() for name in agents}, dict.fromkeys(agents, 0.0)
    async with gr.open_runtime(agents=agents.values()) as runtime:
        for agent in agents.values():
            await warm(runtime, agent)
        for _ in range(blocks):
            gc.collect()
            for name, agent in agents.items():
                with costs[name]:
                    for _ in range(runs):
                        await run_once(runtime, agent)
                cpu[name] += costs[name].cpu
    values = {f"cpu_ms_{name}": total / (blocks * runs) * 1e3 for name, total in cpu.items()}
    return values | {f"ratio_{name}": total / cpu["tool"] for name, total in cpu.items()}


async def _together(quick: bool) -> Values:
    runs = 20 if quick else 1_000
    cost = await at_once(runs)
    return {"wall_1000": cost.wall, "cpu_1000": cost.cpu, "cpu_ms_1000": cost.cpu / runs * 1e3}


async def at_once(runs: int) -> Spent:
    """So many runs that are started together, in a runtime that has seen some before."""
    agent = adding()
    async with gr.open_runtime(agents=[agent]) as runtime:
        await warm(runtime, agent)
        gc.collect()
        with Spent() as cost:
            await together(runs, lambda: run_once(runtime, agent))
    return cost


BENCHMARK = Benchmark(
    name="run_overhead",
    about="model, one async tool, final text; in memory; a model that costs nothing",
    cases={"alone": on_trio(_alone), "features": on_trio(_features), "1000 at once": on_trio(_together)},
    figures=(
        Figure(key="cpu_ms", what="one run after the other, CPU per run", unit="ms", at_most=0.6, digits=3),
        Figure(key="raw_cpu_ms", what="the same by hand on raw trio", unit="ms", digits=3),
        Figure(key="ratio", what="ratio of the two, in one process", unit="x", digits=1),
        Figure(key="events", what="events per run", unit="", digits=0),
        Figure(key="commits", what="commits per run", unit="", digits=1),
        Figure(key="cpu_ms_child", what="a parent with one child run in place of the tool, CPU", unit="ms", digits=3),
        Figure(key="ratio_child", what="ratio to the run with one tool, in one process", unit="x", digits=2),
        Figure(key="cpu_ms_handoff", what="a handoff in place of the tool, CPU", unit="ms", digits=3),
        Figure(key="ratio_handoff", what="ratio to the run with one tool, in one process", unit="x", digits=2),
        Figure(
            key="cpu_ms_guardrails",
            what="one tool and three guardrails (input, output, arguments), CPU",
            unit="ms",
            digits=3,
        ),
        Figure(key="ratio_guardrails", what="ratio to the run with one tool, in one process", unit="x", digits=2),
        Figure(key="wall_1000", what="1,000 runs at once, wall", unit="s", at_most=0.8),
        Figure(key="cpu_1000", what="1,000 runs at once, CPU", unit="s"),
    ),
)
