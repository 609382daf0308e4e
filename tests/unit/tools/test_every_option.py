"""Each option of a tool has a check, two docstrings, a place in the digest, and an answer for tools of agents."""

import inspect
import re
import typing
from typing import Any

import pytest

from greenroom.actors.agents.agent import Agent
from greenroom.actors.errors import ToolDefinitionError
from greenroom.actors.plugins.guardrails import tool_input_guardrail, tool_output_guardrail
from greenroom.actors.tools import Tool, ToolContext, tool
from greenroom.actors.tools.agent_tool import _FIXED, AgentToolOptions
from greenroom.actors.tools.definition import ToolOptions

OPTIONS = list(typing.get_type_hints(ToolOptions))


@tool_input_guardrail
def judge_input(ctx: ToolContext, arguments: dict[str, Any]) -> None:
    return None


@tool_output_guardrail
def judge_output(ctx: ToolContext, result: Any) -> None:
    return None


async def prepare(ctx: object) -> None: ...


OTHER_VALUES: dict[str, dict[str, Any]] = {
    "name": {"name": "other"},
    "description": {"description": "another text"},
    "needs_approval": {"needs_approval": True},
    "replay": {"replay": "safe"},
    "effect": {"effect": "write"},
    "concurrency": {"concurrency": "ordered"},
    "timeout": {"timeout": 7.0},
    "on_error": {"on_error": "raise"},
    "on_timeout": {"on_timeout": "raise"},
    "on_conflict": {"on_conflict": "retry"},
    "grace": {"grace": 7.0},
    "background": {"background": True},
    "input_guardrails": {"input_guardrails": [judge_input]},
    "output_guardrails": {"output_guardrails": [judge_output]},
    "is_enabled": {"is_enabled": False},
    "prepare": {"prepare": prepare},
    "loop": {"loop": "asyncio"},
}
"""Option -> a value that is not the default. A new option gets its line here, and so its test of the digest."""
NEEDED = {"on_conflict": {"replay": "safe"}}
"""Option -> other options that it needs."""


async def look() -> str:
    """Look."""
    return "seen"


def digest(**options: Any) -> str:
    """The digest of an agent with a tool of these options."""
    return Agent("a", tools=[tool(look, **options)]).spec.digest


def names_in(docstring: str | None, indentation: int) -> list[str]:
    """The names that a docstring explains at an indentation, in order."""
    text = inspect.cleandoc(docstring or "")
    return re.findall(rf"^ {{{indentation}}}(\w+): ", text, re.MULTILINE)


@pytest.mark.parametrize("option", OPTIONS)
def test_a_value_of_a_wrong_type_is_refused_with_the_name_of_the_option(option: str) -> None:
    with pytest.raises(ToolDefinitionError, match=option):
        tool(look, **{option: object()})


@pytest.mark.parametrize("option", OPTIONS)
def test_another_value_of_an_option_changes_the_digest_of_the_agent(option: str) -> None:
    needed = NEEDED.get(option, {})
    assert digest(**needed, **OTHER_VALUES[option]) != digest(**needed)


def test_the_docstring_of_tool_explains_each_option() -> None:
    assert names_in(tool.__doc__, 8) == OPTIONS


def test_the_docstring_of_the_class_explains_each_option() -> None:
    assert set(names_in(Tool.__doc__, 4)) >= set(OPTIONS)


def test_a_tool_of_an_agent_has_each_option_or_says_why_not() -> None:
    of_agents = {*typing.get_type_hints(AgentToolOptions), *_FIXED, "name", "description"}
    assert of_agents == set(OPTIONS)
