"""A run with guardrails of all four kinds.

Beside the promises of every run: no body begins before the input guardrails have passed, a run has at most one trip,
which is its end, no guardrail is alive after the run, and what was not judged is in no history.
"""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import trio

import greenroom as gr
from greenroom.testing import ScriptedModel

from ..stage import SCRIPT, World, ask, broken, decode_event, look, note, refund
from ..test_run_sweeps import FULL
from .subject import Subject, beginning, exactly

TRIPS = (None, "first", "beside", "out", "arguments", "result") if FULL else (None, "beside", "out")
ANSWER = "done"


def guarded(trips: str | None, execution: Any) -> gr.Agent:
    """The agent of all sweeps with guardrails of all kinds, of which one trips."""

    def judge(name: str, seconds: float) -> Any:
        async def verdict(ctx: gr.PhaseContext[Any], value: Any) -> gr.Trip | None:
            ctx.deps.running.add(f"guardrail {name}")
            try:
                await trio.sleep(seconds)
            finally:
                ctx.deps.running.discard(f"guardrail {name}")
            if name in ("first", "beside"):
                ctx.deps.judged.add(name)
            elif ctx.deps.judged != {"first", "beside"}:
                ctx.deps.faults.append(f"{name} was asked before the input guardrails had passed")
            return gr.Trip(name) if name == trips else None

        return verdict

    before = gr.tool_input_guardrail(name="arguments")(judge("arguments", 0.01))
    behind = gr.tool_output_guardrail(name="result")(judge("result", 0.05))
    options: Any = {"replay": "safe", "input_guardrails": [before], "output_guardrails": [behind]}
    inspected = gr.tool(look.function, name="look", **options)
    return gr.Agent(
        "support",
        tools=[refund, note, inspected, ask],
        model=ScriptedModel(SCRIPT, chunk=8),
        execution=execution,
        input_guardrails=[
            gr.input_guardrail(name="first", blocking=True)(judge("first", 0.05)),
            gr.input_guardrail(name="beside")(judge("beside", 0.2)),
        ],
        output_guardrails=[gr.output_guardrail(name="out")(judge("out", 0.1))],
    )


def world(trips: str | None, folder: Path | None, execution: str, **options: Any) -> World:
    agent = functools.partial(guarded, trips)
    return World(folder=folder, execution=execution, make_agent=agent, guarded=True, unknown="resume", **options)


def kept(trips: str | None, world: World) -> Iterator[str]:
    """The promises of every run, and those about guardrails."""
    yield from broken(world)
    if world.ended is None:
        return
    events = [decode_event(frame) for frame in world.ended[0]]
    history = [message.content for message in world.ended[2]]
    said = [event.payload["guardrail"] for event in events if event.type == "run.guardrail.tripped"]
    end = events[-1]
    if len(said) > 1 or said not in ([], [trips]):
        yield f"the guardrail {trips} trips, and the events say {said}"
    if said and end.payload.get("code") not in ("guardrail_tripped", "internal_error"):
        yield f"{said} tripped, and the run ended as {end.type} {end.payload.get('code')}"
    if trips is not None and end.type == "run.completed":
        yield f"{trips} trips, and the run has completed"
    if trips in ("first", "beside"):
        if world.book.bodies:
            yield f"{trips} trips, and bodies ran: {dict(world.book.bodies)}"
        if len(history) != 1:
            yield f"{trips} trips, and the history has {history}"
    if end.type != "run.completed" and ANSWER in history:
        yield f"the run has not completed, and its answer is in the history: {history}"
    shown = [event.payload["messageId"] for event in events if event.type == "run.message.delta"]
    over = [
        event.payload["messageId"]
        for event in events
        if event.type in ("run.message.completed", "run.message.discarded")
    ]
    if any(over.count(name) != 1 for name in set(shown)):
        yield f"messages that were shown end other than once: {shown} {over}"


GUARDRAILS = Subject(
    world,
    kept,
    victims={"run": exactly("runtime/r"), "guardrails": beginning("guardrails:")},
    variants=TRIPS,
    points=6,
)
