"""The body of a response that continues, under virtual time: comments in between, a whole end, a peer that hangs up."""

from contextlib import aclosing, asynccontextmanager

import h11
import pytest
import trio
from tests.support.raw_ws import Raw
from trio.testing import memory_stream_pair

import greenroom as gr
from greenroom.transport.gateway.access import OriginPolicy, TokenTable
from greenroom.transport.gateway.gateway import Gateway
from greenroom.transport.gateway.http import COMMENT, Streamed
from greenroom.transport.gateway.response_stream import ChunkedBody, ResponseStream
from greenroom.transport.gateway.shared_stream import SharedStream
from greenroom.transport.protocol.limits import Limits


class Source:
    """Chunks that come when the test sends them; `closed` is when the reader has let go of it."""

    def __init__(self):
        self.send, self._receive = trio.open_memory_channel(10)
        self.closed, self.error = False, None

    @asynccontextmanager
    async def chunks(self):
        try:
            yield self._receive
        finally:
            self.closed = True
        if self.error is not None:
            raise self.error


@asynccontextmanager
async def flowing():
    """A stream in chunks whose head has been sent; `over` is set when it has ended."""
    ours, theirs = memory_stream_pair()
    http = h11.Connection(h11.SERVER)
    http.receive_data(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    http.next_event()
    async with gr.open_runtime() as runtime, trio.open_nursery() as nursery:
        gateway = Gateway(
            runtime=runtime,
            keyring=TokenTable([]),
            doorway=OriginPolicy(hosts=None),
            limits=Limits(),
            routes=(),
        )
        stream, source, over = SharedStream(ours, b"", stall_seconds=30), Source(), trio.Event()

        async def run():
            await stream.send_all(http.send(h11.Response(status_code=200, headers=[])))
            await ResponseStream(gateway, ChunkedBody(stream, http)).run(
                Streamed(chunks=source.chunks, last=lambda: b"last")
            )
            over.set()

        nursery.start_soon(run)
        raw = Raw(theirs)
        await raw.heading()
        yield gateway, raw, source, over
        nursery.cancel_scope.cancel()
    assert gateway.idle == set()


async def test_chunks_come_as_they_are_and_then_the_end(autojump_clock):
    async with flowing() as (_, raw, source, over):
        for chunk in (b"one", b"", b"two"):
            await source.send.send(chunk)
        await source.send.aclose()
        assert [chunk async for chunk in raw.chunks()] == [b"one", b"two"]
        await over.wait()
        assert source.closed


async def test_a_silent_stream_is_kept_alive_by_comments(autojump_clock):
    async with flowing() as (_, raw, source, __), aclosing(raw.chunks()) as chunks:
        started_at, seen = trio.current_time(), []
        async for chunk in chunks:
            seen.append((trio.current_time() - started_at, chunk))
            if len(seen) == 3:
                await trio.sleep(10)
                await source.send.send(b"one")
            if len(seen) == 5:
                break
        assert seen == [(15, COMMENT), (30, COMMENT), (45, COMMENT), (55, b"one"), (70, COMMENT)]


async def test_when_the_gateway_stops_the_stream_ends_whole(autojump_clock):
    async with flowing() as (gateway, raw, source, over):
        await source.send.send(b"one")
        await trio.sleep(1)
        gateway.say_goodbye(restart=True)
        assert [chunk async for chunk in raw.chunks()] == [b"one", b"last"]
        await over.wait()
        assert source.closed


async def test_a_chunk_that_comes_with_the_end_is_still_written(autojump_clock):
    async with flowing() as (gateway, raw, source, over):
        await trio.testing.wait_all_tasks_blocked()
        source.send.send_nowait(b"one")  # it is awake, and has not run
        gateway.say_goodbye(restart=True)
        assert [chunk async for chunk in raw.chunks()] == [b"one", b"last"]
        await over.wait()


async def test_a_peer_that_hangs_up_ends_it(autojump_clock):
    async with flowing() as (_, raw, source, over):
        await raw.stream.send_eof()
        await over.wait()
        assert source.closed


@pytest.mark.parametrize("error", [gr.RuntimeClosed("closed"), gr.StoreUnavailable("later"), gr.StoreDown("gone")])
async def test_a_source_that_ends_with_the_runtime_ends_it_whole(error, autojump_clock):
    async with flowing() as (_, raw, source, over):
        source.error = error
        await source.send.send(b"one")
        await source.send.aclose()
        assert [chunk async for chunk in raw.chunks()] == [b"one", b"last"]
        await over.wait()
