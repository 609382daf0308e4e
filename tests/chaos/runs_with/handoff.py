"""A run that is handed over, with a callback, a filter and an approval.

Beside the promises of every run: the run is handed over at most once, after the callback has returned and all other
calls of the step have settled; steps from then on are the other agent's, and no step before; the callback is not run
again without consent; and the other agent never reads what the filter has left out.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import trio

import greenroom as gr
from greenroom.testing import ScriptedModel, call, text

from ..stage import GATED, SAFE, SCRIPT, World, ask, broken, decode_event, look, note, refund
from .subject import Subject, exactly

GATES = ("free", "approved")
HAND = "transfer_to_desk"
SECRET = "not for the desk"


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


def world(gate: str, folder: Path | None, execution: str, **options: Any) -> World:
    """A handoff that needs an approval runs once for each consent; the call of the desk may be repeated."""
    gated = GATED | {"hand"} if gate == "approved" else GATED
    options |= {"make_agent": Desks(gate), "safe": SAFE | {"again"}, "gated": gated, "unknown": "resume"}
    return World(folder=folder, execution=execution, **options)


def kept(_: str, world: World) -> Iterator[str]:
    """The promises of every run, and those about its handoff."""
    yield from broken(world)
    assert isinstance(world.make_agent, Desks)
    requests = [request for model in world.make_agent.models for request in model.requests]
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


HANDOFF = Subject(
    world,
    kept,
    victims={"run": exactly("runtime/r"), "callback": exactly("call:hand")},
    variants=GATES,
    points=10,
)
