"""Agents as MCP tools: names, schemas, pages of the list, and arguments as the input of a run. Pure.

A tool's name is the agent's key, with _ for characters that no tool's name may have, as of an agent that is a tool of
another one. Two keys that would have one name, and keys that would have the name of `RUN_RESULT`, get a digest behind
it. The order of the list is that of the keys, so it is the same each time.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import attrs
import msgspec

from greenroom.actors.abc import Model
from greenroom.actors.agents.agent import Agent
from greenroom.actors.contract.ids import content_digest
from greenroom.actors.contract.json_schema.faults import schema_faults
from greenroom.actors.contract.plain import JSONObject
from greenroom.actors.errors import UsageError
from greenroom.supervision.fields import did_you_mean

from .messages import INVALID_PARAMS, McpFault

PAGE: Final = 100
"""Tools of a page."""
LONGEST_NAME: Final = 64
"""Most characters of a name: many hosts pass the names to model services, which take no longer ones."""
LONGEST_WAIT: Final = 50
"""Most seconds that run_result waits: many clients give a call up after 60."""
MOST_FAULTS: Final = 5
"""Faults of the arguments that a client reads together."""

_encode = msgspec.json.Encoder().encode

TEXT_INPUT: Final[JSONObject] = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "The message for the agent."}},
    "required": ["input"],
    "additionalProperties": False,
}
"""The input of an agent whose model reads text."""
RUN_RESULT: Final = "run_result"
_RUN_RESULT: Final[JSONObject] = {
    "name": RUN_RESULT,
    "description": "Return the result of a run that another call has started, or how the run is.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "run": {"type": "string", "description": "The run's id, as the call named it."},
            "wait": {
                "type": "number",
                "minimum": 0,
                "maximum": LONGEST_WAIT,
                "description": "Seconds to wait for the end of the run (default 0).",
            },
        },
        "required": ["run"],
        "additionalProperties": False,
    },
}


@attrs.frozen(kw_only=True)
class McpTool:
    """An agent as a tool.

    Attributes:
        name: The name of the tool.
        key: The key of the agent.
        description: For the model of the client; never the agent's instructions.
        input_schema: JSON Schema of the arguments.
        output_schema: JSON Schema of the structured content; None if the output need not be an object.
        reads_text: The run's input is the argument `input`; else the arguments as JSON.
    """

    name: str
    key: str
    description: str
    input_schema: JSONObject
    output_schema: JSONObject | None
    reads_text: bool

    def shown(self) -> JSONObject:
        """Return the tool as the protocol shows it."""
        form = {} if self.output_schema is None else {"outputSchema": self.output_schema}
        return {"name": self.name, "description": self.description, "inputSchema": self.input_schema, **form}

    def input_of(self, arguments: JSONObject) -> str:
        """Return the input of the run for a call with these arguments.

        Raises:
            ValueError: They do not fit the schema; the text names each fault.
        """
        faults = schema_faults(self.input_schema, arguments, most=MOST_FAULTS)
        if faults:
            raise ValueError(f"the arguments do not fit {self.name}: {'; '.join(faults)}")
        return str(arguments["input"]) if self.reads_text else _encode(arguments).decode()


def agent_tools(agents: Mapping[str, Agent[Any]], exposed: Collection[str] | None) -> dict[str, McpTool]:
    """Return the tools by name, in the order of the agents' keys.

    Args:
        agents: The agents of the process by key. One without a model is never started, and is left out.
        exposed: The keys of those that are tools; None for all.
    """
    tools: dict[str, McpTool] = {}
    for key in sorted(agents):
        if (exposed is None or key in exposed) and agents[key].model is not None:
            tool = _tool(agents[key], tools)
            tools[tool.name] = tool
    return tools


def check_exposed(agents: Collection[str], exposed: Iterable[str] | None) -> frozenset[str] | None:
    """Return the keys of the agents that are to be tools; None for all.

    Raises:
        UsageError: The value is one text, or names an agent that is not there.
    """
    if exposed is None:
        return None
    if isinstance(exposed, str):
        raise UsageError(f"mcp={exposed!r:.200}: give a tuple of agents' keys, such as ({exposed!r:.200},)")
    keys = frozenset(exposed)
    for key in keys:
        if key not in agents:
            near = did_you_mean(key, agents)
            raise UsageError(f"mcp={tuple(keys)!r:.200}: no agent here has the key {key!r:.200}; {near}use () for none")
    return keys


def tools_page(tools: Mapping[str, McpTool], cursor: object) -> tuple[list[JSONObject], str | None]:
    """Return a page of the list, and the cursor of the next one.

    `run_result` is the first tool, if there are others: a page behind it needs no place for it.

    Raises:
        McpFault: The cursor is not one that a page has had.
    """
    if not tools:
        return [], None
    names = [RUN_RESULT, *tools]
    if cursor is not None and (not isinstance(cursor, str) or cursor not in names):
        raise McpFault(INVALID_PARAMS, f"cursor={cursor!r:.100} is not one of this list; begin without a cursor")
    start = 0 if cursor is None else names.index(cursor) + 1
    page = names[start : start + PAGE]
    more = start + PAGE < len(names)
    return [_RUN_RESULT if name == RUN_RESULT else tools[name].shown() for name in page], page[-1] if more else None


def _tool(agent: Agent[Any], taken: Collection[str]) -> McpTool:
    name = re.sub(r"[^a-zA-Z0-9_-]", "_", agent.key)[:LONGEST_NAME]
    if name in taken or name == RUN_RESULT:
        name = f"{name[: LONGEST_NAME - 9]}_{content_digest([agent.key])[:8]}"
    schema = agent.model.input_schema if isinstance(agent.model, Model) else None
    return McpTool(
        name=name,
        key=agent.key,
        description=agent.description or f"Ask the agent {agent.key}.",
        input_schema=TEXT_INPUT if schema is None else schema,
        output_schema=object_schema(agent.output_schema),
        reads_text=schema is None,
    )


def object_schema(schema: JSONObject | None) -> JSONObject | None:
    """Return a schema of an object with "type": "object" at its root, as the protocol demands; None for others."""
    if schema is None:
        return None
    root = schema
    prefix, reference = "#/$defs/", schema.get("$ref")
    if isinstance(reference, str) and reference.startswith(prefix):
        definition = schema.get("$defs", {}).get(reference.removeprefix(prefix))
        if not isinstance(definition, Mapping):
            return None
        root = {**definition, **{name: value for name, value in schema.items() if name != "$ref"}}
    return root if root.get("type") == "object" else None
