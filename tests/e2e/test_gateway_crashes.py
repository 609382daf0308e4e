"""Bugs of the gateway itself, put in on purpose: they are reported to the operator, and end no more than they must."""

import pytest
import trio
from tests.support.event_writer import Author
from tests.support.gateway import TOKEN, http
from tests.support.gateway_inside import HELPER, house, standing, until
from tests.support.raw_ws import Ended, head, said

import greenroom as gr
from greenroom.transport import Principal

pytestmark = pytest.mark.slow


class Broken:
    """In the place of a subscription: a reader that looks at it fails."""

    @property
    def source(self):
        raise ZeroDivisionError("a bug in a pump")


async def boom(text):
    raise ZeroDivisionError(text)


async def test_a_pump_that_fails_ends_the_connections_that_follow_its_run_and_no_other():
    async with house() as here:
        authors = [await Author.create(here.runtime, HELPER, run) for run in ("r1", "r2")]
        async with here.talking() as one, here.talking() as two, here.talking() as other:
            for raw, runs in ((one, ["r1"]), (two, ["r1", "r2"]), (other, ["r2"])):
                for run in runs:
                    await raw.send(said("subscribe", run=run))
                    await raw.find("gw.live")
            pump = here.gateway.fanout._pumps["r1"]
            pump.places[Broken()] = next(iter(pump.places.values()))
            for author in authors:
                await author.write(["x"])
            for raw in (one, two):
                assert await raw.parting() == ("internal", 1011)
            assert (await other.find("run.message.delta"))["runId"] == "r2"
            async with here.talking() as again:
                await again.send(said("subscribe", run="r1"))
                await again.find("gw.live")
                await authors[0].write(["y"])
                assert (await again.find("run.message.delta"))["sequence"] == 3
                await authors[1].write(["y"])
                assert (await other.find("run.message.delta"))["sequence"] == 3
        (reported,) = here.failures.texts
        assert "a bug in a pump" in reported
        here.failures.texts.clear()


@pytest.mark.parametrize("times", [1, 3])
async def test_what_holds_all_connections_begins_again_on_the_same_port(times):
    async with house() as here:
        for number in range(times):
            async with here.talking() as raw, here.calling() as idle:
                here.gateway.fanout._nursery.start_soon(boom, f"bug {number}")
                with pytest.raises(Ended):
                    await raw.hear()
                assert await idle.rest() == b""
            await until(lambda: here.gateway.open == 0)
            with trio.fail_after(30):
                await here.honest()
        assert [f"bug {number}" in text for number, text in enumerate(here.failures.texts)] == [True] * times
        here.failures.texts.clear()


async def test_a_handler_that_fails_is_answered_and_the_connection_continues():
    """What an operator's own function does, for instance."""

    def sees(info):
        raise ZeroDivisionError("whose run is it?")

    ann = Principal(name="ann", token="token-of-ann-0123456789", sees=sees)
    async with house(principals=[ann]) as here:
        await Author.create(here.runtime, HELPER, "r")
        for _ in range(2):
            found = await http(here.address, "GET", "/v1/runs/r", token=ann.token)
            assert (found.status, found.json()["error"]["code"]) == (500, "internal")
            assert b"whose" not in found.body
        async with here.talking(ann.token) as raw:
            for _ in range(2):
                await raw.send(said("subscribe", run="r", id="i"))
                error = await raw.find("gw.error")
                assert (error["code"], error["id"], "whose" in error["message"]) == ("internal", "i", False)
        assert len(here.failures.texts) == 4
        assert all("whose run is it?" in text for text in here.failures.texts)
        here.failures.texts.clear()


async def test_a_stream_that_fails_does_not_look_whole():
    """Its reader must not take what it has for all there is."""

    class Store(gr.MemoryStore):
        broken = False

        async def events(self, run_id, **page):
            if self.broken:
                raise ZeroDivisionError("the store is broken")
            return await super().events(run_id, **page)

    store = Store()
    async with gr.open_runtime(store, agents=[HELPER]) as runtime, standing(runtime) as here, here.calling() as raw:
        await Author.create(runtime, HELPER, "r")
        store.broken = True
        headers = {"Host": here.host, "Authorization": f"Bearer {TOKEN}", "Accept": "text/event-stream"}
        await raw.send(head("GET /v1/runs/r/events HTTP/1.1", headers))
        assert (await raw.heading())[0] == 200
        with pytest.raises(Ended):
            [chunk async for chunk in raw.chunks()]
        (text,) = here.failures.texts
        assert "the store is broken" in text
