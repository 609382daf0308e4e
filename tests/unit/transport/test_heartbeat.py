"""Pings, ticks and the end of the dead, under virtual time: the connection is in memory, the clock jumps."""

import itertools
import json
from contextlib import asynccontextmanager

import h11
import pytest
import trio
import trio_websocket
from trio.testing import memory_stream_pair
from wsproto.connection import Connection, ConnectionType
from wsproto.events import Ping, Pong, TextMessage

import greenroom as gr
from greenroom.transport.gateway.access import OriginPolicy, Principal, TokenTable
from greenroom.transport.gateway.gateway import Gateway
from greenroom.transport.gateway.http_connection import TrioMessages
from greenroom.transport.gateway.request_head import read_head
from greenroom.transport.gateway.shared_stream import SharedStream
from greenroom.transport.gateway.ws_connection import WebSocketConnection
from greenroom.transport.protocol.codes import PATH, SUBPROTOCOL
from greenroom.transport.protocol.limits import Limits

HEAD = read_head(h11.Request(method="GET", target=PATH, headers=[("host", "x")]))
ANN = Principal(name="ann", token="a" * 16)
WATCHDOG = 45.0
"""Seconds without a frame after which a page gives up, says docs/gateway.md."""


class Peer:
    """The far end of a connection, as bytes: answers pings after `slow` seconds, or never if that is None."""

    def __init__(self, stream, slow=0.0):
        self.stream, self.slow = stream, slow
        self.wire = Connection(ConnectionType.CLIENT)
        self.received = []
        """Trio time and type of every frame."""

    async def handshake(self):
        upgrade = [f"GET {PATH} HTTP/1.1", "Host: x", "Upgrade: websocket", "Connection: Upgrade"]
        upgrade += ["Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==", "Sec-WebSocket-Version: 13"]
        upgrade += [f"Sec-WebSocket-Protocol: {SUBPROTOCOL}", "", ""]
        await self.stream.send_all("\r\n".join(upgrade).encode())
        head = b""
        while b"\r\n\r\n" not in head:
            head += await self.stream.receive_some()
        return head.partition(b"\r\n\r\n")[2]

    async def listen(self, rest):
        async with trio.open_nursery() as nursery:
            while True:
                self.wire.receive_data(rest)
                for event in self.wire.events():
                    self.hear(event, nursery)
                rest = await self.stream.receive_some()
                if not rest:
                    break

    def hear(self, event, nursery):
        kind = json.loads(event.data)["type"] if isinstance(event, TextMessage) else type(event).__name__.lower()
        self.received.append((trio.current_time(), kind))
        if isinstance(event, Ping) and self.slow is not None:
            nursery.start_soon(self.answer, event.payload)

    async def answer(self, payload):
        await trio.sleep(self.slow)
        await self.stream.send_all(self.wire.send(Pong(payload=payload)))

    def times(self, *kinds):
        return [at for at, kind in self.received if kind in kinds]


@asynccontextmanager
async def connected(slow=0.0, limits=None):
    """A conversation that is looked at every second, as `serve` does, and its far end."""
    ours, theirs = memory_stream_pair()
    limits = limits or Limits()
    async with gr.open_runtime() as runtime, trio.open_nursery() as nursery:
        gateway = Gateway(
            runtime=runtime,
            keyring=TokenTable([ANN]),
            doorway=OriginPolicy(hosts=None),
            limits=limits,
            routes=(),
        )
        stream = SharedStream(ours, b"", stall_seconds=limits.stall_seconds)
        conversation = WebSocketConnection(gateway, stream, HEAD, ANN)
        peer, over = Peer(theirs, slow), trio.Event()

        async def converse():
            request = await trio_websocket.wrap_server_stream(nursery, stream)
            ws = await request.accept(subprotocol=SUBPROTOCOL)
            await conversation.run(TrioMessages(ws))
            over.set()

        async def look():
            while True:
                await trio.sleep(1)
                conversation.heartbeat(trio.current_time())

        nursery.start_soon(converse)
        rest = await peer.handshake()
        nursery.start_soon(peer.listen, rest)
        nursery.start_soon(look)
        yield peer, over
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("slow", [0.0, 0.3, 1.5, 7.0, 19.0])
async def test_a_silent_peer_is_pinged_and_receives_a_frame_long_before_it_gives_up(slow, autojump_clock):
    """A page is not informed of pings: only ticks say that we are here, however the two fall together."""
    async with connected(slow) as (peer, over):
        started_at = trio.current_time()
        await trio.sleep(600)
        assert not over.is_set()
        frames = [started_at, *peer.times("gw.welcome", "gw.tick"), trio.current_time()]
        gaps = [later - earlier for earlier, later in itertools.pairwise(frames)]
        assert max(gaps) <= 22 < WATCHDOG / 2
        assert len(peer.times("ping")) >= 600 / (20 + slow + 2)
        assert len(frames) <= 600 / 20 + 4, "no more ticks than one per heartbeat"


async def test_a_peer_that_answers_no_ping_is_cut(autojump_clock):
    async with connected(None) as (peer, over):
        started_at = trio.current_time()
        await over.wait()
        assert len(peer.times("ping")) == 1
        assert 38 <= trio.current_time() - started_at <= 43, "a ping after 20 s, the end another 20 s after it"


async def test_a_peer_that_says_anything_is_alive(autojump_clock):
    """Whatever comes after a ping answers it: TCP delivers in order, so the pong is on its way."""
    async with connected(None) as (peer, over):

        async def chat():
            while True:
                await trio.sleep(15)
                await peer.stream.send_all(peer.wire.send(TextMessage(data='{"type":"ping"}')))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(chat)
            await trio.sleep(300)
            assert not over.is_set()
            assert peer.times("ping") == []
            nursery.cancel_scope.cancel()
