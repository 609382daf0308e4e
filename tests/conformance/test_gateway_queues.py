"""Queues through the gateway: every road of a start says where and when its run works; queues are limited there."""

import json
from datetime import UTC, datetime, timedelta

import pytest

import greenroom as gr
from greenroom.actors.processes import QueueInfo
from greenroom.transport import Principal
from greenroom.transport.client import NotAllowed, connect

from ..support.gateway import TOKEN, gateway, http, talking
from ..support.runs import agent

pytestmark = pytest.mark.slow

ANN, BOB = "token-of-ann-0123456789", "token-of-bob-0123456789"
LATER = datetime(2999, 1, 31, 9, 30, tzinfo=UTC)


def people():
    return [
        Principal(name=name, token=token, scopes={"follow", "start"}, sees=lambda info, name=name: info.by == name)
        for name, token in (("ann", ANN), ("bob", BOB))
    ]


async def by_http(address, **options):
    reply = await http(address, "POST", "/v1/runs", body={"agent": "helper", "text": "x", **options})
    return reply.json()


async def by_socket(address, **options):
    async with talking(address) as talk:
        await talk.hear()
        return await talk.ask("start", id=f"i{len(str(options))}", agent="helper", text="x", **options)


async def by_client(address, **options):
    if "at" in options:
        options["at"] = LATER
    async with connect(address.url, token=TOKEN) as client:
        started = await client.start("helper", "x", **options)
        status = "duplicate" if started.duplicate else "accepted"
        return {"run": started.run_id, "thread": started.thread_id, "status": status}


ROADS = [by_http, by_socket, by_client]


@pytest.mark.parametrize("road", ROADS)
async def test_a_start_says_where_and_when_its_run_works(road):
    async with gr.open_runtime(agents=[agent()]) as runtime, gateway(runtime) as address:
        await runtime.store.set_queue("mails", paused=True)
        found = await road(address, queue="mails", priority=5, dedupe="nightly")
        assert found["status"] == "accepted"
        again = await road(address, queue="mails", dedupe="nightly")
        assert (again["run"], again["status"]) == (found["run"], "duplicate")
        later = await road(address, at=LATER.isoformat())
        view = (await http(address, "GET", f"/v1/runs/{found['run']}")).json()
        assert view["waitingFor"] == {
            "kind": "queue",
            "detail": "it waits in the queue 'mails', which is paused",
            "run": None,
        }
        view = (await http(address, "GET", f"/v1/runs/{later['run']}")).json()
        assert view["waitingFor"]["detail"] == "it waits in the queue 'helper' until 2999-01-31T09:30:00.000Z"
        lines = {line["name"]: line for line in (await http(address, "GET", "/v1/queues")).json()["queues"]}
        assert (lines["mails"]["ready"], lines["mails"]["scheduled"]) == (1, 0)
        assert (lines["helper"]["ready"], lines["helper"]["scheduled"]) == (0, 1)
        assert datetime.fromisoformat(lines["helper"]["later"]) == LATER


async def test_a_deadline_and_the_background_are_for_every_principal():
    async with gr.open_runtime(agents=[agent()]) as runtime, gateway(runtime, principals=people()) as address:
        body = {
            "agent": "helper",
            "text": "x",
            "deadline": LATER.isoformat(),
            "background": True,
            "at": LATER.isoformat(),
        }
        found = (await http(address, "POST", "/v1/runs", token=ANN, body=body)).json()
        info = await runtime.reader.info(found["run"])
        assert (info.by, info.deadline) == ("ann", LATER)
        assert (await runtime.store.queues())[0].scheduled == 1


@pytest.mark.parametrize("option", [{"queue": "mails"}, {"priority": 1}, {"priority": -1}])
async def test_a_queue_and_a_priority_need_the_scope_admin(option):
    async with gr.open_runtime(agents=[agent()]) as runtime, gateway(runtime, principals=people()) as address:
        body = {"agent": "helper", "text": "x", **option}
        reply = await http(address, "POST", "/v1/runs", token=ANN, body=body)
        assert (reply.status, reply.json()["error"]["code"]) == (403, "not_allowed")
        async with connect(address.url, token=ANN) as client:
            with pytest.raises(NotAllowed, match="scope 'admin'"):
                await client.start("helper", "x", **option)
            for refused in (client.queues(), client.set_queue("helper"), client.prune(LATER)):
                with pytest.raises(NotAllowed):
                    await refused
        assert not (await runtime.runs()).runs
        assert await runtime.store.queues() == []


async def test_a_dedupe_key_joins_no_runs_of_two_principals():
    """bob's start is accepted, and says nothing of ann's open run with the same key."""
    async with gr.open_runtime(agents=[agent()]) as runtime, gateway(runtime, principals=people()) as address:
        body = {"agent": "helper", "text": "x", "dedupe": "nightly", "at": LATER.isoformat()}
        found = [(await http(address, "POST", "/v1/runs", token=token, body=body)).json() for token in (ANN, BOB, ANN)]
        assert [one["status"] for one in found] == ["accepted", "accepted", "duplicate"]
        assert found[0]["run"] == found[2]["run"] != found[1]["run"]


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"at": "tomorrow"}, "at='tomorrow' is no time"),
        ({"at": "2026-01-31T09:30:00"}, "with a timezone"),
        ({"deadline": "soon"}, "deadline='soon' is no time"),
        ({"queue": "a b"}, "queue='a b'"),
        ({"dedupe": ""}, "dedupe=''"),
        ({"dedupe": "x" * 257}, "256"),
        ({"queue": "q", "background": False}, "background=False"),
    ],
)
async def test_a_value_that_cannot_be_is_named(option, said):
    async with gr.open_runtime(agents=[agent()]) as runtime, gateway(runtime) as address:
        reply = await http(address, "POST", "/v1/runs", body={"agent": "helper", "text": "x", **option})
        assert reply.status == 422, reply.body
        assert said in reply.json()["error"]["message"]
        assert not (await runtime.runs()).runs


async def test_a_queue_is_limited_and_paused_over_http():
    async with gr.open_runtime(agents=[agent()]) as runtime, gateway(runtime) as address:
        path = "/v1/queues/mails"
        line = (await http(address, "POST", path, body={"maxRunning": 3, "paused": True})).json()
        assert (line["name"], line["maxRunning"], line["paused"]) == ("mails", 3, True)
        line = (await http(address, "POST", path, body={})).json()
        assert (line["maxRunning"], line["paused"]) == (None, False)
        for bad, status in (({"maxRunning": 0}, 422), ({"maxRunning": "3"}, 400), ({"max": 3}, 400)):
            assert (await http(address, "POST", path, body=bad)).status == status
        assert (await http(address, "POST", f"/v1/queues/{'x' * 129}", body={})).status == 422
        async with connect(address.url, token=TOKEN) as client:
            await client.set_queue("mails", max_running=2)
            (queue,) = await client.queues()
            assert queue == QueueInfo(name="mails", max_running=2)
            with pytest.raises(gr.UsageError, match="max_running=0"):
                await client.set_queue("mails", max_running=0)


async def test_runs_are_pruned_and_dead_letters_looked_for_over_http():
    async with gr.open_runtime(agents=[agent()]) as runtime, gateway(runtime) as address:
        await (await runtime.start("helper", "x", run_id="r1")).result()
        async with connect(address.url, token=TOKEN) as client:
            assert await client.revive_run("r1") is False
            with pytest.raises(gr.UnknownRun):
                await client.revive_run("nothing")
            assert (await client.prune(runtime.clock.now() + timedelta(days=1))).runs == 1
            with pytest.raises(gr.UsageError, match="time zone"):
                await client.prune(datetime(2026, 1, 31))
        reply = await http(address, "POST", "/v1/prune", body={"before": "2026-01-31T09:30:00"})
        assert reply.status == 422, json.dumps(reply.json())
