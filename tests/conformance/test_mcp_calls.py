"""Calls of an MCP server in virtual time: what one of them does to the others, and what waits for how long."""

from typing import Any

import pytest
import trio
import trio.testing

import greenroom as gr
from greenroom.actors.toolsets import mcp_actor
from greenroom.testing import ScriptedModel, call

from ..support.mcp_memory import World, memory_server


def caller(key: str, server: gr.Toolset, *steps: Any) -> gr.Agent[Any]:
    return gr.Agent(key, model=ScriptedModel([*steps, "done"]), toolsets=[server])


def used(tool: str, id: str) -> Any:  # noqa: A002 - as `call`
    return call(f"mcp__m__{tool}", id=id)


@pytest.mark.rule("MC-8")
@pytest.mark.parametrize("era", ["modern", "handshake"])
async def test_a_cancel_of_one_run_touches_no_call_of_another(era, autojump_clock):
    world = World(era=era)
    server = memory_server(world)
    first, second = caller("a", server, used("pay", "A")), caller("b", server, used("look", "B"))
    async with gr.open_runtime(agents=[first, second]) as runtime:
        runs = [await runtime.start(agent, "go") for agent in (first, second)]
        await trio.sleep(0.2)
        await runs[0].cancel()
        assert isinstance(await runs[0].result(), gr.Cancelled)
        assert isinstance(await runs[1].result(), gr.Completed)
    assert (world.cancelled, world.connections) == (1, [1, 1])


@pytest.mark.rule("MC-7", "MC-8")
async def test_a_question_ends_with_its_call_and_no_server_is_left_with_many(autojump_clock, monkeypatch):
    monkeypatch.setattr(mcp_actor, "MOST_LEFT", 1)
    world = World(era="handshake")
    server = memory_server(world)
    async with gr.open_runtime() as runtime:
        for number in range(3):
            run = await runtime.start(caller("a", server, used("ask", "A")), "go", run_id=f"r{number}")
            (ticket,) = (await run.wait()).tickets
            assert ticket.live
            await run.cancel()
            assert isinstance(await run.result(), gr.Cancelled)
        await trio.testing.wait_all_tasks_blocked()
        assert (world.replies, world.cancelled, world.executed.total()) == (2, 3, 0)


@pytest.mark.rule("MC-7")
async def test_people_may_think_for_longer_than_a_server_may_be_silent(autojump_clock):
    world = World(era="handshake")
    agent = caller("a", memory_server(world, idle=10.0), used("ask", "A"))
    async with gr.open_runtime(agents=[agent]) as runtime:
        run = await runtime.start(agent, "go")
        (ticket,) = (await run.wait()).tickets
        await trio.sleep(1_000)
        await run.decide(ticket.approve({"name": "ada"}))
        assert isinstance(await run.result(), gr.Completed)
    assert [*world.executed.values()] == [1]


@pytest.mark.rule("MC-8")
async def test_a_rule_bounds_the_time_of_a_call_and_the_server_is_told(autojump_clock):
    world = World(seconds=100.0)
    rule = gr.mcp.Rule(needs_approval=False, timeout=5.0)
    agent = caller("a", memory_server(world, tools={"*": rule}), used("pay", "A"))
    async with gr.open_runtime(agents=[agent]) as runtime:
        run = await runtime.start(agent, "go")
        assert isinstance(await run.result(), gr.Completed)
        text = next(message.content for message in (await run.view()).messages if message.role == "tool")
    assert "timed out after 5 s" in text
    assert world.cancelled == 1


@pytest.mark.rule("MC-1", "MC-9")
async def test_a_server_that_is_down_is_tried_a_few_times_and_again_after_a_pause(autojump_clock):
    world = World(is_down=True)
    steps = [call("nothing", id=f"N{number}") for number in range(12)]
    agent = caller("a", memory_server(world), *steps)
    async with gr.open_runtime(agents=[agent]) as runtime:
        await (await runtime.start(agent, "go")).result()
        tries = world.connections[0]
        assert 3 <= tries <= 6
        world.is_down = False
        await trio.sleep(60)
        agent = caller("b", *agent.toolsets, used("pay", "A"))
        assert isinstance(await (await runtime.start(agent, "go")).result(), gr.Completed)
    assert world.connections == [tries + 1, tries + 1]
    assert [*world.executed.values()] == [1]


@pytest.mark.rule("MC-1")
async def test_two_runtimes_of_one_process_have_connections_of_their_own(autojump_clock):
    world = World()
    agent = caller("a", memory_server(world), used("pay", "A"))
    async with gr.open_runtime(agents=[agent]) as first:
        await (await first.start(agent, "go")).result()
        async with gr.open_runtime(agents=[agent]) as second:
            await (await second.start(agent, "go")).result()
        assert world.connections == [2, 1]
        await (await first.start(agent, "go")).result()
    assert world.connections == [2, 2]
