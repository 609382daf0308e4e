"""What an MCP server may send: more than that is an error of the one request, and stops nothing else."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import greenroom as gr

from ..support.mcp_servers import FREE, Used, run_with, use

SERVER = """
import json, sys
LISTED, CALLED = json.loads(sys.argv[1])
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    result = {
        "server/discover": lambda: {"supportedVersions": ["2026-07-28"], "capabilities": {}, "ttlMs": 0},
        "tools/list": lambda: {"tools": eval(LISTED), "ttlMs": 60_000},
        "tools/call": lambda: eval(CALLED),
    }[message["method"]]()
    result |= {"resultType": "complete", "cacheScope": "private"}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""
ONE = '[{"name": "big", "inputSchema": {"type": "object"}}, {"name": "small", "inputSchema": {"type": "object"}}]'


async def with_server(folder: Path, listed: str, called: str, *steps: Any) -> Used:
    """A run with a server whose answers are the values of two expressions."""
    path = folder / "server.py"
    path.write_text(SERVER)
    words = [sys.executable, "-I", "-S", str(path), json.dumps([listed, called])]
    server = gr.mcp.Server("t", command=words, tools={"*": FREE}, idle=5)
    return await run_with(server, *steps)


@pytest.mark.rule("MC-2", "MC-9")
@pytest.mark.parametrize(
    ("listed", "text"),
    [
        ('[{"name": f"t{i}", "inputSchema": {"type": "object"}} for i in range(2001)]', "2,001 items as tools"),
        ('[{"name": "t", "inputSchema": {"type": "object", "x": "y" * 3_000_000}}]', "a page of tools of 3,000,"),
        ('"x" * 13_000_000', "a line of more than 12,582,912 bytes"),
        ("5", "it sent an invalid answer: tools: Input should be a valid list"),
    ],
)
async def test_a_list_that_is_too_large_makes_the_server_unavailable(tmp_path, listed, text):
    life = await with_server(tmp_path, listed, "{}", "done")
    assert text in life.of("run.degraded")[0]["detail"]


@pytest.mark.rule("MC-2")
async def test_a_tool_with_an_unusable_schema_is_left_out(tmp_path):
    schemas = '[{"type": "object"}, {"type": "string"}, {"type": "object", "properties": 5}, {"$ref": "#/x"}]'
    listed = f'[{{"name": f"t{{i}}", "inputSchema": schema}} for i, schema in enumerate({schemas})]'
    assert (await with_server(tmp_path, listed, "{}", "done")).offered == ["mcp__t__t0"]


@pytest.mark.rule("MC-4")
@pytest.mark.parametrize(
    ("called", "code", "text"),
    [
        ('{"content": [{"type": "text", "text": "a"}] * 1001}', "tool_error", "1,001 items as content"),
        ('{"content": [{"type": "text", "text": "a" * 5_000_000}]}', "tool_error", "its result cannot be kept"),
        ('{"content": "a"}', "schema_validation_failed", "an invalid result"),
        ('{"content": [{"type": "text"}]}', "schema_validation_failed", "an invalid result"),
    ],
)
async def test_a_result_that_is_too_large_or_invalid_is_a_failed_call_and_the_next_one_works(
    tmp_path, called, code, text
):
    small = '{"content": [{"type": "text", "text": "b"}]}'
    expression = f'({called}) if message["params"]["name"] == "big" else {small}'
    life = await with_server(tmp_path, ONE, expression, use("big"), use("small", id="B"))
    assert life.codes == {"A": code, "B": None}
    assert text in life.texts["A"]
    assert life.texts["B"] == "b"
