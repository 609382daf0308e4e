"""The run of the other sweeps with guardrails of all four kinds: cancelled, crashed and killed at its steps.

Beside the promises of every run: no body begins before the input guardrails have passed, a run has at most one trip,
which is its end, no guardrail is alive after the run, and what was not judged is in no history.
"""

import functools
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.supervision import chaos
from greenroom.testing import ScriptedModel

from .stage import SCRIPT, World, ask, broken, decode_event, look, note, refund
from .test_run_sweeps import FULL, SETTLE, can_crash, one_life, show, until_it_has_ended

SEEDS = (1, 2, 3) if FULL else (1,)
PLAN = [("memory", "parallel_streaming"), ("sqlite", "sequential")]
TRIPS = (None, "first", "beside", "out", "arguments", "result") if FULL else (None, "beside", "out")
WITHHELD = "[withheld by guardrail out]"
ANSWER = "done"

pytestmark = pytest.mark.slow


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


@pytest.fixture(params=PLAN, ids="-".join)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """`make(trips, **options)` gives a maker of worlds with guardrails."""
    kind, execution = request.param
    numbers = count()

    def prepared(trips: str | None, **options: Any) -> Any:
        def world() -> World:
            folder = tmp_path / str(next(numbers)) if kind == "sqlite" else None
            agent = functools.partial(guarded, trips)
            return World(
                folder=folder, execution=execution, make_agent=agent, guarded=True, unknown="resume", **options
            )

        return world

    return prepared


@pytest.fixture
def sample(seed: int) -> Any:
    """How many points of a sweep are visited: all of them in a full one."""
    return lambda n: None if FULL else (n, seed)


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


@pytest.mark.parametrize("trips", TRIPS)
def test_with_guardrails_a_runtime_that_is_cancelled_leaves_the_run_to_the_next_one(make, sample, trips, request):
    check = functools.partial(kept, trips)
    report = chaos.sweep_cancel(
        make(trips), until_it_has_ended, check, seeds=SEEDS, sample=sample(6), settle_within=SETTLE
    )
    show(request.node.name, report)


@pytest.mark.parametrize("trips", TRIPS)
def test_with_guardrails_a_process_that_dies_leaves_the_run_to_the_next_one(make, sample, trips, request):
    report = chaos.sweep_cancel(
        make(trips),
        until_it_has_ended,
        functools.partial(kept, trips),
        get_scope=World.die,
        seeds=SEEDS,
        sample=sample(6),
        settle_within=SETTLE,
    )
    show(request.node.name, report)


@pytest.mark.parametrize("trips", TRIPS)
def test_with_guardrails_a_run_that_is_cancelled_ends_once(make, sample, trips, request):
    check = functools.partial(kept, trips)
    report = chaos.sweep_cancel(
        make(trips, cancels=True), one_life, check, seeds=SEEDS, sample=sample(6), settle_within=SETTLE
    )
    show(request.node.name, report)


@pytest.mark.parametrize("victim", ["runtime/r", "guardrails:"])
@pytest.mark.parametrize("trips", TRIPS)
def test_with_guardrails_an_actor_crashes_and_the_run_still_ends(make, sample, victim, trips, request):
    def match(task: trio.lowlevel.Task) -> bool:
        return can_crash(task) and (
            task.name == victim or (task.name.startswith("guardrails:") and victim != "runtime/r")
        )

    report = chaos.sweep_crash(
        make(trips),
        until_it_has_ended,
        functools.partial(kept, trips),
        contained=True,
        match_task=match,
        seeds=SEEDS,
        sample=sample(6),
        settle_within=SETTLE,
    )
    show(request.node.name, report)
