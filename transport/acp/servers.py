"""The MCP servers that an editor names, kept for their threads."""

from __future__ import annotations

from .requests import MCPServer


class NoServers:
    """For a gateway of another process: its agents cannot be given tools."""

    def keep(self, _: str, servers: tuple[MCPServer, ...]) -> str | None:
        """Return why the servers are not used; None if there are none."""
        if not servers:
            return None
        names = ", ".join(server.name for server in servers)
        return f"The MCP servers of this editor are not used: {names}. The gateway is that of another process."

    def forget(self, _: str) -> None:
        """Do nothing."""
