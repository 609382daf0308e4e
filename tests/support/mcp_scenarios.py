"""The client that the conformance suite of MCP tries: an agent whose toolset is the server of a scenario.

The suite starts a program for each scenario. That one (`mcp_scenarios_knock.py`) only tells the test the address, and
the agent works inside the test, which saves the time of importing everything again.
"""

import json
from functools import partial
from typing import Any

import trio

import greenroom as gr
from greenroom.testing import FunctionModel, call

Planned = list[tuple[str, dict[str, Any]]]


def planned(scenario: str, context: dict[str, Any], tools: dict[str, Any]) -> Planned:
    """The calls that a scenario waits for: (the server's name of a tool, arguments)."""
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


def model(scenario: str, context: dict[str, Any]) -> FunctionModel:
    """A model that makes the planned calls in its first answer."""

    def answer(request: Any) -> Any:
        if request.messages[-1].role != "user":
            return "done"
        tools = {tool.name.removeprefix("mcp__suite__"): tool for tool in request.tools}
        plan = planned(scenario, context, tools)
        return [call(f"mcp__suite__{name}", arguments) for name, arguments in plan] or "no tools"

    return FunctionModel(answer)


async def play(scenario: str, context: dict[str, Any], url: str) -> object:
    """Let an agent do what a scenario waits for; each question is approved, with nothing where nothing is required."""
    server = gr.mcp.Server("suite", url=url)
    agent = gr.Agent("client", model=model(scenario, context), toolsets=[server])
    async with gr.open_runtime(agents=[agent]) as runtime:
        run = await runtime.start("client", "Do what the scenario waits for.")
        while isinstance(outcome := await run.wait(), gr.Waiting):
            for ticket in outcome.tickets:
                await run.decide(ticket.approve({} if ticket.response_schema is not None else None))
        return outcome


async def _answer(stream: trio.SocketStream) -> None:
    knock = json.loads(await stream.receive_some())
    outcome = await play(knock["scenario"], json.loads(knock["context"]), knock["url"])
    await stream.send_all(str(outcome).encode())


async def serve(nursery: trio.Nursery) -> int:
    """Play a scenario for each knock at the port that is returned."""
    (listener,) = await nursery.start(partial(trio.serve_tcp, _answer, 0, host="127.0.0.1"))
    return int(listener.socket.getsockname()[1])
