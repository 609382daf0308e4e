"""Requests and WebSockets that an ASGI server has accepted; the counterpart of `http_connection.py`.

The server parses HTTP, keeps connections, and frames WebSockets. Everything else is the gateway's: the same routes by
`answer`, the same streams by `ResponseStream`, the same protocol by `converse`. What has a limit of the server and none
here: the time for a head, idle connections, control frames and fragments, and pings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final, Literal
from urllib.parse import quote, unquote_to_bytes

import attrs
import trio

import greenroom as gr
from greenroom.supervision import failure_of

from ..protocol.codes import SUBPROTOCOL, TOO_BIG, CloseCode, Refused
from ..protocol.framing import PING
from .access import OriginPolicy, is_loopback, own_hosts
from .exchange import HUNG_UP, Fields, PeerGone, Watched, answer, fields_of, may_converse, turned_away
from .frame_stream import MessagesEnded
from .gateway import Gateway
from .http import Response, Streamed, refusal
from .outbox import AHEAD, PIECE, Message, Outbox, Receive
from .request_head import Head, check_path, head_of
from .response_stream import ResponseStream
from .shared_stream import PeerStalled
from .ws_connection import converse

LINGER: Final = 2.0
"""Seconds for a peer to end what it sends after the end of its connection."""
ADDRESSES: Final = 64
"""Addresses of the server whose accepted Host headers are kept."""
_CLOSE: Final = 0x88
"""First byte of a close frame."""
_EXTENDED: Final = {126: 2, 127: 8}
_LAST: Final[Message] = {"type": "http.response.body", "body": b"", "more_body": False}


class Doorways:
    """The accepted headers by the address at which the server has accepted a connection, as `serve` has them by host.

    On loopback the Host header must name it, or be on the list; elsewhere only a list restricts it.
    """

    def __init__(self, hosts: Iterable[str], origins: Iterable[str]) -> None:
        self._names, self._origins = tuple(hosts), frozenset(origins)
        self._at = lru_cache(ADDRESSES)(self._policy)

    def __repr__(self) -> str:
        return f"<Doorways for {', '.join(self._names) or 'no further names'}>"

    def at(self, server: Iterable[Any] | None) -> OriginPolicy:
        """Return the policy for `scope["server"]`: host and port, or the path of a socket and None, or None."""
        host, port = (*(server or ()), None, None)[:2]
        return self._at(str(host or ""), port if isinstance(port, int) else None)

    def _policy(self, host: str, port: int | None) -> OriginPolicy:
        addresses = [(host, port or 80)] if port or is_loopback(host) else []
        names = own_hosts(addresses, self._names) if self._names or is_loopback(host) else None
        return OriginPolicy(hosts=names, origins=self._origins)


def head_of_scope(scope: Mapping[str, Any], most: int) -> Head:
    """Return the validated head of a request. The path is that below the place where the gateway is mounted.

    Raises:
        Refused: headers_too_large (more than `most` bytes), bad_message.
    """
    root = str(scope.get("root_path") or "").rstrip("/")
    # the raw path keeps %2F, which the decoded one loses; not all servers have it
    path = _below(root.encode(), bytes(scope.get("raw_path") or quote(scope["path"]).encode()))
    query, fields = bytes(scope.get("query_string") or b""), list(scope["headers"])
    if len(path) + len(query) + sum(len(name) + len(value) + 4 for name, value in fields) > most:
        raise Refused("headers_too_large", f"request line and headers are larger than {most} bytes")
    target = path + (b"?" + query if query else b"")
    client = scope.get("client")
    peer = str(client[0]) if client else None
    head = head_of(str(scope.get("method", "GET")).encode(), target, fields, modern=True, peer=peer)
    return attrs.evolve(head, root=quote(root), secure=scope.get("scheme") in ("https", "wss"))


def _below(root: bytes, path: bytes) -> bytes:
    """Return the encoded path behind the decoded root; all of it if the server has taken the root off already."""
    for at in range(len(root), min(len(path), 3 * len(root)) + 1):
        if path[at : at + 1] in (b"/", b"") and unquote_to_bytes(path[:at]) == root:
            return path[at:] or b"/"
    return path


@attrs.define(eq=False, repr=False)
class AsgiStream:
    """One connection of the server: what it receives, and the outbox of what it sends.

    Satisfies `Body` of a streamed response, and `FrameStream` and `Messages` of a WebSocket; see there.
    Times of writes are those at which the outbox took the data.

    Attributes:
        gateway: Has the limits.
        receive: Returns the server's next message, in trio.
        outbox: Takes messages for the server.
        stopping: True once the server ends this connection, and waits for a well-formed end.
        unread: True while there may be more of a body, or more messages of a WebSocket.
    """

    gateway: Gateway
    receive: Receive
    outbox: Outbox
    subprotocol: str | None = None
    verdict: CloseCode | None = None
    stopping: bool = False
    torn: bool = False
    stalled: bool = False
    unread: bool = True
    pending: Literal[False] = False
    received_at: float = attrs.field(factory=trio.current_time)
    sent: float = attrs.field(factory=trio.current_time)
    taken: float = attrs.field(factory=trio.current_time)
    shown_at: float = attrs.field(factory=trio.current_time)
    _on_stop: Callable[[], None] | None = None

    def __repr__(self) -> str:
        return f"<AsgiStream {'torn' if self.torn else 'open'}, {self.outbox!r}>"

    def stop(self) -> None:
        """End the stream, or the WebSocket, as if the gateway stopped."""
        self.stopping = True
        if self._on_stop is not None:
            self._on_stop()

    def on_stop(self, callback: Callable[[], None]) -> None:
        """Call `callback` when this connection is stopped; it replaces the one before."""
        self._on_stop = callback
        if self.stopping:
            callback()

    @contextmanager
    def lost_by(self, outbox: Outbox) -> Iterator[None]:
        """Cancel the block if the server takes nothing more: its `send` has failed."""
        with trio.CancelScope() as scope:

            def lose() -> None:
                self.torn = True
                scope.cancel()

            outbox.on_lost(lose)
            yield

    # --- writing -----------------------------------------------------------------------------------------------------

    def begin(self, kind: Literal["http", "websocket.http"], response: Response | Streamed, fields: Fields) -> None:
        """Send the head of a response; websocket.http refuses a handshake."""
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields]
        self.outbox.put({"type": f"{kind}.response.start", "status": response.status, "headers": headers}, 0)

    async def chunk(self, data: bytes) -> None:
        """Send a chunk of a body; waits while the outbox is full."""
        for start in range(0, len(data), PIECE):
            piece = data if len(data) <= PIECE else data[start : start + PIECE]
            self._check()
            self.outbox.put(piece, len(piece))
            await self._room()

    async def end(self) -> None:
        """Send the end of a response."""
        self._check()
        self.outbox.put(_LAST, 0)

    async def send_all(self, data: bytes) -> None:
        """Send complete frames; waits while the outbox is full."""
        self._check()
        self._put_frames(data)
        await self._room()

    async def send_last(self, data: bytes) -> None:
        """Send complete frames and nothing after them."""
        await self.send_all(data)
        self.torn = True

    def try_send(self, data: bytes) -> Literal["sent", "partly", "full", "no"]:
        """Send complete frames, unless the outbox is full."""
        if self.torn or self.outbox.broken:
            return "no"
        if self.outbox.pending > AHEAD:
            return "full"
        self._put_frames(data)
        return "sent"

    async def flush(self) -> None:
        """Do nothing: no frame is ever sent in part."""
        await trio.lowlevel.checkpoint()

    async def finish(self) -> None:
        """Wait until the server has taken everything, or the peer takes nothing."""
        self.outbox.end()
        if not self.stalled and not await self.outbox.drained(0, self.gateway.limits.stall_seconds):
            self.torn = self.stalled = True

    def _put_frames(self, data: bytes) -> None:
        for message, size in messages_of(data):
            self.outbox.put(message, size)
        self.sent = trio.current_time()
        if data.endswith(PING):  # no text does; the server pings by itself, and cuts a peer that does not answer
            self.received_at = self.sent
        if data != PING:
            self.shown_at = self.sent

    def _check(self) -> None:
        if self.torn or self.outbox.broken:
            self.torn = True
            raise trio.BrokenResourceError("nothing can be written on this connection any more")

    async def _room(self) -> None:
        if self.outbox.pending > AHEAD:
            seconds = self.gateway.limits.stall_seconds
            if not await self.outbox.drained(AHEAD // 2, seconds):
                self.torn = self.stalled = True
                raise PeerStalled(f"the peer took nothing for {seconds:g} s")
            self.taken = trio.current_time()
        else:
            await trio.lowlevel.checkpoint_if_cancelled()
        self.sent = trio.current_time()

    # --- reading -----------------------------------------------------------------------------------------------------

    async def drain(self) -> None:
        """Discard what the peer still sends: some servers (hypercorn) wait until it is received, for ever."""
        with trio.move_on_after(LINGER):
            while self.unread:
                message = await self.receive()
                self.unread = bool(message.get("more_body", message["type"] == "websocket.receive"))

    async def gone(self) -> bool:
        """Wait until the peer has disconnected."""
        while (await self.receive())["type"] != "http.disconnect":
            pass
        return True

    async def next(self) -> str | bytes:
        """Wait for the next message of a WebSocket."""
        with trio.CancelScope() as scope:
            self.on_stop(scope.cancel)
            message = await self.receive()
        if scope.cancelled_caught:
            raise gr.RuntimeClosed("the server ends this connection")
        self.received_at = trio.current_time()
        if message["type"] != "websocket.receive":
            self.torn, self.unread = True, False
            raise MessagesEnded(message.get("code"), message.get("reason"))
        text = message.get("text")
        data: str | bytes = message.get("bytes") or b"" if text is None else text
        most = self.gateway.limits.message_bytes
        if len(data) > most or (isinstance(data, str) and 4 * len(data) > most and len(data.encode()) > most):
            self.verdict = TOO_BIG
            raise MessagesEnded
        return data


def messages_of(data: bytes) -> Iterable[tuple[Message, int]]:
    """Return complete frames as ASGI messages, each with its bytes. Pings have none."""
    return _one_slice(data)


@lru_cache(1)
def _one_slice(data: bytes) -> tuple[tuple[Message, int], ...]:
    """Remember the newest frames: the followers of a run get the same ones, one after another."""
    return tuple(_unframed(data))


def _unframed(data: bytes) -> Iterator[tuple[Message, int]]:
    at = 0
    while at < len(data):
        first, size, start = data[at], data[at + 1], at + 2
        if size in _EXTENDED:
            start += _EXTENDED[size]
            size = int.from_bytes(data[at + 2 : start], "big")
        payload, at = data[start : start + size], start + size
        if first == _CLOSE:
            code, reason = int.from_bytes(payload[:2], "big"), payload[2:].decode()
            yield {"type": "websocket.close", "code": code, "reason": reason}, size
        elif first != PING[0]:
            yield {"type": "websocket.send", "text": payload.decode()}, size


@attrs.define(eq=False)
class AsgiExchange:
    """The I/O of one request; satisfies `Exchange`. `head_only`: the method is HEAD."""

    gateway: Gateway
    stream: AsgiStream
    head_only: bool = False

    def recognised(self) -> None:
        """Keep the connection; see `Exchange`."""
        self.gateway.recognised(self.stream)

    async def body(self, head: Head) -> bytes:
        """Read the body; see `Exchange`."""
        limits, parts, size = self.gateway.limits, list[bytes](), 0
        if head.size is not None and head.size > limits.body_bytes:
            raise Refused("too_big", f"the body is larger than {limits.body_bytes} bytes")
        if head.size == 0 and head.method in ("GET", "HEAD", "OPTIONS"):
            self.stream.unread = False
            return b""
        with trio.move_on_after(limits.body_seconds):
            more = True
            while more:
                message = await self.stream.receive()
                if message["type"] != "http.request":
                    self.stream.unread = False
                    raise PeerGone
                parts.append(message.get("body") or b"")
                size += len(parts[-1])
                more = self.stream.unread = bool(message.get("more_body"))
                if size > limits.body_bytes:
                    raise Refused("too_big", f"the body is larger than {limits.body_bytes} bytes")
            return b"".join(parts)
        raise Refused("request_timeout", "the body was incomplete after the time limit")

    async def whole(self, response: Response, fields: Fields) -> None:
        """Write a complete response; see `Exchange`."""
        self.stream.begin("http", response, fields)
        await self.stream.chunk(response.body)
        await self.stream.end()
        await self.stream.finish()

    async def streamed(self, streamed: Streamed, fields: Fields, watched: Watched) -> None:
        """Write a streamed response; see `Exchange`."""
        self.stream.begin("http", streamed, fields)
        if self.head_only:
            await self.stream.end()
        else:
            body = ResponseStream(self.gateway, self.stream)
            self.stream.on_stop(body.stop)
            with watched(body.stop):
                await body.run(streamed)
        await self.stream.finish()


async def serve_connection(stream: AsgiStream, doorways: Doorways, scope: Mapping[str, Any]) -> None:
    """Serve a request or a WebSocket of an ASGI server. Raises nothing but Cancelled."""
    gateway, outbox = stream.gateway, stream.outbox
    try:
        with stream.lost_by(outbox):
            if gateway.closing or gateway.full:
                gateway.metrics.refused("connections")
                await _refuse(stream, scope, turned_away(gateway))
            else:
                with gateway.connection(stream):
                    await _serve(stream, doorways, scope)
    except HUNG_UP:
        pass
    except BaseException as error:  # noqa: BLE001, ASYNC103 - a supervision boundary: one connection must not end the gateway
        gateway.log_failure("a connection", failure_of(error))
    finally:
        if stream.stalled:
            outbox.abandon()
        else:
            outbox.end()


async def _serve(stream: AsgiStream, doorways: Doorways, scope: Mapping[str, Any]) -> None:
    gateway, doorway = stream.gateway, doorways.at(scope.get("server"))
    try:
        head = head_of_scope(scope, int(gateway.limits.header_bytes))
        if scope["type"] == "http":
            await answer(gateway, doorway, head, AsgiExchange(gateway, stream, head.method == "HEAD"))
            return
        check_path(head)
        who = await may_converse(gateway, doorway, head)
    except Refused as refused:
        await _refuse(stream, scope, refused)
        return
    if SUBPROTOCOL in scope.get("subprotocols", ()):
        stream.subprotocol = SUBPROTOCOL
    await stream.receive()  # websocket.connect
    stream.outbox.put({"type": "websocket.accept", "subprotocol": stream.subprotocol}, 0)
    await converse(gateway, stream, stream, head, who)
    await stream.finish()


async def _refuse(stream: AsgiStream, scope: Mapping[str, Any], refused: Refused) -> None:
    """Refuse a request, or a handshake: with a response where the server can send one, otherwise with its own 403."""
    response = refusal(refused)
    stream.gateway.metrics.request(response.status)
    if scope["type"] == "http":
        await AsgiExchange(stream.gateway, stream).whole(response, fields_of(response, None))
        return
    await stream.receive()
    if "websocket.http.response" in (scope.get("extensions") or {}):
        stream.begin("websocket.http", response, fields_of(response, None))
        stream.outbox.put({"type": "websocket.http.response.body", "body": response.body}, len(response.body))
    else:
        stream.outbox.put({"type": "websocket.close", "code": 1008, "reason": refused.message[:100]}, 0)
    await stream.finish()
