"""The servers that `doors.py` measures: ours, and the MCP SDK's own."""
