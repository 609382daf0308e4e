"""The routes of A2A: the operations of `service` in HTTP+JSON and JSON-RPC, and the cards of agents."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec

from greenroom.actors.backends import a2a_codec as codec
from greenroom.actors.backends.a2a_codec import A2AFault, Operation
from greenroom.actors.backends.a2a_values import A2AInvalid, written
from greenroom.actors.json_text import JSONTextError, read_json

from ...gateway.http import EVENT_STREAM, Request, Response, Route, Streamed
from ...protocol.codes import Refused
from .card import PREFIX, agent_card, is_host
from .errors import fault_of, fault_response, rest_refusal, rpc_refusal
from .response import AnswerForm
from .service import A2ACall, check_agent, perform

if TYPE_CHECKING:
    from ...gateway.gateway import Gateway

_encode = msgspec.json.Encoder().encode


# --- both bindings ---------------------------------------------------------------------------------------------------


def _rest(name: str, operation: Operation) -> Callable[[Gateway, Request], Awaitable[Response | Streamed]]:
    """Return the handler of an operation of the HTTP+JSON binding; the document of the API has its name."""

    async def handler(gateway: Gateway, request: Request) -> Response | Streamed:
        try:
            in_body = bool(request.body) and request.method == "POST"
            params: dict[str, Any] = request.json() if in_body else dict(request.query)
            if "task" in request.params:
                params["id"] = request.params["task"]
            call = A2ACall(
                gateway=gateway,
                request=request,
                agent=request.params["agent"],
                operation=operation,
                params=params,
                form=AnswerForm(binding="HTTP+JSON"),
            )
            return await perform(call)
        except (A2AFault, A2AInvalid, Refused) as error:
            return fault_response("HTTP+JSON", None, fault_of(error))

    handler.__name__ = name
    return handler


async def a2a_rpc(gateway: Gateway, request: Request) -> Response | Streamed:
    """Perform an operation of the JSON-RPC binding. A body that is no JSON object has the HTTP status 400, too."""
    request_id, body = None, None
    try:
        try:
            body = read_json(request.body)
        except JSONTextError as error:
            raise A2AFault(codec.PARSE_ERROR, f"the body {error}") from error
        request_id = codec.rpc_id(body)
        asked = codec.rpc_call(body)
        call = A2ACall(
            gateway=gateway,
            request=request,
            agent=request.params["agent"],
            operation=asked.operation,
            params=asked.params,
            form=AnswerForm(binding="JSONRPC", request_id=request_id),
        )
        return await perform(call)
    except (A2AFault, A2AInvalid, Refused) as error:
        response = fault_response("JSONRPC", request_id, fault_of(error))
        return response if isinstance(body, dict) else attrs.evolve(response, status=400)


# --- cards -----------------------------------------------------------------------------------------------------------


async def a2a_card(gateway: Gateway, request: Request) -> Response:
    """Serve the card of an agent."""
    return await _card(gateway, request, request.params["agent"])


async def a2a_root_card(gateway: Gateway, request: Request) -> Response:
    """Serve the card of the gateway's default agent."""
    key = gateway.a2a.root({*gateway.runtime.agents, *await gateway.runtime.store.agents()})
    if key is None:
        raise Refused("not_found", f"no agent is the default one; its card is at {PREFIX}/AGENT{codec.CARD_PATH}")
    return await _card(gateway, request, key)


async def _card(gateway: Gateway, request: Request, key: str) -> Response:
    await check_agent(gateway, key)
    host = request.headers.get("host", "")
    if not is_host(host):
        raise Refused("bad_message", f"the Host {host!r:.100} cannot be part of an address")
    scheme = "https" if request.secure else "http"
    agent = gateway.runtime.agents.get(key)
    about, digest = ("", "") if agent is None else (agent.description, agent.spec.digest)
    card = agent_card(key, about, digest, f"{scheme}://{host}{request.root}")
    headers = [("cache-control", "private, no-cache"), ("vary", "host, authorization")]
    return Response(body=_encode(written(card)), headers=headers)


# --- the table -------------------------------------------------------------------------------------------------------

_AGENT: Final = f"{PREFIX}/{{agent}}"
_TASK: Final = "/tasks/{task}"
_VERSION: Final = {codec.VERSION_HEADER: "1.0; a request without it is one of version 0.3, and refused"}
_LAST: Final = {"Last-Event-ID": "where a stream goes on: <epoch>-<sequence> of its last event"}
_LIST: Final = {
    "contextId": "a thread's id",
    "status": "a state, such as TASK_STATE_WORKING",
    "pageSize": "1 to 100 (default 50); at most 10 with artifacts",
    "pageToken": "nextPageToken of the page before",
    "historyLength": "0 leaves out the message that began each",
    "includeArtifacts": "true: with artifacts",
}
_GET: Final = {"historyLength": "most messages of the history"}


def _route(method: Any, path: str, name: str, operation: Operation, summary: str, **more: Any) -> Route[Gateway]:
    return Route(
        method=method,
        template=f"{_AGENT}{path}",
        handler=_rest(name, operation),
        scope="follow",
        summary=summary,
        tag="a2a",
        any_query=True,
        refusal=rest_refusal,
        headers={**_VERSION, **more.pop("headers", {})},
        **more,
    )


_JSON: Final = {200: ("A JSON document of A2A.", "Document")}
_STREAM: Final = {200: ("Server-sent events: items of A2A.", EVENT_STREAM)}
_REFUSED: Final = {400: ("The error of A2A for something that is not offered.", "Document")}
_RPC: Final = {200: ("A result, an error or a stream.", ("Document", EVENT_STREAM))}
_PUSH: Final = "Push notifications are not offered (A2A)"
_CONFIGS: Final = f"{_TASK}/pushNotificationConfigs"

CARDS: Final[tuple[Route[Gateway], ...]] = (
    Route(
        method="GET", template=codec.CARD_PATH, handler=a2a_root_card, scope="any", tag="a2a", any_query=True,
        summary="The A2A card of the default agent", responses={200: ("The card.", "Document")},
    ),
    Route(
        method="GET", template=f"{_AGENT}{codec.CARD_PATH}", handler=a2a_card, scope="any", tag="a2a", any_query=True,
        summary="The A2A card of an agent", responses={200: ("The card.", "Document")},
    ),
)  # fmt: skip
"""The routes of cards, which need no token if cards are public."""

ROUTES: Final[tuple[Route[Gateway], ...]] = (
    *CARDS,
    Route(
        method="POST", template=f"{_AGENT}/rpc", handler=a2a_rpc, scope="follow", tag="a2a", any_query=True,
        summary="Any operation by JSON-RPC (A2A)", refusal=rpc_refusal, headers={**_VERSION, **_LAST},
        body="Document", responses=_RPC,
    ),
    _route(
        "POST", "/message:send", "a2a_send", codec.SEND_MESSAGE, "Send a message (A2A)",
        body="Document", responses=_JSON,
    ),
    _route(
        "POST", "/message:stream", "a2a_stream", codec.SEND_STREAMING_MESSAGE, "Send a message, stream its task (A2A)",
        body="Document", headers=_LAST, responses=_STREAM,
    ),
    _route("GET", "/tasks", "a2a_tasks", codec.LIST_TASKS, "List tasks (A2A)", query=_LIST, responses=_JSON),
    _route("POST", f"{_TASK}:cancel", "a2a_cancel", codec.CANCEL_TASK, "Cancel a task (A2A)", responses=_JSON),
    *(
        _route(
            method, f"{_TASK}:subscribe", f"a2a_subscribe_{method.lower()}", codec.SUBSCRIBE_TO_TASK,
            "Stream a task (A2A)", headers=_LAST, responses=_STREAM,
        )
        for method in codec.SUBSCRIBE_TO_TASK.methods
    ),
    _route("GET", _TASK, "a2a_task", codec.GET_TASK, "A task as it is (A2A)", query=_GET, responses=_JSON),
    _route(
        "GET", "/extendedAgentCard", "a2a_extended_card", codec.GET_EXTENDED_CARD,
        "An extended card is not offered (A2A)", responses=_REFUSED,
    ),
    *(
        _route(method, path, name, operation, _PUSH, responses=_REFUSED)
        for operation, method, path, name in zip(
            codec.PUSH_OPERATIONS,
            ("POST", "GET", "GET", "DELETE"),
            (_CONFIGS, _CONFIGS, f"{_CONFIGS}/{{config}}", f"{_CONFIGS}/{{config}}"),
            ("a2a_push_create", "a2a_push_list", "a2a_push_get", "a2a_push_delete"),
            strict=True,
        )
    ),
)  # fmt: skip
"""The routes of this protocol."""
