"""Guardrails of agents in the machine: which answers count, and what is asked again."""

from typing import Any

import pytest
from msgspec.structs import replace

from greenroom.actors.contract.guardrails import Tripped
from greenroom.actors.contract.phases import RunPosition
from greenroom.actors.contract.spec import AgentSpec, ToolSpec
from greenroom.actors.engine import effects as fx
from greenroom.actors.engine import inputs as inp

from .world import World, call

TRIP = Tripped(guardrail="i", verdict="trip", info="no")


def begun(**guardrails: Any) -> World:
    """A run that has begun with a text."""
    spec = AgentSpec(key="a", digest="one", tools={"look": ToolSpec(name="look", replay_safe=True)}, **guardrails)
    w = World(spec, admitted=False)
    w.send("hi")
    w.feed(inp.Admit())
    return w


def asked(w: World) -> fx.AskGuards:
    """The only question to guardrails that is open."""
    (effect,) = [effect for effect in w.outstanding.values() if isinstance(effect, fx.AskGuards)]
    return effect


def passes(w: World, **more: Any) -> None:
    """The guardrails that are asked have answered."""
    effect = asked(w)
    w.answer(inp.GuardsDone(kind=effect.kind, step=effect.step, names=effect.names, **more))


@pytest.mark.rule("GU-13")
def test_blocking_guardrails_are_asked_alone_and_the_others_with_the_model() -> None:
    w = begun(blocking_guardrails=("b",), input_guardrails=("i", "j"))
    assert (asked(w).names, w.row.position, len(w.outstanding)) == (("b",), RunPosition.GUARDS_FIRST, 1)
    passes(w)
    assert (asked(w).names, w.row.position, len(w.outstanding)) == (("i", "j"), RunPosition.INFERENCE, 2)
    assert asked(w).messages == (w.store.messages[0].id,)
    passes(w)
    assert w.row.open_guardrails is None
    w.says("done")
    w.check_end()


@pytest.mark.rule("GU-15")
@pytest.mark.parametrize(
    "change",
    [{"kind": "output"}, {"step": 2}, {"names": ("j",)}, {"names": ()}, {"names": ("i", "j")}],
    ids=str,
)
@pytest.mark.parametrize("tripped", [None, TRIP])
def test_an_answer_about_other_guardrails_is_ignored(change: dict[str, Any], tripped: Tripped | None) -> None:
    w = begun(input_guardrails=("i",))
    done = inp.GuardsDone(kind="input", step=1, names=("i",), tripped=tripped)
    before = w.state
    taken = w.feed(replace(done, **change))
    assert (taken.state, taken.commit, taken.effects) == (before, None, ())


@pytest.mark.rule("GU-15")
def test_a_late_answer_changes_nothing() -> None:
    w = begun(input_guardrails=("i",))
    passes(w)
    before = w.state
    assert w.feed(inp.GuardsDone(kind="input", step=1, names=("i",), tripped=TRIP)).state == before


@pytest.mark.rule("GU-15")
def test_a_new_owner_asks_only_the_guardrails_that_have_not_answered() -> None:
    w = begun(blocking_guardrails=("b",), input_guardrails=("i",))
    w.crash()
    assert asked(w).names == ("b",)
    passes(w)
    w.crash()
    assert (asked(w).names, "run.inference.retried" in w.types()) == (("i",), True)
    passes(w)
    w.crash()
    assert [key[0] for key in w.outstanding] == ["model"]


@pytest.mark.rule("GU-16")
def test_a_trip_beside_the_model_ends_the_run_when_the_model_has_stopped() -> None:
    w = begun(input_guardrails=("i",))
    w.feed(inp.ModelStreamed(message_id=w.in_flight(), text="so"))
    passes(w, tripped=TRIP)
    assert w.types()[-2:] == ["run.guardrail.tripped", "run.message.discarded"]
    assert list(w.outstanding) == [("cancel",)]
    w.stopped()
    assert (w.last().code, w.last().message) == ("guardrail_tripped", "i: no")
    w.check_end()


@pytest.mark.rule("GU-14", "GU-16")
def test_calls_wait_for_the_guardrails_and_end_with_a_trip() -> None:
    w = begun(input_guardrails=("i",))
    w.says("so", calls=[call("A", "look")])
    assert (w.row.position, w.statuses()) == (RunPosition.GUARDS_ANSWER, {"A": "new"})
    assert "run.message.completed" not in w.types()
    passes(w, tripped=TRIP)
    w.stopped()
    assert (w.statuses(), [m.content for m in w.store.messages]) == ({"A": "cancelled"}, ["hi"])
    w.check_end()


@pytest.mark.rule("GU-17")
def test_an_output_is_judged_once_in_its_step() -> None:
    """A sent text makes the run continue: the next answer is another output."""
    w = begun(output_guardrails=("o",))
    w.says("one")
    w.send("more")
    passes(w)
    w.says("two")
    assert (asked(w).output, asked(w).step) == ("two", 2)
    passes(w)
    assert w.last().output == "two"
    w.check_end()
