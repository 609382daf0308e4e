"""Toolsets that others serve: tools of MCP servers."""
