"""Limits of background tasks: what the end of a task costs, how many a body spawns, and bodies that have ended."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from greenroom.actors.contract.spec import AgentSpec, ToolSpec
from greenroom.actors.contract.tasks import MAX_SPAWNS
from greenroom.actors.engine import effects as fx
from greenroom.actors.engine import inputs as inp
from greenroom.actors.engine.machine import step
from greenroom.actors.engine.step_calls import StepCalls

from ...support.growth import lines
from .world import World, call

TOOLS = (
    ToolSpec(name="fetch", background=True, output=False, replay_safe=True),
    ToolSpec(name="boss"),
    ToolSpec(name="look", replay_safe=True),
)


def agent(**more: Any) -> AgentSpec:
    return AgentSpec(key="a", tools={tool.name: tool for tool in TOOLS}, **more)


@pytest.mark.no_cover
def test_the_end_of_a_task_costs_the_same_beside_few_tasks_and_beside_many() -> None:
    def cost(many: int) -> int:
        w = World(agent(max_tasks=many))
        w.says(calls=[call(f"c{number}", "fetch") for number in range(many)])
        ended = inp.CallReturned(call_id="c0.task1", attempt=1, result="ok", shown="ok")
        with lines() as found:
            step(w.spec, w.state, ended, w.now)
        return found.all

    assert cost(100) == cost(10)


def bossing() -> World:
    """A body runs that may spawn."""
    w = World(agent())
    w.says(calls=[call("B", "boss")])
    return w


def spawned(answer: fx.AnswerBody | None) -> Any:
    assert answer is not None
    return answer.value if answer.fault is None else answer.fault


def test_the_number_of_tasks_that_one_body_spawns_is_limited() -> None:
    w = bossing()
    many = replace(w.state.calls["B"], spawned=tuple(f"m{n}" for n in range(MAX_SPAWNS - 1)))
    w.state = msgspec.structs.replace(w.state, calls=StepCalls([many]))
    assert spawned(w.spawns("B", "look", n=1)) == f"B.task{MAX_SPAWNS}"
    assert str(MAX_SPAWNS) in spawned(w.spawns("B", "look", n=2))


def test_a_body_without_a_waiter_starts_nothing() -> None:
    w = bossing()
    late = w.running("B")
    w.cancel()
    who: dict[str, Any] = {"spawner": "B", "tool": "look", "arguments": {}, "mark": "m", "nth": 1}
    first = w.asks(inp.SpawnAsked, attempt=late.attempt, **who)
    second = w.asks(inp.SpawnAsked, attempt=late.attempt + 1, **who)
    w.stopped()
    assert [bool(answer and answer.fault) for answer in (first, second)] == [True, True]
    assert "run.task.started" not in w.types()
