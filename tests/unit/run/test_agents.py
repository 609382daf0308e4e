"""The agents of a runtime: how those that a start brings along are found."""

import pytest

import greenroom as gr
from greenroom.testing import ScriptedModel, call


def layers(count: int, kind: str) -> gr.Agent[str]:
    """Agents that each reach the next one in two ways: 2**count ways lead to the last."""
    agent = gr.Agent(f"k{count}", model=ScriptedModel(["x"]))
    for number in range(count - 1, -1, -1):
        both = ("a", "b")
        tools = [agent.as_tool(name=name) for name in both] if kind == "tools" else []
        handoffs = [gr.handoff(agent, tool_name=name) for name in both] if kind == "handoffs" else []
        agent = gr.Agent(f"k{number}", model=ScriptedModel(["x"]), tools=tools, handoffs=handoffs)
    return agent


@pytest.mark.parametrize("kind", ["tools", "handoffs"])
@pytest.mark.parametrize("known", [False, True])
async def test_agents_that_share_others_are_found_once(autojump_clock, kind, known):
    agent = layers(40, kind)
    async with gr.open_runtime(agents=[agent] if known else []) as runtime:
        assert (await (await runtime.start(agent, "hi")).result()).output == "x"
        assert (await (await runtime.start("k40", "hi")).result()).output == "x"


async def test_a_long_chain_of_agents_is_found(autojump_clock):
    agent = gr.Agent("last", model=ScriptedModel(["x"]))
    for number in range(1_100):
        agent = gr.Agent(f"k{number}", model=ScriptedModel(["x"]), tools=[agent.as_tool(name="next")])
    async with gr.open_runtime() as runtime:
        assert (await (await runtime.start(agent, "hi")).result()).output == "x"


async def test_a_start_that_is_refused_adds_no_agent(autojump_clock):
    """The same key is free for the agent that is made right."""
    wrong = gr.Agent("desk", tools=[gr.Agent("inner", model=None).as_tool()], model=ScriptedModel(["x"]))
    lost = gr.Agent("lost", handoffs=["nowhere"], model=ScriptedModel(["x"]))
    right = gr.Agent("desk", model=ScriptedModel(["x"]))
    async with gr.open_runtime() as runtime:
        with pytest.raises(gr.AgentDefinitionError, match="agent 'inner' has no model"):
            await runtime.start(wrong, "hi")
        with pytest.raises(gr.UnknownAgent, match="nowhere"):
            await runtime.start(lost, "hi")
        for key in ("inner", "lost"):
            with pytest.raises(gr.UnknownAgent, match="this runtime knows: none"):
                await runtime.start(key, "hi")
        assert (await (await runtime.start(right, "hi")).result()).output == "x"


async def test_a_refused_start_leaves_no_graph_of_handoffs_behind(autojump_clock):
    """The agent that is made right hands its runs over to its own agents, not to those of the refused one."""

    def front(*other: object, **options: object) -> gr.Agent[str]:
        desk = gr.Agent("desk", model=ScriptedModel(list(other)))
        lost = gr.Agent("lost", **options)  # type: ignore[arg-type]
        return gr.Agent("front", handoffs=[desk, lost], model=ScriptedModel([call("transfer_to_desk")]))

    async with gr.open_runtime() as runtime:
        with pytest.raises(gr.AgentDefinitionError, match="agent 'lost' has no model"):
            await runtime.start(front("the old desk"), "hi")
        right = front("the new desk", model=ScriptedModel(["x"]))
        assert (await (await runtime.start(right, "hi")).result()).output == "the new desk"


async def test_of_two_agents_with_one_key_none_is_added(autojump_clock):
    inner, other = (gr.Agent("inner", instructions=text, model=ScriptedModel(["x"])) for text in ("a", "b"))
    both = gr.Agent("both", tools=[inner.as_tool(), other.as_tool(name="o")], model=ScriptedModel(["x"]))
    async with gr.open_runtime() as runtime:
        with pytest.raises(gr.UsageError, match="another agent has the key 'inner'"):
            await runtime.start(both, "hi")
        assert (await (await runtime.start(other, "hi")).result()).output == "x"
