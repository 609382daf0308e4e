"""Lines of an MCP client as requests to a gateway: pure."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.transport.cli.mcp_session import McpSession, failure, header_text, json_object, list_line, read_line

META = "io.modelcontextprotocol/"
MODERN = {f"{META}protocolVersion": "2026-07-28", f"{META}clientCapabilities": {}}


def line(method: str, request_id: Any = 1, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}).encode()


def test_a_modern_call_has_its_headers_and_names_its_run() -> None:
    read = read_line(line("tools/call", name="pay", arguments={"n": 10**30}, _meta=MODERN), "mcp_1")
    assert read.modern
    assert dict(read.headers) == {
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "pay",
    }
    sent = json.loads(read.body)
    assert sent["params"]["_meta"] == {**MODERN, "greenroom/run": "mcp_1"}
    assert sent["params"]["arguments"] == {"n": 10**30}


@pytest.mark.parametrize(
    "params",
    [
        {"_meta": {**MODERN, "greenroom/run": "own"}},
        {"_meta": MODERN, "requestState": "sealed"},
        {"_meta": MODERN, "name": "run_result"},
        {},
    ],
    ids=["a run of the client's", "a repeated call", "run_result", "the handshake era"],
)
def test_other_calls_are_posted_byte_for_byte(params: dict[str, Any]) -> None:
    data = line("tools/call", **{"name": "pay", **params})
    assert read_line(data, "mcp_1").body == data


@pytest.mark.parametrize(
    ("data", "is_message", "request_id"),
    [
        (b"{nonsense", False, None),
        (b"[1]", False, None),
        (b"[" * 100_000, False, None),
        (b'{"id": 1, "result": {}}', True, None),
        (b'{"id": true, "method": "ping"}', False, None),
        (b'{"id": 1}', False, None),
        (b'{"id": "a", "method": "ping", "params": 7}', True, "a"),
        (b'{"method": "notifications/initialized"}', True, None),
    ],
    ids=[
        *("no JSON", "a list", "deep", "an answer", "an id that is none", "neither request nor answer"),
        *("params that are none", "a notification"),
    ],
)
def test_every_line_can_be_posted(data: bytes, is_message: bool, request_id: Any) -> None:
    read = read_line(data, "mcp_1")
    assert (read.body, read.is_message, read.id, read.modern) == (data, is_message, request_id, False)


def test_a_cancel_names_its_request() -> None:
    assert read_line(line("notifications/cancelled", requestId="a"), "").cancels == "a"
    assert read_line(line("notifications/cancelled", requestId=[1]), "").cancels is None


def test_the_session_of_a_handshake_is_kept_and_repeated() -> None:
    session = McpSession()
    first = read_line(line("initialize"), "")
    assert session.headers(first) == []
    session.answered(first, {"id": 1, "result": {"protocolVersion": "2025-11-25"}}, "sealed")
    assert repr(session) == "<McpSession of 2025-11-25>"
    assert dict(session.headers(read_line(line("ping"), ""))) == {
        "mcp-session-id": "sealed",
        "mcp-protocol-version": "2025-11-25",
    }
    assert (
        dict(session.headers(read_line(line("server/discover", _meta=MODERN), "")))["mcp-method"] == "server/discover"
    )
    assert session.answered(first, {"id": 1, "error": {}}, None) == {"id": 1, "error": {}}


@pytest.mark.rule("MB-5")
def test_only_the_named_agent_is_listed() -> None:
    answer: dict[str, Any] = {"result": {"tools": [{"name": one} for one in ("a_b", "run_result", "other")]}}
    shown = McpSession("a/b").answered(read_line(line("tools/list"), ""), answer, None)
    assert [tool["name"] for tool in shown["result"]["tools"]] == ["a_b", "run_result"]


def test_arguments_that_the_schema_wants_in_headers_are_repeated_there() -> None:
    session = McpSession()
    properties = {name: {"x-mcp-header": name.title()} for name in ("region", "urgent", "left_out")} | {"plain": {}}
    session.listed({"tools": [{"name": "pay", "inputSchema": {"properties": properties}}, {"name": "odd"}, 7]})
    arguments = {"region": "caf\u00e9", "urgent": True, "left_out": None, "plain": "x"}
    headers = session.headers(read_line(line("tools/call", name="pay", arguments=arguments, _meta=MODERN), "r"))
    own = {name: value for name, value in headers if name.startswith("mcp-param-")}
    assert own == {"mcp-param-Region": "=?base64?Y2Fmw6k=?=", "mcp-param-Urgent": "true"}


def test_the_bridge_lists_the_tools_itself() -> None:
    first, second = list_line(None), list_line("b")
    assert dict(first.headers)["mcp-method"] == "tools/list"
    assert "cursor" not in json.loads(first.body)["params"]
    assert json.loads(second.body)["params"]["cursor"] == "b"


@given(st.text())
def test_every_text_is_a_header(text: str) -> None:
    header = header_text(text)
    assert header.isascii()
    assert not set(header) & set("\r\n\0")
    assert header == header.strip()


def test_a_failure_is_one_line() -> None:
    assert json_object(failure("a", "two\nlines", -32603)) == {
        "jsonrpc": "2.0",
        "id": "a",
        "error": {"code": -32603, "message": "two\nlines"},
    }
    assert b"\n" not in failure("a", "two\nlines", -32603)
