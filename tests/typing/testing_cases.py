"""What mypy must know of greenroom.testing; checked by test_typing.py, never run."""

from collections.abc import Iterator, Mapping
from typing import Any, assert_type

import greenroom as gr
from greenroom.supervision import chaos
from greenroom.testing import (
    AutoModel,
    FaultServer,
    Offline,
    RecordedModel,
    ScriptedModel,
    crash_points,
    leak_check,
    open_fault_server,
    recorded,
    reply,
)

AutoModel()
AutoModel("all", {"a": [1, None]}, 7, chunk=4)
AutoModel(call_tools=["find"], output="done", keep=None)
AutoModel(seed="x")  # type: ignore[arg-type]
gr.Agent("a", model=AutoModel())


async def models(runtime: gr.Runtime, agent: gr.Agent[int]) -> None:
    again = await recorded(runtime, "r", after_step=1)
    assert_type(again, RecordedModel)
    assert_type(again.answers, Mapping[str, int])
    assert_type(again.requests, tuple[gr.ModelRequest, ...])
    await recorded(runtime)  # type: ignore[call-arg]
    with runtime.override(model=again, agents=[agent, "b"]):
        run = await runtime.start(agent, "x")
        assert_type((await run.result()).output, int)
    with runtime.override("openai:x"):
        pass
    runtime.override(7)  # type: ignore[arg-type]
    runtime.override(again, agents=7)  # type: ignore[arg-type]


class World:
    paid = 0


async def scenario(world: World, store: gr.Store) -> None:
    async with leak_check(), gr.open_runtime(store) as runtime:
        await models(runtime, gr.Agent("a", model=ScriptedModel([]), output_type=int))


async def without_a_store(world: World) -> None: ...


def check(world: World) -> Iterator[str]:
    if world.paid > 1:
        yield "paid twice"


report = crash_points(World, scenario, check, seeds=(1, 2), sample=(10, 1), settle_within=5.0)
assert_type(report, chaos.Report)
crash_points(World, scenario)
crash_points(World, without_a_store)  # type: ignore[arg-type]
crash_points(int, scenario)  # type: ignore[misc]
crash_points(World, scenario, lambda world: world.nothing)  # type: ignore[attr-defined]


async def server(offline: Offline) -> None:
    async with open_fault_server(reply("a", endless=True)) as faults:
        assert_type(faults, FaultServer)
        assert_type(faults.requests[0].closed_by_peer(), bool)
        assert_type(faults.requests[0].body, Any)
    async with open_fault_server(answer=lambda request: reply(request.path)):
        pass
    open_fault_server(answer=lambda request: request.path)  # type: ignore[arg-type, return-value]
    assert_type(offline.attempts, list[str])
