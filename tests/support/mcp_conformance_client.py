"""The client that the conformance suite of MCP starts: an agent whose toolset is the server of a scenario.

    python mcp_conformance_client.py URL

The scenario is named in MCP_CONFORMANCE_SCENARIO; each question is approved, with nothing where nothing is required.
"""

import json
import os
import sys
from typing import Any

import trio

import greenroom as gr
from greenroom.testing import FunctionModel, call

Planned = list[tuple[str, dict[str, Any]]]


def planned(scenario: str, tools: dict[str, Any]) -> Planned:
    """The calls that a scenario waits for: (the server's name of a tool, arguments)."""
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    if "toolCalls" in context:
        return [(one["name"], without_nulls(one["arguments"])) for one in context["toolCalls"]]
    if scenario == "tools_call":
        return [("add_numbers", {"a": 5, "b": 3})]
    if scenario == "json-schema-2020-12-preservation":
        return [("json_schema_echo", {"schema": tools["json_schema_2020_12_tool"].schema})]
    return [(name, {}) for name in tools]


def without_nulls(arguments: dict[str, Any]) -> dict[str, Any]:
    """Leave out what the schema of a tool does not allow to be null, as a model does."""
    return {name: value for name, value in arguments.items() if value is not None}


def model(scenario: str) -> FunctionModel:
    """A model that makes the planned calls in its first answer."""

    def answer(request: Any) -> Any:
        if request.messages[-1].role != "user":
            return "done"
        tools = {tool.name.removeprefix("mcp__suite__"): tool for tool in request.tools}
        plan = planned(scenario, tools)
        return [call(f"mcp__suite__{name}", arguments) for name, arguments in plan] or "no tools"

    return FunctionModel(answer)


async def main(url: str) -> None:
    server = gr.mcp.Server("suite", url=url)
    agent = gr.Agent("client", model=model(os.environ["MCP_CONFORMANCE_SCENARIO"]), toolsets=[server])
    async with gr.open_runtime(agents=[agent]) as runtime:
        run = await runtime.start("client", "Do what the scenario waits for.")
        while isinstance(outcome := await run.wait(), gr.Waiting):
            for ticket in outcome.tickets:
                await run.decide(ticket.approve({} if ticket.response_schema is not None else None))
        sys.stdout.write(f"{outcome}\n")


if __name__ == "__main__":
    trio.run(main, sys.argv[1])
