"""A run that does not come to rest says what it waits for: in its view, over the gateway, and in the log."""

import json
import logging
from datetime import timedelta

import pytest
import trio

import greenroom as gr
from greenroom.actors.contract.envelope import timestamp
from greenroom.testing import call, delay
from greenroom.transport import Principal
from greenroom.transport.gateway.api import Api, plain_view

from ..support.runs import Shelf, agent, home


@gr.tool(needs_approval=True)
async def pay() -> str:
    """Needs an approval."""
    return "paid"


def payer(**options):
    return agent(call("pay", id="c1"), "done", tools=[pay], **options)


@pytest.fixture(params=["memory", "sqlite"])
def shelf(request, tmp_path):
    return Shelf(request.param, tmp_path)


def log_lines(caplog, *words):
    """How often the log was informed, and at which level."""
    found = [record for record in caplog.records if all(word in record.getMessage() for word in words)]
    return [(record.name, record.levelname) for record in found]


async def waits(run):
    found = (await run.view()).waiting_for
    return None if found is None else (found.kind, found.run_id)


@pytest.mark.rule("L-94")
async def test_a_run_behind_another_one_names_it_until_that_is_done(shelf, autojump_clock, caplog):
    caplog.set_level(logging.INFO)
    async with home(shelf, agents=[payer()]) as runtime:
        first = await runtime.start("helper", "x", run_id="r1", thread_id="t")
        await first.wait()
        second = await runtime.start("helper", "y", run_id="r2", thread_id="t")
        await trio.sleep(1)
        assert await waits(first) == ("people", None)
        assert await waits(second) == ("thread", "r1")
        assert "r1" not in (await second.view()).waiting_for.detail
        assert log_lines(caplog, "r2", "waits for its thread", "r1") == [("greenroom.run", "INFO")]
        await first.decide("c1", "resume")
        await first.result()
        assert await waits(first) is None
        await second.wait()
        assert await waits(second) == ("people", None)


async def test_a_run_behind_one_without_an_owner_says_so(shelf, autojump_clock, caplog):
    async with home(shelf, agents=[agent(delay(100), "x", key="gone"), payer()], drain=0) as runtime:
        await runtime.start("gone", "x", run_id="r1", thread_id="t")
        await trio.sleep(1)
    async with home(shelf, agents=[payer()]) as runtime:
        second = await runtime.start("helper", "y", run_id="r2", thread_id="t")
        await trio.sleep(1)
        found = (await second.view()).waiting_for
        assert (found.kind, found.run_id) == ("thread", "r1")
        assert "agent_unknown" in found.detail
        assert await waits(await runtime.get("r1")) == ("agent", None)
        assert log_lines(caplog, "run r1 has no owner here (agent_unknown)") == [("greenroom.run", "WARNING")]
        for _ in range(3):
            await second.send("hello?")
            await trio.sleep(100)
        assert len(log_lines(caplog, "run r1 has no owner here")) == 1


@pytest.mark.parametrize("answers", ["never", "fails"])
async def test_a_run_whose_deps_do_not_come_says_so(shelf, answers, autojump_clock, caplog):
    async def provider(info):
        if answers == "never":
            await trio.sleep_forever()
        raise ConnectionError("no database")

    async with home(shelf, agents=[payer()], deps=provider) as runtime:
        run = await runtime.start("helper", "x")
        await trio.sleep(1000)
        assert await waits(run) == ("deps", None)
        assert len(log_lines(caplog, "has no owner here", run.id)) == (answers == "fails")
        await run.cancel()
        assert isinstance(await run.result(), gr.Cancelled)
        assert await waits(run) is None


@pytest.mark.rule("L-94")
async def test_a_run_that_waits_for_a_slot_says_so(shelf, autojump_clock):
    async with home(shelf, agents=[agent(delay(100), "a", "b")], max_running=1) as runtime:
        first = await runtime.start("helper", "x")
        second = await runtime.start("helper", "y")
        await trio.sleep(1)
        assert [await waits(first), await waits(second)] == [None, ("slot", None)]
        assert "1 runs" in (await second.view()).waiting_for.detail
        await second.result()
        assert await waits(second) is None


@pytest.mark.rule("L-94")
@pytest.mark.parametrize("why", ["paused", "later", "paused later", "limited"])
async def test_a_run_that_waits_in_its_queue_says_why(shelf, why, autojump_clock):
    async with home(shelf, agents=[agent(delay(100), "a", "b", "c")]) as runtime:
        at = runtime.clock.now() + timedelta(hours=1) if "later" in why else None
        await runtime.store.set_queue("mails", paused="paused" in why, max_running=1 if why == "limited" else None)
        if why == "limited":
            await runtime.start("helper", "x", queue="mails")
            await trio.sleep(1)
        run = await runtime.start("helper", "x", queue="mails", at=at)
        await trio.sleep(1)
        found = (await run.view()).waiting_for
        until = "" if at is None else f" until {timestamp(at)}"
        ends = {
            "paused": ", which is paused",
            "limited": " for a process that has room; at most 1 of its runs work at once",
        }
        assert found == gr.WaitingFor(
            kind="queue", detail=f"it waits in the queue 'mails'{until}{ends.get(why.split()[0], '')}"
        )
        (info,) = await runtime.store.queues()
        assert (info.ready + info.scheduled, info.scheduled, info.later) == (1, int(at is not None), at)
        await runtime.store.set_queue("mails")
        await trio.sleep(3700)
        assert await waits(run) is None
        assert (await runtime.store.queues())[0].scheduled == 0


async def test_the_gateway_names_no_run_that_may_not_be_seen(autojump_clock):
    async with home(agents=[payer()]) as runtime:
        await (await runtime.start("helper", "x", run_id="hidden", thread_id="t", by="ann")).wait()
        await runtime.start("helper", "y", run_id="mine", thread_id="t", by="bob")
        await trio.sleep(1)
        api = Api(runtime)
        for sees, named in ((lambda info: info.by == "bob", None), (lambda info: True, "hidden")):
            who = Principal(name="bob", token="x" * 16, sees=sees)
            plain = plain_view(await api.view(who, "mine"))
            assert plain["waitingFor"] == {
                "kind": "thread",
                "detail": "another run works on its thread",
                "run": named,
            }
            assert json.dumps(plain["waitingFor"])
