"""The end of a gateway with connections of all kinds: each gets a well-formed end soon, also one that does not read."""

import json
import math

import pytest
import trio
from tests.support.event_writer import Author
from tests.support.gateway import TOKEN
from tests.support.gateway_inside import HELPER, standing, until
from tests.support.raw_ws import TEXT, head, said

import greenroom as gr
from greenroom.transport.server.serve import FAREWELL

pytestmark = pytest.mark.slow
BUSY = FAREWELL + 20.0
"""Seconds that the end of `serve` may take a busy machine: less than who does not read would be waited for."""


class Crowd:
    """Connections of many kinds, and what each of them receives at the end."""

    def __init__(self, here):
        self.here = here
        self.byes, self.streams, self.silent, self.times = [], [], [], []
        self.started_at = math.inf

    @property
    def headers(self):
        return {"Host": self.here.host, "Authorization": f"Bearer {TOKEN}"}

    async def follower(self, *, task_status):
        async with self.here.talking() as raw:
            await raw.send(said("subscribe", run="r"))
            await raw.find("gw.live")
            task_status.started()
            self.byes.append(await raw.to_the_end())
            self.ended()

    async def unknown(self, *, task_status):
        """One that has not said hello yet."""
        async with self.here.talking(None) as raw:
            task_status.started()
            self.byes.append(await raw.to_the_end())
            self.ended()

    async def stream(self, *, task_status):
        async with self.here.calling() as raw:
            await raw.send(head("GET /v1/runs/r/events HTTP/1.1", self.headers, Accept="text/event-stream"))
            assert (await raw.heading())[0] == 200
            task_status.started()
            self.streams.append(b"".join([chunk async for chunk in raw.chunks()]))
            assert await raw.rest() == b""
            self.ended()

    async def idle(self, *, task_status):
        async with self.here.calling() as raw:
            await raw.send(head("GET /healthz HTTP/1.1", self.headers))
            assert (await raw.answer()).status == 200
            task_status.started()
            self.silent.append(await raw.rest())
            self.ended()

    async def mute(self, *, task_status):
        """One that has not said anything."""
        async with self.here.calling() as raw:
            task_status.started()
            self.silent.append(await raw.rest())
            self.ended()

    async def half(self, *, task_status):
        """One in the middle of a request."""
        async with self.here.calling() as raw:
            await raw.send(head("POST /v1/runs HTTP/1.1", self.headers, Content_Length="100") + b"{")
            task_status.started()
            self.silent.append(await raw.rest())

    async def deaf(self, *, task_status):
        """One that follows and does not read."""
        async with self.here.talking(buffer=4096) as raw:
            await raw.send(said("subscribe", run="r"))
            await raw.find("gw.live")
            task_status.started()
            await trio.sleep_forever()

    async def late(self, *, task_status):
        """One that asks for a large page and does not read it."""
        async with self.here.calling(buffer=4096) as raw:
            await raw.send(head("GET /v1/schemas HTTP/1.1", self.headers) * 50)
            await raw.more(10)
            task_status.started()
            await trio.sleep_forever()

    def ended(self):
        self.times.append(trio.current_time() - self.started_at)


async def test_two_hundred_connections_of_all_kinds_learn_of_the_end():
    async with gr.open_runtime(agents=[HELPER]) as runtime, standing(runtime) as here:
        crowd, author = Crowd(here), await Author.create(runtime, HELPER, "r")
        kinds = {crowd.follower: 80, crowd.unknown: 30, crowd.stream: 40, crowd.idle: 30, crowd.mute: 20}
        async with trio.open_nursery() as clients:
            for kind, times in kinds.items():
                for _ in range(times):
                    await clients.start(kind)
            await author.write(["x"] * 10)
            await trio.testing.wait_all_tasks_blocked(0.05)
            crowd.started_at = trio.current_time()
            here.scope.cancel()
            with trio.fail_after(BUSY):
                await here.ended.wait()
        assert here.failures.texts == []
        assert list(here.left()) == []
        assert max(crowd.times) < FAREWELL
        check_byes(crowd.byes, 110)
        assert len(crowd.streams) == 40
        assert all(data.count(b"\ndata: ") == 11 for data in crowd.streams)
        assert crowd.silent == [b""] * 50


def check_byes(byes, number):
    """Each was ordered to come back, each at another time, and has what was durable before."""
    waits = []
    for heard in byes:
        assert heard[-1].code == 1012
        bye = heard[-2].json()
        assert (bye["type"], bye["code"], bye["name"]) == ("gw.bye", 1012, "restart")
        waits.append(bye["retryAfterMs"])
        events = [
            frame.json() for frame in heard if frame.opcode == TEXT and not frame.json()["type"].startswith("gw.")
        ]
        assert [event["sequence"] for event in events] in ([], list(range(2, 12))), "the first one was passed over"
    assert len(byes) == number
    assert len(set(waits)) > number / 2
    assert all(250 <= wait <= 250 + 1000 * (0.25 + number / 500) for wait in waits)


async def test_who_does_not_read_blocks_no_client():
    """Neither those who are informed of the end nor the caller of `serve`, beyond the time for farewell."""
    async with gr.open_runtime(agents=[HELPER]) as runtime, standing(runtime) as here:
        crowd, author = Crowd(here), await Author.create(runtime, HELPER, "r")
        async with trio.open_nursery() as clients:
            for kind in [crowd.deaf] * 10 + [crowd.half] * 3 + [crowd.late] * 3:
                await clients.start(kind)
            for _ in range(20):
                await author.write(["x" * 60_000])
            for kind in [crowd.follower, crowd.stream, crowd.idle] * 3:
                await clients.start(kind)
            crowd.started_at = trio.current_time()
            here.scope.cancel()
            with trio.fail_after(BUSY):
                await here.ended.wait()
            await until(lambda: len(crowd.times) == 9)
            clients.cancel_scope.cancel()
        assert max(crowd.times) < FAREWELL
        assert here.failures.texts == []
        assert list(here.left()) == []


async def test_an_idle_connection_is_closed_at_once_and_blocks_no_client():
    async with gr.open_runtime(agents=[HELPER]) as runtime, standing(runtime) as here:
        crowd = Crowd(here)
        async with trio.open_nursery() as clients:
            for kind in [crowd.idle, crowd.mute] * 20:
                await clients.start(kind)
            started_at = trio.current_time()
            here.scope.cancel()
            await here.ended.wait()
            assert trio.current_time() - started_at < FAREWELL


async def test_a_request_that_is_under_way_is_answered_and_the_next_one_is_not():
    async with gr.open_runtime(agents=[HELPER]) as runtime, standing(runtime) as here:
        async with here.calling() as raw, here.calling() as other:
            body = json.dumps({"agent": "helper", "text": "hi"}).encode()
            request = head("POST /v1/runs HTTP/1.1", Crowd(here).headers, Content_Length=str(len(body)))
            await raw.send(request, body[:5])
            await other.send(request)
            await trio.testing.wait_all_tasks_blocked(0.05)
            here.scope.cancel()
            await trio.testing.wait_all_tasks_blocked(0.05)
            await raw.send(body[5:], request, body)
            answer = await raw.answer()
            assert (answer.status, answer.headers["connection"]) == (201, "close")
            assert await raw.rest() == b""
        await here.ended.wait()
        assert here.failures.texts == []


async def test_when_the_runtime_goes_first_every_client_is_informed_and_serve_says_so():
    runtimes, close = [], trio.Event()

    async def keep(*, task_status):
        async with gr.open_runtime(agents=[HELPER]) as runtime:
            runtimes.append(runtime)
            task_status.started()
            await close.wait()

    async with trio.open_nursery() as nursery:
        await nursery.start(keep)
        async with standing(runtimes[0]) as here:
            crowd, author = Crowd(here), await Author.create(here.runtime, HELPER, "r")
            kinds = {crowd.follower: 20, crowd.unknown: 5, crowd.stream: 10, crowd.idle: 5}
            async with trio.open_nursery() as clients:
                for kind, times in kinds.items():
                    for _ in range(times):
                        await clients.start(kind)
                await author.write(["x"] * 10)
                await trio.testing.wait_all_tasks_blocked(0.05)
                crowd.started_at = trio.current_time()
                close.set()
                with trio.fail_after(BUSY):
                    await here.ended.wait()
            assert [type(error) for error in here.errors] == [gr.RuntimeClosed]
            here.errors.clear()
            assert here.failures.texts == []
            assert {heard[-1].code for heard in crowd.byes} == {1001}
            byes = [heard[-2].json() for heard in crowd.byes]
            assert {(bye["name"], bye["code"]) for bye in byes} == {("going_away", 1001)}
            assert len({bye["retryAfterMs"] for bye in byes}) > 10
            assert len(crowd.streams) == 10
            assert max(crowd.times) < FAREWELL
