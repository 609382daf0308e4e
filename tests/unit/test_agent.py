"""Agents: frozen values that say what is wrong with them when they are made."""

import dataclasses
import subprocess
import sys
from typing import TypedDict

import attrs
import msgspec
import pytest

from greenroom.actors.agents.agent import Agent, stop_at_tools
from greenroom.actors.contract import stop
from greenroom.actors.contract.codec import SchemaError
from greenroom.actors.contract.policies import Price
from greenroom.actors.errors import AgentDefinitionError, UsageError
from greenroom.actors.models import resolve_model
from greenroom.actors.plugins.policies import Budget
from greenroom.actors.testing import ScriptedModel
from greenroom.actors.tools import tool

from ..support.cases import case


@tool
async def add(a: int, b: int = 2) -> int:
    return a + b


@tool(needs_approval=True, effect="write", on_error="raise")
async def refund(order: str) -> str:
    return order


@tool(background=True)
async def crawl(url: str) -> str:
    return url


@tool
async def list_tasks() -> str:
    return "mine"


def yields(ctx: object) -> object:
    yield "text"


async def denied_later(*_: object) -> str:
    return "no"


def test_an_agent_needs_no_more_than_a_key():
    agent = Agent("support")
    assert agent.key == "support"
    assert agent.spec.key == "support"
    assert (agent.tools, agent.tool_infos, agent.model, agent.output_schema) == ((), (), None, None)
    assert agent.spec.stop == (stop.MaxRounds(16),)
    assert agent.spec.execution == "sequential"
    assert repr(agent) == "<Agent 'support': 0 tools>"


def test_the_spec_holds_what_was_said():
    agent = Agent(
        "support",
        tools=[add, refund],
        execution="parallel_streaming",
        stop=[stop.MaxRounds(8), stop.TokenBudget(50_000), stop.StopOnTool("add")],
        tool_use=stop_at_tools("refund"),
        on_deny="cancel_run",
        on_new_input="supersede",
        on_unknown_tool="raise",
        output_retries=3,
        max_bodies=2,
        settings={"temperature": 0},
    )
    spec = agent.spec
    assert list(spec.tools) == ["add", "refund"]
    assert (spec.tools["refund"].gate, spec.tools["refund"].fatal) == ("always", True)
    assert spec.stop == (stop.MaxRounds(8), stop.TokenBudget(50_000), stop.StopOnTool("add"))
    assert (spec.execution, spec.tool_use) == ("parallel_streaming", frozenset({"refund"}))
    assert (spec.on_deny, spec.on_new_input, spec.on_unknown_tool) == ("cancel_run", "supersede", "raise")
    assert (spec.output_retries, spec.max_bodies) == (3, 2)
    assert [info.name for info in agent.tool_infos] == ["add", "refund"]
    assert agent.tool("add") is add
    assert agent.tool("nothing") is None
    assert agent.spec is agent.spec


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ([], (stop.MaxRounds(16),)),
        ([stop.Timeout(3)], (stop.Timeout(3), stop.MaxRounds(16))),
        ([stop.MaxRounds(None)], (stop.MaxRounds(None),)),
        ([stop.MaxRounds(0), stop.Timeout(1)], (stop.MaxRounds(0), stop.Timeout(1))),
    ],
    ids=case,
)
def test_a_limit_of_rounds_is_added_unless_the_list_has_one(given, made):
    assert Agent("a", stop=given).spec.stop == made


def test_an_agent_is_frozen_and_keeps_its_own_copies():
    settings, tools = {"temperature": 0}, [add]
    agent = Agent("a", settings=settings, tools=tools)
    settings["temperature"] = 1
    tools.append(refund)
    assert (agent.settings, agent.tools) == ({"temperature": 0}, (add,))
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        agent.key = "b"
    assert attrs.evolve(agent, execution="parallel_streaming").spec.digest != agent.spec.digest


def plain(a: int) -> int:
    return a


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tools": [plain]}, "'plain' is not a tool; decorate it with @gr.tool"),
        ({"tools": ["add"]}, "'add' is not a tool; give functions decorated"),
        ({"tools": add}, "give a list of tools"),
        ({"tools": "add"}, "give a list of tools"),
        ({"tools": [add, add]}, "two tools are named 'add'; rename one"),
        ({"execution": "parallel"}, "'parallel_streaming'"),
        ({"on_deny": "stop"}, "'cancel_run'"),
        ({"denial": "no"}, "denial='no': give a function"),
        ({"denial": denied_later}, "that does not await"),
        ({"denial": lambda ticket: "no"}, "give a function, (ticket, decision) -> str"),
        ({"on_new_input": "drop"}, "'supersede'"),
        ({"on_unknown_tool": "ignore"}, "'raise'"),
        ({"model": 3}, "Model object"),
        ({"instructions": lambda: "hello"}, "give a str, or a function (ctx) -> str"),
        ({"instructions": str}, "give a str, or a function (ctx) -> str"),
        ({"instructions": (text for text in "x")}, "give a str, or a function (ctx) -> str"),
        ({"instructions": yields}, "give a str, or a function (ctx) -> str"),
        ({"description": None}, "description"),
        ({"output_retries": -1}, "0 or more"),
        ({"output_retries": 1.5}, "whole number"),
        ({"max_bodies": 0}, "1 or more"),
        ({"max_bodies": True}, "whole number"),
        ({"max_tasks": 0}, "1 or more"),
        ({"tools": [add, crawl, list_tasks]}, "named 'list_tasks', which agents with background tools have built in"),
        ({"settings": {"x": object()}}, "plain JSON data"),
        ({"settings": [1]}, "give a dict"),
        ({"tool_use": "stop"}, "stop_at_tools"),
        ({"tool_use": lambda: None}, "(results) -> gr.FinalOutput | None"),
        ({"tool_choice": "sub", "tools": [add]}, "'sub'; the tools are: add"),
        ({"tool_choice": True, "tools": [add]}, "the name of a tool"),
        ({"tool_choice": "required"}, "no tool to call"),
        ({"reset_tool_choice": 1}, "True or False"),
        ({"tool_use": frozenset({"sub"}), "tools": [add]}, "'sub'; the tools are: add"),
        ({"stop": stop.MaxRounds(3)}, "give a list of conditions"),
        ({"stop": [3]}, "3 is not a stop condition"),
        ({"stop": [stop.MaxRounds]}, "is not a stop condition"),
        ({"stop": [stop.MaxRounds(-1)]}, "0 or None switches it off"),
        ({"stop": [stop.MaxRounds(1.5)]}, "n is a number"),
        ({"stop": [stop.Timeout(float("nan"))]}, "seconds is a number"),
        ({"stop": [stop.TokenBudget("many")]}, "total is a number"),
        ({"stop": [stop.StopOnTool("sub")]}, "'sub'; the tools are: none"),
        ({"output_type": type("Odd", (), {})}, "no JSON form"),
        ({"output_type": {"type": "strin"}}, "output_type: the JSON Schema is invalid: $.type: 'strin'"),
        ({"output_type": {"properties": {"a": {"minimum": "0"}}}}, "$.properties.a.minimum: '0' is not of type"),
        ({"output_type": {"items": {"$ref": "#/$defs/Item"}}}, "$ref '#/$defs/Item' leads to no part of the schema"),
        ({"output_type": {"$ref": "https://example.org/item"}}, "leads to no part of the schema"),
        ({"output_type": {"properties": {"a": object()}}}, "the JSON Schema is invalid"),
    ],
    ids=case,
)
def test_a_wrong_part_is_refused_by_name_and_with_a_way_out(options, words):
    with pytest.raises(AgentDefinitionError) as caught:
        Agent("support", **options)
    assert words in str(caught.value)
    assert "'support'" in str(caught.value)
    assert isinstance(caught.value, UsageError)


@pytest.mark.parametrize("key", ["", "two words", "x" * 65, "line\n", None, 3], ids=repr)
def test_a_key_that_cannot_stand_in_an_event_is_refused(key):
    with pytest.raises(AgentDefinitionError, match="printable characters without spaces"):
        Agent(key)


def test_stop_at_tools_needs_a_name():
    with pytest.raises(AgentDefinitionError, match="stop_on_first_tool"):
        stop_at_tools()


def test_the_digest_is_the_same_for_the_same_agent():
    def make(model):
        return Agent("a", instructions="Be kind.", tools=[add], model=model, output_type=list[int])

    assert make(ScriptedModel([])).spec.digest == make(ScriptedModel(["done"])).spec.digest
    assert make("openai:x").spec.digest != make("openai:y").spec.digest


@pytest.mark.slow
def test_the_digest_is_the_same_in_another_process():
    code = (
        "from greenroom.actors.agents.agent import Agent, stop_at_tools\n"
        "from greenroom.actors.tools import tool\n"
        "def body(a: int, b: set[str] = frozenset('xyz')) -> None: ...\n"
        "tools = [tool(body, name=n) for n in 'xyz']\n"
        "print(Agent('a', tools=tools, tool_use=stop_at_tools('x', 'y', 'z')).spec.digest)\n"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"instructions": "Be brief."},
        {"instructions": lambda ctx: ""},
        {"tools": [add, refund]},
        {"tools": [tool(add.function, name="add", replay="safe")]},
        {"tools": [tool(add.function, name="add", needs_approval=True)]},
        {"tools": [tool(add.function, name="add", timeout=3)]},
        {"tools": [tool(add.function, name="add", description="other")]},
        {"settings": {"temperature": 1}},
        {"output_type": int},
        {"output_type": {}},
        {"execution": "parallel_streaming"},
        {"stop": [stop.MaxRounds(3)]},
        {"tool_use": "stop_on_first_tool"},
        {"tool_use": stop_at_tools("add")},
        {"tool_use": lambda results: None},
        {"tool_choice": "required"},
        {"tool_choice": "required", "reset_tool_choice": False},
        {"tools": [tool(add.function, name="add", is_enabled=False)]},
        {"on_deny": "cancel_run"},
        {"on_new_input": "supersede"},
        {"on_unknown_tool": "raise"},
        {"output_retries": 0},
        {"max_bodies": 1},
        {"max_tasks": 1},
        {"tools": [tool(add.function, name="add", background=True)]},
        {"model": "openai:x"},
    ],
    ids=case,
)
def test_whatever_can_change_a_run_changes_the_digest(options):
    assert Agent("a", **{"tools": [add], **options}).spec.digest != Agent("a", tools=[add]).spec.digest


def test_the_digest_of_an_agent_without_background_tools_is_what_it_always_was():
    """Else every run of an older release would be informed that its agent has changed."""
    assert Agent("support", tools=[add]).spec.digest == "e14b2a362d5a3334a40e5e99f50bb1c6"
    budget = Budget(cost=1, prices={"openai:x": Price(1, 2)})
    assert Agent("a", model="openai:x", plugins=[budget]).spec.digest == "35679b4fcbf160b0a161e3e04a2e40f3"
    dearer = Budget(cost=1, prices={"openai:x": Price(1, 2, stored=2)})
    assert Agent("a", model="openai:x", plugins=[dearer]).spec.digest != "35679b4fcbf160b0a161e3e04a2e40f3"


def test_a_background_tool_brings_two_built_in_ones():
    agent = Agent("a", tools=[add, crawl])
    assert [info.name for info in agent.tool_infos] == ["add", "crawl", "list_tasks", "cancel_task"]
    assert [name for name, one in agent.spec.tools.items() if not one.output] == ["crawl", "list_tasks", "cancel_task"]
    assert Agent("a", tools=[add, list_tasks]).tool("list_tasks") is list_tasks
    assert Agent("a", tools=[add]).tool("cancel_task") is None


def test_a_description_changes_no_run_and_so_not_the_digest():
    assert Agent("a", description="x").spec.digest == Agent("a").spec.digest


# --- output ---------------------------------------------------------------------------------------------------------


@attrs.frozen
class Report:
    title: str
    scores: list[float] = attrs.field(factory=list)


@dataclasses.dataclass
class Point:
    x: int


class Named(TypedDict):
    name: str


@pytest.mark.parametrize(
    ("output_type", "text", "value", "parsed"),
    [
        (str, "plain text", "plain text", "plain text"),
        (str, "```json\n1\n```", "```json\n1\n```", "```json\n1\n```"),
        (int, "42", 42, 42),
        (list[int], " [1, 2] ", [1, 2], [1, 2]),
        (Report, '{"title": "a"}', {"title": "a", "scores": []}, Report("a")),
        (Report, '```json\n{"title": "a", "scores": [1]}\n```\n', {"title": "a", "scores": [1.0]}, Report("a", [1.0])),
        (Point, '```\n{"x": 1}\n```', {"x": 1}, Point(1)),
        (Named, '{"name": "n"}', {"name": "n"}, {"name": "n"}),
        (int | None, "null", None, None),
    ],
    ids=case,
)
def test_an_answer_becomes_json_data_and_then_the_output_type(output_type, text, value, parsed):
    agent = Agent("a", output_type=output_type)
    found, wrong = agent.spec.check_output(text)
    assert (found, wrong) == (value, None)
    msgspec.json.encode(found)
    assert agent.parse_output(found) == parsed


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Here you are:", "not JSON"),
        ("", "not JSON"),
        ('{"title": 3}', "`$.title`"),
        ('{"title": "a", "scores": [1, "x"]}', "`$.scores[1]`"),
        ('Sure!\n```json\n{"title": "a"}\n```', "not JSON"),
        ('{"title": "\ud800"}', "not JSON"),
        ("[" * 100_000, "not JSON"),
    ],
    ids=lambda text: text[:30].encode("ascii", "replace").decode(),
)
def test_an_answer_of_the_wrong_form_is_described_and_never_raises(text, words):
    value, wrong = Agent("a", output_type=Report).spec.check_output(text)
    assert value is None
    assert words in (wrong or "")


def test_the_schema_of_the_output_is_there_for_the_model():
    assert Agent("a", output_type=int).output_schema == {"type": "integer"}
    assert "Report" in str(Agent("a", output_type=Report).output_schema)


def test_a_stored_output_of_another_form_is_an_error_with_the_path():
    with pytest.raises(SchemaError, match=r"`\$\.title`"):
        Agent("a", output_type=Report).parse_output({"title": 3})


def test_text_output_lets_the_result_of_a_final_tool_pass():
    assert Agent("a").parse_output({"x": 1}) == {"x": 1}


# --- models by name -------------------------------------------------------------------------------------------------


def test_a_model_by_name_is_kept_and_resolving_one_of_an_unknown_provider_names_the_providers():
    assert Agent("a", model="openai:gpt-5-mini").model == "openai:gpt-5-mini"
    with pytest.raises(AgentDefinitionError, match=r"no provider is installed.*did you mean 'openai'.*a Model object"):
        resolve_model("openia:gpt-5-mini")
    for name in ("gpt-5", ":x", "openai:", ""):
        with pytest.raises(AgentDefinitionError, match="provider:name"):
            resolve_model(name)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("ollama/qwen3", "ollama:qwen3"),
        ("openrouter/openai/gpt-5", "openrouter:openai/gpt-5"),
        ("claude-sonnet-4-5", "anthropic:claude-sonnet-4-5"),
        ("gpt-5-mini", "openai:gpt-5-mini"),
        ("groq", "groq:NAME"),
    ],
)
def test_a_name_in_the_form_of_others_is_answered_with_its_form_here(name, meant):
    with pytest.raises(AgentDefinitionError, match=f'did you mean "{meant}"'):
        resolve_model(name)
    with pytest.raises(AgentDefinitionError) as unclear:
        resolve_model("qwen3")
    assert "did you mean" not in str(unclear.value)


@pytest.mark.slow
def test_importing_agents_and_tools_loads_no_json_schema_library():
    code = "import sys, greenroom.actors.agents, greenroom.actors.testing; print('jsonschema' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "False\n"


def test_instructions_with_a_lone_surrogate_are_refused_with_the_way_out():
    with pytest.raises(AgentDefinitionError, match="has bytes that are not text"):
        Agent("helper", instructions="caf\udce9")
