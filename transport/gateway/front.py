"""One connection from accept to close: h11 reads the request; we answer, or hand the connection to trio-websocket.

Keep-alive and pipelining are h11's. Limits: the head must be whole in time and size, a body too, a connection that asks
nothing is closed, a response whose reader takes nothing is cut. An upgrade is judged before it is handed over, because
trio-websocket's server never returns from a handshake that it refuses.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Final
from urllib.parse import parse_qsl, urlsplit

import attrs
import h11
import trio
import trio_websocket

import greenroom as gr
from greenroom.supervision.nursery import open_collapsing_nursery

from ..protocol.codes import INTERNAL, OVERLOADED, PATH, SUBPROTOCOL, Refused
from .conversation import Conversation
from .gateway import Gateway
from .http import Request, Response, Streamed, failure, find, refusal
from .wire import SharedStream, Stalled

READ: Final = 65_536
"""Bytes asked of the socket at once."""
HANDSHAKE: Final = 10.0
"""Seconds for trio-websocket's side of a handshake that we have judged already."""
LINGER: Final = 2.0
"""Seconds for which a refused peer may go on sending until it has read the answer."""
COMMENT: Final = b": \n\n"
"""A server-sent comment: keeps proxies and clients from giving up."""
COMMENT_AFTER: Final = 15.0
"""Seconds without a byte until a comment is sent."""
_SECURITY: Final = (("x-content-type-options", "nosniff"), ("referrer-policy", "no-referrer"))
_PREFLIGHT: Final = (
    ("access-control-allow-methods", "GET, POST"),
    ("access-control-allow-headers", "authorization, content-type, idempotency-key, last-event-id"),
    ("access-control-max-age", "600"),
)


class Gone(Exception):
    """The peer has closed, or was too slow; nothing is to be said any more."""


@attrs.define(eq=False)
class Door:
    """One connection."""

    gateway: Gateway
    stream: SharedStream
    http: h11.Connection
    raw: bytearray = attrs.field(factory=bytearray)
    _method: bytes = b""

    async def serve(self) -> None:
        """Answer requests until the connection ends."""
        limits = self.gateway.limits
        wait = limits.header_seconds
        while True:
            try:
                request = await self._head(wait)
                if request is None:
                    return
                if is_upgrade(request):
                    await self._upgrade(request)
                    return
                await self._answer(request)
            except Refused as refused:
                await self._whole(refusal(refused), origin=None, close=True)
                await self._linger()
                return
            if self.gateway.closing or not await self._next():
                await self._linger()
                return
            wait = limits.idle_seconds

    # --- reading -----------------------------------------------------------------------------------------------------

    async def _head(self, wait: float) -> h11.Request | None:
        """The next request's head; None if the peer has nothing more to ask.

        Raises:
            Refused: it is no HTTP, too large, or did not come whole in time. Gone: it never came.
        """
        event, idle = self._event(), self.gateway.idle
        with trio.move_on_after(wait) as limit:
            idle.add(limit)
            try:
                while event is h11.NEED_DATA:
                    await self._receive()
                    if limit in idle:
                        idle.discard(limit)
                        limit.deadline = trio.current_time() + self.gateway.limits.header_seconds
                    event = self._event()
            finally:
                idle.discard(limit)
        if limit.cancelled_caught:
            if not self.raw:
                raise Gone
            raise Refused("request_timeout", "the request's head did not come whole in time")
        if not isinstance(event, h11.Request):
            return None
        self._method = event.method
        return event

    def _event(self) -> h11.Event | type[h11.NEED_DATA | h11.PAUSED]:
        try:
            return self.http.next_event()
        except h11.RemoteProtocolError as error:
            code = {431: "headers_too_large", 413: "too_big"}.get(error.error_status_hint, "bad_message")
            raise Refused(code, f"this is no HTTP request that is understood here: {error}") from error

    async def _receive(self) -> None:
        data = await self.stream.receive_some(READ)
        self.raw += data
        if len(self.raw) > self.gateway.limits.header_bytes + READ:
            del self.raw[: -self.gateway.limits.header_bytes - READ]
        self.http.receive_data(data)

    async def _body(self, head: h11.Request) -> bytes:
        """The body.

        Raises:
            Refused: too large, not whole in time, or not as its headers say.
        """
        told = dict(head.headers).get(b"content-length", b"0")  # h11 has seen to it that it is a number
        if int(told) > self.gateway.limits.body_bytes:
            raise Refused("too_big", f"the body is larger than {self.gateway.limits.body_bytes} bytes")
        if self.http.they_are_waiting_for_100_continue:
            go_on = h11.InformationalResponse(status_code=100, headers=[])
            await self.stream.send_all(self.http.send(go_on) or b"")
        parts, size = list[bytes](), 0
        with trio.move_on_after(self.gateway.limits.body_seconds) as limit:
            while True:
                event = self._event()
                if event is h11.NEED_DATA:
                    await self._receive()
                elif isinstance(event, h11.Data):
                    size += len(event.data)
                    if size > self.gateway.limits.body_bytes:
                        raise Refused("too_big", f"the body is larger than {self.gateway.limits.body_bytes} bytes")
                    parts.append(bytes(event.data))
                elif isinstance(event, h11.EndOfMessage):
                    break
                else:
                    raise Gone
        if limit.cancelled_caught:
            raise Refused("request_timeout", "the body did not come whole in time")
        return b"".join(parts)

    async def _next(self) -> bool:
        """Make ready for the next request; False if there can be none."""
        if self.http.our_state is not h11.DONE or self.http.their_state is not h11.DONE:
            return False
        self.raw = bytearray(self.http.trailing_data[0])
        self.http.start_next_cycle()
        return True

    async def _linger(self) -> None:
        """Let the peer read why it was refused before it has sent all of its request.

        To close a socket with unread bytes is to reset the connection, which also takes from the peer what it has not
        read yet (RFC 9112 section 9.6): read on for a moment, until it closes.
        """
        if self.http.their_state in (h11.SEND_BODY, h11.ERROR):
            with trio.move_on_after(LINGER):
                while await self.stream.receive_some(READ):
                    pass

    # --- answering ---------------------------------------------------------------------------------------------------

    async def _answer(self, head: h11.Request) -> None:
        headers = _headers(head)
        origin = headers.get("origin")
        found: Response | Streamed
        try:
            found = await self._found(head, headers, await self._body(head))
        except Refused as refused:
            found = refusal(refused)
        except (gr.StoreUnavailable, gr.StoreDown) as error:
            found = refusal(Refused("store_unavailable", f"{error}; try again"))
        except gr.RuntimeClosed as error:
            found = refusal(Refused("closing", str(error)))
        except Gone:
            raise
        except Exception as error:  # noqa: BLE001 - a supervision boundary: one request must not end the gateway
            self.gateway.log_failure(f"{head.method.decode()} {head.target.decode()[:200]}", error)
            found = failure()
        self.gateway.metrics.request(found.status)
        allowed = origin if origin in self.gateway.doorway.origins else None
        if isinstance(found, Response):
            await self._whole(found, origin=allowed)
        elif head.method == b"HEAD":
            await self._whole(Response(status=found.status, content_type=found.content_type), origin=allowed)
        else:
            await self._streamed(found, origin=allowed)

    async def _found(self, head: h11.Request, headers: Mapping[str, str], body: bytes) -> Response | Streamed:
        gateway, target = self.gateway, urlsplit(head.target.decode("latin-1"))
        if sum(name == b"authorization" for name, _ in head.headers) > 1:
            raise Refused("bad_message", "there is more than one Authorization header; send one")
        gateway.doorway.check(headers.get("host"), headers.get("origin"))
        method = head.method.decode()
        if method == "OPTIONS" and headers.get("origin") in gateway.doorway.origins:
            return Response(status=204, headers=_PREFLIGHT)
        route, params = find(gateway.routes, method, target.path)
        principal = gateway.keyring.bearer(headers.get("authorization"))
        if route.scope is not None:
            if principal is None:
                raise Refused("unauthenticated", "send the token as Authorization: Bearer ...")
            if route.scope != "any":
                principal.need(route.scope)
        request = Request(
            method=method,
            path=target.path,
            query=dict(parse_qsl(target.query, keep_blank_values=True)),
            headers=headers,
            body=body,
            params=params,
            principal=principal,
        )
        return await route.handler(gateway, request)

    def _response(
        self, status: int, headers: Iterable[tuple[str, str]], origin: str | None, *, close: bool
    ) -> h11.Response:
        told = [*headers, *_SECURITY]
        if origin is not None:
            told += [("access-control-allow-origin", origin), ("vary", "origin")]
            told += [("access-control-expose-headers", "x-vercel-ai-ui-message-stream, retry-after")]
        if close or self.gateway.closing:
            told.append(("connection", "close"))
        return h11.Response(status_code=status, headers=[(name.encode(), value.encode()) for name, value in told])

    async def _whole(self, response: Response, *, origin: str | None, close: bool = False) -> None:
        if self.http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            raise Gone
        told = list(response.headers)
        if response.status not in (204, 304):
            told += [("content-type", response.content_type), ("content-length", str(len(response.body)))]
        close = close or self.http.their_state in (h11.ERROR, h11.SEND_BODY)
        parts = [self.http.send(self._response(response.status, told, origin, close=close))]
        if response.body and self._method != b"HEAD":
            parts.append(self.http.send(h11.Data(data=response.body)))
        parts.append(self.http.send(h11.EndOfMessage()))
        await self.stream.send_all(b"".join(part for part in parts if part))

    async def _streamed(self, streamed: Streamed, *, origin: str | None) -> None:
        """Write chunks until there are no more, the peer goes, or the gateway stops. The connection ends with it."""
        told = [("content-type", streamed.content_type), ("cache-control", "no-cache"), ("x-accel-buffering", "no")]
        head = self._response(streamed.status, [*told, *streamed.headers], origin, close=True)
        await self.stream.send_all(self.http.send(head) or b"")
        whole = False
        async with open_collapsing_nursery() as nursery:
            nursery.start_soon(self._watch, nursery.cancel_scope)
            nursery.start_soon(self._keep_alive)
            with trio.CancelScope() as scope:
                nursery.start_soon(self._until_stopping, scope)
                async with streamed.chunks() as chunks:
                    await self._copy(chunks)
                whole = True
            if not whole and not self.stream.torn:
                await self._chunk(streamed.last())
            nursery.cancel_scope.cancel()
        if not self.stream.torn:
            await self.stream.send_all(self.http.send(h11.EndOfMessage()) or b"")

    async def _copy(self, chunks: AsyncIterator[bytes]) -> None:
        async for chunk in chunks:
            await self._chunk(chunk)

    async def _chunk(self, chunk: bytes) -> None:
        if chunk:
            await self.stream.send_all(self.http.send(h11.Data(data=chunk)) or b"")

    async def _until_stopping(self, scope: trio.CancelScope) -> None:
        await self.gateway.stopping.wait()
        scope.cancel()

    async def _watch(self, scope: trio.CancelScope) -> None:
        """Notice that the peer hangs up: it has nothing more to say on this connection."""
        try:
            while await self.stream.receive_some(READ):
                pass
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        self.stream.torn = True
        scope.cancel()

    async def _keep_alive(self) -> None:
        while True:
            await trio.sleep_until(self.stream.sent + COMMENT_AFTER)
            if trio.current_time() >= self.stream.sent + COMMENT_AFTER:
                self.stream.try_send(self.http.send(h11.Data(data=COMMENT)) or b"")  # what is left goes with the next
                await trio.sleep(1)

    # --- upgrades ----------------------------------------------------------------------------------------------------

    async def _upgrade(self, head: h11.Request) -> None:
        gateway, headers = self.gateway, _headers(head)
        check_upgrade(head, headers)
        gateway.doorway.check(headers.get("host"), headers.get("origin"))
        if gateway.closing:
            raise Refused("closing", "the server stops; come back when it is there again")
        principal = gateway.keyring.bearer(headers.get("authorization"))
        self.stream.replay(bytes(self.raw))
        self.raw = bytearray()
        async with open_collapsing_nursery() as nursery:
            ws = await self._accepted(nursery)
            if ws is not None:
                await self._converse(ws, Conversation(gateway, self.stream, principal))
            nursery.cancel_scope.cancel()

    async def _accepted(self, nursery: trio.Nursery) -> trio_websocket.WebSocketConnection | None:
        limits = self.gateway.limits
        with trio.move_on_after(HANDSHAKE):
            proposal = await trio_websocket.wrap_server_stream(
                nursery,
                self.stream,
                message_queue_size=16,
                max_message_size=limits.message_bytes,
                receive_buffer_size=READ // 4,
            )
            chosen = SUBPROTOCOL if SUBPROTOCOL in proposal.proposed_subprotocols else None
            return await proposal.accept(subprotocol=chosen)
        return None

    async def _converse(self, ws: trio_websocket.WebSocketConnection, conversation: Conversation) -> None:
        gateway = self.gateway
        gateway.conversations.add(conversation)
        gateway.metrics.opened("websocket")
        try:
            if conversation.principal is not None and not gateway.admit(conversation):
                conversation.leave(OVERLOADED, f"{conversation.principal.name} has too many connections")
            await conversation.run(ws)
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio_websocket.ConnectionClosed):
            pass
        except Exception as error:  # noqa: BLE001 - a supervision boundary: one connection must not end the gateway
            gateway.log_failure(conversation, error)
            with trio.move_on_after(1):
                await ws.aclose(INTERNAL.code, INTERNAL.name)
        finally:
            gateway.forget(conversation)
            gateway.metrics.closed("websocket")


async def serve_connection(gateway: Gateway, inner: trio.abc.Stream) -> None:
    """A connection that has been accepted, whatever comes. Never raises but Cancelled."""
    limits = gateway.limits
    if gateway.open >= limits.connections:
        gateway.metrics.refused("connections")
        await trio.aclose_forcefully(inner)
        return
    gateway.open += 1
    gateway.metrics.opened("any")
    stream = SharedStream(inner, b"", stall_seconds=limits.stall_seconds)
    http = h11.Connection(h11.SERVER, max_incomplete_event_size=int(limits.header_bytes))
    try:
        await Door(gateway, stream, http).serve()
    except Stalled:
        gateway.metrics.cut("stalled")
    except (Gone, trio.BrokenResourceError, trio.ClosedResourceError, trio_websocket.ConnectionClosed):
        pass
    except Exception as error:  # noqa: BLE001 - a supervision boundary: one connection must not end the gateway
        gateway.log_failure("a connection", error)
    finally:
        gateway.open -= 1
        if not gateway.open:
            gateway.emptied.set()
        gateway.metrics.closed("any")
        await trio.aclose_forcefully(stream)


def _headers(head: h11.Request) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}


def is_upgrade(head: h11.Request) -> bool:
    """True if the request wants to become a WebSocket."""
    return any(name == b"upgrade" and value.lower() == b"websocket" for name, value in head.headers)


def check_upgrade(head: h11.Request, headers: Mapping[str, str]) -> None:
    """What RFC 6455 section 4.2.1 asks of a handshake.

    Raises:
        Refused: not_found or bad_message.
    """
    if urlsplit(head.target.decode("latin-1")).path != PATH:
        raise Refused("not_found", f"WebSockets are at {PATH}")
    if head.method != b"GET" or head.http_version != b"1.1":
        raise Refused("bad_message", "a WebSocket begins with GET and HTTP/1.1")
    tokens = [token.strip().lower() for token in headers.get("connection", "").split(",")]
    if "upgrade" not in tokens:
        raise Refused("bad_message", "the header Connection must hold Upgrade")
    if headers.get("sec-websocket-version") != "13":
        raise Refused("bad_message", "the header Sec-WebSocket-Version must be 13")
    try:
        key = base64.b64decode(headers.get("sec-websocket-key", ""), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != 16:
        raise Refused("bad_message", "the header Sec-WebSocket-Key must hold 16 bytes in base64")
