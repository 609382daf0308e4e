"""Messages of MCP: whatever a client posts is a message, or an error with a code and a sentence."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.transport.frontends.mcp.messages import (
    HANDSHAKE,
    LONGEST_ID,
    META,
    MODERN,
    TASKS,
    McpAnswer,
    McpFault,
    McpNotification,
    McpRequest,
    check_modern,
    check_params,
    decoded,
    is_modern,
    read_capabilities,
    read_message,
    text_of,
)

JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error", "_meta"]) | st.text(max_size=5),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)
RPC = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0")},
    optional={"id": JSON, "method": st.text(max_size=9) | JSON, "params": JSON, "result": JSON, "error": JSON},
)


def read(body: bytes) -> Any:
    """The message in a body, or its fault."""
    try:
        return read_message(body)
    except McpFault as fault:
        return fault


@given(data=JSON | RPC)
def test_any_json_is_a_message_or_an_error(data):
    message = read(json.dumps(data).encode())
    match message:
        case McpFault():
            assert message.code in (-32700, -32600, -32602)
            assert message.status == 400
            assert message.message
            return
        case McpRequest():
            assert (message.id, message.method) == (data["id"], data["method"])
            assert isinstance(message.meta, dict)
        case McpNotification():
            assert "id" not in data
        case McpAnswer():
            assert "method" not in data
    assert data["jsonrpc"] == "2.0"


@given(body=st.binary(max_size=60))
def test_any_bytes_are_a_message_or_an_error(body):
    message = read(body)
    assert not isinstance(message, McpFault) or message.status == 400


@given(first=st.integers(-(2**53), 2**53) | st.text(max_size=9), second=st.integers() | st.text(max_size=9))
def test_two_request_ids_have_one_text_only_if_they_are_the_same(first, second):
    assert (text_of(first) == text_of(second)) == (first == second and type(first) is type(second))


def test_the_longest_id_is_taken():
    body = {"jsonrpc": "2.0", "id": "x" * LONGEST_ID, "method": "ping"}
    assert isinstance(read_message(json.dumps(body).encode()), McpRequest)


def modern(**params: Any) -> McpRequest:
    own = {f"{META}protocolVersion": MODERN, f"{META}clientCapabilities": {"elicitation": {}}}
    return McpRequest(id=1, method="tools/call", params={"_meta": own, "name": "a", **params})


def test_the_era_is_said_by_a_header_or_by_the_request():
    old = McpRequest(id=1, method="tools/call", params={})
    assert is_modern({"mcp-protocol-version": MODERN}, old)
    assert not is_modern({"mcp-method": "tools/call"}, old)
    assert is_modern({}, modern())
    assert not is_modern({"mcp-protocol-version": HANDSHAKE[0]}, old)
    assert not is_modern({}, McpNotification(method="notifications/cancelled", params={}))


@pytest.mark.parametrize(
    ("capabilities", "version", "forms", "lists"),
    [
        ({"elicitation": {}}, MODERN, True, True),
        ({"elicitation": {"form": {}}}, HANDSHAKE[0], True, True),
        ({"elicitation": {"form": {}, "url": {}}}, HANDSHAKE[1], True, False),
        ({"elicitation": {"url": {}}}, HANDSHAKE[0], False, True),
        ({"elicitation": {}}, HANDSHAKE[2], False, False),
        ({"elicitation": True}, MODERN, False, True),
        ({}, HANDSHAKE[0], False, True),
    ],
)
def test_a_client_shows_forms_if_it_says_so_in_a_revision_that_has_them(capabilities, version, forms, lists):
    read = read_capabilities(capabilities, version)
    assert (read.forms, read.lists) == (forms, lists)


def test_tasks_are_for_clients_of_the_modern_era_that_declare_them():
    declared = {"extensions": {TASKS: {}}}
    assert read_capabilities(declared, MODERN).tasks
    assert not read_capabilities(declared, HANDSHAKE[0]).tasks
    for odd in ({"extensions": {TASKS: None}}, {"extensions": [TASKS]}, {"extensions": {}}, {"tasks": {}}):
        assert not read_capabilities(odd, MODERN).tasks


@given(text=st.text(st.characters(codec="utf-8"), max_size=30))
def test_any_name_has_a_header(text):
    assert decoded(f"=?base64?{base64.b64encode(text.encode()).decode()}?=") == text


@pytest.mark.parametrize("header", ["=?base64?SGVsbG8?=", "=?base64?SGVs!!!bG8=?=", "=?base64?/w==?="])
def test_a_header_that_is_not_base64_of_a_text_equals_no_name(header):
    assert decoded(header) is None


def test_a_literal_that_only_begins_like_base64_is_itself():
    for literal in ("=?base64?SGVsbG8=", "SGVsbG8=?=", "plain"):
        assert decoded(literal) == literal


def test_the_headers_say_the_same_as_the_body():
    good = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "a"}
    assert check_modern(good, modern()).forms
    for name in good:
        for headers in ({**good, name: "b"}, {key: value for key, value in good.items() if key != name}):
            with pytest.raises(McpFault, match="they must be equal"):
                check_modern(headers, modern())


def test_marked_arguments_are_repeated_in_headers():
    schema = {"properties": {"a": {"x-mcp-header": "A-b"}, "n": {"x-mcp-header": "N"}, "c": {}, "d": True}}
    check_params({}, schema, {"c": 1})
    check_params({"mcp-param-a-b": "x", "mcp-param-n": "7"}, schema, {"a": "x", "n": 7, "c": 1})
    check_params({"mcp-param-n": "false"}, schema, {"n": False})
    for headers in ({}, {"mcp-param-a-b": "y"}, {"mcp-param-a-b": "x", "mcp-param-n": "7"}):
        with pytest.raises(McpFault, match="the header Mcp-Param-"):
            check_params(headers, schema, {"a": "x"})
    check_params({}, {}, {"a": 1})
