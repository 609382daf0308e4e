"""A run whose streams break: no call of a cut stream runs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import greenroom as gr
from greenroom.testing import ScriptedModel, call, fail, finish, text

from ..stage import World, broken, decode_event, look, note
from .subject import Subject, beginning

CUT = fail("interrupted", "the connection broke")
SCRIPT = (
    [text("I shall "), call("note", what="never", id="cut"), CUT],
    [text("look "), CUT],
    [text("and write."), call("note", what="it", id="note"), call("look", where="here", id="look")],
    [call("note", what="never", id="cut"), fail("overloaded")],
    [text("It is "), finish("length")],
    [text("well "), CUT],
    "done",
)


def recovering(execution: Any) -> gr.Agent:
    """The agent of these sweeps: its answers break, are cut off, and end with another model."""
    plugins = [gr.Retry(first=0.2), gr.ContinueTruncated(), gr.CircuitBreaker(20), gr.Budget(requests=50)]
    return gr.Agent(
        "recovering", tools=[note, look], model=ScriptedModel(SCRIPT, chunk=4), execution=execution, plugins=plugins
    )


def world(_: None, folder: Path | None, execution: str, **options: Any) -> World:
    return World(folder=folder, execution=execution, make_agent=recovering, **options)


def check(_: None, world: World) -> Iterator[str]:
    """One sentence per broken promise."""
    yield from broken(world)
    if world.ended is None:
        return
    frames, _, history = world.ended
    yield from broken_messages([decode_event(frame) for frame in frames], history)
    if any(name.endswith("/cut") for name in world.book.bodies):
        yield "a call of a cut stream has run"


def broken_messages(events: list[gr.Event], history: Any) -> Iterator[str]:
    """A shown message has one end; what was shown of a completed one is the beginning of its text in the thread."""
    shown, ends = dict[str, list[str]](), dict[str, list[str]]()
    kept = {message.id: message.content for message in history}
    for event in events:
        payload = event.payload
        match event.type:
            case "run.message.delta":
                texts = shown.setdefault(payload["messageId"], [])
                if payload["index"] != len(texts) or payload["messageId"] in ends:
                    yield f"delta {payload['index']} of {payload['messageId']} follows {len(texts)}"
                texts.append(payload["text"])
            case "run.message.completed" | "run.message.discarded":
                ends.setdefault(payload["messageId"], []).append(event.type)
            case _:
                continue
        if event.type == "run.message.completed":
            name, whole = payload["messageId"], payload["text"]
            streamed = "".join(shown.get(name, ()))
            if not whole.startswith(streamed) or kept.get(name) != whole:
                yield f"{name} is complete with {whole!r}, was shown as {streamed!r}, and kept as {kept.get(name)!r}"
    for name in shown:
        if len(ends.get(name, ())) != 1:
            yield f"{name} was shown and ended as {ends.get(name)}"


POLICIES = Subject(
    world,
    check,
    victims={"run": beginning("runtime/r"), "model": beginning("model:")},
    plan=[("memory", "parallel_streaming"), ("sqlite", "parallel_streaming")],
    points=10,
)
