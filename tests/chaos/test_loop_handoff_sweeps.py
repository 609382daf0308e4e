"""A run that is handed over, with a callback, a filter and an approval: cancelled, crashed and killed at its steps.

Beside the promises of every run: the run is handed over at most once, after the callback has returned and all other
calls of the step have settled; steps from then on are the other agent's, and no step before; the callback is not run
again without consent; and the other agent never reads what the filter has left out.
"""

import functools
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.supervision import chaos
from greenroom.testing import ScriptedModel, call, text

from .stage import GATED, SAFE, SCRIPT, World, ask, broken, decode_event, look, note, refund
from .test_run_sweeps import FULL, SETTLE, can_crash, one_life, show, until_it_has_ended

SEEDS = (1, 2, 3) if FULL else (1,)
PLAN = [("memory", "parallel_streaming"), ("sqlite", "sequential")]
GATES = ("free", "approved")
HAND = "transfer_to_desk"
SECRET = "not for the desk"

pytestmark = pytest.mark.slow


class Desks:
    """The agents of one sweep, of all its lives."""

    def __init__(self, gate: str) -> None:
        self.gate = gate
        self.models: list[ScriptedModel] = []

    def __call__(self, execution: Any) -> gr.Agent[Any]:
        """The agent of the next life, which hands its run over to the desk."""
        model = ScriptedModel(
            [call("ask", question="really?", id="ask"), call("look", where="there", id="again"), "done"]
        )
        self.models.append(model)
        desk = gr.Agent("desk", tools=[look, ask], model=model)
        handed = gr.handoff(desk, on_handoff=callback, input_filter=brief, needs_approval=self.gate == "approved")
        first = [text(SECRET), call(HAND, id="hand"), *SCRIPT[0][1:]]
        tools = [refund, note, look, ask]
        return gr.Agent("support", tools=tools, handoffs=[handed], model=ScriptedModel([first]), execution=execution)


async def callback(ctx: gr.ToolContext[Any]) -> None:
    """Acts, and must never be repeated without asking."""
    with ctx.deps.body(ctx):
        await trio.sleep(0.1)
        await trio.sleep(0.1)


async def brief(messages: Sequence[gr.Message]) -> list[gr.Message]:
    """Takes its time, and keeps what the user said."""
    await trio.sleep(0.1)
    return [message for message in messages if message.role == "user"]


@pytest.fixture(params=PLAN, ids="-".join)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """`make(gate, **options)` gives a maker of worlds with a handoff, and a check of them."""
    kind, execution = request.param
    numbers = count()

    def prepared(gate: str, **options: Any) -> Any:
        desks: dict[World, Desks] = {}

        def world() -> World:
            folder = tmp_path / str(next(numbers)) if kind == "sqlite" else None
            agents = Desks(gate)
            made = World(folder=folder, execution=execution, make_agent=agents, unknown="resume", **options)
            desks[made] = agents
            return made

        return world, functools.partial(kept, desks)

    return prepared


@pytest.fixture(autouse=True)
def gates(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """A handoff that needs an approval runs once for each consent; the call of the desk may be repeated."""
    monkeypatch.setattr("tests.chaos.stage.SAFE", SAFE | {"again"})
    if request.node.callspec.params["gate"] == "approved":
        monkeypatch.setattr("tests.chaos.stage.GATED", GATED | {"hand"})


@pytest.fixture
def sample(seed: int) -> Any:
    """How many points of a sweep are visited: all of them in a full one."""
    return lambda n: None if FULL else (n, seed)


def kept(desks: dict[World, Desks], world: World) -> Iterator[str]:
    """The promises of every run, and those about its handoff."""
    yield from broken(world)
    requests = [request for model in desks[world].models for request in model.requests]
    read = [message for request in requests for message in request.messages]
    if any(SECRET in message.content or message.call_id == "hand" for message in read):
        yield f"the desk reads what the filter has left out: {read}"
    if world.ended is None:
        return
    frames, record, history = world.ended
    events = [decode_event(frame) for frame in frames]
    handed = [event for event in events if event.type == "run.handoff"]
    if len(handed) > 1:
        yield f"the run was handed over {len(handed)} times"
    yield from broken_steps(events, handed, record)
    if handed:
        yield from broken_handoff(events, handed[0])
        if not any(SECRET in message.content for message in history):
            yield "the thread has lost what the filter left out"
    elif events[-1].type == "run.completed" and not any(one.call_id == "hand" and one.settled for one in record.calls):
        yield "the run has completed without its handoff"


def broken_handoff(events: list[gr.Event], handed: gr.Event) -> Iterator[str]:
    """A run is handed over by its handoff, after all calls of the step."""
    results = [event.payload for event in events[: handed.sequence] if event.type == "run.tool.result"]
    calls = [event.payload for event in events if event.type == "run.tool.call"]
    first = [payload["callId"] for payload in calls if payload["step"] == 1]
    if sorted(payload["callId"] for payload in results) != sorted(first):
        yield f"the run was handed over before the calls {first} had settled"
    if (results[-1]["callId"], results[-1]["result"]) != ("hand", {"agent": "desk"}):
        yield f"the run was handed over after {results[-1]}"


def broken_steps(events: list[gr.Event], handed: list[gr.Event], record: Any) -> Iterator[str]:
    """The steps after a handoff are the other agent's, and none before."""
    at = handed[0].sequence if handed else len(events)
    steps = [event for event in events if event.type in ("run.step.started", "run.inference.started")]
    for event in steps:
        wanted = "desk" if event.sequence > at else None
        if event.payload.get("agent") != wanted:
            yield f"event {event.sequence}, {event.type}, names {event.payload.get('agent')}, not {wanted}"
    if record.row.agent != ("desk" if steps[-1:] and steps[-1].sequence > at else None):
        yield f"the row names {record.row.agent}"


@pytest.mark.parametrize("gate", GATES)
def test_with_a_handoff_a_runtime_that_is_cancelled_leaves_the_run_to_the_next_one(make, sample, gate, request):
    world, check = make(gate)
    report = chaos.sweep_cancel(world, until_it_has_ended, check, seeds=SEEDS, sample=sample(12), settle_within=SETTLE)
    show(request.node.name, report)


@pytest.mark.parametrize("gate", GATES)
def test_with_a_handoff_a_process_that_dies_leaves_the_run_to_the_next_one(make, sample, gate, request):
    world, check = make(gate)
    report = chaos.sweep_cancel(
        world,
        until_it_has_ended,
        check,
        get_scope=World.die,
        seeds=SEEDS,
        sample=sample(12),
        settle_within=SETTLE,
    )
    show(request.node.name, report)


@pytest.mark.parametrize("gate", GATES)
def test_with_a_handoff_a_run_that_is_cancelled_ends_once(make, sample, gate, request):
    world, check = make(gate, cancels=True)
    report = chaos.sweep_cancel(world, one_life, check, seeds=SEEDS, sample=sample(12), settle_within=SETTLE)
    show(request.node.name, report)


@pytest.mark.parametrize("victim", ["runtime/r", "call:hand"])
@pytest.mark.parametrize("gate", GATES)
def test_with_a_handoff_an_actor_crashes_and_the_run_still_ends(make, sample, victim, gate, request):
    def match(task: trio.lowlevel.Task) -> bool:
        return can_crash(task) and task.name == victim

    world, check = make(gate)
    report = chaos.sweep_crash(
        world,
        until_it_has_ended,
        check,
        contained=True,
        match_task=match,
        seeds=SEEDS,
        sample=sample(8),
        settle_within=SETTLE,
    )
    show(request.node.name, report)
