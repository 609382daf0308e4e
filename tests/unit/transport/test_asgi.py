"""The gateway on the connections of an ASGI server: heads, bodies, streams, WebSockets, the lifespan, and every end."""

import json

import pytest
import trio
from tests.support.asgi_peer import BEARER, Peer, asked, connection, http_scope, ws_scope
from tests.support.event_writer import Author
from tests.support.gateway import TOKEN

import greenroom as gr
from greenroom.testing import ScriptedModel
from greenroom.transport import Limits, asgi_app
from greenroom.transport.gateway.asgi import Doorways, head_of_scope, messages_of
from greenroom.transport.gateway.outbox import AHEAD, PIECE, TrioOutbox
from greenroom.transport.protocol.codes import Refused
from greenroom.transport.protocol.framing import PING, close_frame, text_frames

HELPER = gr.Agent("helper", model=ScriptedModel(["done"] * 100))
STREAM = (b"accept", b"text/event-stream")
LAST = {"type": "http.response.body", "body": b"", "more_body": False}


class House:
    """A runtime and its application."""

    def __init__(self, runtime, app):
        self.runtime, self.app = runtime, app

    @property
    def gateway(self):
        return self.app._opened.gateway

    def check_empty(self):
        gateway, signals = self.gateway, self.runtime._parts.services.signals
        assert (gateway.open, gateway._of.total(), dict(gateway.strangers)) == (0, 0, {})
        assert (gateway.idle, gateway.conversations, gateway.fanout._pumps, signals.followed) == (set(), set(), {}, 0)


@pytest.fixture
async def house():
    async with gr.open_runtime(agents=[HELPER]) as runtime, asgi_app(runtime, token=TOKEN) as app:
        here = House(runtime, app)
        yield here
        await trio.testing.wait_all_tasks_blocked()
        here.check_empty()


# --- heads -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("root", "path", "raw", "below"),
    [
        ("", "/v1/runs", b"/v1/runs", "/v1/runs"),
        ("/api", "/api/v1/runs", b"/api/v1/runs", "/v1/runs"),
        ("/api/", "/api/v1/runs", b"/api/v1/runs", "/v1/runs"),
        ("/api", "/v1/runs", b"/v1/runs", "/v1/runs"),  # the server has taken the root off
        ("/api", "/apis/runs", b"/apis/runs", "/apis/runs"),
        ("/api", "/api", b"/api", "/"),
        ("/a b", "/a b/x/y", b"/a%20b/x%2Fy", "/x%2Fy"),
        ("/a/é", "/a/é/x", b"/a/%C3%A9/x", "/x"),
        ("/api", "/api/a b", None, "/a%20b"),
        ("/%", "/%/x", b"/%25/x", "/x"),
        ("/api", "/api/%zz", b"/%61pi/%zz", "/%zz"),
    ],
)
def test_a_path_is_that_below_the_root(root, path, raw, below):
    scope = http_scope("GET", path, root_path=root, raw_path=raw)
    assert head_of_scope(scope, 10_000).path == below


def test_a_head_has_what_the_scope_says():
    scope = http_scope("POST", "/x?a=1&a=2&b=", (b"content-length", b"7"), root_path="/a b", scheme="https")
    head = head_of_scope(scope, 10_000)
    assert (head.method, head.query, head.size) == ("POST", {"a": "2", "b": ""}, 7)
    assert (head.root, head.secure) == ("/a%20b", True)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ([(b"x", b"y" * 200)], "headers_too_large"),
        ([BEARER, BEARER], "bad_message"),
        ([(b"origin", b"a"), (b"origin", b"b")], "bad_message"),
    ],
)
def test_a_head_is_held_to_the_rules_of_the_gateways_own_connections(fields, code):
    with pytest.raises(Refused) as refused:
        head_of_scope(http_scope("GET", "/x", *fields), 200)
    assert refused.value.error.code == code


@pytest.mark.parametrize(
    ("server", "host", "good"),
    [
        (("127.0.0.1", 8000), "localhost:8000", True),
        (("127.0.0.1", 8000), "evil.example:8000", False),
        (("localhost", None), "localhost", True),  # of a client in the same process
        (("127.0.0.1", 8000), "runs.example", True),  # of a proxy on this machine, and on the list
        (("::1", 8000), "[::1]:8000", True),
        (("203.0.113.5", 443), "evil.example", False),
        (("203.0.113.5", 443), "runs.example", True),
        (("/run/greenroom.sock", None), "evil.example", False),
        (None, "runs.example", True),
    ],
)
def test_hosts_are_those_of_loopback_and_of_the_list(server, host, good):
    policy = Doorways(["runs.example"], []).at(server)
    if good:
        policy.check(host, None)
    else:
        with pytest.raises(Refused):
            policy.check(host, None)


def test_without_a_list_only_loopback_has_one():
    Doorways([], []).at(("203.0.113.5", 443)).check("any.example", None)
    with pytest.raises(Refused):
        Doorways([], []).at(("127.0.0.1", 80)).check("any.example", None)


# --- frames and the outbox -------------------------------------------------------------------------------------------


def test_frames_become_messages():
    texts = ["a", "é" * 100, "x" * 70_000]
    data = text_frames(text.encode() for text in texts) + PING + close_frame(4400, "why")
    *messages, close = [message for message, _ in messages_of(data)]
    assert messages == [{"type": "websocket.send", "text": text} for text in texts]
    assert close == {"type": "websocket.close", "code": 4400, "reason": "why"}
    assert sum(size for _, size in messages_of(data)) == sum(len(text.encode()) for text in texts) + 5


async def test_chunks_that_wait_go_out_as_one_message_of_bounded_size():
    outbox, sent = TrioOutbox(), []
    for chunk in [b"a", b"b", b"x" * (PIECE - 1), b"c"]:
        outbox.put(chunk, len(chunk))
    outbox.put(LAST, 0)
    outbox.put(b"d", 1)
    outbox.end()

    async def send(message):
        sent.append(message)

    await outbox.run(send)
    assert [message["body"] for message in sent] == [b"ab", b"x" * (PIECE - 1) + b"c", b"", b"d"]
    assert outbox.pending == 0


# --- requests --------------------------------------------------------------------------------------------------------


async def test_a_body_arrives_in_parts(house):
    async with connection(house.app, http_scope("POST", "/v1/runs", BEARER)) as peer:
        data = json.dumps({"agent": "helper", "text": "hi"}).encode()
        for start in range(0, len(data), 5):
            peer.body(data[start : start + 5], more=start + 5 < len(data))
        await peer.over.wait()
    assert peer.status == 201
    assert peer.sent[-1] == LAST


@pytest.mark.parametrize("announced", [True, False])
async def test_a_body_that_is_too_large_is_refused_before_its_end(house, announced):
    fields = [(b"content-length", b"99999999")] if announced else []
    async with connection(house.app, http_scope("POST", "/v1/runs", BEARER, *fields)) as peer:
        for _ in range(20):
            peer.body(b"x" * 100_000, more=True)
        await peer.until(lambda: LAST in peer.sent)
        assert (peer.status, peer.code) == (413, "too_big")
        peer.say("http.disconnect")
        await peer.over.wait()


async def test_a_body_is_not_asked_for_before_who_sends_it_is_known(house):
    async with connection(house.app, http_scope("POST", "/v1/runs", (b"authorization", b"Bearer nobody's"))) as peer:
        await peer.until(lambda: LAST in peer.sent)
        assert (peer.status, peer.code) == (401, "unauthenticated")


async def test_a_body_that_does_not_end_is_given_up(autojump_clock):
    async with gr.open_runtime(agents=[HELPER]) as runtime, asgi_app(runtime, token=TOKEN) as app:
        async with connection(app, http_scope("POST", "/v1/runs", BEARER)) as peer:
            peer.body(b"{", more=True)
            await peer.over.wait()
        assert (peer.status, peer.code) == (408, "request_timeout")


async def test_head_has_the_fields_and_no_stream(house):
    await Author.create(house.runtime, HELPER, "r")
    for target, field in [("/v1/runs", b"content-length"), ("/v1/runs/r/events", b"cache-control")]:
        peer = await asked(house.app, "HEAD", target, STREAM)
        assert peer.status == 200
        assert field in dict(peer.sent[0]["headers"])
        assert peer.sent[-1] == LAST


async def test_under_a_root_the_documents_and_cards_name_it(house):
    mounted = {"root_path": "/greenroom", "scheme": "https"}
    place = "/greenroom/v1/a2a/helper/.well-known/agent-card.json"
    card = json.loads((await asked(house.app, "GET", place, **mounted)).data)
    assert card["supportedInterfaces"][0]["url"] == "https://runs.example/greenroom/v1/a2a/helper"
    document = json.loads((await asked(house.app, "GET", "/greenroom/v1/openapi.json", **mounted)).data)
    assert [server["url"] for server in document["servers"]] == ["/greenroom"]
    page = (await asked(house.app, "GET", "/greenroom/", **mounted)).data
    assert b'"/' not in page.replace(b'"/>', b""), "the console's addresses are relative"


async def test_what_is_too_many_is_refused():
    limits = Limits(connections=1)
    async with gr.open_runtime(agents=[HELPER]) as runtime, asgi_app(runtime, token=TOKEN, limits=limits) as app:
        await Author.create(runtime, HELPER, "r")
        async with connection(app, http_scope("GET", "/v1/runs/r/events", BEARER, STREAM)) as follower:
            await follower.until(lambda: follower.sent)
            assert (await asked(app, "GET", "/healthz")).code == "too_many_connections"
            follower.say("http.disconnect")
            await follower.over.wait()
        assert (await asked(app, "GET", "/healthz")).status == 200


# --- streams ---------------------------------------------------------------------------------------------------------


async def test_a_stream_follows_until_the_peer_is_gone(house):
    author = await Author.create(house.runtime, HELPER, "r")
    async with connection(house.app, http_scope("GET", "/v1/runs/r/events", BEARER, STREAM)) as peer:
        for count in range(1, 6):
            await author.write(["x"])
            await peer.until(lambda count=count: peer.data.count(b"\ndata: ") == count + 1)
        assert LAST not in peer.sent
        peer.say("http.request", body=b"", more_body=False)
        peer.say("http.disconnect")
        await peer.over.wait()
    house.check_empty()


async def test_who_does_not_read_holds_little_is_cut_and_slows_nobody(autojump_clock):
    limits = Limits(stall_seconds=5)
    async with gr.open_runtime(agents=[HELPER]) as runtime, asgi_app(runtime, token=TOKEN, limits=limits) as app:
        author = await Author.create(runtime, HELPER, "r")
        scope = http_scope("GET", "/v1/runs/r/events", BEARER, STREAM)
        async with connection(app, scope) as deaf, connection(app, scope) as good:
            await good.until(lambda: good.sent)
            deaf.reading = trio.Event()
            for count in range(100):
                await author.write(["x" * 5000])
                await good.until(lambda count=count: good.data.count(b"\ndata: ") == count + 2)
            await deaf.over.wait()
            assert LAST not in deaf.sent, "the end is not whole"
            assert app._opened.gateway.open == 1
            assert b'greenroom_connections_cut_total{why="stalled"} 1.0' in (await asked(app, "GET", "/metrics")).data
            good.say("http.disconnect")
            await good.over.wait()


async def test_a_slow_reader_is_not_cut(autojump_clock):
    limits = Limits(stall_seconds=5)
    async with gr.open_runtime(agents=[HELPER]) as runtime, asgi_app(runtime, token=TOKEN, limits=limits) as app:
        author = await Author.create(runtime, HELPER, "r")
        await author.write(["x" * 50_000] * 40)
        async with connection(app, http_scope("GET", "/v1/runs/r/events", BEARER, STREAM)) as slow:
            await slow.until(lambda: slow.sent)
            while slow.data.count(b"\ndata: ") < 41:
                slow.reading = trio.Event()
                await trio.sleep(4)
                slow.reading.set()
                await trio.sleep(0.001)
                assert slow.data.count(b"\ndata: ") < 41 or not slow.over.is_set()
            assert [message["more_body"] for message in slow.sent[1:]] == [True] * (len(slow.sent) - 1)
            assert max(len(message["body"]) for message in slow.sent[1:]) <= PIECE
            slow.say("http.disconnect")
            await slow.over.wait()


@pytest.mark.parametrize("at", range(6))
@pytest.mark.parametrize("how", ["disconnect", "error", "cancel"])
async def test_an_end_at_any_message_leaves_nothing(house, at, how):
    author = await Author.create(house.runtime, HELPER, "r")
    async with connection(house.app, http_scope("GET", "/v1/runs/r/events", BEARER, STREAM)) as peer:
        for count in range(at):
            await peer.until(lambda count=count: len(peer.sent) > count)
            await author.write(["x"])
        if how == "disconnect":
            peer.say("http.disconnect")
        elif how == "error":
            peer.fail = ConnectionResetError("gone")
            await author.write(["x"])
        else:
            peer.scope.cancel()
        await peer.over.wait()
        assert isinstance(peer.error, ConnectionResetError) == (how == "error")
    house.check_empty()


async def test_cancelled_by_its_server_a_stream_ends_whole(house):
    await Author.create(house.runtime, HELPER, "r")
    target = "/v1/ai-sdk/v6/agents/helper/chat/r.thread/stream?finished=true"
    async with connection(house.app, http_scope("GET", target, BEARER)) as peer:
        await peer.until(lambda: b'"start"' in peer.data)
        peer.scope.cancel()
        await peer.over.wait()
        assert peer.data.endswith(b"data: [DONE]\n\n")
        assert peer.sent[-1] == LAST


# --- WebSockets ------------------------------------------------------------------------------------------------------


async def test_a_websocket_speaks_the_protocol(house):
    author = await Author.create(house.runtime, HELPER, "r")
    async with connection(house.app, ws_scope("/v1/ws", BEARER)) as peer:
        peer.say("websocket.connect")
        await peer.until(lambda: peer.frames)
        assert peer.sent[0] == {"type": "websocket.accept", "subprotocol": "greenroom.v1"}
        peer.frame("subscribe", run="r", id="1")
        await author.write(["x"])
        await peer.until(lambda: any(frame.get("sequence") == 2 for frame in peer.frames))
        assert [frame["type"] for frame in peer.frames][:2] == ["gw.welcome", "gw.subscribed"]
        peer.say("websocket.disconnect", code=1001)
        await peer.over.wait()
    house.check_empty()


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ({"bytes": b"x"}, 4400),
        ({"text": "x"}, 4400),
        ({"text": "x" * 70_000}, 1009),
        ({"text": "é" * 33_000}, 1009),
        ({"bytes": b"x" * 70_000}, 1009),
    ],
)
async def test_a_bad_message_is_answered_with_its_close_code(house, message, code):
    async with connection(house.app, ws_scope("/v1/ws", BEARER)) as peer:
        peer.say("websocket.connect")
        peer.say("websocket.receive", **message)
        await peer.until(lambda: peer.sent[-1:] and peer.sent[-1]["type"] == "websocket.close")
        assert (peer.sent[-1]["code"], peer.frames[-1]["type"], peer.frames[-1]["code"]) == (code, "gw.bye", code)
        peer.say("websocket.disconnect", code=code)
        await peer.over.wait()


@pytest.mark.parametrize(
    ("scope", "status"),
    [
        (ws_scope("/v1/other", BEARER), 404),
        (ws_scope("/v1/ws", (b"authorization", b"Bearer nobody's")), 401),
        (ws_scope("/v1/ws", (b"origin", b"https://evil.example")), 403),
    ],
)
@pytest.mark.parametrize("able", [True, False])
async def test_a_handshake_is_refused(house, scope, status, able):
    async with connection(house.app, scope if able else scope | {"extensions": {}}) as peer:
        peer.say("websocket.connect")
        await peer.until(lambda: peer.sent and peer.sent[-1]["type"] != "websocket.http.response.start")
        peer.say("websocket.disconnect", code=1006)
        await peer.over.wait()
    if able:
        assert [message["type"].rpartition(".")[2] for message in peer.sent] == ["start", "body"]
        assert peer.status == status
    else:
        assert [message["type"] for message in peer.sent] == ["websocket.close"]


async def test_a_websocket_without_a_token_says_hello_or_is_closed(autojump_clock):
    async with gr.open_runtime(agents=[HELPER]) as runtime, asgi_app(runtime, token=TOKEN) as app:
        async with connection(app, ws_scope()) as peer:
            peer.say("websocket.connect")
            peer.frame("hello", token=TOKEN)
            await peer.until(lambda: peer.frames)
            assert peer.frames[0]["type"] == "gw.welcome"
        async with connection(app, ws_scope()) as peer:
            peer.say("websocket.connect")
            await peer.over.wait()
            assert peer.sent[-1]["code"] == 4408


async def test_a_silent_peer_gets_ticks_and_is_not_cut(autojump_clock):
    """Pings are the server's own."""
    async with gr.open_runtime(agents=[HELPER]) as runtime, asgi_app(runtime, token=TOKEN) as app:
        async with connection(app, ws_scope("/v1/ws", BEARER)) as peer:
            peer.say("websocket.connect")
            await trio.sleep(200)
            assert not peer.over.is_set()
            assert len([frame for frame in peer.frames if frame["type"] == "gw.tick"]) >= 8
            assert {message["type"] for message in peer.sent[1:]} == {"websocket.send"}


async def test_cancelled_by_its_server_a_websocket_is_told_to_come_back(house):
    async with connection(house.app, ws_scope("/v1/ws", BEARER)) as peer:
        peer.say("websocket.connect")
        await peer.until(lambda: peer.frames)
        peer.scope.cancel()
        await peer.over.wait()
        assert peer.frames[-1]["type"] == "gw.bye"
        assert peer.frames[-1]["retryAfterMs"] > 0
        assert peer.sent[-1]["type"] == "websocket.close"


# --- the lifespan ----------------------------------------------------------------------------------------------------


async def test_before_and_after_its_lifespan_it_refuses(tmp_path):
    app = asgi_app(gr.open_runtime(tmp_path / "x.db", agents=[HELPER]), token=TOKEN)
    assert (await asked(app, "GET", "/healthz")).code == "closing"
    async with connection(app, {"type": "lifespan"}) as life:
        life.say("lifespan.startup")
        await life.until(lambda: life.sent)
        assert life.sent == [{"type": "lifespan.startup.complete"}]
        assert (await asked(app, "GET", "/readyz")).status == 200
        life.say("lifespan.shutdown")
        await life.over.wait()
        assert life.sent[1:] == [{"type": "lifespan.shutdown.complete"}]
    assert (await asked(app, "GET", "/healthz")).code == "closing"
    async with connection(app, ws_scope()) as peer:
        peer.say("websocket.connect")
        await peer.over.wait()
    assert [message["type"] for message in peer.sent] == ["websocket.close"]


@pytest.mark.parametrize("options", [{"mcp": ["nobody"]}, {"on_abort": "never"}, {"a2a_default": "nobody"}])
async def test_a_lifespan_that_cannot_begin_says_why(options):
    async with gr.open_runtime(agents=[HELPER]) as runtime:
        app = asgi_app(runtime, token=TOKEN, **options)
        async with connection(app, {"type": "lifespan"}) as life:
            life.say("lifespan.startup")
            await life.over.wait()
        (message,) = life.sent
        assert message["type"] == "lifespan.startup.failed"
        assert next(iter(options)) in message["message"]
        assert (await asked(app, "GET", "/healthz")).code == "closing"


async def test_when_the_runtime_goes_first_streams_end_and_the_shutdown_says_so():
    app, peers = None, []
    async with gr.open_runtime(agents=[HELPER]) as runtime:
        app = asgi_app(runtime, token=TOKEN)
        await Author.create(runtime, HELPER, "r")
        life, follower = Peer(), Peer()
        peers += [life, follower]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(life.run, app, {"type": "lifespan"})
            life.say("lifespan.startup")
            await life.until(lambda: life.sent)
            nursery.start_soon(follower.run, app, http_scope("GET", "/v1/runs/r/events", BEARER, STREAM))
            await follower.until(lambda: follower.sent)
            life.say("lifespan.shutdown")
    assert life.sent[-1]["type"] == "lifespan.shutdown.complete"
    assert follower.sent[-1] == LAST


async def test_it_is_entered_once(house):
    with pytest.raises(gr.UsageError, match="serves already"):
        async with house.app:
            pass


@pytest.mark.parametrize(
    ("options", "text"), [({}, "token"), ({"tokn": "x"}, "token"), ({"token": "short"}, "too short")]
)
async def test_options_that_cannot_be_are_refused(options, text):
    async with gr.open_runtime() as runtime:
        with pytest.raises(gr.UsageError, match=text):
            asgi_app(runtime, **options)


def test_the_outbox_is_as_large_as_a_sockets_buffer():
    assert AHEAD == PIECE == 65_536
