"""`tool_agent`: an agent of one call, so that a tool can be reached as agents are: over MCP, by HTTP, from the console.

Theory of operation. The input of a run is the JSON text of the arguments. The model of such an agent is a function of
the newest message:

| newest message | answer |
|---|---|
| an input | a call of the tool with it |
| the text of a call that did not succeed | a refusal with that text |

The result of the call is the output of the run. Gates, approvals, guardrails and recovery are those of any tool: the
agent is an ordinary one.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypedDict, Unpack

import attrs
import trio

from ..abc import Model, ModelEvent
from ..contract.messages import CallRequest, ModelRequest, ModelResponse
from ..errors import AgentDefinitionError
from ..plugins.plugin import Plugin
from ..state.keys import StateKey
from ..tools.definition import Tool
from .agent import Agent
from .handoff import Handoff


class ToolAgentOptions(TypedDict, total=False):
    """The options of `Agent` that an agent of one call takes, documented there."""

    description: str
    plugins: Iterable[Plugin]
    state: Iterable[StateKey[Any]]
    deps_type: type[Any] | None


class ToolModel(Model):
    """The model of an agent of one call.

    Args:
        tool: The only tool of the agent.
    """

    def __init__(self, tool: Tool[..., Any]) -> None:
        self._tool = tool
        self.name = f"tool:{tool.name}"
        self.input_schema = tool.schema

    def __repr__(self) -> str:
        return f"<ToolModel of {self._tool!r}>"

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        """Answer one request, in one piece."""
        async with aclosing(self._answer(request)) as events:
            yield events

    async def _answer(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        await trio.lowlevel.checkpoint()
        newest = request.messages[-1]
        if newest.role == "user":
            yield ModelResponse(calls=(CallRequest.from_json(self._tool.name, newest.content),))
        else:
            yield ModelResponse(refusal=newest.content)


def tool_agent(tool: Tool[..., Any], key: str | None = None, **options: Unpack[ToolAgentOptions]) -> Agent[Any]:
    """Return an agent of one call: each run calls the tool once, and the result is the output of the run.

    The input of a run is the JSON text of the arguments, an object of the tool's schema. A failed call fails the run:
    as `tool_error` if the body has failed, as `model_refusal` if the body was not reached, such as for arguments that
    do not fit. A denial without a text cancels the run.

    Args:
        tool: The tool.
        key: The agent's key; None: the name of the tool.
        options: As of `Agent`; the description is the tool's by default.

    Raises:
        AgentDefinitionError: the tool is a plain function, a handoff or a background tool; or an option is invalid.
    """
    if not isinstance(tool, Tool) or isinstance(tool, Handoff):
        raise AgentDefinitionError(f"tool_agent({tool!r:.200}): give a function decorated with @gr.tool")
    if tool.background:
        why = "its call ends with the id of a task, before there is a result"
        raise AgentDefinitionError(f"tool_agent({tool!r}): {why}; define the tool without background=True")
    for option in options:
        if option not in ToolAgentOptions.__annotations__:
            names = ", ".join(ToolAgentOptions.__annotations__)
            raise AgentDefinitionError(
                f"tool_agent({tool!r}): there is no option {option!r:.100}; the options are {names}"
            )
    settings: dict[str, Any] = {"description": tool.description, **options}
    return Agent(
        tool.name if key is None else key,
        model=ToolModel(tool),
        tools=[attrs.evolve(tool, on_error="raise")],
        tool_use="stop_on_first_tool",
        on_deny="cancel_run",
        **settings,
    )
