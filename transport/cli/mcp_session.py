"""The lines of an MCP client on standard streams as requests to `/v1/mcp`, and the answers as lines. Pure.

Theory of operation. The protocol says more over HTTP than on a stream, and the bridge adds that:

| | handshake era | modern era |
|---|---|---|
| session | the id that `initialize` has brought, and the version | none |
| headers | that version | version, method and name, and the arguments that the tool's schema wants in headers |
| the run of a call that is posted again | the same, by session and id | the same, named by the bridge |
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any, Final

import attrs

from ..frontends.mcp.messages import META, MODERN, NAMED, RUN, RequestId
from ..frontends.mcp.tools import LONGEST_NAME, RUN_RESULT


def tool_name(key: str) -> str:
    """Return the name of an agent as a tool."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", key)[:LONGEST_NAME]


LINE_LIMIT: Final = 8 * 1024 * 1024
"""Most bytes of a line; the gateway takes less than that in a body."""
_PLAIN: Final = re.compile(r"[!-~]([ -~]*[!-~])?")
_CANCELLED: Final = "notifications/cancelled"


@attrs.frozen(kw_only=True)
class ClientLine:
    """One message of the client.

    Attributes:
        body: The JSON to post.
        is_message: The line is a request, a notification or an answer; anything else is answered with an error.
        id: The id of a request; None: no answer is due.
        method: The method; "" for an answer, or for a line that is not a message.
        headers: What the modern era says in headers.
        modern: The message is of the modern era.
        tool, arguments: Of a call.
        cancels: The id of the request that a notification cancels.
    """

    body: bytes
    is_message: bool = True
    id: RequestId | None = None
    method: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    modern: bool = False
    tool: str = ""
    arguments: Mapping[str, Any] = attrs.field(factory=dict)
    cancels: RequestId | None = None


def read_line(line: bytes, run_id: str) -> ClientLine:
    """Return the message of a line. What is not a message is posted as it is, and the gateway says what is wrong.

    Args:
        line: The line.
        run_id: The id of the run if the line is a modern call, which may have to be posted again.
    """
    message = json_object(line)
    if message is None:
        return ClientLine(body=line, is_message=False)
    request_id, method, params = message.get("id"), message.get("method"), message.get("params")
    params = params if isinstance(params, dict) else {}
    meta = params.get("_meta")
    modern = isinstance(meta, dict) and f"{META}protocolVersion" in meta
    method = method if isinstance(method, str) else ""
    cancels = params.get("requestId") if method == _CANCELLED else None
    if isinstance(meta, dict) and modern and _starts_run(method, params) and RUN not in meta:
        meta[RUN] = run_id
        line = compact(message)
    return ClientLine(
        body=line,
        is_message=_is_message(message),
        id=request_id if method and _is_id(request_id) else None,
        method=method,
        headers=tuple(_modern_headers(method, params, meta)) if isinstance(meta, dict) and modern else (),
        modern=modern,
        tool=name if method == "tools/call" and isinstance(name := params.get("name"), str) else "",
        arguments=arguments if isinstance(arguments := params.get("arguments"), dict) else {},
        cancels=cancels if _is_id(cancels) else None,
    )


def _is_message(message: Mapping[str, Any]) -> bool:
    if isinstance(message.get("method"), str):
        return "id" not in message or _is_id(message["id"])
    return "result" in message or "error" in message


def _starts_run(method: str, params: Mapping[str, Any]) -> bool:
    return method == "tools/call" and "requestState" not in params and params.get("name") != RUN_RESULT


def _is_id(value: object) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _modern_headers(method: str, params: Mapping[str, Any], meta: Mapping[str, Any]) -> list[tuple[str, str]]:
    name = params.get(NAMED.get(method, ""))
    values = {"mcp-protocol-version": meta[f"{META}protocolVersion"], "mcp-method": method, "mcp-name": name}
    return [(header, header_text(value)) for header, value in values.items() if isinstance(value, str)]


def header_text(text: str) -> str:
    """Return a text as the value of a header: other letters than printable ASCII take the form `=?base64?...?=`."""
    if _PLAIN.fullmatch(text) and not text.startswith("=?"):
        return text
    return f"=?base64?{base64.b64encode(text.encode(errors='replace')).decode()}?="


def _text(value: object) -> str:
    return header_text(value if isinstance(value, str) else json.dumps(value, separators=(",", ":")))


def list_line(cursor: str | None) -> ClientLine:
    """Return the bridge's own request for a page of the tools."""
    meta = {f"{META}protocolVersion": MODERN, f"{META}clientCapabilities": {}}
    page = {} if cursor is None else {"cursor": cursor}
    message = {"jsonrpc": "2.0", "id": 0, "method": "tools/list", "params": {**page, "_meta": meta}}
    return read_line(compact(message), "")


def json_object(data: bytes) -> dict[str, Any] | None:
    """Return the object that a line or an answer is; None for anything else."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def compact(message: Mapping[str, Any]) -> bytes:
    """Return a message as one line."""
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")


@attrs.define(eq=False)
class McpSession:
    """What the bridge has learned from the answers of the gateway.

    Attributes:
        agent: The key of the only agent that `tools/list` shows; None for all.
        session_id, version: Of the handshake era, after `initialize`.
        repeated: Tool -> argument -> the header that repeats it in the modern era.
    """

    agent: str | None = None
    session_id: str | None = None
    version: str | None = None
    repeated: dict[str, dict[str, str]] = attrs.field(factory=dict)

    def __repr__(self) -> str:
        return f"<McpSession of {self.version or 'no version yet'}>"

    def headers(self, line: ClientLine) -> list[tuple[str, str]]:
        """Return the headers with which a line is posted, or its stream resumed."""
        if line.modern or line.method == "initialize":
            values = [(name, line.arguments.get(key)) for key, name in self.repeated.get(line.tool, {}).items()]
            return [*line.headers, *((name, _text(value)) for name, value in values if value is not None)]
        own = (("mcp-session-id", self.session_id), ("mcp-protocol-version", self.version))
        return [(name, value) for name, value in own if value is not None]

    def answered(self, line: ClientLine, answer: dict[str, Any], session_id: str | None) -> dict[str, Any]:
        """Take note of the answer to a line; return what the client gets."""
        result = answer.get("result")
        if not isinstance(result, dict):
            return answer
        if line.method == "initialize":
            version = result.get("protocolVersion")
            self.session_id, self.version = session_id, version if isinstance(version, str) else None
        if line.method == "tools/list":
            tools = self.listed(result)
            names = None if self.agent is None else (tool_name(self.agent), RUN_RESULT)
            result["tools"] = [tool for tool in tools if names is None or tool.get("name") in names]
        return answer

    def listed(self, result: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Take note of a page of tools, and return it."""
        tools = result.get("tools")
        page = [tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
        for tool in page:
            schema = tool.get("inputSchema")
            properties = schema.get("properties") if isinstance(schema, dict) else None
            self.repeated[str(tool.get("name"))] = {
                key: f"mcp-param-{about['x-mcp-header']}"
                for key, about in (properties.items() if isinstance(properties, dict) else ())
                if isinstance(about, dict) and isinstance(about.get("x-mcp-header"), str)
            }
        return page


def stopped(message: Mapping[str, Any]) -> bool:
    """Return True for the answer of a gateway that stops, while the run of the call goes on."""
    error = message.get("error")
    data = error.get("data") if isinstance(error, dict) else None
    return isinstance(data, dict) and RUN in data


def failure(request_id: RequestId | None, message: str, code: int) -> bytes:
    """Return the line with which the bridge itself answers a request."""
    return compact({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}})
