"""How one HTTP connection goes to its next request, and how it ends, under virtual time."""

from contextlib import asynccontextmanager

import pytest
import trio
from tests.support.raw_ws import Ended, Raw, head
from trio.testing import memory_stream_pair

import greenroom as gr
from greenroom.transport.gateway.access import OriginPolicy, Principal, TokenTable
from greenroom.transport.gateway.gateway import Gateway
from greenroom.transport.gateway.http import Route, Streamed, json_response
from greenroom.transport.gateway.http_connection import LINGER, LINGER_MOST, serve_connection
from greenroom.transport.protocol.limits import Limits

TOKEN = "a-token-for-these-tests"


class Door:
    """A gateway with a stream in chunks and a plain answer, and one connection to it."""

    def __init__(self, raw, gateway):
        self.raw, self.gateway = raw, gateway
        self.send, self.receive = trio.open_memory_channel(10)
        self.ended = trio.Event()

    @asynccontextmanager
    async def chunks(self):
        yield self.receive.clone()

    async def stream(self, gateway, request):
        return Streamed(chunks=self.chunks)

    async def plain(self, gateway, request):
        return json_response({"asked": request.body.decode()})

    def ask(self, line, body=b"", **more):
        size = {"Content-Length": str(len(body))} if body else {}
        return head(line, {"Authorization": f"Bearer {TOKEN}", **size}, **more) + body


@asynccontextmanager
async def door(**limits):
    ours, theirs = memory_stream_pair()
    async with gr.open_runtime() as runtime, trio.open_nursery() as nursery:
        gateway = Gateway(
            runtime=runtime,
            keyring=TokenTable([Principal(name="ann", token=TOKEN)]),
            doorway=OriginPolicy(hosts=None),
            limits=Limits(**limits),
            routes=(),
        )
        here = Door(Raw(theirs), gateway)
        table = (("GET", "/stream", here.stream), ("POST", "/stream", here.stream), ("POST", "/plain", here.plain))
        gateway.routes = [
            Route(method=method, template=path, handler=handler, scope="follow", summary="x")
            for method, path, handler in table
        ]

        async def serve():
            await serve_connection(gateway, ours)
            here.ended.set()

        nursery.start_soon(serve)  # noqa: ASYNC113 - the bytes of a request wait in the stream
        yield here
        nursery.cancel_scope.cancel()


async def streamed(here, *chunks, **more):
    """The head of a stream and its chunks; the stream has ended."""
    for chunk in chunks:
        await here.send.send(chunk)
    await here.send.aclose()
    status, headers = await here.raw.heading()
    assert status == 200
    return headers, [chunk async for chunk in here.raw.chunks()]


async def test_the_end_of_a_stream_is_not_the_end_of_its_connection(autojump_clock):
    async with door() as here:
        await here.raw.send(here.ask("GET /stream HTTP/1.1"))
        headers, chunks = await streamed(here, b"one", b"two")
        assert chunks == [b"one", b"two"]
        assert (headers["connection"], headers["keep-alive"]) == ("keep-alive", "timeout=70")
        for number in range(3):
            await here.raw.send(here.ask("POST /plain HTTP/1.1", b"%d" % number))
            assert (await here.raw.answer()).json() == {"asked": str(number)}
        assert here.gateway._of["ann"] == 0


@pytest.mark.parametrize("size", [10, 60_000, 300_000])
async def test_a_request_that_is_sent_during_a_stream_is_answered_after_it(size, autojump_clock):
    """Also one that is larger than what is read ahead."""
    async with door() as here, trio.open_nursery() as nursery:
        await here.raw.send(here.ask("GET /stream HTTP/1.1"))
        nursery.start_soon(here.raw.send, here.ask("POST /plain HTTP/1.1", b"x" * size))
        await trio.testing.wait_all_tasks_blocked()
        await streamed(here, b"one")
        assert len((await here.raw.answer()).json()["asked"]) == size


@pytest.mark.parametrize(
    ("version", "more"), [("1.0", {}), ("1.1", {"Connection": "close"}), ("1.1", {"Connection": "x, Close"})]
)
async def test_a_peer_that_keeps_no_connections_is_shown_the_close(version, more, autojump_clock):
    async with door() as here:
        await here.raw.send(here.ask(f"POST /plain HTTP/{version}", b"x", **more))
        answer = await here.raw.answer()
        assert answer.headers["connection"] == "close"
        assert "keep-alive" not in answer.headers
        with pytest.raises(Ended):
            await here.raw.more()


async def test_a_stream_to_an_old_peer_ends_with_its_connection(autojump_clock):
    async with door() as here:
        await here.raw.send(here.ask("GET /stream HTTP/1.0"))
        await here.send.send(b"one")
        await here.send.aclose()
        answer = await here.raw.answer()
        assert (answer.body, answer.headers["connection"]) == (b"one", "close")
        assert "transfer-encoding" not in answer.headers


async def test_the_head_of_a_stream_has_no_length_and_the_connection_continues(autojump_clock):
    async with door() as here:
        await here.raw.send(here.ask("HEAD /stream HTTP/1.1"))
        answer = await here.raw.answer(body=False)
        assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
        assert "content-length" not in answer.headers
        await here.raw.send(here.ask("POST /plain HTTP/1.1", b"x"))
        assert (await here.raw.answer()).json() == {"asked": "x"}


async def test_a_stream_that_breaks_ends_its_connection_without_a_whole_end(autojump_clock, caplog):
    async with door() as here:
        here.chunks = lambda: 1 / 0
        await here.raw.send(here.ask("GET /stream HTTP/1.1"))
        await here.raw.heading()
        with pytest.raises(Ended):
            assert [chunk async for chunk in here.raw.chunks()] == []
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize(
    ("idle", "announced"), [(75.0, "timeout=70"), (10.0, "timeout=5"), (4.0, "timeout=2"), (1.5, None)]
)
async def test_an_idle_connection_is_closed_after_the_announced_time_and_not_reset(idle, announced, autojump_clock):
    """The peer sees the end at the limit; what it sends too late is read, so its end is no reset."""
    async with door(idle_seconds=idle) as here:
        await here.raw.send(here.ask("POST /plain HTTP/1.1", b"x"))
        assert (await here.raw.answer()).headers.get("keep-alive") == announced
        started = trio.current_time()
        with pytest.raises(Ended):
            await here.raw.more()
        assert trio.current_time() - started == idle
        await here.raw.send(here.ask("POST /plain HTTP/1.1", b"x"))
        await here.raw.stream.send_eof()
        await here.ended.wait()
        assert trio.current_time() - started < idle + LINGER


async def test_a_peer_that_sends_a_refused_body_slowly_can_read_the_refusal(autojump_clock):
    """Many clients read nothing before they have sent the whole body."""
    async with door(body_bytes=100) as here:
        await here.raw.send(here.ask("POST /plain HTTP/1.1", Content_Length="1000"))
        for _ in range(9):
            await trio.sleep(1)
            await here.raw.send(b"x" * 100)
        answer = await here.raw.answer()
        assert (answer.status, answer.headers["connection"]) == (413, "close")
        assert not here.ended.is_set()


async def test_a_peer_that_never_ends_a_refused_body_is_cut(autojump_clock):
    async with door(body_bytes=100) as here:
        await here.raw.send(here.ask("POST /plain HTTP/1.1", Content_Length="1000000"))
        await here.raw.trickle(b"x" * 1000, every=1.0)
        await here.ended.wait()
        assert trio.current_time() <= LINGER_MOST + 2


async def test_a_body_that_waits_for_a_word_gets_one_or_the_refusal(autojump_clock):
    """`Expect: 100-continue`: a refused body is not asked for."""
    async with door() as here:
        await here.raw.send(here.ask("POST /plain HTTP/1.1", Content_Length="1", Expect="100-continue"))
        assert (await here.raw.heading())[0] == 100
        await here.raw.send(b"x")
        assert (await here.raw.answer()).json() == {"asked": "x"}
        await here.raw.send(head("POST /plain HTTP/1.1", Content_Length="1", Expect="100-continue"))
        answer = await here.raw.answer()
        assert (answer.status, answer.headers["connection"]) == (401, "close")


async def test_a_stream_that_a_stopping_gateway_ends_is_whole_and_the_last(autojump_clock):
    async with door() as here:
        await here.raw.send(here.ask("GET /stream HTTP/1.1"))
        await here.send.send(b"one")
        await here.raw.heading()
        await trio.testing.wait_all_tasks_blocked()
        here.gateway.say_goodbye(restart=True)
        assert [chunk async for chunk in here.raw.chunks()] == [b"one"]
        with pytest.raises(Ended):
            await here.raw.more()
