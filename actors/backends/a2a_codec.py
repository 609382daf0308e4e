"""A2A 1.0 on HTTP: the operations in both bindings, and errors; from both sides, without I/O.

Theory of operation. An operation has a name, parameters and a result, and two forms on the wire. HTTP+JSON has a
method and a path for each, with the parameters in path, query or body, and errors with their HTTP status. JSON-RPC
posts `{method, params}` to one address, and errors have the status 200. A stream is server-sent events; each `data` is
an item (HTTP+JSON) or a JSON-RPC response with the item as its result.

A client makes requests with `wire_request`, and reads answers with `read_answer` and `read_event`. A server reads
requests with `rest_call` and `rpc_call`, and writes answers with `written_result` and `written_fault`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import quote

import attrs
import msgspec

from ..contract.plain import JSONObject, JSONValue

VERSION: Final = "1.0"
VERSION_HEADER: Final = "A2A-Version"
"""A request without this header is one of version 0.3."""
DOMAIN: Final = "a2a-protocol.org"
TICKET_TYPE: Final = "application/vnd.greenroom.ticket+json"
"""The media type of a data part that describes an open ticket, or decides one."""
CARD_PATH: Final = "/.well-known/agent-card.json"

_ERROR_INFO: Final = "type.googleapis.com/google.rpc.ErrorInfo"

Binding: TypeAlias = Literal["HTTP+JSON", "JSONRPC"]


# --- errors ----------------------------------------------------------------------------------------------------------


@attrs.frozen
class A2AError:
    """An error of the protocol.

    Attributes:
        reason: The name in the details of an error.
        code: The code in JSON-RPC.
        status: The HTTP status in HTTP+JSON.
        name: The name of the status in gRPC, which HTTP+JSON has in its body.
    """

    reason: str
    code: int
    status: int
    name: str


TASK_NOT_FOUND: Final = A2AError("TASK_NOT_FOUND", -32001, 404, "NOT_FOUND")
TASK_NOT_CANCELABLE: Final = A2AError("TASK_NOT_CANCELABLE", -32002, 400, "FAILED_PRECONDITION")
PUSH_NOTIFICATION_NOT_SUPPORTED: Final = A2AError("PUSH_NOTIFICATION_NOT_SUPPORTED", -32003, 400, "FAILED_PRECONDITION")
UNSUPPORTED_OPERATION: Final = A2AError("UNSUPPORTED_OPERATION", -32004, 400, "FAILED_PRECONDITION")
CONTENT_TYPE_NOT_SUPPORTED: Final = A2AError("CONTENT_TYPE_NOT_SUPPORTED", -32005, 400, "INVALID_ARGUMENT")
INVALID_AGENT_RESPONSE: Final = A2AError("INVALID_AGENT_RESPONSE", -32006, 500, "INTERNAL")
EXTENDED_AGENT_CARD_NOT_CONFIGURED: Final = A2AError(
    "EXTENDED_AGENT_CARD_NOT_CONFIGURED", -32007, 400, "FAILED_PRECONDITION"
)
EXTENSION_SUPPORT_REQUIRED: Final = A2AError("EXTENSION_SUPPORT_REQUIRED", -32008, 400, "FAILED_PRECONDITION")
VERSION_NOT_SUPPORTED: Final = A2AError("VERSION_NOT_SUPPORTED", -32009, 400, "FAILED_PRECONDITION")
INVALID_PARAMS: Final = A2AError("INVALID_PARAMS", -32602, 400, "INVALID_ARGUMENT")
INVALID_REQUEST: Final = A2AError("INVALID_REQUEST", -32600, 400, "INVALID_ARGUMENT")
METHOD_NOT_FOUND: Final = A2AError("METHOD_NOT_FOUND", -32601, 404, "NOT_FOUND")
PARSE_ERROR: Final = A2AError("INVALID_REQUEST", -32700, 400, "INVALID_ARGUMENT")
INTERNAL_ERROR: Final = A2AError("INTERNAL_ERROR", -32603, 500, "INTERNAL")

_ERRORS: Final = (
    *(TASK_NOT_FOUND, TASK_NOT_CANCELABLE, PUSH_NOTIFICATION_NOT_SUPPORTED, UNSUPPORTED_OPERATION),
    *(CONTENT_TYPE_NOT_SUPPORTED, INVALID_AGENT_RESPONSE, EXTENDED_AGENT_CARD_NOT_CONFIGURED),
    *(EXTENSION_SUPPORT_REQUIRED, VERSION_NOT_SUPPORTED, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND),
    *(INTERNAL_ERROR, PARSE_ERROR),
)
_BY_CODE: Final[Mapping[int, A2AError]] = {error.code: error for error in _ERRORS}
_BY_REASON: Final[Mapping[str, A2AError]] = {error.reason: error for error in reversed(_ERRORS)}


class A2AFault(Exception):
    """An operation is answered with an error.

    Attributes:
        error: The error; None if the other side sent one that is not of the protocol.
        message: What the other side, or we, say about it.
        metadata: Facts for programs: texts by name.
        status: The HTTP status of the answer; 0 on the side of the server.
    """

    def __init__(
        self, error: A2AError | None, message: str, *, metadata: Mapping[str, str] | None = None, status: int = 0
    ) -> None:
        super().__init__(message)
        self.error = error
        self.message = message
        self.metadata = dict(metadata or {})
        self.status = status

    def __repr__(self) -> str:
        return f"<A2AFault {self.error.reason if self.error else self.status}: {self.message:.200}>"


# --- operations ------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Operation:
    """An operation of the protocol.

    Attributes:
        name: The method in JSON-RPC.
        methods: HTTP methods in HTTP+JSON; clients use the first.
        path: The path below the address of the interface; `{id}` and the like are parameters.
        streams: The answer is server-sent events.
    """

    name: str
    methods: tuple[str, ...]
    path: str
    streams: bool = False


SEND_MESSAGE: Final = Operation(name="SendMessage", methods=("POST",), path="/message:send")
SEND_STREAMING_MESSAGE: Final = Operation(
    name="SendStreamingMessage", methods=("POST",), path="/message:stream", streams=True
)
GET_TASK: Final = Operation(name="GetTask", methods=("GET",), path="/tasks/{id}")
LIST_TASKS: Final = Operation(name="ListTasks", methods=("GET",), path="/tasks")
CANCEL_TASK: Final = Operation(name="CancelTask", methods=("POST",), path="/tasks/{id}:cancel")
SUBSCRIBE_TO_TASK: Final = Operation(
    name="SubscribeToTask", methods=("GET", "POST"), path="/tasks/{id}:subscribe", streams=True
)
GET_EXTENDED_CARD: Final = Operation(name="GetExtendedAgentCard", methods=("GET",), path="/extendedAgentCard")

_CONFIGS: Final = "/tasks/{taskId}/pushNotificationConfigs"
PUSH_OPERATIONS: Final = (
    Operation(name="CreateTaskPushNotificationConfig", methods=("POST",), path=_CONFIGS),
    Operation(name="ListTaskPushNotificationConfigs", methods=("GET",), path=_CONFIGS),
    Operation(name="GetTaskPushNotificationConfig", methods=("GET",), path=f"{_CONFIGS}/{{id}}"),
    Operation(name="DeleteTaskPushNotificationConfig", methods=("DELETE",), path=f"{_CONFIGS}/{{id}}"),
)
OPERATIONS: Final[Mapping[str, Operation]] = {
    operation.name: operation
    for operation in (
        *(SEND_MESSAGE, SEND_STREAMING_MESSAGE, GET_TASK, LIST_TASKS, CANCEL_TASK, SUBSCRIBE_TO_TASK),
        *(GET_EXTENDED_CARD, *PUSH_OPERATIONS),
    )
}
"""Name -> operation."""

_PLACE: Final = re.compile(r"\{([a-zA-Z]+)\}")


# --- the side of the client ------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class WireRequest:
    """A request of a client.

    Attributes:
        method: The HTTP method.
        path: Joined to the address of the interface; "" in JSON-RPC.
        query: Fields of the query.
        body: JSON data, or None.
        headers: Headers, without those that authenticate.
    """

    method: str
    path: str
    query: Mapping[str, str]
    body: JSONObject | None
    headers: Mapping[str, str]


def wire_request(
    binding: Binding, operation: Operation, params: JSONObject, *, request_id: str = "1", tenant: str = ""
) -> WireRequest:
    """Return the request of an operation.

    Args:
        binding: The form on the wire.
        operation: The operation.
        params: Its parameters, as `a2a_values.written` returns them.
        request_id: The id of the request in JSON-RPC; the answer repeats it.
        tenant: That of the interface in the card, or "".
    """
    headers = {VERSION_HEADER: VERSION, "Accept": "text/event-stream" if operation.streams else "application/json"}
    params = {**params, "tenant": tenant} if tenant else params
    if binding == "JSONRPC":
        body = {"jsonrpc": "2.0", "id": request_id, "method": operation.name, "params": params}
        return WireRequest(method="POST", path="", query={}, body=body, headers=headers)
    in_path = _PLACE.findall(operation.path)
    path = _PLACE.sub(lambda place: quote(str(params[place[1]]), safe=""), operation.path)
    path = f"/{quote(tenant, safe='')}{path}" if tenant else path
    remaining = {name: value for name, value in params.items() if name not in (*in_path, "tenant")}
    method = operation.methods[0]
    if method == "POST":
        return WireRequest(method=method, path=path, query={}, body=remaining, headers=headers)
    query = {name: _in_query(value) for name, value in remaining.items()}
    return WireRequest(method=method, path=path, query=query, body=None, headers=headers)


def _in_query(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def read_answer(binding: Binding, status: int, data: JSONValue, *, request_id: str = "1") -> JSONObject:
    """Return the result of an operation that does not stream.

    Args:
        binding: As in the request.
        status: The HTTP status.
        data: The body, parsed; None if it is not JSON.
        request_id: As in the request.

    Raises:
        A2AFault: the answer is an error, or not an answer.
    """
    if status >= 400 or not isinstance(data, dict):
        raise _fault(binding, status, data)
    return data if binding == "HTTP+JSON" else _rpc_result(status, data, request_id)


def read_event(binding: Binding, data: JSONValue, *, request_id: str = "1", kind: str = "message") -> JSONObject:
    """Return the item of a server-sent event, for `a2a_values.read_item`.

    Args:
        binding: As in the request.
        data: `data` of the event, parsed.
        request_id: As in the request.
        kind: `event` of the event; official servers send errors as "error".

    Raises:
        A2AFault: the event is an error, or not an item.
    """
    if not isinstance(data, dict) or (kind == "error" and binding == "HTTP+JSON"):
        raise _fault(binding, 200, data)
    return data if binding == "HTTP+JSON" else _rpc_result(200, data, request_id)


def _rpc_result(status: int, data: JSONObject, request_id: str) -> JSONObject:
    result = data.get("result")
    if "error" in data or not isinstance(result, dict):
        raise _fault("JSONRPC", status, data)
    if data.get("id") != request_id:
        raise A2AFault(None, f"the answer has the id {data.get('id')!r:.100}; asked was {request_id!r}", status=status)
    return result


def _fault(binding: Binding, status: int, data: JSONValue) -> A2AFault:
    """Return the fault of an answer that is not a result."""
    body = data.get("error") if isinstance(data, dict) else None
    if not isinstance(body, dict):
        return A2AFault(None, f"an answer without result and error, with the status {status}", status=status)
    code, text = body.get("code"), body.get("message")
    details = body.get("data" if binding == "JSONRPC" else "details")
    infos = [item for item in details if isinstance(item, dict)] if isinstance(details, list) else []
    info: JSONObject = next((item for item in infos if item.get("@type") == _ERROR_INFO), {})
    error = _BY_CODE.get(code) if binding == "JSONRPC" and isinstance(code, int) else None
    reason, metadata = info.get("reason"), info.get("metadata")
    return A2AFault(
        error or _BY_REASON.get(reason if isinstance(reason, str) else ""),
        text[:2_000] if isinstance(text, str) and text else f"an error without a message, with the status {status}",
        metadata={str(name): str(value) for name, value in metadata.items()} if isinstance(metadata, dict) else {},
        status=status,
    )


# --- the side of the server ------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class RPCCall:
    """A request of a client in JSON-RPC: the operation, its parameters, and the id that the answer repeats."""

    request_id: str | int | float | None
    operation: Operation
    params: JSONObject


def rpc_id(body: JSONValue) -> str | int | float | None:
    """Return the id of a JSON-RPC request for its answer; None if there is not a valid one."""
    value = body.get("id") if isinstance(body, dict) else None
    valid = isinstance(value, str | int | float) and not isinstance(value, bool) and len(str(value)) <= 1_024
    return value if valid else None


def rpc_call(body: JSONValue) -> RPCCall:
    """Read the body of a JSON-RPC request.

    Raises:
        A2AFault: INVALID_REQUEST, METHOD_NOT_FOUND or INVALID_PARAMS.
    """
    if not isinstance(body, dict) or body.get("jsonrpc") != "2.0":
        raise A2AFault(INVALID_REQUEST, "the body is not one JSON-RPC 2.0 request; batches are not taken")
    request_id, method, params = rpc_id(body), body.get("method"), body.get("params", {})
    if request_id is None:
        raise A2AFault(INVALID_REQUEST, "the request has no id; send a text or a number of at most 1,024 characters")
    operation = OPERATIONS.get(method) if isinstance(method, str) else None
    if operation is None:
        raise A2AFault(METHOD_NOT_FOUND, f"the method {method!r:.100} is not one of {', '.join(OPERATIONS)}")
    if not isinstance(params, dict):
        raise A2AFault(INVALID_PARAMS, "params is not an object")
    return RPCCall(request_id=request_id, operation=operation, params=params)


def written_result(binding: Binding, request_id: str | float | None, result: JSONObject) -> JSONObject:
    """Return the body of a result; in a stream, the data of an item."""
    return result if binding == "HTTP+JSON" else {"jsonrpc": "2.0", "id": request_id, "result": result}


def written_fault(binding: Binding, request_id: str | float | None, fault: A2AFault) -> tuple[int, dict[str, Any]]:
    """Return the HTTP status and the body of an error; in a stream, the data of its event."""
    error = fault.error or INTERNAL_ERROR
    info = {"@type": _ERROR_INFO, "reason": error.reason, "domain": DOMAIN, "metadata": fault.metadata}
    if binding == "JSONRPC":
        body = {"code": error.code, "message": fault.message, "data": [info]}
        return 200, {"jsonrpc": "2.0", "id": request_id, "error": body}
    return error.status, {
        "error": {"code": error.status, "status": error.name, "message": fault.message, "details": [info]}
    }


def speaks(version: str | None) -> bool:
    """Return True for a version header of 1.x."""
    return version is not None and re.fullmatch(r"1(\.[0-9]{1,5})?", version.strip()) is not None
