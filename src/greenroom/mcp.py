"""MCP servers as toolsets: `Agent(toolsets=[gr.mcp.Server("github", command=["github-mcp-server", "stdio"])])`.

Needs the SDK of MCP: pip install 'greenroom[mcp]'.
"""

from greenroom.actors.toolsets.mcp import Server as Server
from greenroom.actors.toolsets.mcp_rules import Rule as Rule
from greenroom.supervision.public import publish as _publish

__all__ = ["Rule", "Server"]

_publish(__name__, globals(), __all__)
