"""Rules of child runs that were handed over: their questions are judged by the tool of the agent that asks."""

from typing import Any

import attrs
import pytest

import greenroom as gr
from greenroom.testing import ScriptedModel, call

from ..support.child_scenes import K, expert
from ..support.scene_tools import TOOLS, Context, Outside
from ..support.scenes import decide
from ..support.shared import cluster

SEQUENTIAL = pytest.mark.parametrize("mode", ["sequential"])
H = call("transfer_to_till", id="H")
PAID = [call("book", cents=5, id="P"), "paid all"]
WRONG, RIGHT = {"cents": "many"}, {"cents": 9}


@gr.tool(needs_approval=True)
async def book(ctx: Context, cents: int) -> str:
    """Book an amount."""
    await ctx.deps.work(ctx, cents=cents)
    return f"booked {cents}"


@gr.tool(name="book", needs_approval=True)
async def room(hotel: str) -> str:
    """Book a room: another tool of the name, in another agent."""
    return hotel


def till(**options: Any) -> gr.Agent[Any]:
    """The agent to which a run is handed over, and which asks."""
    return expert(*PAID, key="till", tools=[*TOOLS, book], **options)


def namesakes() -> list[gr.Agent[Any]]:
    """Agents below the parent run's that have another tool of the name."""
    return [expert("nothing", key="inn", tools=[room])]


def handed_child() -> list[gr.Agent[Any]]:
    """The child run is handed over."""
    return [expert(H, handoffs=[till()])]


def handed_grandchild() -> list[gr.Agent[Any]]:
    """The child run of the child run is handed over."""
    inner = expert(H, key="inner", handoffs=[till()])
    return [expert(call("inner", input="deeper", id="M"), "paid all", tools=[*TOOLS, inner.as_tool()])]


def handed_child_with_a_child() -> list[gr.Agent[Any]]:
    """The child run is handed over, and the agent that has it then starts a child run."""
    desk = expert(call("till", input="deeper", id="M"), "paid all", key="till2", tools=[*TOOLS, till().as_tool()])
    return [expert(call("transfer_to_till2", id="H"), handoffs=[desk])]


SHAPES = {
    "the child": handed_child,
    "the grandchild": handed_grandchild,
    "the parent of the grandchild": handed_child_with_a_child,
}


def below(shape: str) -> list[Any]:
    """The parent's tools."""
    return [agent.as_tool() for agent in (*SHAPES[shape](), *namesakes())]


EDITS = [decide("r.t1", edited_arguments=WRONG), decide("r.t1", edited_arguments=RIGHT)]


@pytest.mark.rule("CR-16")
@pytest.mark.parametrize("shape", SHAPES)
async def test_a_question_of_a_run_that_was_handed_over_is_decided_with_edits(play, autojump_clock, shape):
    life = await play(K, "done", tools=[*TOOLS, *below(shape)], do=EDITS)
    assert life.replies == ["rejected invalid_arguments", "accepted"]
    assert "Expected `int`" in life.scene.details[0]
    assert life.scene.outside.started[-1][2] == RIGHT
    assert (life.view.stage, life.tool_texts["K"]) == ("completed", "paid all")


@pytest.mark.rule("CR-16")
@SEQUENTIAL
async def test_a_parent_that_was_handed_over_shows_the_questions_of_its_child_run(play, autojump_clock):
    """The parent's agent that starts the child run is not the one with which the parent began."""
    desk = gr.Agent("desk", model=ScriptedModel([K, "done"]), tools=[*TOOLS, *below("the child")])
    life = await play(call("transfer_to_desk", id="D"), handoffs=[desk], do=EDITS)
    assert life.replies == ["rejected invalid_arguments", "accepted"]
    assert life.scene.outside.started[-1][2] == RIGHT
    assert (life.view.stage, life.tool_texts["K"]) == ("completed", "paid all")


@pytest.mark.rule("CR-16")
@pytest.mark.parametrize("shape", SHAPES)
async def test_a_gateway_without_agents_judges_by_the_schema_of_the_agent_that_asks(shape, autojump_clock):
    parent = gr.Agent("parent", model=ScriptedModel([K, "done"]), tools=below(shape))
    async with cluster() as processes:
        worker, edge = await processes.open(parent, deps=Outside()), await processes.open()
        run = await worker.start("parent", "hi", run_id="a")
        waiting = await run.wait()
        assert isinstance(waiting, gr.Waiting)
        ticket = waiting.tickets[0]
        refused = await edge.commands.decide("a", ticket.approve(edited_arguments=WRONG))
        assert (refused.status, refused.code) == ("rejected", "invalid_arguments")
        assert "cents" in (refused.detail or "")
        assert (await edge.commands.decide("a", ticket.approve(edited_arguments=RIGHT))).ok
        assert isinstance(await run.result(), gr.Completed)


@attrs.frozen
class Sum:
    cents: int


@pytest.mark.rule("CR-16", "HA-25", "HA-26")
async def test_the_output_of_a_child_run_has_the_type_of_its_last_agent(play, autojump_clock):
    """It was read with the type of the first one, and stayed plain data."""
    counter = expert('{"cents": 9}', key="till", output_type=Sum)
    seen: list[Any] = []

    def extract(outcome: gr.Completed[str | Sum]) -> int:
        seen.append(outcome.output)
        return outcome.output.cents if isinstance(outcome.output, Sum) else 0

    life = await play(K, "done", tools=[*TOOLS, expert(H, handoffs=[counter]).as_tool(extract=extract)])
    assert seen == [Sum(9)]
    assert life.outcome.output == "done"
