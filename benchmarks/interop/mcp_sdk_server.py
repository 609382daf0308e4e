"""The MCP SDK's own server with one tool: python -m benchmarks.interop.mcp_sdk_server. Prints its port."""

from __future__ import annotations

import socket
import sys

import uvicorn
from mcp.server import MCPServer

server = MCPServer("sdk")


@server.tool()
async def quiet(input: str) -> str:  # noqa: A002 - the name of the argument that is sent
    """Answer."""
    return "done"


if __name__ == "__main__":
    listener = socket.create_server(("127.0.0.1", 0))
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    config = uvicorn.Config(server.streamable_http_app(), log_level="error")
    uvicorn.Server(config).run(sockets=[listener])
