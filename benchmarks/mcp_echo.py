"""The smallest MCP server of 2026-07-28 on standard streams, for `mcp_client.py`: one tool, no library."""

from __future__ import annotations

import json
import sys

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
DISCOVERED = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "ttlMs": 0, "cacheScope": "private"}
LISTED = {"tools": [{"name": "echo", "inputSchema": TEXT}], "ttlMs": 600_000, "cacheScope": "private"}


def main() -> None:
    """Answer each line."""
    for line in sys.stdin:
        message = json.loads(line)
        match message["method"]:
            case "server/discover":
                result = DISCOVERED
            case "tools/list":
                result = LISTED
            case "tools/call":
                result = {"content": [{"type": "text", "text": message["params"]["arguments"]["text"]}]}
            case _:
                continue
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": {"resultType": "complete", **result}}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
