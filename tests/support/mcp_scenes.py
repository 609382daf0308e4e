"""Agents and moves for tests of MCP: an echo, and an agent whose tool needs an approval and counts its effects."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio

import greenroom as gr
from greenroom.testing import FunctionModel, call
from greenroom.transport import Address

from .mcp_client import McpClient, Stream

HANDSHAKE = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")


class Effects:
    """Counts what was done."""

    def __init__(self, *, reviewers: tuple[str, ...] = ()) -> None:
        self.paid: list[int] = []
        self.reviewers = reviewers

    def agents(self) -> list[gr.Agent[Any]]:
        @gr.tool(effect="publish")
        async def pay(ctx: gr.ToolContext, invoice: int) -> str:
            """Pay an invoice."""
            if ctx.decision is None:
                raise gr.Suspend(message="Pay it?", reason="tool_permission", reviewers=self.reviewers)
            self.paid.append(invoice)
            return f"invoice {invoice} is paid"

        def pays(request: Any) -> Any:
            last = request.messages[-1]
            return last.content if last.role == "tool" else call("pay", invoice=7)

        def echo(request: Any) -> str:
            return f"you said {request.messages[-1].content}"

        return [
            gr.Agent("echo", model=FunctionModel(echo), description="Repeats."),
            gr.Agent("pay", model=FunctionModel(pays), tools=[pay], description="Pays an invoice."),
        ]


async def begun(address: Address, version: str, **options: Any) -> McpClient:
    """A client that has initialized, or discovered."""
    client = McpClient(address, version, **options)
    await client.begin()
    return client


def accept(asked: Mapping[str, Any], action: str = "accept", **content: Any) -> dict[str, Any]:
    """The parameters that answer each question of an `input_required`."""
    answer = {"action": action, **({"content": content} if content else {})}
    return {
        "requestState": asked["requestState"],
        "inputResponses": dict.fromkeys(asked["inputRequests"], answer),
    }


@asynccontextmanager
async def asking(client: McpClient, tool: str = "pay", **more: Any) -> AsyncIterator[tuple[Stream, Any]]:
    """A call of the handshake era that has put its first question."""
    async with client.calling(tool, **more) as stream:
        yield stream, await stream.until("elicitation/create")


async def working(runtime: gr.Runtime) -> gr.Run[Any]:
    """The only run, once it works."""
    while True:
        lines = (await runtime.runs(status="running")).runs
        if lines:
            return await runtime.get(lines[0].info.run_id)
        await trio.sleep(0.01)
