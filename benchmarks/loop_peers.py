"""The agent loop beside those of other libraries: one tool call and a final text, with a model that costs nothing."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

import greenroom as gr

from .environments import LANGGRAPH, OPENAI_AGENTS, PYDANTIC_AI, Peer
from .harness import Benchmark, Case, Figure, Spent, Values, on_trio
from .workload import adding, run_once, together, warm

COUNTS = {"alone": 300, "together": 1_000}
LIMIT = 300.0
"""Seconds for one script."""


@attrs.frozen
class Loop:
    """One way to play the runs.

    Attributes:
        title: in the table. peer: None for ours. options: for the script; for ours "sqlite" keeps the runs in a file.
    """

    title: str
    peer: Peer | None = None
    options: tuple[str, ...] = ()


LOOPS = {
    "ours": Loop("Greenroom, in memory"),
    "ours_sqlite": Loop("Greenroom, in a SQLite file, each step durable", options=("sqlite",)),
    "openai_agents": Loop("openai-agents", OPENAI_AGENTS),
    "pydantic_ai": Loop("pydantic-ai", PYDANTIC_AI),
    "langgraph": Loop("langgraph, without a checkpointer", LANGGRAPH),
    "langgraph_saver": Loop("langgraph, InMemorySaver", LANGGRAPH, ("saver",)),
}


async def _ours(loop: Loop, mode: str, quick: bool) -> Spent:
    count, agent = (5 if quick else COUNTS[mode]), adding()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "runs.db" if loop.options else None
        async with gr.open_runtime(place, agents=[agent]) as runtime:
            await warm(runtime, agent)
            with Spent() as cost:
                if mode == "alone":
                    for _ in range(count):
                        await run_once(runtime, agent)
                else:
                    await together(count, lambda: run_once(runtime, agent))
    return cost


def _theirs(loop: Loop, mode: str, quick: bool) -> Mapping[str, Any]:
    assert loop.peer is not None
    command = [*loop.peer.command(), mode, str(5 if quick else COUNTS[mode]), *loop.options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)  # noqa: S603 - our own script
    if done.returncode != 0:
        raise RuntimeError(f"{loop.title}: exit code {done.returncode}\n{done.stderr[-4000:]}")
    result: Mapping[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _values(name: str, mode: str, quick: bool, cpu: float, wall: float) -> Values:
    count = 5 if quick else COUNTS[mode]
    return {f"{name}_{mode}_cpu_ms": cpu / count * 1e3, f"{name}_{mode}_wall": wall}


def _case(name: str, loop: Loop, mode: str) -> Case:
    async def ours(quick: bool) -> Values:
        cost = await _ours(loop, mode, quick)
        return _values(name, mode, quick, cost.cpu, cost.wall)

    def theirs(quick: bool) -> Values:
        result = _theirs(loop, mode, quick)
        return _values(name, mode, quick, result["cpu"], result["wall"])

    return theirs if loop.peer is not None else on_trio(ours)


def _ratios(values: Values) -> Values:
    """How much more CPU a run costs there than here, within one round."""
    ratios: Values = {}
    for name, mode in ((name, mode) for name in LOOPS for mode in COUNTS):
        key, ours = f"{name}_{mode}_cpu_ms", values.get(f"ours_{mode}_cpu_ms")
        if ours and key in values and LOOPS[name].peer is not None:
            ratios[f"{name}_{mode}_ratio"] = values[key] / ours
    return ratios


def _figures() -> list[Figure]:
    figures = []
    for mode, words in (("alone", "one after the other"), ("together", "1,000 at once")):
        for name, loop in LOOPS.items():
            figures.append(Figure(key=f"{name}_{mode}_cpu_ms", what=f"{words}, CPU per run: {loop.title}", unit="ms"))
            if loop.peer is not None:
                figures.append(
                    Figure(key=f"{name}_{mode}_ratio", what=f"{words}, of ours: {loop.title}", unit="x", digits=1)
                )
    return figures


BENCHMARK = Benchmark(
    name="loop_peers",
    about=(
        "model, one async tool, final text; a model that costs nothing. The others keep no log: what one is compared "
        "with is the whole of Greenroom, with every event in a store before it is seen"
    ),
    cases={f"{name} {mode}": _case(name, loop, mode) for name, loop in LOOPS.items() for mode in COUNTS},
    figures=_figures(),
    derive=_ratios,
    quick=("ours alone", "ours together", "ours_sqlite alone"),
)
