"""A run whose streams break, ended, killed, cancelled and crashed at every step: no call of a cut stream runs."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.supervision import chaos
from greenroom.testing import ScriptedModel, call, fail, finish, text

from .stage import World, broken, decode_event, look, note
from .test_run_sweeps import FULL, SEEDS, SETTLE, can_crash, one_life, show, until_it_has_ended

pytestmark = pytest.mark.slow

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


@pytest.fixture(params=["memory", "sqlite"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Callable[[], World]]:
    """Makes worlds on one kind of store."""
    folders = (tmp_path / str(number) for number in range(100_000))

    def prepared(**options: Any) -> Callable[[], World]:
        return lambda: World(
            folder=next(folders) if request.param == "sqlite" else None, make_agent=recovering, **options
        )

    return prepared


@pytest.fixture
def sample(seed: int) -> tuple[int, int] | None:
    """How many points of a sweep are visited."""
    return None if FULL else (10, seed)


def check(world: World) -> Iterator[str]:
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


@pytest.mark.rule("PO-10")
@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_process_with_broken_streams_ends_at_every_step_and_the_next_one_finishes_the_run(make, sample, how, request):
    options: Any = {"get_scope": World.die} if how == "killed" else {}
    report = chaos.sweep_cancel(
        make(), until_it_has_ended, check, seeds=SEEDS, sample=sample, settle_within=SETTLE, **options
    )
    show(request.node.name, report)


def test_a_run_with_broken_streams_is_cancelled_at_every_step(make, sample, request):
    report = chaos.sweep_cancel(make(cancels=True), one_life, check, seeds=SEEDS, sample=sample, settle_within=SETTLE)
    show(request.node.name, report)


@pytest.mark.parametrize("victim", ["runtime/r", "model:"])
def test_an_actor_of_a_run_with_broken_streams_crashes_at_every_step(make, sample, victim, request):
    def match(task: trio.lowlevel.Task) -> bool:
        return can_crash(task) and task.name.startswith(victim)

    report = chaos.sweep_crash(
        make(),
        until_it_has_ended,
        check,
        contained=True,
        match_task=match,
        seeds=SEEDS,
        sample=sample,
        settle_within=SETTLE,
    )
    show(request.node.name, report)
