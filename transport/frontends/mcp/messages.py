"""JSON-RPC messages of MCP: what a client posts, and the errors that answer it. Pure.

| era | revisions | recognised by |
|---|---|---|
| modern | 2026-07-28 | the header MCP-Protocol-Version, or `_meta` of the request |
| handshake | 2025-11-25, 2025-06-18, 2025-03-26, 2024-11-05 | everything else |

The modern era has no session: each request has its version and the client's capabilities in `_meta`, and headers that
say the same, for proxies.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Final

import attrs
import msgspec

from greenroom.actors.contract.plain import JSONObject
from greenroom.actors.json_text import JSONTextError, read_json

MODERN: Final = "2026-07-28"
HANDSHAKE: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""The revisions with a handshake, newest first. The first one answers an `initialize` with an unknown version."""
META: Final = "io.modelcontextprotocol/"
"""The beginning of the protocol's own keys in `_meta`."""
TASKS: Final = f"{META}tasks"
"""The key of the tasks extension among the extensions of client and server."""
RUN: Final = "greenroom/run"
"""The key in `_meta` of the run that a call starts, or has started."""

INVALID_JSON: Final = -32700
INVALID_REQUEST: Final = -32600
UNKNOWN_METHOD: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL: Final = -32603
REFUSED: Final = -32000
"""The gateway refuses the request; `data.code` is its own error code."""
HEADER_MISMATCH: Final = -32020
MISSING_CAPABILITY: Final = -32021
UNSUPPORTED_VERSION: Final = -32022

LONGEST_ID: Final = 256
"""Most characters of a request id or progress token: both travel in the ids of events."""

_encode = msgspec.json.Encoder().encode
RequestId = str | int


class McpFault(Exception):
    """A request that is answered with a JSON-RPC error.

    Attributes:
        code: The JSON-RPC code.
        message: One sentence that names the value.
        status: The HTTP status.
        data: Details for programs.
    """

    def __init__(self, code: int, message: str, *, status: int = 200, data: JSONObject | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.status, self.data = code, message, status, data


@attrs.frozen(kw_only=True)
class McpRequest:
    """A request.

    Attributes:
        id: The client's id.
        method: Such as tools/call.
        params: The parameters; {} if the request has none.
    """

    id: RequestId
    method: str
    params: JSONObject

    @property
    def meta(self) -> JSONObject:
        """The request's `_meta`; {} without one."""
        meta = self.params.get("_meta")
        return meta if isinstance(meta, dict) else {}


@attrs.frozen(kw_only=True)
class McpNotification:
    """A notification, which is never answered."""

    method: str
    params: JSONObject


@attrs.frozen(kw_only=True)
class McpAnswer:
    """The client's answer to a request of the server. `result`: None if the client has answered with an error."""

    id: object
    result: JSONObject | None


McpMessage = McpRequest | McpNotification | McpAnswer


def read_message(body: bytes) -> McpMessage:
    """Return the message in the body of a POST.

    Raises:
        McpFault: The body is not one JSON-RPC message.
    """
    try:
        data = read_json(body)
    except JSONTextError as error:
        raise McpFault(INVALID_JSON, f"the body {error}", status=400) from error
    if isinstance(data, list):
        raise McpFault(INVALID_REQUEST, "the body is a batch; send each message in a POST of its own", status=400)
    if not isinstance(data, dict) or data.get("jsonrpc") != "2.0":
        raise McpFault(INVALID_REQUEST, 'the body is not a JSON-RPC message with "jsonrpc": "2.0"', status=400)
    if "method" not in data:
        return _reply(data)
    method, params = data["method"], data.get("params", {})
    if not isinstance(method, str):
        raise McpFault(INVALID_REQUEST, f"method={method!r:.100} is not a string", status=400)
    if not isinstance(params, dict):
        raise McpFault(INVALID_PARAMS, f"params={params!r:.100} is not an object", status=400)
    if "id" not in data:
        return McpNotification(method=method, params=params)
    return McpRequest(id=read_id("id", data["id"]), method=method, params=params)


def _reply(data: JSONObject) -> McpAnswer:
    result = data.get("result")
    if "id" not in data or ("error" not in data and not isinstance(result, dict)):
        raise McpFault(
            INVALID_REQUEST, "the message has no method, and is not an answer with id and result", status=400
        )
    return McpAnswer(id=data["id"], result=result if isinstance(result, dict) else None)


def read_id(name: str, value: object) -> RequestId:
    """Return a request id or a progress token.

    Raises:
        McpFault: The value is neither a short string nor an integer.
    """
    if isinstance(value, str) and len(value) <= LONGEST_ID:
        return value
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53:
        return value
    text = f"{name}={value!r:.100} is neither an integer nor a string of at most {LONGEST_ID} characters"
    raise McpFault(INVALID_REQUEST if name == "id" else INVALID_PARAMS, text, status=400)


def response(request_id: RequestId, result: JSONObject) -> JSONObject:
    """Return the message that answers a request with a result."""
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def error(request_id: RequestId | None, fault: McpFault) -> JSONObject:
    """Return the message that answers a request with an error."""
    details = {} if fault.data is None else {"data": fault.data}
    return {
        "jsonrpc": "2.0",
        "id": request_id,
        "error": {"code": fault.code, "message": fault.message, **details},
    }


def is_modern(headers: Mapping[str, str], message: McpMessage) -> bool:
    """Return True if a message is of the modern era."""
    if headers.get("mcp-protocol-version") == MODERN:
        return True
    return isinstance(message, McpRequest) and f"{META}protocolVersion" in message.meta


@attrs.frozen(kw_only=True)
class McpCapabilities:
    """What the client can do.

    Attributes:
        forms: Show a form to a person (elicitation).
        lists: A form may have lists of choices; only the newest revisions know them.
        tasks: The tasks extension.
    """

    forms: bool
    lists: bool = True
    tasks: bool = False


def read_capabilities(capabilities: JSONObject, version: str) -> McpCapabilities:
    """Return what a client has declared; unknown entries are passed over."""
    elicitation, extensions = capabilities.get("elicitation"), capabilities.get("extensions")
    # without "form" and "url" the entry means forms, as before there were addresses
    forms = isinstance(elicitation, dict) and ("form" in elicitation or "url" not in elicitation)
    return McpCapabilities(
        forms=forms and version not in HANDSHAKE[2:],
        lists=version in (MODERN, HANDSHAKE[0]),
        tasks=version == MODERN and isinstance(extensions, dict) and isinstance(extensions.get(TASKS), dict),
    )


def check_modern(headers: Mapping[str, str], call: McpRequest) -> McpCapabilities:
    """Check the version and the headers of a modern request; return what the client can do.

    Raises:
        McpFault: `_meta` is incomplete, the version is another one, or a header differs from the body.
    """
    version, capabilities = call.meta.get(f"{META}protocolVersion"), call.meta.get(f"{META}clientCapabilities")
    if not isinstance(version, str) or not isinstance(capabilities, dict):
        names = f"{META}protocolVersion and {META}clientCapabilities"
        raise McpFault(INVALID_PARAMS, f"params._meta must hold {names}", status=400)
    _check_header(headers, "MCP-Protocol-Version", version)
    if version != MODERN:
        details = {"supported": [MODERN], "requested": version[:100]}
        text = f"the protocol version {version!r:.100} is not known here; use {MODERN}"
        raise McpFault(UNSUPPORTED_VERSION, text, status=400, data=details)
    _check_header(headers, "Mcp-Method", call.method)
    if call.method in NAMED:
        _check_header(headers, "Mcp-Name", call.params.get(NAMED[call.method]))
    return read_capabilities(capabilities, version)


NAMED: Final[Mapping[str, str]] = {
    "tools/call": "name",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""Method -> the parameter that the header Mcp-Name repeats."""


def check_params(headers: Mapping[str, str], schema: JSONObject, arguments: JSONObject) -> None:
    """Check the headers that repeat arguments: those whose property in the tool's schema has `x-mcp-header`.

    Raises:
        McpFault: A header is missing, or differs from the argument.
    """
    properties = schema.get("properties")
    for name, about in properties.items() if isinstance(properties, Mapping) else ():
        suffix = about.get("x-mcp-header") if isinstance(about, Mapping) else None
        sent = isinstance(suffix, str) and f"mcp-param-{suffix.lower()}" in headers
        if isinstance(suffix, str) and (sent or arguments.get(name) is not None):  # null is left out of the headers
            value = arguments.get(name)
            text = value if isinstance(value, str) else _encode(value).decode()
            _check_header(headers, f"Mcp-Param-{suffix}", text)


def _check_header(headers: Mapping[str, str], name: str, value: object) -> None:
    sent = headers.get(name.lower())
    if sent is None or decoded(sent) != value:
        text = f"the header {name} is {sent!r:.100}, and the body says {value!r:.100}; they must be equal"
        raise McpFault(HEADER_MISMATCH, text, status=400)


def decoded(header: str) -> str | None:
    """Return the text of a header: as it stands, or of its form for other letters, `=?base64?...?=`."""
    if not (header.startswith("=?base64?") and header.endswith("?=")):
        return header
    try:
        return base64.b64decode(header[9:-2], validate=True).decode()
    except (binascii.Error, ValueError):
        return None


def text_of(request_id: RequestId) -> str:
    """Return a request id as text; an integer and its digits in a string differ."""
    return _encode(request_id).decode()
