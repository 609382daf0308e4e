"""Handoffs where they are defined and where a run is started: every fault is found there. The ready-made filters."""

from collections.abc import Sequence
from typing import Any, cast

import attrs
import pytest

import greenroom as gr
from greenroom.actors.agents.graph import agents_below, finder
from greenroom.actors.contract.messages import CallRequest
from greenroom.actors.plugins.history import repaired
from greenroom.testing import ScriptedModel, call

MODEL = ScriptedModel(["done"])


@attrs.frozen
class Order:
    """An input."""

    number: int


def agent(key: str, **options: Any) -> gr.Agent[Any]:
    """An agent with a model."""
    return gr.Agent(key, **{"model": MODEL, **options})


@gr.tool
async def transfer_to_b() -> str:
    """Takes the name of a handoff."""
    return ""


@gr.tool(background=True)
async def crawl() -> str:
    """Brings the built-in tools along."""
    return ""


# --- definition ------------------------------------------------------------------------------------------------------


@pytest.mark.rule("HA-1")
def test_the_tool_has_a_name_and_a_description_made_from_the_agent() -> None:
    made = agent("a", handoffs=[agent("b/cé", description="Knows."), "d", gr.handoff("e", tool_name="ask_e")])
    infos = {tool.name: tool.description for tool in made.tool_infos}
    assert infos == {
        "transfer_to_b_c_": "Hand the conversation over to the agent 'b/cé'. Knows.",
        "transfer_to_d": "Hand the conversation over to the agent 'd'.",
        "ask_e": "Hand the conversation over to the agent 'e'.",
    }
    assert [handoff.key for handoff in made.handoffs] == ["b/cé", "d", "e"]
    assert repr(made.handoffs[1]) == "<Handoff 'transfer_to_d' to 'd'>"
    assert made.tool_infos[0].schema["properties"] == {}


TAKEN = {
    "by a tool": {"tools": [transfer_to_b], "handoffs": ["b"]},
    "by another handoff": {"handoffs": ["b", gr.handoff("c", tool_name="transfer_to_b")]},
    "by a built-in tool": {"tools": [crawl], "handoffs": [gr.handoff("b", tool_name="list_tasks")]},
}


@pytest.mark.rule("HA-1")
@pytest.mark.parametrize("how", TAKEN)
def test_a_name_that_is_taken_is_refused(how: str) -> None:
    with pytest.raises(gr.AgentDefinitionError, match=r"transfer_to_b|list_tasks"):
        agent("a", **TAKEN[how])


@pytest.mark.rule("HA-1")
def test_a_name_that_is_too_long_is_refused() -> None:
    key = "x" * 60
    with pytest.raises(gr.AgentDefinitionError, match=f"transfer_to_{key}.*64"):
        agent("a", handoffs=[key])
    assert agent("a", handoffs=[gr.handoff(key, tool_name="short")]).handoffs[0].name == "short"


FAULTS: dict[str, tuple[Any, str]] = {
    "no agent": (lambda: gr.handoff(7), "give an Agent, or the key"),  # type: ignore[call-overload]
    "no function": (lambda: gr.handoff("b", on_handoff=7), "give a function"),  # type: ignore[call-overload]
    "a callback without ctx": (lambda: gr.handoff("b", on_handoff=lambda: None), r"\(ctx\)"),  # type: ignore[misc]
    "a callback without input": (
        lambda: gr.handoff("b", on_handoff=lambda ctx: None, input_type=Order),  # type: ignore[misc]
        "ctx, input",
    ),
    "input without a callback": (lambda: gr.handoff("b", input_type=Order), "is for a callback"),  # type: ignore[call-overload]
    "input that is no object": (
        lambda: gr.handoff("b", on_handoff=lambda ctx, given: None, input_type=int),
        "option input_type",
    ),
    "a filter that takes nothing": (lambda: gr.handoff("b", input_filter=lambda: ()), "input_filter"),  # type: ignore[misc]
    "a bad name": (lambda: gr.handoff("b", tool_name="no name"), "tool name"),
    "a bad option": (lambda: gr.handoff("b", on_error="x"), "on_error"),  # type: ignore[call-overload]
    "no list": (lambda: agent("a", handoffs=7), "give a list"),
    "an item of another kind": (lambda: agent("a", handoffs=[7]), "give a list"),
    "in the wrong list": (lambda: agent("a", tools=[gr.handoff("b")]), "handoffs="),
}


@pytest.mark.rule("HA-1")
@pytest.mark.parametrize("how", FAULTS)
def test_every_fault_is_found_at_the_definition(how: str) -> None:
    make, words = FAULTS[how]
    with pytest.raises(gr.AgentDefinitionError, match=words):
        make()


@pytest.mark.rule("HA-2")
def test_no_tool_of_a_program_has_the_effect_of_a_handoff() -> None:
    with pytest.raises(gr.ToolDefinitionError, match="handoffs have it"):
        gr.tool(effect="handoff")(transfer_to_b.function)
    assert gr.handoff("b").effect == "handoff"


def test_the_choice_of_a_tool_may_be_a_handoff_and_a_stop_at_tools_may_not() -> None:
    assert agent("a", handoffs=["b"], tool_choice="required").tool_choice == "required"
    assert agent("a", handoffs=["b"], tool_choice="transfer_to_b").tool_choice == "transfer_to_b"
    with pytest.raises(gr.AgentDefinitionError, match="transfer_to_b"):
        agent("a", handoffs=["b"], tool_use=gr.stop_at_tools("transfer_to_b"))


def test_the_digest_of_an_agent_without_handoffs_does_not_know_them() -> None:
    plain = agent("a")
    assert plain.spec.digest == agent("a", handoffs=[]).spec.digest
    digests = {
        agent("a", handoffs=handoffs).spec.digest
        for handoffs in ([], ["b"], ["c"], [gr.handoff("b", input_filter=gr.filters.nested)])
    }
    assert len(digests) == 4


# --- the graph -------------------------------------------------------------------------------------------------------


async def start(*agents: gr.Agent[Any], known: Sequence[gr.Agent[Any]] = ()) -> None:
    """A run of the first agent is started, in a runtime that knows some others."""
    async with gr.open_runtime(agents=[*known]) as runtime:
        await runtime.start(agents[0], "hi")


@pytest.mark.rule("HA-17")
async def test_a_key_that_no_agent_has_is_found_at_the_start() -> None:
    with pytest.raises(gr.UnknownAgent, match="'c'"):
        await start(agent("a", handoffs=[agent("b", handoffs=["c"])]))
    await start(agent("a", handoffs=[agent("b", handoffs=["c"])]), known=[agent("c", handoffs=["a"])])


@pytest.mark.rule("HA-17")
async def test_two_agents_of_one_key_are_refused() -> None:
    twins = [agent("b"), agent("b", instructions="Another one.")]
    with pytest.raises(gr.UsageError, match="keys must be unique"):
        await start(agent("a", handoffs=[twins[0], agent("c", handoffs=[twins[1]])]))


@pytest.mark.rule("HA-17")
async def test_an_agent_without_a_model_is_refused() -> None:
    with pytest.raises(gr.AgentDefinitionError, match="'b' has no model"):
        await start(agent("a", handoffs=[agent("b", model=None)]))


@pytest.mark.rule("HA-17")
@pytest.mark.parametrize(
    "other",
    [
        gr.StateKey("word", int, default=0),
        gr.StateKey("word", str, default="", persistent=False),
        gr.StateKey("word", str, default="", merge=gr.commutative(lambda value, update: value)),
    ],
)
async def test_state_keys_of_one_name_have_one_form(other: gr.StateKey[Any]) -> None:
    word = gr.StateKey("word", str, default="")
    with pytest.raises(gr.AgentDefinitionError, match="'word'"):
        await start(agent("a", state=[word], handoffs=[agent("b", state=[other])]))
    same = gr.StateKey("word", str, default="")
    await start(agent("a", state=[word], handoffs=[agent("b", state=[same])]))


@pytest.mark.rule("HA-11", "HA-17")
async def test_a_budget_needs_prices_for_all_agents_of_the_graph() -> None:
    budget = gr.Budget(cost=1.0, prices={MODEL.name: gr.Price(1, 1)})
    await start(agent("a", plugins=[budget], handoffs=[agent("b")]))
    with pytest.raises(gr.AgentDefinitionError, match=r"agent 'b'.*prices"):
        await start(agent("a", plugins=[budget], handoffs=[agent("b", model=Named(["x"]))]))


REFUSED: dict[str, tuple[gr.Agent[Any], list[gr.Agent[Any]]]] = {
    "by key": (agent("a", handoffs=["b"]), [agent("b", output_type=int)]),
    "by two keys": (agent("a", handoffs=["b"]), [agent("b", handoffs=["c"]), agent("c", output_type=int)]),
    "a base": (agent("a", handoffs=["b"], output_type=bool), [agent("b", output_type=int)]),
    "a schema": (agent("a", handoffs=["b"]), [agent("b", output_type={"type": "integer"})]),
    "a part of a union": (
        agent("a", handoffs=[gr.handoff("b", output_type=int)]),
        [agent("b", output_type=cast("Any", int | None))],
    ),
    "behind an agent": (
        agent("a", handoffs=[agent("c", handoffs=["b"])]),
        [agent("b", output_type=int)],
    ),
}
ACCEPTED: dict[str, tuple[gr.Agent[Any], list[gr.Agent[Any]]]] = {
    "the same": (agent("a", handoffs=["b"]), [agent("b")]),
    "by the agent": (agent("a", handoffs=[agent("b", output_type=int)]), []),
    "named": (agent("a", handoffs=[gr.handoff("b", output_type=int)]), [agent("b", output_type=int)]),
    "a subclass": (agent("a", handoffs=["b"], output_type=int), [agent("b", output_type=bool)]),
    "any": (agent("a", handoffs=[gr.handoff("b", output_type=object)]), [agent("b", output_type={"type": "integer"})]),
    "of a schema": (agent("a", handoffs=["b"], output_type={"type": "integer"}), [agent("b", output_type=int)]),
    "a union": (
        agent("a", handoffs=[gr.handoff("b", output_type=cast("Any", int | None))]),
        [agent("b", output_type=cast("Any", None | int))],
    ),
    "back": (
        agent("a", handoffs=[agent("b", output_type=int, handoffs=[gr.handoff("a", output_type=str)])]),
        [],
    ),
}


@pytest.mark.rule("HA-26")
@pytest.mark.parametrize("case", REFUSED)
async def test_a_key_that_leads_to_an_output_of_another_type_is_refused(case: str) -> None:
    first, known = REFUSED[case]
    with pytest.raises(
        gr.AgentDefinitionError, match=r"write gr\.handoff\(key, output_type=.*\) there, or give the agent"
    ):
        await start(first, known=known)


@pytest.mark.rule("HA-26")
@pytest.mark.parametrize("case", ACCEPTED)
async def test_an_agent_that_names_the_output_types_of_its_graph_starts(case: str) -> None:
    first, known = ACCEPTED[case]
    await start(first, known=known)


def test_an_agent_of_a_handoff_has_its_own_output_type() -> None:
    with pytest.raises(gr.AgentDefinitionError, match="output_type= is for a key"):
        gr.handoff(agent("b"), output_type=int)


class Named(ScriptedModel):
    """A model of another name."""

    name = "another"


def test_agents_that_work_in_child_runs_of_each_other_are_found_once() -> None:
    child = agent("child", handoffs=["a"])
    first = agent("a", tools=[child.as_tool()], handoffs=[agent("b", tools=[child.as_tool()])])
    found = [one.key for one in agents_below(first, finder({"a": first, "child": child}))]
    assert found == ["child"]


@pytest.mark.rule("HA-11")
def test_the_spec_of_another_agent_has_what_stays_with_the_first() -> None:
    first = agent(
        "a", stop=[gr.stop.MaxRounds(3)], on_new_input="supersede", max_tasks=2, execution="parallel_streaming"
    )
    joined = agent("b", stop=[gr.stop.MaxRounds(9)], max_bodies=2).spec.within(first.spec, {})
    assert (joined.key, joined.max_bodies) == ("b", 2)
    for name in ("stop", "on_new_input", "max_tasks", "execution", "input_guardrails", "blocking_guardrails"):
        assert getattr(joined, name) == getattr(first.spec, name)


# --- messages --------------------------------------------------------------------------------------------------------


def thread(*lines: str) -> list[gr.Message]:
    """Messages: "user", "assistant A B" (with these calls), "tool A"."""
    out = []
    for number, line in enumerate(lines):
        role, *calls = line.split()
        requests = tuple(CallRequest(call_id=one, tool="t", arguments={}) for one in calls if role == "assistant")
        call_id = calls[0] if role == "tool" else None
        text = "" if requests else f"text {number}"
        made: Any = {"id": f"m{number}", "role": role, "content": text, "calls": requests, "call_id": call_id}
        out.append(gr.Message(**made))
    return out


def shown(messages: Sequence[gr.Message]) -> list[str]:
    """The reverse."""
    return [
        " ".join([message.role, *(one.call_id for one in message.calls), *filter(None, [message.call_id])])
        for message in messages
    ]


REPAIRS = {
    "whole": (["user", "assistant A B", "tool A", "tool B"], ["user", "assistant A B", "tool A", "tool B"]),
    "an answer is lost": (["assistant A B", "tool B"], ["assistant B", "tool B"]),
    "a call is lost": (["assistant A", "tool A", "tool B"], ["assistant A", "tool A"]),
    "the message is lost": (["user", "tool A", "tool B", "user"], ["user", "user"]),
    "all answers are lost": (["user", "assistant A", "user"], ["user", "user"]),
    "an answer came later": (["assistant A", "user", "tool A"], ["user"]),
    "an answer twice": (["assistant A", "tool A", "tool A"], ["assistant A", "tool A"]),
    "an id of an earlier run": (
        ["assistant A", "tool A", "user", "assistant A"],
        ["assistant A", "tool A", "user"],
    ),
}


@pytest.mark.rule("HA-15")
@pytest.mark.parametrize("name", REPAIRS)
def test_calls_and_answers_that_lose_each_other_are_left_out(name: str) -> None:
    before, after = REPAIRS[name]
    assert shown([*repaired(thread(*before))]) == after


@pytest.mark.rule("HA-16")
def test_the_ready_made_filters_take_every_history() -> None:
    assert gr.filters.nested([]) == ()
    assert gr.filters.without_tools([]) == ()
    assert shown(gr.filters.without_tools(thread("user", "assistant A", "tool A", "assistant"))) == [
        "user",
        "assistant",
    ]
    (nested,) = gr.filters.nested(thread("user", "assistant A", "tool A", "tool B"))
    assert nested.content.splitlines()[1:] == [
        "1. user: text 0",
        "2. assistant calls t with {}",
        "3. result of t: text 2",
        "4. result of a call: text 3",
    ]
    assert (nested.role, nested.id) == ("user", "m3.nested")


def test_the_arguments_of_a_call_are_in_the_record() -> None:
    request = CallRequest(call_id="A", tool="look", arguments={"at": "é"})
    message = gr.Message(id="m", role="assistant", content="", calls=(request,))
    assert '{"at":"é"}' in gr.filters.nested([message])[0].content
    assert call("look", at="é").arguments == request.arguments
