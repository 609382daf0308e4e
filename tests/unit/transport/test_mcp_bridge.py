"""The bridge of MCP between a client in memory and a peer that plays a script, HTTP by HTTP."""

import argparse
import json
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import attrs
import h11
import pytest
import trio

import greenroom as gr
from greenroom.transport.cli import mcp as command
from greenroom.transport.cli import mcp_post
from greenroom.transport.cli.bridge import Bridge, open_gateway
from greenroom.transport.cli.mcp import McpBridge
from greenroom.transport.cli.mcp_post import Poster
from greenroom.transport.cli.mcp_session import McpSession

META = "io.modelcontextprotocol/"
MODERN = {f"{META}protocolVersion": "2026-07-28", f"{META}clientCapabilities": {}}
EVENTS, JSON = "text/event-stream", "application/json"
Hold = trio.Event


@attrs.frozen(kw_only=True)
class Reply:
    """What the peer answers: pieces of a body, between which it may wait; with `cut`, the body has no end."""

    status: int = 200
    kind: str = EVENTS
    headers: tuple[tuple[str, str], ...] = ()
    pieces: tuple[bytes | Hold, ...] = ()
    cut: bool = False


@attrs.define
class Peer:
    """A peer that plays replies in order, and keeps the requests: (method, headers, body)."""

    replies: deque[Reply]
    requests: list[tuple[str, dict[str, str], bytes]] = attrs.field(factory=list)
    closed: int = 0
    gateway: Any = None

    async def no_write(self, line: bytes) -> None:
        raise AssertionError(line)

    async def serve(self, stream: trio.SocketStream) -> None:
        http = h11.Connection(h11.SERVER)
        async with stream:
            method, headers, body = await _request(http, stream)
            self.requests.append((method, headers, body))
            reply = self.replies.popleft()
            head = h11.Response(
                status_code=reply.status,
                headers=[("content-type", reply.kind), ("connection", "close"), *reply.headers],
            )
            await stream.send_all(http.send(head) or b"")
            for piece in reply.pieces:
                if isinstance(piece, Hold):
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._watch, stream, nursery.cancel_scope)
                        await piece.wait()
                        nursery.cancel_scope.cancel()
                else:
                    await stream.send_all(http.send(h11.Data(data=piece)) or b"")
            if not reply.cut:
                await stream.send_all(http.send(h11.EndOfMessage()) or b"")

    async def _watch(self, stream: trio.SocketStream, scope: trio.CancelScope) -> None:
        """Note that the client has closed the connection."""
        if await stream.receive_some(1) == b"":
            self.closed += 1
            scope.cancel()


async def _request(http: h11.Connection, stream: trio.SocketStream) -> tuple[str, dict[str, str], bytes]:
    body, head = b"", None
    while True:  # noqa: ASYNC913 - each round waits for bytes
        event = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(bytes(await stream.receive_some(65536)))
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
        else:
            assert head is not None
            return head.method.decode(), {name.decode(): value.decode() for name, value in head.headers}, body


class Client:
    """A client of the bridge, in memory."""

    def __init__(self) -> None:
        self._to_bridge, self._in = trio.open_memory_channel[bytes](100)
        self._out, self._from_bridge = trio.open_memory_channel[bytes](100)

    async def read(self) -> bytes:
        try:
            return await self._in.receive()
        except trio.EndOfChannel:
            return b""

    async def write_line(self, line: bytes) -> None:
        assert b"\n" not in line
        await self._out.send(line)

    def says(self, method: str, request_id: Any = None, **params: Any) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        self.types(json.dumps(message if request_id is None else {**message, "id": request_id}).encode() + b"\n")

    def types(self, data: bytes) -> None:
        self._to_bridge.send_nowait(data)

    def ends(self) -> None:
        self._to_bridge.close()

    async def hears(self) -> Any:
        return json.loads(await self._from_bridge.receive())


def event(message: Any, event_id: str = "") -> bytes:
    head = f"id: {event_id}\n" if event_id else ""
    return f"{head}data: {json.dumps(message) if message else ''}\n\n".encode()


def result(request_id: Any, **fields: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "result": fields}


@asynccontextmanager
async def bridged(*replies: Reply, agent: str | None = None) -> AsyncIterator[tuple[Client, Peer]]:
    """A client of a bridge to a peer; at the end the input ends, and every reply must have been asked for."""
    peer, client = Peer(deque(replies)), Client()
    names = dict.fromkeys(("db", "store", "token_file", "secret_env", "secrets_file"))
    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, peer.serve, 0, host="127.0.0.1"))
        url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
        args = argparse.Namespace(command="mcp", agents=[], url=url, token="t" * 16, **names)
        async with open_gateway(Bridge(command="mcp", agents=(), args=args, place=None)) as gateway:
            streams: Any = client
            peer.gateway = gateway
            with trio.fail_after(20):
                async with trio.open_nursery() as inner:
                    poster = Poster(gateway, McpSession(agent), client.write_line)
                    inner.start_soon(McpBridge(poster, streams).run)
                    yield client, peer
                    client.ends()
        assert not peer.replies
        nursery.cancel_scope.cancel()


pytestmark = pytest.mark.trio


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_post, "PAUSE", 0.01)


INITIALIZED = Reply(
    kind=JSON,
    headers=(("mcp-session-id", "sealed"),),
    pieces=(json.dumps(result(0, protocolVersion="2025-11-25"), indent=1).encode(),),
)


@pytest.mark.rule("MB-2")
async def test_the_answers_are_lines_and_the_session_is_kept() -> None:
    progress = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {}}
    call = Reply(pieces=(event(progress), event(result(1, content=[]))))
    async with bridged(INITIALIZED, Reply(status=202), call) as (client, peer):
        client.says("initialize", 0)
        client.says("notifications/initialized")  # without a wait for the answer
        assert (await client.hears())["result"] == {"protocolVersion": "2025-11-25"}
        await until(lambda: len(peer.requests) == 2)
        client.says("tools/call", 1, name="pay")
        assert await client.hears() == progress
        assert (await client.hears())["id"] == 1
    method, headers, _ = peer.requests[-1]
    assert (method, headers["authorization"]) == ("POST", f"Bearer {'t' * 16}")
    assert (headers["mcp-session-id"], headers["mcp-protocol-version"]) == ("sealed", "2025-11-25")
    assert headers["accept"] == "application/json, text/event-stream"


async def until(holds: Callable[[], bool]) -> None:
    with trio.fail_after(10):
        while not holds():  # noqa: ASYNC110 - what the peer has seen has no event
            await trio.sleep(0.001)


@pytest.mark.rule("MB-3")
async def test_a_cut_stream_is_resumed_behind_its_last_event_and_a_question_is_shown_once() -> None:
    ask = {"jsonrpc": "2.0", "id": "sealed question", "method": "elicitation/create", "params": {}}
    first = Reply(pieces=(event(None, "e1"), event(ask, "e2")), cut=True)
    again = Reply(pieces=(event(ask, "e3"), event(result(1), "e4")))
    async with bridged(first, again) as (client, peer):
        client.says("tools/call", 1, name="pay")
        assert await client.hears() == ask
        assert await client.hears() == result(1)
    assert [(method, headers.get("last-event-id")) for method, headers, _ in peer.requests] == [
        ("POST", None),
        ("GET", "e2"),
    ]


async def test_an_event_that_was_cut_is_read_again() -> None:
    first = Reply(pieces=(event(None, "e1"), b'id: e2\ndata: {"jsonrpc"'), cut=True)
    async with bridged(first, Reply(pieces=(event(result(1), "e2"),))) as (client, peer):
        client.says("tools/call", 1)
        assert await client.hears() == result(1)
    assert peer.requests[1][1]["last-event-id"] == "e1"


async def test_a_stream_that_cannot_be_resumed_is_asked_for_again() -> None:
    gone = Reply(status=404, kind=JSON, pieces=(b'{"jsonrpc": "2.0", "error": {"code": 1, "message": "void"}}',))
    async with bridged(Reply(pieces=(event(None, "e1"),), cut=True), gone, Reply(pieces=(event(result(1)),))) as (
        client,
        peer,
    ):
        client.says("tools/call", 1)
        assert await client.hears() == result(1)
    assert [method for method, _, _ in peer.requests] == ["POST", "GET", "POST"]


@pytest.mark.rule("MB-3")
async def test_a_modern_call_that_was_cut_is_posted_again_with_the_same_run() -> None:
    error = {"code": -32000, "message": "it stops", "data": {"code": "shutting_down", "greenroom/run": "r"}}
    replies = (
        Reply(cut=True),
        Reply(status=503, kind=JSON),
        Reply(pieces=(event({"jsonrpc": "2.0", "id": "a", "error": error}),)),
        Reply(kind=JSON, pieces=(json.dumps(result("a")).encode(),)),
    )
    async with bridged(*replies) as (client, peer):
        client.says("tools/call", "a", name="pay", _meta=MODERN)
        assert await client.hears() == result("a")
    bodies = {body for _, _, body in peer.requests}
    assert len(bodies) == 1
    assert json.loads(bodies.pop())["params"]["_meta"]["greenroom/run"].startswith("mcp_")


@pytest.mark.rule("MB-4")
async def test_a_modern_cancel_closes_the_stream_and_is_not_posted() -> None:
    async with bridged(Reply(pieces=(event(None, ""), Hold()))) as (client, peer):
        client.says("tools/call", "a", name="pay", _meta=MODERN)
        await until(lambda: len(peer.requests) == 1)
        client.says("notifications/cancelled", requestId="a")
        await until(lambda: peer.closed == 1)
    assert len(peer.requests) == 1


@pytest.mark.rule("MB-4")
async def test_a_cancel_of_the_handshake_era_is_posted_and_ends_the_wait_for_an_answer() -> None:
    hold = Hold()
    async with bridged(Reply(pieces=(hold,)), Reply(status=202)) as (client, peer):
        client.says("tools/call", 1, name="pay")
        await until(lambda: len(peer.requests) == 1)
        client.says("notifications/cancelled", requestId=1)
        await until(lambda: len(peer.requests) == 2)
        hold.set()  # the stream ends without an answer
    assert json.loads(peer.requests[1][2])["method"] == "notifications/cancelled"


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (
            Reply(status=401, kind=JSON, pieces=(b'{"error": {"code": "unauthenticated", "message": "no token"}}',)),
            "no token",
        ),
        (Reply(status=413, kind="text/plain", pieces=(b"too large",)), "HTTP 413"),
        (Reply(status=200, kind="text/html", pieces=(b"<html>",)), "HTTP 200"),
    ],
    ids=["refused", "not JSON", "another server"],
)
async def test_an_answer_that_is_no_message_is_an_error_of_the_request(reply: Reply, words: str) -> None:
    async with bridged(reply) as (client, _):
        client.says("tools/list", 1)
        answer = await client.hears()
    assert (answer["id"], answer["error"]["code"]) == (1, -32603)
    assert words in answer["error"]["message"]


@pytest.mark.parametrize("line", [b"{nonsense", b"{}", b'{"jsonrpc": "2.0", "id": {}, "method": "ping"}'])
async def test_a_line_that_is_no_message_is_answered_by_the_gateway(line: bytes) -> None:
    fault = {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "not JSON"}}
    async with bridged(Reply(status=400, kind=JSON, pieces=(json.dumps(fault).encode(),))) as (client, peer):
        client.types(line + b"\r\n\n  \n")
        assert await client.hears() == fault
    assert peer.requests[0][2] == line


async def test_a_line_that_is_no_message_and_too_large_for_the_gateway_is_answered_too() -> None:
    body = b'{"error": {"code": "too_big", "message": "the body is larger than 8 bytes"}}'
    async with bridged(Reply(status=413, kind=JSON, pieces=(body,))) as (client, _):
        client.types(b"{nonsense\n")
        answer = await client.hears()
    assert (answer["id"], answer["error"]["message"]) == (None, "the body is larger than 8 bytes")


async def test_nothing_answers_an_answer() -> None:
    fault = {"jsonrpc": "2.0", "id": None, "error": {"code": -32602, "message": "forged"}}
    async with bridged(Reply(status=400, kind=JSON, pieces=(json.dumps(fault).encode(),)), INITIALIZED) as (
        client,
        peer,
    ):
        client.types(b'{"jsonrpc": "2.0", "id": "forged", "result": {}}\n')
        await until(lambda: len(peer.requests) == 1)
        client.says("initialize", 0)
        assert (await client.hears())["id"] == 0


@pytest.mark.rule("MB-7")
async def test_too_long_a_line_and_too_many_requests_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "LINE_LIMIT", 200)
    monkeypatch.setattr(command, "MOST", 1)
    hold = Hold()
    async with bridged(Reply(pieces=(hold, event(result(1))))) as (client, peer):
        client.types(b"x" * 201 + b"\n")
        assert (await client.hears())["error"]["message"] == "the line has more than 200 bytes; send a shorter one"
        client.says("tools/call", 1)
        await until(lambda: len(peer.requests) == 1)
        client.says("tools/call", 2)
        refused = await client.hears()
        assert (refused["id"], refused["error"]["code"]) == (2, -32000)
        hold.set()
        assert await client.hears() == result(1)


@pytest.mark.rule("MB-3")
async def test_without_a_gateway_a_request_is_answered_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_post, "PATIENCE", 0.05)
    names = dict.fromkeys(("db", "store", "token", "token_file", "secret_env", "secrets_file"))
    args = argparse.Namespace(command="mcp", agents=[], url="http://127.0.0.1:9", **names)
    client = Client()
    client.says("tools/call", 1)
    client.ends()
    async with open_gateway(Bridge(command="mcp", agents=(), args=args, place=None)) as gateway:
        streams: Any = client
        await McpBridge(Poster(gateway, McpSession(), client.write_line), streams).run()
    answer = await client.hears()
    assert answer["id"] == 1
    assert "no gateway answers at http://127.0.0.1:9" in answer["error"]["message"]


@pytest.mark.rule("MB-6")
async def test_the_end_of_the_input_ends_the_open_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "FAREWELL", 0.05)
    async with bridged(Reply(pieces=(Hold(),))) as (client, peer):
        client.says("tools/call", 1)
        await until(lambda: len(peer.requests) == 1)
    assert peer.closed == 1


async def test_the_bridge_reads_all_pages_of_the_tools_and_refuses_what_is_no_mcp_server() -> None:
    tools = [{"name": name, "inputSchema": {"properties": {"a": {"x-mcp-header": "A"}}}} for name in "xy"]
    pages = (result(0, tools=tools[:1], nextCursor="x"), result(0, tools=tools[1:]))
    other = Reply(status=404, kind=JSON, pieces=(b'{"error": {"code": "not_found", "message": "no such path"}}',))
    replies = (*(Reply(kind=JSON, pieces=(json.dumps(page).encode(),)) for page in pages), other, Reply(cut=True))
    async with bridged(*replies) as (_, peer):
        session = McpSession()
        poster = Poster(peer.gateway, session, peer.no_write)
        address = await peer.gateway.address()
        await poster.learn_tools(address)
        assert set(session.repeated) == {"x", "y"}
        with pytest.raises(gr.GreenroomError, match="is not an MCP server; use a server of this release"):
            await poster.learn_tools(address)
        with pytest.raises(gr.GreenroomError, match="no gateway answers"):
            await poster.learn_tools(address)
    assert [json.loads(body)["params"].get("cursor") for _, _, body in peer.requests[:2]] == [None, "x"]
