"""From wherever a run is: it continues after the loss of its owner, and fails when owners give up."""

from collections.abc import Callable
from typing import Any

import pytest

from greenroom.actors.contract.decisions import Suspend
from greenroom.actors.contract.lifecycle import RunStatus
from greenroom.actors.contract.messages import ModelResponse, Usage
from greenroom.actors.contract.phases import Phase, RunPosition
from greenroom.actors.contract.spec import AgentSpec, ToolSpec
from greenroom.actors.engine import inputs as inp

from .world import World, call

TOOLS = (
    ToolSpec(name="look", replay_safe=True),
    ToolSpec(name="write", effect="write"),
    ToolSpec(name="pay", gate="always"),
    ToolSpec(name="perhaps", gate="ask"),
    ToolSpec(name="crawl", background=True, output=False),
)


def agent(**more: Any) -> AgentSpec:
    return AgentSpec(key="a", digest="one", tools={tool.name: tool for tool in TOOLS}, **more)


def waiting(w: World) -> None:
    w.says(calls=[call("A", "pay")])


def hooked_at(phase: Phase) -> Callable[[], World]:
    def make() -> World:
        w = World(agent(hooked=frozenset({phase})))
        for _ in range(3):
            if any(key[0] == "phase" for key in w.outstanding):
                return w
            if any(key[0] == "model" for key in w.outstanding):
                w.says("done" if phase in (Phase.RUN_END, Phase.STEP_END) else "", calls=calls_for(phase))
            else:
                w.returns("A")
        raise AssertionError(phase)

    return make


def calls_for(phase: Phase) -> list[Any]:
    return [] if phase in (Phase.RUN_END, Phase.STEP_END) else [call("A", "look")]


def at(*acts: Callable[[World], Any], admitted: bool = True) -> Callable[[], World]:
    def make() -> World:
        w = World(agent(), admitted=admitted)
        for act in acts:
            act(w)
        return w

    return make


def beside_a_task(w: World) -> None:
    """The model has nothing more to say, and a task lives."""
    w.says(calls=[call("A", "crawl")])
    w.says("done")


def paused(w: World) -> None:
    """Between two steps."""
    w.pause()
    w.says(calls=LOOK)
    w.returns("A")


def held_by_a_hook() -> World:
    w = World(agent(hooked=frozenset({Phase.STEP_START})))
    w.asks_to_hold(Phase.STEP_START, Suspend())
    return w


def refused(w: World) -> None:
    response = ModelResponse(refusal="I will not", usage=Usage(input=3))
    w.answer(inp.ModelAnswered(message_id=w.in_flight(), response=response))


def guarded(*acts: Callable[[World], Any], **guardrails: tuple[str, ...]) -> Callable[[], World]:
    """A run with a text for its first step, whose guardrails have not answered."""

    def make() -> World:
        w = World(agent(**guardrails), admitted=False)
        w.send("hi")
        w.feed(inp.Admit())
        for act in acts:
            act(w)
        assert any(key[0] == "guards" for key in w.outstanding)
        return w

    return make


LOOK = [call("A", "look")]
PLACES: dict[str, Callable[[], World]] = {
    "guardrails before the model": guarded(blocking_guardrails=("b",), input_guardrails=("i",)),
    "guardrails beside the model": guarded(input_guardrails=("i", "j")),
    "guardrails and calls": guarded(lambda w: w.says("so", calls=LOOK), input_guardrails=("i",)),
    "guardrails and an answer": guarded(lambda w: w.says("so"), input_guardrails=("i",)),
    "guardrails and a refusal": guarded(refused, input_guardrails=("i",)),
    "guardrails of the output": guarded(lambda w: w.says("so"), output_guardrails=("o",)),
    "planned": at(admitted=False),
    "preparing": lambda: World(agent(), place="here"),
    "inference": at(),
    "body": at(lambda w: w.says(calls=[call("A", "write")])),
    "gate": at(lambda w: w.says(calls=[call("A", "perhaps")])),
    "waiting": at(waiting),
    "tasks": at(beside_a_task),
    "paused": at(paused),
    "paused and waiting": at(lambda w: (waiting(w), w.pause())),
    "held by a hook": held_by_a_hook,
    "stopping": at(lambda w: w.feed(inp.DeadlinePassed())),
    **{f"hooks of {phase.value}": hooked_at(phase) for phase in Phase},
}


@pytest.mark.parametrize("place", PLACES)
def test_a_run_continues_from_everywhere_after_a_crash(place: str) -> None:
    w = PLACES[place]()
    asked = {key for key in w.outstanding if key[0] in ("phase", "guards", "prepare")}
    w.crash()
    assert {key for key in w.outstanding if key[0] in ("phase", "guards", "prepare")} == asked
    if place == "inference":
        assert w.types()[-2:] == ["run.inference.retried", "run.inference.started"]
    if place == "body":
        assert w.ticket("A").reason == "outcome_unknown"
    if place == "waiting":
        assert (w.row.status, w.parked) == (RunStatus.WAITING, {"A"})
    w.crash()
    w.cancel()
    if ("cancel",) in w.outstanding:
        w.stopped()
    if any(key[1] == Phase.RUN_END.value for key in w.outstanding):
        w.phase(Phase.RUN_END)
    w.check_end()


def test_hooks_that_the_new_spec_has_not_are_not_waited_for() -> None:
    for phase in Phase:
        w = hooked_at(phase)()
        w.spec = agent()
        w.crash()
        assert not any(key[0] == "phase" for key in w.outstanding), phase


@pytest.mark.parametrize("place", PLACES)
def test_an_owner_that_gives_up_fails_the_run_from_everywhere(place: str) -> None:
    w = PLACES[place]()
    w.lose_owner()
    w.feed(inp.FailUnrecoverable(detail="crashed three times"))
    w.stopped()
    assert (w.row.stage, w.last().code) == ("failed", "internal_error")
    w.check_end()


def test_an_ended_run_takes_no_input() -> None:
    w = World(agent())
    w.says("done")
    for message in (
        inp.Activate(),
        inp.Admit(),
        inp.DeadlinePassed(),
        inp.WorkStopped(),
        inp.FailUnrecoverable(detail="x"),
    ):
        w.feed(message)  # the world checks that nothing comes of it


def test_each_position_has_a_place_in_these_tests() -> None:
    assert {PLACES[place]().row.position for place in PLACES} == set(RunPosition) - {RunPosition.ENDED}
