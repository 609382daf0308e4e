"""The run of the other sweeps, with two plugins that clash in every phase: cancelled, crashed and killed at its steps.

Beside the promises of every run: what the hooks of a phase wrote is there as a whole or not at all, run_start and
run_end have counted once, and run_end saw no body running.
"""

import operator
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.supervision import chaos

from .stage import World, broken, decode_event
from .test_run_sweeps import FULL, SETTLE, can_crash, one_life, show, until_it_has_ended

SEEDS = (1, 2, 3) if FULL else (1,)
PLAN = [("memory", "parallel_streaming"), ("sqlite", "sequential")]
TRAIL = gr.StateKey("trail", list[str], default=[])
COUNT = gr.StateKey("count", int, default=0, merge=gr.commutative(operator.add))

pytestmark = pytest.mark.slow


class Clerk(gr.Plugin):
    """Writes an exclusive and a commutative key in every phase, after a checkpoint."""

    state = (TRAIL, COUNT)

    def __init__(self, name: str) -> None:
        self.name = name  # type: ignore[misc]

    async def _note(self, ctx: gr.PhaseContext[Any]) -> gr.Mutation:
        await trio.sleep(0.01)
        if ctx.phase is gr.Phase.RUN_END and ctx.deps.running:
            ctx.deps.faults.append(f"{sorted(ctx.deps.running)} were still running in run_end")
        where = f"{ctx.phase}:{ctx.step}" if ctx.call is None else f"{ctx.phase}:{ctx.call.call_id}"
        return gr.Mutation().set(TRAIL, [*ctx.state[TRAIL], f"{where}:{self.name}"]).update(COUNT, 1)

    async def tool_gate(self, ctx: gr.GateContext[Any]) -> None:
        await trio.sleep(0.01)

    run_start = step_start = before_inference = after_inference = _note
    before_tool_execute = after_tool_execute = step_end = run_end = _note


@pytest.fixture(params=PLAN, ids="-".join)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """`make(**options)` gives a maker of worlds with plugins."""
    kind, execution = request.param
    numbers = count()

    def prepared(**options: Any) -> Any:
        def world() -> World:
            folder = tmp_path / str(next(numbers)) if kind == "sqlite" else None
            plugins = (Clerk("a"), Clerk("b"))
            return World(folder=folder, execution=execution, plugins=plugins, unknown="resume", **options)

        return world

    return prepared


@pytest.fixture
def sample(seed: int) -> Any:
    """How many points of a sweep are visited: all of them in a full one."""
    return lambda n: None if FULL else (n, seed)


def kept(world: World) -> Iterator[str]:
    """The promises of every run, and those about state."""
    yield from broken(world)
    if world.ended is None:
        return
    state = {write.key: write.value for write in world.ended[1].state}
    trail = state.get("trail", [])
    if state.get("count", 0) != len(trail):
        yield f"half of a phase was merged: {state}"
    by_phase = Counter(line.rsplit(":", 1)[0] for line in trail)
    events = [decode_event(frame) for frame in world.ended[0]]
    struck = any(event.type == "run.degraded" for event in events)  # a crash in run_end is only recorded
    if any(number % 2 and not (struck and line.startswith("run_end")) for line, number in by_phase.items()):
        yield f"one of two hooks is missing: {by_phase}"
    often = {line: number for line, number in by_phase.items() if number > 2 and not line.startswith("before_tool")}
    if often:
        yield f"hooks counted more than once: {often}"
    began, ended = "run_start:0" in by_phase, any(line.startswith("run_end") for line in by_phase)
    if began and not ended and not struck and events[-1].payload.get("code") != "internal_error":
        yield f"no run_end in {trail}"


def test_with_plugins_too_a_runtime_that_is_cancelled_leaves_the_run_to_the_next_one(make, sample, request):
    report = chaos.sweep_cancel(make(), until_it_has_ended, kept, seeds=SEEDS, sample=sample(8), settle_within=SETTLE)
    show(request.node.name, report)


def test_with_plugins_too_a_process_that_dies_leaves_the_run_to_the_next_one(make, sample, request):
    report = chaos.sweep_cancel(
        make(), until_it_has_ended, kept, get_scope=World.die, seeds=SEEDS, sample=sample(8), settle_within=SETTLE
    )
    show(request.node.name, report)


def test_with_plugins_too_a_run_that_is_cancelled_ends_once(make, sample, request):
    report = chaos.sweep_cancel(make(cancels=True), one_life, kept, seeds=SEEDS, sample=sample(8), settle_within=SETTLE)
    show(request.node.name, report)


@pytest.mark.parametrize("victim", ["runtime/r", "the hooks"])
def test_with_plugins_too_an_actor_crashes_and_the_run_still_ends(make, sample, victim, request):
    phases = tuple(f"{phase.value}:" for phase in gr.Phase)

    def match(task: trio.lowlevel.Task) -> bool:
        hook = victim == "the hooks" and task.name.startswith(phases)
        return can_crash(task) and (hook or task.name == victim)

    report = chaos.sweep_crash(
        make(),
        until_it_has_ended,
        kept,
        contained=True,
        match_task=match,
        seeds=SEEDS,
        sample=sample(8),
        settle_within=SETTLE,
    )
    show(request.node.name, report)
