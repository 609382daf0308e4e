"""One connection from accept to close: h11 parses requests; handlers answer, or trio-websocket takes over.

h11 implements keep-alive and pipelining. Limits: head and body must be complete in time and size, an idle connection is
closed, and a response whose reader makes no progress is cut. Authentication and routing precede the reading of a body.
An upgrade is validated before the hand-over, because trio-websocket's server never returns from a handshake that it
rejects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs
import h11
import trio
import trio_websocket
from wsproto.utilities import LocalProtocolError

from greenroom.supervision import failure_of
from greenroom.supervision.nursery import open_collapsing_nursery

from ..protocol.codes import SUBPROTOCOL, Refused
from .access import Principal
from .exchange import HUNG_UP, Fields, PeerGone, Watched, answer, fields_of, may_converse, turned_away
from .frame_stream import MessagesEnded
from .gateway import Gateway
from .http import Response, Streamed, refusal
from .request_head import Head, check_upgrade, handshake, read_head
from .response_stream import ChunkedBody, ResponseStream
from .shared_stream import SharedStream
from .ws_connection import converse

READ: Final = 65_536
"""Bytes per read of the socket."""
HANDSHAKE: Final = 10.0
"""Seconds for trio-websocket's side of a handshake that has been validated."""
LINGER: Final = 2.0
"""Seconds of silence after which a peer that has not closed yet counts as one that reads nothing more."""
LINGER_MOST: Final = 10.0
"""Seconds for a peer to send the rest of a body that was refused; many clients read no response before its end."""
MARGIN: Final = 5.0
"""Seconds by which the announced time of an idle connection is shorter than its limit: a request may be on its way."""
TURNED_AWAY: Final = 256
"""Connections beyond the limit that are refused with a response at the same time; others are closed immediately."""
LEAST_TURNED: Final = 8
"""Minimum of that number."""
TURNED_SHARE: Final = 16
"""At most one connection per this many allowed ones is refused with a response, which needs a descriptor, too."""
BREATH: Final = 64
"""Pieces of a body between two checkpoints: a body may arrive byte by byte."""
_VERSION: Final = (("sec-websocket-version", "13"),)
"""Headers of a refused handshake (RFC 6455 section 4.4)."""


@attrs.define(eq=False)
class HttpConnection:
    """One HTTP connection."""

    gateway: Gateway
    stream: SharedStream
    http: h11.Connection
    _method: str = ""
    _kept: bool = False

    async def serve(self) -> None:
        """Answer requests until the connection ends."""
        limits = self.gateway.limits
        wait = limits.header_seconds
        while True:
            self._method, self._kept, head = "", False, None
            try:
                head = await self._head(wait)
                if head is None:
                    return
                if head.upgrade:
                    await self._upgrade(head)
                    return
            except Refused as refused:
                await self.refuse(refused, _VERSION if head is not None else ())
                return
            await answer(self.gateway, self.gateway.doorway, head, self)
            if self.gateway.closing or not self._next():
                return
            wait = limits.idle_seconds

    async def refuse(self, refused: Refused, headers: Sequence[tuple[str, str]] = ()) -> None:
        """Send the last response of this connection."""
        self.gateway.metrics.request(refused.error.status)
        response = refusal(refused)
        await self._write(response, [*fields_of(response, None), *headers], close=True)

    # --- reading -----------------------------------------------------------------------------------------------------

    async def _head(self, wait: float) -> Head | None:
        """Return the next request's head; None if the peer has no further request, or sent none in time.

        Raises:
            Refused: The bytes are not HTTP, too large, or incomplete in time.
            PeerGone: The gateway stops, and no request has begun.
        """
        event, idle, limits = self._event(), self.gateway.idle, self.gateway.limits
        request_begun = event is not h11.NEED_DATA or bool(self.http.trailing_data[0])
        with trio.move_on_after(limits.header_seconds if request_begun else wait) as limit:
            if not request_begun:
                idle.add(limit)
            try:
                while event is h11.NEED_DATA:
                    await self._receive()
                    if not request_begun:
                        request_begun = True
                        idle.discard(limit)
                        limit.deadline = trio.current_time() + limits.header_seconds
                    event = self._event()
            finally:
                idle.discard(limit)
        if limit.cancelled_caught:
            if not request_begun and self.gateway.closing:
                raise PeerGone
            if not request_begun:
                return None
            raise Refused("request_timeout", "the head of the request was incomplete after the time limit")
        if not isinstance(event, h11.Request):
            return None
        # h11 limits only incomplete heads; this head may have arrived in one read
        if len(event.target) + sum(len(name) + len(value) + 4 for name, value in event.headers) > limits.header_bytes:
            raise Refused("headers_too_large", f"request line and headers are larger than {limits.header_bytes} bytes")
        self._method = event.method.decode("latin-1")
        head = read_head(event, self.stream.peer)
        self._kept = head.kept
        return head

    def _event(self) -> h11.Event | type[h11.NEED_DATA | h11.PAUSED]:
        try:
            return self.http.next_event()
        except h11.RemoteProtocolError as error:
            code = {431: "headers_too_large", 413: "too_big"}.get(error.error_status_hint, "bad_message")
            raise Refused(code, f"this is no HTTP request that is understood here: {error}") from error

    async def _receive(self) -> None:
        self.http.receive_data(await self.stream.receive_some(READ))

    async def body(self, head: Head) -> bytes:
        """Read the body; see `Exchange`."""
        most = self.gateway.limits.body_bytes
        if head.size is not None and head.size > most:
            raise Refused("too_big", f"the body is larger than {most} bytes")
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
                    if size > most:
                        raise Refused("too_big", f"the body is larger than {most} bytes")
                    parts.append(bytes(event.data))
                    if len(parts) % BREATH == 0:
                        await trio.lowlevel.checkpoint()
                elif isinstance(event, h11.EndOfMessage):
                    break
                else:
                    raise PeerGone
        if limit.cancelled_caught:
            raise Refused("request_timeout", "the body was incomplete after the time limit")
        return b"".join(parts)

    def _pass_over(self) -> None:
        """Discard the received part of an unneeded body; if that is all of it, the connection can be reused."""
        while self.http.their_state is h11.SEND_BODY:
            try:
                if self._event() is h11.NEED_DATA:
                    return
            except Refused:
                return

    def _next(self) -> bool:
        """Prepare for the next request; return False if there can be none."""
        if self.stream.torn or self.http.our_state is not h11.DONE or self.http.their_state is not h11.DONE:
            return False
        self.http.start_next_cycle()
        return True

    async def linger(self) -> None:
        """Let the peer read the last response before the connection is closed.

        Closing a socket with unread bytes resets the connection, which also discards what the peer has not read yet
        (RFC 9112 section 9.6). Therefore the gateway ends its half of the connection, and reads on until the peer
        closes or is silent.
        """
        if self.stream.torn and not self.stream.finished:
            return
        with trio.move_on_after(LINGER_MOST), trio.move_on_after(LINGER) as silence:
            await self.stream.finish()
            while await self.stream.discard_some(READ):
                silence.deadline = trio.current_time() + LINGER

    # --- answering ---------------------------------------------------------------------------------------------------

    def recognised(self) -> None:
        """Keep the connection; see `Exchange`."""
        self.gateway.recognised(self.stream)

    async def whole(self, response: Response, fields: Fields) -> None:
        """Write a complete response; see `Exchange`."""
        self._pass_over()
        await self._write(response, fields)

    async def streamed(self, streamed: Streamed, fields: Fields, watched: Watched) -> None:
        """Write a streamed response; see `Exchange`.

        The chunks end the response, not the connection, and the head announces no close: with `connection: close`,
        Node's fetch mistakes a torn chunked body for a complete one.
        """
        self._pass_over()
        await self.stream.send_all(self.http.send(self._response(streamed.status, fields, close=False)) or b"")
        if self._method == "HEAD":
            self.http.send(h11.EndOfMessage())
        else:
            body = ResponseStream(self.gateway, ChunkedBody(self.stream, self.http))
            with watched(body.stop):
                await body.run(streamed)

    def _response(self, status: int, fields: Fields, *, close: bool) -> h11.Response:
        fields = list(fields)
        if close or self.gateway.closing:
            fields.append(("connection", "close"))
        elif self._kept and (seconds := _announced(self.gateway.limits.idle_seconds)):
            fields += [("connection", "keep-alive"), ("keep-alive", f"timeout={seconds}")]
        return h11.Response(status_code=status, headers=[(name.encode(), value.encode()) for name, value in fields])

    async def _write(self, response: Response, fields: Fields, *, close: bool = False) -> None:
        if self.http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            raise PeerGone
        close = close or self.http.their_state in (h11.ERROR, h11.SEND_BODY)
        parts = [self.http.send(self._response(response.status, fields, close=close))]
        if response.body and self._method != "HEAD":
            parts.append(self.http.send(h11.Data(data=response.body)))
        parts.append(self.http.send(h11.EndOfMessage()))
        await self.stream.send_all(b"".join(part for part in parts if part))

    # --- upgrades ----------------------------------------------------------------------------------------------------

    async def _upgrade(self, head: Head) -> None:
        gateway = self.gateway
        check_upgrade(head)
        principal = await may_converse(gateway, gateway.doorway, head)
        self.stream.begin_frames(handshake(head), self.http.trailing_data[0], gateway.limits)
        try:
            async with open_collapsing_nursery() as nursery:
                ws = await self._accepted(nursery)
                if ws is not None:
                    await self._converse(ws, head, principal)
                nursery.cancel_scope.cancel()
        except (trio_websocket.ConnectionClosed, LocalProtocolError):
            pass  # trio-websocket's reader answered a disconnected peer, or a peer that sends after its close frame

    async def _converse(self, ws: trio_websocket.WebSocketConnection, head: Head, who: Principal | None) -> None:
        await converse(self.gateway, self.stream, TrioMessages(ws), head, who)

    async def _accepted(self, nursery: trio.Nursery) -> trio_websocket.WebSocketConnection | None:
        with trio.move_on_after(HANDSHAKE):
            proposal = await trio_websocket.wrap_server_stream(
                nursery,
                self.stream,
                message_queue_size=16,
                max_message_size=self.gateway.limits.message_bytes,
                receive_buffer_size=READ // 4,
            )
            protocol = SUBPROTOCOL if SUBPROTOCOL in proposal.proposed_subprotocols else None
            ws = await proposal.accept(subprotocol=protocol)
            self.stream.accepted()
            return ws
        return None


@attrs.define(eq=False)
class TrioMessages:
    """The messages that trio-websocket has read."""

    ws: trio_websocket.WebSocketConnection

    @property
    def subprotocol(self) -> str | None:
        """As accepted; see `Messages`."""
        return self.ws.subprotocol

    async def next(self) -> str | bytes:
        """Wait for the next message; see `Messages`."""
        try:
            return await self.ws.get_message()
        except trio_websocket.ConnectionClosed as error:
            close = self.ws.closed
            raise (MessagesEnded() if close is None else MessagesEnded(int(close.code), close.reason)) from error


def _announced(idle_seconds: float) -> int:
    """Return the seconds for which a client may keep an idle connection; 0 if they are too few to announce."""
    return int(max(idle_seconds - MARGIN, idle_seconds / 2))


async def serve_connection(gateway: Gateway, inner: trio.abc.Stream) -> None:
    """Serve an accepted connection. Raises nothing but Cancelled."""
    limits = gateway.limits
    stream = SharedStream(inner, b"", stall_seconds=limits.stall_seconds)
    door = HttpConnection(
        gateway, stream, h11.Connection(h11.SERVER, max_incomplete_event_size=int(limits.header_bytes))
    )
    try:
        if gateway.closing or gateway.full:
            await _turn_away(gateway, door)
        else:
            with gateway.connection(stream):
                await door.serve()
                await door.linger()
    except HUNG_UP:
        pass
    except BaseException as error:  # noqa: BLE001, ASYNC103 - a supervision boundary: one connection must not end the gateway
        gateway.log_failure("a connection", failure_of(error))
    finally:
        await trio.aclose_forcefully(inner)


async def _turn_away(gateway: Gateway, door: HttpConnection) -> None:
    """Refuse a connection with a response, unless too many are being refused already."""
    gateway.metrics.refused("connections")
    if gateway.turned_away >= min(TURNED_AWAY, max(LEAST_TURNED, gateway.most // TURNED_SHARE)):
        return
    gateway.turned_away += 1
    try:
        with trio.move_on_after(LINGER):
            await door.refuse(turned_away(gateway))
            await door.linger()
    finally:
        gateway.turned_away -= 1
