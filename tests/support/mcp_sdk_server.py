"""A server of the SDK itself at an address, in a process of its own.

    python mcp_sdk_server.py PORT LOG

LOG gets a line for each call that the server executes, and for each one that is cancelled.
"""

import sys
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context

server = MCPServer("sdk")
LOG = Path(sys.argv[2])


def note(line: str) -> None:
    with LOG.open("a") as file:
        file.write(f"{line}\n")


@server.tool()
async def echo(text: str) -> str:
    """Say it again."""
    note("echo")
    return text


@server.tool()
async def add(a: int, b: int) -> dict[str, int]:
    """Add two numbers."""
    return {"sum": a + b}


@server.tool()
async def authorization(ctx: Context[Any, Any]) -> str:
    """Return the header."""
    return str(ctx.headers["authorization"]) if ctx.headers else "none"


@server.tool()
async def slow(ctx: Context[Any, Any]) -> str:
    """Report, and wait."""
    note("slow")
    await ctx.report_progress(1, 4, "begun")
    try:
        await anyio.sleep(60)
    except BaseException:
        note("cancelled")
        raise
    return "late"


if __name__ == "__main__":
    uvicorn.run(server.streamable_http_app(), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
