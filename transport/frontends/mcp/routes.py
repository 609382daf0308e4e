"""MCP over Streamable HTTP: `POST /v1/mcp`, and GET to resume a stream.

| the request | handshake era | modern era |
|---|---|---|
| initialize; server/discover | a sealed session id | the versions and capabilities |
| ping | an empty result | - |
| tools/list | the agents of this process | the same |
| tools/call | a run; its progress, questions and result | a run; its result, or `input_required` |
| the answer to a question | a decision, in a separate POST | a decision, with the repeated call |
| notifications/cancelled | cancels the run | - |
| a closed stream | cancels nothing | cancels the run |
| GET with Last-Event-ID | the stream goes on, in any process | - |

There is no session in memory, and none in the store: the session id is a sealed text of the version, what the client
can do, and a random part. The run's id follows from the principal, the session and the id of the request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

import greenroom as gr
from greenroom.actors.contract.codec import shortened
from greenroom.actors.contract.plain import JSONObject

from ...gateway.access import Principal
from ...gateway.http import EVENT_STREAM, Request, Response, Route, Streamed
from ...protocol.codes import Refused
from .calls import resumed, tools_call, tools_of
from .commands import cancel, decide, fault_of, run_of
from .messages import (
    META,
    MODERN,
    TASKS,
    UNKNOWN_METHOD,
    McpAnswer,
    McpFault,
    McpNotification,
    McpRequest,
    RequestId,
    error,
    is_modern,
    read_id,
    read_message,
    response,
)
from .sessions import McpCaller, modern_session, new_session, opened_by, read_session
from .stream import QUESTION, Question
from .tasks import tasks_cancel, tasks_get, tasks_update
from .tools import tools_page

if TYPE_CHECKING:
    from ...gateway.gateway import Gateway

FRESH: Final = 60_000
"""Milliseconds for which a client may keep the list of tools."""
LONGEST_REASON: Final = 1_000
"""Most characters of a client's reason for a cancel."""

_encode = msgspec.json.Encoder().encode


async def post_mcp(gateway: Gateway, request: Request) -> Response | Streamed:
    """Answer one message of an MCP client."""
    request_id: RequestId | None = None
    try:
        message = read_message(request.body)
        if isinstance(message, McpRequest):
            request_id = message.id
            return await _call(gateway, request, message)
        if isinstance(message, McpAnswer):
            await _reply(gateway, request, message)
        else:
            await _notice(gateway, request, message)
    except (Refused, McpFault) as why:
        fault = fault_of(why) if isinstance(why, Refused) else why
        return _json(error(request_id, fault), status=fault.status)
    return Response(status=202, content_type="")


async def resume_mcp(gateway: Gateway, request: Request) -> Response | Streamed:
    """Continue the stream of a call behind the event that the client has had last."""
    last = request.headers.get("last-event-id")
    if last is None:
        text = "GET continues a stream, so send Last-Event-ID; no stream is open without a call"
        raise Refused("method_not_allowed", text, current=["POST"])
    try:
        return resumed(gateway, request.who, read_session(request), last)
    except McpFault as fault:
        return _json(error(None, fault), status=fault.status)


async def _reply(gateway: Gateway, request: Request, reply: McpAnswer) -> None:
    """Post the answer to a question as a decision."""
    caller = read_session(request)
    run_id, ticket_id, fingerprint = opened_by(request.who, QUESTION, reply.id, "id", Question)
    answer = {"action": "cancel"} if reply.result is None else reply.result
    lists = caller.capabilities.lists
    why_not = await decide(gateway, request.who, run_id, (ticket_id, fingerprint), answer, lists=lists)
    gateway.questions.answered(request.who, run_id, ticket_id, why_not)


async def _notice(gateway: Gateway, request: Request, notice: McpNotification) -> None:
    if notice.method != "notifications/cancelled" or is_modern(request.headers, notice):
        return
    caller, reason = read_session(request), notice.params.get("reason")
    run_id = run_of(request.who, caller.name, read_id("requestId", notice.params.get("requestId")))
    text = reason if isinstance(reason, str) and reason else "the client has cancelled its call"
    await cancel(gateway, request.who, run_id, shortened(text, LONGEST_REASON))


async def _call(gateway: Gateway, request: Request, call: McpRequest) -> Response | Streamed:
    if is_modern(request.headers, call):
        caller, methods, status = modern_session(request, call), _MODERN, 404
    elif call.method == "initialize":
        version, name = new_session(request.who, call)
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": _server_info()}
        return _json(response(call.id, result), headers=[("mcp-session-id", name)])
    else:
        caller, methods, status = read_session(request), _HANDSHAKE, 200
    method = methods.get(call.method)
    if method is None:
        text = f"method {call.method!r:.100} is not known here; there are {', '.join(methods)}"
        raise McpFault(UNKNOWN_METHOD, text, status=status)
    answer = await method(gateway, request.who, caller, call)
    if isinstance(answer, Streamed):
        return answer
    return _json(response(call.id, {"resultType": "complete", **answer} if caller.modern else answer))


# --- methods ---------------------------------------------------------------------------------------------------------

McpMethod = Callable[["Gateway", Principal, McpCaller, McpRequest], Awaitable["JSONObject | Streamed"]]


async def _ping(_: Gateway, __: Principal, ___: McpCaller, ____: McpRequest) -> JSONObject:
    return {}


async def _discover(_: Gateway, __: Principal, ___: McpCaller, ____: McpRequest) -> JSONObject:
    return {
        "supportedVersions": [MODERN],
        "capabilities": {"tools": {}, "extensions": {TASKS: {}}},
        "ttlMs": FRESH,
        "cacheScope": "private",
        "_meta": {f"{META}serverInfo": _server_info()},
    }


async def _tools_list(gateway: Gateway, who: Principal, caller: McpCaller, call: McpRequest) -> JSONObject:
    who.need("start")
    page, cursor = tools_page(tools_of(gateway), call.params.get("cursor"))
    more = {} if cursor is None else {"nextCursor": cursor}
    kept = {"ttlMs": FRESH, "cacheScope": "private"} if caller.modern else {}
    return {"tools": page, **more, **kept}


def _server_info() -> JSONObject:
    return {"name": "greenroom", "version": gr.__version__}


def _json(message: JSONObject, *, status: int = 200, headers: Sequence[tuple[str, str]] = ()) -> Response:
    return Response(status=status, body=_encode(message), headers=headers)


_HANDSHAKE: Final[Mapping[str, McpMethod]] = {"ping": _ping, "tools/list": _tools_list, "tools/call": tools_call}
_MODERN: Final[Mapping[str, McpMethod]] = {
    "server/discover": _discover,
    "tools/list": _tools_list,
    "tools/call": tools_call,
    "tasks/get": tasks_get,
    "tasks/update": tasks_update,
    "tasks/cancel": tasks_cancel,
}
"""Method -> function, of each era; `initialize` comes before there is a session."""

# --- the table -------------------------------------------------------------------------------------------------------

_HEADERS: Final = {
    "Mcp-Session-Id": "handshake era: what initialize has answered",
    "MCP-Protocol-Version": "the revision of the protocol",
    "Mcp-Method": "modern era: the method of the body",
    "Mcp-Name": "modern era: the tool or task of the body",
}
ROUTES: Final[tuple[Route[Gateway], ...]] = (
    Route(
        method="POST", template="/v1/mcp", handler=post_mcp, scope="any", tag="mcp", body="JsonRpc",
        summary="MCP: one message of a client; calls are answered as a stream", headers=_HEADERS,
        responses={
            200: ("The answer, or a stream that ends with it.", ("JsonRpc", EVENT_STREAM)),
            202: ("A notification, or the answer to a question.", None),
            400: ("The protocol's error.", "McpError"),
            404: ("The session is void, or the method unknown.", "McpError"),
        },
    ),
    Route(
        method="GET", template="/v1/mcp", handler=resume_mcp, scope="any", tag="mcp",
        summary="MCP: continue the stream of a call",
        headers={**_HEADERS, "Last-Event-ID": "the last event that the client has had"},
        responses={
            200: ("The rest of the stream.", EVENT_STREAM),
            400: ("The protocol's error.", "McpError"),
            404: ("The session is void.", "McpError"),
        },
    ),
)  # fmt: skip
"""The routes of this protocol."""
