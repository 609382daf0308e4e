"""The transport to a server at an address: Streamable HTTP, over the SDK's transport and a client that has limits.

The SDK lets one request that cannot be sent end all others, and bounds no body that is not a stream of events. The
client here turns both into errors of the one request. The SDK follows a redirect within the origin of the address only.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from http import HTTPStatus
from ssl import SSLContext
from typing import Final

import msgspec
import trio
from typing_extensions import override

from ..models.http import no_cookies
from .mcp_messages import NOT_SENT, SESSION_GONE, ServerConnection
from .mcp_sdk import httpx2, streamable_http_client, types
from .mcp_stdio import LINE_LIMIT

CONNECT: Final = 10.0
"""Seconds to connect, and to write."""
GOODBYE: Final = 2.0
"""Seconds for a server to take note of the end of a session."""
_SESSION: Final = "mcp-session-id"


class LimitedTransport(httpx2.AsyncBaseTransport):
    """Sends requests; a failure becomes a response with an error of JSON-RPC, which the SDK gives to the one waiter."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    @override
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        with trio.move_on_after(GOODBYE if request.method == "DELETE" else math.inf):
            return await self._answer(request)
        return _failed(
            request, HTTPStatus.GATEWAY_TIMEOUT, types.REQUEST_TIMEOUT, "no answer to the end of the session"
        )

    async def _answer(self, request: httpx2.Request) -> httpx2.Response:
        try:
            response = await self._inner.handle_async_request(request)
            return await _read(request, response)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            return _failed(request, HTTPStatus.SERVICE_UNAVAILABLE, NOT_SENT, f"cannot connect: {error}")
        except httpx2.TransportError as error:
            text = f"the connection was lost: {error}"
            return _failed(request, HTTPStatus.BAD_GATEWAY, types.CONNECTION_CLOSED, text)

    @override
    async def aclose(self) -> None:
        await self._inner.aclose()


async def _read(request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
    """Return a stream of events as it is, and any other response with its body, within the limit."""
    status, encoding = response.status_code, response.headers.get("content-encoding", "identity")
    if encoding != "identity":
        await response.aclose()
        text = f"it sent the encoding {encoding!r:.50}, which was not asked for"
        return _failed(request, HTTPStatus.BAD_GATEWAY, types.INVALID_REQUEST, text)
    kind = response.headers.get("content-type", "").lower()
    if status < HTTPStatus.BAD_REQUEST and kind.startswith("text/event-stream"):
        return response
    try:
        body = await _body(response)
    finally:
        await response.aclose()
    if body is None:
        text = f"it sent more than {LINE_LIMIT:,} bytes"
        return _failed(request, HTTPStatus.BAD_GATEWAY, types.INVALID_REQUEST, text)
    if status == HTTPStatus.NOT_FOUND and _SESSION in request.headers:
        return _failed(request, status, SESSION_GONE, "its session has ended")
    if status >= HTTPStatus.BAD_REQUEST and status != HTTPStatus.NOT_FOUND and not kind.startswith("application/json"):
        return _failed(request, status, types.INTERNAL_ERROR, f"it answered HTTP {status} {response.reason_phrase}")
    return httpx2.Response(status, headers=response.headers, content=body, request=request)


async def _body(response: httpx2.Response) -> bytes | None:
    """Return the body; None if it is too large."""
    body = bytearray()
    async for piece in response.aiter_raw():
        body += piece
        if len(body) > LINE_LIMIT:
            return None
    return bytes(body)


def _failed(request: httpx2.Request, status: int, code: int, text: str) -> httpx2.Response:
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": text}}
    headers = {"content-type": "application/json"}
    return httpx2.Response(status, headers=headers, content=msgspec.json.encode(error), request=request)


@cache
def _tls() -> SSLContext:
    return httpx2.create_ssl_context()


@asynccontextmanager
async def connect_address(url: str, headers: Mapping[str, str]) -> AsyncIterator[ServerConnection]:
    """Prepare requests to a server; the first of them opens the first connection.

    Args:
        url: The address.
        headers: Headers of each request.
    """
    tls = await trio.to_thread.run_sync(_tls) if url.startswith("https:") else False
    transport = LimitedTransport(httpx2.AsyncHTTPTransport(verify=tls))
    timeout = httpx2.Timeout(CONNECT, read=None)  # a server may think for long; the actor bounds its silence
    own = {**headers, "accept-encoding": "identity"}
    async with httpx2.AsyncClient(headers=own, timeout=timeout, transport=transport, cookies=no_cookies()) as client:
        yield ServerConnection(streams=streamable_http_client(url, http_client=client, max_sse_event_size=LINE_LIMIT))
