"""One request from its head to the end of its response: what every way into the gateway has in common.

A driver has the I/O: the gateway's own connections (`http_connection.py`), and those of an ASGI server (`asgi.py`). It
reads the head, and writes what `answer` decides. Authentication and routing precede the reading of a body.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Final, Protocol

import trio

import greenroom as gr
from greenroom.supervision import failure_of

from ..protocol.codes import Refused
from .access import OriginPolicy, Principal
from .gateway import Gateway
from .http import Request, Response, Route, Streamed, check_query, failure, find, refusal
from .request_head import Head

Fields = list[tuple[str, str]]
"""The headers of a response."""
Watched = Callable[[Callable[[], None]], AbstractContextManager[None]]
"""Ends a stream whose principal is let in no more."""

_SECURITY: Final = (("x-content-type-options", "nosniff"), ("referrer-policy", "no-referrer"))
_TAKEN: Final = (
    *("authorization", "content-type", "idempotency-key", "last-event-id"),
    *("mcp-session-id", "mcp-protocol-version", "mcp-method", "mcp-name"),
)
"""Headers that pages of accepted origins may send."""
_PREFLIGHT: Final = (
    ("access-control-allow-methods", "GET, POST"),
    ("access-control-allow-headers", ", ".join(_TAKEN)),
    ("access-control-max-age", "600"),
)
_SHOWN: Final = "x-vercel-ai-ui-message-stream, retry-after, mcp-session-id"
"""Headers of responses that pages of accepted origins may read."""
_STREAMING: Final = (("cache-control", "no-cache"), ("x-accel-buffering", "no"))


class PeerGone(Exception):
    """The peer has closed, or was too slow; no response is possible."""


HUNG_UP: Final = (PeerGone, trio.BrokenResourceError, trio.ClosedResourceError)


class Exchange(Protocol):
    """The I/O of one request."""

    def recognised(self) -> None:
        """Keep the connection: its peer has shown a token."""

    async def body(self, head: Head) -> bytes:
        """Read the body.

        Raises:
            Refused: The body is too large, incomplete in time, or contradicts its headers.
            PeerGone: The peer has disconnected.
        """

    async def whole(self, response: Response, fields: Fields) -> None:
        """Write a complete response."""

    async def streamed(self, streamed: Streamed, fields: Fields, watched: Watched) -> None:
        """Write a streamed response; for HEAD only its head.

        `watched` is entered around the stream, with a function that ends the stream early and well-formed.
        """


async def answer(gateway: Gateway, doorway: OriginPolicy, head: Head, driver: Exchange) -> None:
    """Answer a request.

    Raises:
        PeerGone, BrokenResourceError, ClosedResourceError: No response is possible.
    """
    response, who = await _found(gateway, doorway, head, driver)
    if head.method == "HEAD" and isinstance(response, Streamed):
        who = None  # nothing is streamed
    if isinstance(response, Streamed) and who is not None and not gateway.admit(who):
        response, who = refusal(Refused("too_many_connections", f"{who.name} has too many connections")), None
    gateway.metrics.request(response.status)
    origin = head.headers.get("origin")
    fields = fields_of(response, origin if origin in doorway.origins else None)
    if isinstance(response, Response):
        try:
            await driver.whole(response, fields)
        finally:
            response.sent()
        return
    try:
        await driver.streamed(response, fields, partial(gateway.authenticator.watching, who, head, response.run))
    finally:
        if who is not None:
            gateway.dismiss(who)


async def may_converse(gateway: Gateway, doorway: OriginPolicy, head: Head) -> Principal | None:
    """Return the principal of a WebSocket's handshake; None if its first frame is to show the token.

    Raises:
        Refused: forbidden_origin, closing, unauthenticated, not_allowed, sign_in_unavailable, internal.
    """
    doorway.check(head.headers.get("host"), head.headers.get("origin"))
    if gateway.closing:
        raise turned_away(gateway)
    return await gateway.authenticator.of_head(head)


def turned_away(gateway: Gateway) -> Refused:
    """Return the refusal of a connection to a gateway that stops, or has too many."""
    if gateway.closing:
        return Refused("closing", "the server stops; try again after its restart")
    return Refused("too_many_connections", "the gateway has too many connections; try again later")


def fields_of(response: Response | Streamed, origin: str | None) -> Fields:
    """Return the headers of a response, without those of its connection. `origin`: of an accepted page."""
    if isinstance(response, Streamed):
        fields = [("content-type", response.content_type), *_STREAMING, *response.headers]
    else:
        fields = list(response.headers)
        if response.status not in (204, 304):
            fields += [("content-type", response.content_type)] if response.content_type else []
            fields.append(("content-length", str(len(response.body))))
    fields += _SECURITY
    if origin is not None:
        fields += [("access-control-allow-origin", origin), ("vary", "origin")]
        fields.append(("access-control-expose-headers", _SHOWN))
    return fields


async def _found(
    gateway: Gateway, doorway: OriginPolicy, head: Head, driver: Exchange
) -> tuple[Response | Streamed, Principal | None]:
    """Return the response, for every outcome, and the principal."""
    who = None
    try:
        route, params, who = await _judged(gateway, doorway, head, driver)
        if route is None:
            return Response(status=204, headers=_PREFLIGHT), None
        request = Request(
            method=head.method,
            path=head.path,
            query=head.query,
            headers=head.headers,
            body=await driver.body(head),
            params=params,
            principal=who,
            root=head.root,
            secure=head.secure or head.headers.get("x-forwarded-proto", "").lower() == "https",
        )
        return await route.handler(gateway, request), who
    except Refused as refused:
        return _refusal(gateway, head, refused), who
    except (gr.StoreUnavailable, gr.StoreDown) as error:
        text = str(error).removesuffix("; try again")
        return _refusal(gateway, head, Refused("store_unavailable", f"{text}; try again")), who
    except gr.RuntimeClosed as error:
        return _refusal(gateway, head, Refused("closing", str(error))), who
    except HUNG_UP:
        raise
    except BaseException as error:  # noqa: BLE001, ASYNC103 - a supervision boundary: one request must not end the gateway
        gateway.log_failure(f"{head.method} {head.path[:200]}", failure_of(error))
        return _refusal(gateway, head, failure()), who  # noqa: ASYNC104 - the border has raised what passes


def _refusal(gateway: Gateway, head: Head, refused: Refused) -> Response:
    """Return the response of a refusal, in the form of the protocol that is spoken at its path."""
    route = next((route for route in gateway.routes if route.pattern.fullmatch(head.path)), None)
    return refusal(refused) if route is None else route.refusal(refused)


async def _judged(
    gateway: Gateway, doorway: OriginPolicy, head: Head, driver: Exchange
) -> tuple[Route[Gateway] | None, dict[str, str], Principal | None]:
    """Return the route, the values of its path and the principal; no route for a preflight of an accepted origin.

    Raises:
        Refused: There is no such route, or not for this peer.
    """
    origin = head.headers.get("origin")
    doorway.check(head.headers.get("host"), origin)
    if head.method == "OPTIONS" and origin in doorway.origins:
        return None, {}, None
    route, params = find(gateway.routes, head.method, head.path)
    principal = await gateway.principal_of(head, route)
    if principal is not None:
        driver.recognised()
    if route.scope is not None and route.scope != "maybe":
        if principal is None:
            raise Refused("unauthenticated", "send the token as Authorization: Bearer ...")
        if route.scope != "any":
            principal.need(route.scope)
    check_query(route, head.query)  # last: without a token, a route reveals nothing but that a token is missing
    return route, params, principal
