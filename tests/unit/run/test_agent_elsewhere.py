"""What processes publish of their agents, and how others read it."""

import pytest

import greenroom as gr
from greenroom.actors.runtime.shared.agent_elsewhere import LARGEST, PublishedAgent, published


@gr.tool
async def refund(order: str, cents: int) -> str:
    """Pay back."""
    return f"{order} {cents}"


def big(name: str, size: int) -> gr.Tool:
    schema = {"type": "object", "properties": {"x": {"type": "string", "description": "d" * size}}}

    async def body(ctx: gr.ToolContext, arguments: dict) -> str:
        return str(arguments)

    return gr.Tool.from_schema(body, name=name, schema=schema)


def read(agent: gr.Agent) -> PublishedAgent:
    return PublishedAgent.read(agent.key, published(agent))


def test_an_agent_without_tools_publishes_its_digest_alone() -> None:
    agent = gr.Agent("a")
    assert published(agent) == agent.spec.digest
    assert read(agent) == PublishedAgent(key="a", digest=agent.spec.digest)


def test_a_published_agent_has_all_facts_that_start_and_judge_need() -> None:
    agent = gr.Agent("a", tools=[refund], execution="parallel_streaming", on_new_input="supersede")
    found = read(agent)
    assert (found.spec.key, found.spec.digest, found.spec.execution) == ("a", agent.spec.digest, "parallel_streaming")
    assert found.on_new_input == "supersede"
    tool = found.tools["refund"]
    assert tool.definition == agent.spec.definition("refund", "")
    assert tool.check({"order": "7", "cents": 5}) is None
    for wrong in ({"order": "7"}, {"order": 7, "cents": 5}, {"order": "7", "cents": 5, "more": 1}):
        assert refund.check(wrong) is not None
        assert (tool.check(wrong) or "").startswith("Invalid arguments: $")


def test_a_schema_that_is_too_large_is_left_out_and_checked_by_the_owner_alone() -> None:
    agent = gr.Agent("a", tools=[big("large", LARGEST - 200), big("small", 10), refund])
    found = read(agent)
    assert {name: tool.schema is None for name, tool in found.tools.items()} == {
        "small": False,
        "refund": False,
        "large": True,
    }
    assert found.tools["large"].check({"anything": 1}) is None


@pytest.mark.parametrize(
    "text",
    [
        "d1",
        "d1 ",
        "d1 {",
        "d1 []",
        'd1 "sequential"',
        'd1 {"execution": {"unknown": 1}, "tools": []}',
        'd1 {"execution": 7, "tools": {"refund": 5}}',
        'd1 {"tools": {"refund": ["f"]}, "onNewInput": 7}',
    ],
)
def test_unreadable_parts_of_a_published_agent_are_left_out(text: str) -> None:
    found = PublishedAgent.read("a", text)
    assert (found.key, found.digest, found.execution, dict(found.tools)) == ("a", "d1", "sequential", {})
