"""A run that needs a preparation works when it is prepared, and fails from the stage preparing when it cannot be."""

from datetime import timedelta

import attrs
import pytest

from greenroom.actors.contract.phases import RunPosition
from greenroom.actors.contract.spec import AgentSpec, ToolSpec
from greenroom.actors.engine import inputs as inp

from .world import World

PROBE = ToolSpec(name="probe", prepares=True)
ASKED = [("prepare",)]


def world(*, place: str | None = "here", lazy: bool = False, deadline: float | None = None) -> World:
    return World(AgentSpec(key="a"), place=place, lazy=lazy, deadline=deadline)


def stage_of(w: World) -> tuple[str, RunPosition]:
    return w.row.stage.value, w.row.position


def test_a_run_at_a_place_is_prepared_before_its_first_hooks() -> None:
    w = world()
    assert stage_of(w) == ("preparing", RunPosition.PREPARING)
    assert [*w.outstanding] == ASKED
    w.answer(inp.Prepared(facts={"name": "shop"}, doubts=(("untested_version", "it is new"),)))
    *_, doubt, started, _, _ = w.store.events
    assert (doubt.payload.reason, doubt.payload.detail) == ("untested_version", "it is new")
    assert (started.type, started.payload.detail) == ("run.started", {"name": "shop"})
    w.says("done")
    w.check_end()


def test_a_tool_that_prepares_itself_makes_a_run_prepare() -> None:
    w = World(AgentSpec(key="a", tools={"probe": PROBE}))
    assert [*w.outstanding] == ASKED


def test_tools_of_agents_that_a_run_may_be_handed_over_to_count() -> None:
    other = AgentSpec(key="b", tools={"probe": PROBE})
    spec = AgentSpec(key="a")
    w = World(attrs.evolve(spec, graph={"a": spec, "b": other}))
    assert [*w.outstanding] == ASKED


def test_a_run_without_either_takes_no_step_more() -> None:
    w = world(place=None)
    assert w.row.position is RunPosition.INFERENCE
    assert w.inputs == 1


def test_a_preparation_waits_for_the_commit_that_says_so() -> None:
    w = world(lazy=True)
    assert not w.outstanding
    w.ack_all()
    assert [*w.outstanding] == ASKED


def test_a_run_that_cannot_be_prepared_fails_from_preparing_and_runs_no_hook() -> None:
    w = world()
    doubts = (("little_evidence", "x"),)
    w.answer(inp.Prepared(code="runtime_unavailable", text="git", runtime="shop", reason="missing", doubts=doubts))
    assert [event.type for event in w.store.events[-3:]] == ["run.degraded", "runtime.unavailable", "run.failed"]
    end = w.last()
    assert (end.source, end.to, end.code, end.message) == ("preparing", "failed", "runtime_unavailable", "missing: git")
    assert not w.row.hooks_started
    w.check_end()


@pytest.mark.parametrize("mode", ["now", "after_step"])
def test_a_cancel_ends_a_preparation_in_either_mode(mode: str) -> None:
    w = world()
    w.cancel(mode=mode)
    assert [*w.outstanding] == [("cancel",)]
    w.feed(inp.Prepared())  # it was on its way
    w.stopped()
    assert (w.last().source, w.last().to) == ("preparing", "cancelled")
    w.check_end()


def test_the_deadline_ends_a_preparation() -> None:
    w = world(deadline=10)
    w.tick(11)
    w.feed(inp.DeadlinePassed())
    w.stopped()
    assert (w.last().source, w.last().code) == ("preparing", "run_timeout")
    w.check_end()


def test_a_new_owner_prepares_again() -> None:
    w = world()
    w.crash()
    assert [*w.outstanding] == ASKED
    w.answer(inp.Prepared())
    w.crash()
    assert ("prepare",) not in w.outstanding
    w.says("done")
    w.check_end()


def test_an_owner_without_the_agent_ends_a_run_that_was_being_prepared() -> None:
    w = world(deadline=10)
    w.lose_owner()
    w.now += timedelta(seconds=11)
    w.feed(inp.DeadlinePassed(unowned=True))
    w.stopped()
    assert (w.last().source, w.last().code) == ("preparing", "run_timeout")


def test_texts_and_a_pause_wait_for_the_first_step() -> None:
    w = world()
    w.send("and this")
    w.pause()
    assert stage_of(w) == ("preparing", RunPosition.PREPARING)
    w.answer(inp.Prepared())
    assert stage_of(w) == ("needs_approval", RunPosition.PAUSED)
