"""A run with two plugins that clash in every phase.

Beside the promises of every run: what the hooks of a phase wrote is there as a whole or not at all, run_start and
run_end have counted once, and run_end saw no body running.
"""

import operator
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import trio

import greenroom as gr

from ..stage import World, broken, decode_event
from .subject import Subject, beginning, exactly

TRAIL = gr.StateKey("trail", list[str], default=[])
COUNT = gr.StateKey("count", int, default=0, merge=gr.commutative(operator.add))


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


def world(_: None, folder: Path | None, execution: str, **options: Any) -> World:
    plugins = (Clerk("a"), Clerk("b"))
    return World(folder=folder, execution=execution, plugins=plugins, unknown="resume", **options)


def kept(_: None, world: World) -> Iterator[str]:
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


PLUGINS = Subject(
    world,
    kept,
    victims={"run": exactly("runtime/r"), "hooks": beginning(*(f"{phase.value}:" for phase in gr.Phase))},
)
