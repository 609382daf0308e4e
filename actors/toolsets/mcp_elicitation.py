"""What a server asks in the middle of a call: by a message in the handshake era, by its answer in the modern one."""

from __future__ import annotations

from typing import Any

from ..contract.plain import JSONObject
from ..errors import ToolError
from ..tools.context import ToolContext
from .mcp_actor import CallArguments, Elicited, ServerAnswer


async def answer_elicitation(ctx: ToolContext[Any], question: Elicited) -> JSONObject:
    """Return the answer to a question of the handshake era: {"action", "content"?}.

    Runs beside the call, in the body. Cancelled when the server does not wait any more.
    """
    return {"action": "cancel"}


async def ask_for_input(ctx: ToolContext[Any], server: str, answer: ServerAnswer) -> object:
    """Handle an answer of the modern era with resultType "input_required": raise the question to people.

    Raises:
        ToolError: the server asks for what this client does not give.
    """
    raise ToolError(f"MCP server {server!r} asks for input, which this client does not give.")


def repeated(ctx: ToolContext[Any], call: CallArguments) -> CallArguments:
    """Return what to send for an attempt: with the answer of people, if they were asked before."""
    return call
