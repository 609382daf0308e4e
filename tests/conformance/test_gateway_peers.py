"""Several gateways on one shared store: start at one, follow at another, decide at a third; a fourth process works."""

import re
from functools import partial

import pytest
import trio
from tests.support.gateway import TOKEN, gateway, http, welcomed
from tests.support.runs import agent
from tests.support.shared import cluster, until

import greenroom as gr
from greenroom.testing import FunctionModel, call
from greenroom.transport import Principal, connect
from greenroom.transport.gateway.api import Api

pytestmark = pytest.mark.slow


@gr.tool(needs_approval=True, effect="write")
async def refund(order: str) -> str:
    """Pay back."""
    return "paid"


def clerk(**options):
    return agent(call("refund", order="7", id="c1"), "done", tools=[refund], **options)


async def test_a_run_is_started_followed_and_decided_at_three_gateways_without_its_agent():
    async with cluster() as processes:
        await processes.open(clerk())
        edges = [await processes.open() for _ in range(3)]
        async with gateway(edges[0]) as first, gateway(edges[1]) as second, gateway(edges[2]) as third:
            async with (
                connect(first.url, token=TOKEN) as starting,
                connect(second.url, token=TOKEN) as following,
                connect(third.url, token=TOKEN) as deciding,
            ):
                started = await starting.start("helper", "hi")
                seen = []
                async with following.follow(started.run_id) as events:
                    async for event in events:
                        seen.append(event)
                        if event.type == "run.approval.requested":
                            ticket = event.payload["ticketId"]
                            answers = [
                                await client.decide(started.run_id, ticket, "approve", decision_id="d")
                                for client in (deciding, starting)
                            ]
                            assert [answer.status for answer in answers] == ["accepted", "duplicate"]
                assert [event.sequence for event in seen] == [*range(1, len(seen) + 1)]
                assert seen[-1].type == "run.completed"
                for client in (starting, following, deciding):
                    assert (await client.view(started.run_id)).status is gr.RunStatus.DONE


async def test_agents_of_other_processes_are_known_while_these_live():
    async with cluster() as processes:
        worker, edge = await processes.open(clerk()), await processes.open()
        async with gateway(edge) as address:
            with trio.fail_after(60):
                while True:
                    lines = (await http(address, "GET", "/v1/agents")).json()["agents"]
                    if lines:
                        break
                    await trio.sleep(0.05)
            digest = worker.agents["helper"].spec.digest
            assert lines == [{"key": "helper", "description": "", "tools": [], "digests": [digest], "here": False}]
            await processes.close(worker)
            async with connect(address.url, token=TOKEN) as client:
                with pytest.raises(gr.UnknownAgent):
                    await client.start("helper", "hi")


async def test_a_watched_list_hears_of_the_runs_of_other_processes_and_only_of_changes():
    async with cluster() as processes:
        worker, edge = await processes.open(clerk()), await processes.open()
        async with gateway(edge) as address, welcomed(address) as talk:
            assert (await talk.ask("watch", id="w"))["runs"] == []
            run = await worker.start("helper", "hi", run_id="a")
            await run.wait()
            row = {}
            while row.get("stage") != "needs_approval":
                frame = await talk.hear()
                assert frame["type"] in ("gw.run", "gw.counts")
                row = frame.get("row") or row
            assert (row["run"], row["queue"]) == ("a", "helper")
            while frame["type"] != "gw.counts":
                frame = await talk.hear()
            with trio.move_on_after(5.0):  # two sweeps that find nothing new
                raise AssertionError(await talk.hear())
            await run.decide((await run.view()).tickets[0].approve())
            while row.get("stage") != "completed":
                row = (await talk.hear()).get("row") or row


async def test_metrics_have_the_queues_of_a_shared_store():
    async with cluster() as processes:
        edge = await processes.open()
        worker = await processes.open(clerk())
        await (await worker.start("helper", "hi")).wait()
        await edge.store.set_queue("mails", max_running=5)
        async with gateway(edge) as address:
            text = (await http(address, "GET", "/metrics")).body.decode()
            queues = (await http(address, "GET", "/v1/queues")).json()["queues"]
        assert 'greenroom_queue_ready{queue="helper"} 0.0' in text
        assert 'greenroom_queue_oldest_seconds{queue="mails"} 0.0' in text
        assert "greenroom_store_beat_age_seconds " in text
        ages = re.findall(r'greenroom_process_beat_age_seconds\{process="([^"]+)"\} (\S+)', text)
        assert {name: float(age) for name, age in ages} == {
            process.name: pytest.approx(process.beat_age, abs=1.0) for process in await edge.store.processes()
        }
        assert [(line["name"], line["maxRunning"]) for line in queues] == [("helper", None), ("mails", 5)]


async def test_new_logs_reset_the_followers_of_every_gateway_once():
    async with cluster() as processes:
        worker = await processes.open(clerk())
        edges = [await processes.open() for _ in range(2)]
        run = await worker.start("helper", "hi", run_id="a")
        await run.wait()
        last = (await run.view()).last_sequence
        async with gateway(edges[0]) as first, gateway(edges[1]) as second:
            async with welcomed(first) as one, welcomed(second) as two:
                for talk in (one, two):
                    await talk.say("subscribe", run="a")
                    await talk.until("gw.live")
                worker.store.renew_epoch()
                for talk in (one, two):
                    frames = await talk.until("gw.live")
                    assert [frame["type"] for frame in frames] == ["gw.renamed", "gw.reset", "gw.live"]
                    assert frames[0]["epoch"] == worker.store.epoch
                    assert frames[1]["sequence"] == last
                async with connect(second.url, token=TOKEN) as client:
                    ticket = (await client.view("a")).tickets[0]
                    assert (await client.decide("a", ticket.approve())).ok
                for talk in (one, two):
                    rest = await talk.until("gw.unsubscribed")
                    assert [frame["sequence"] for frame in rest[:-1]] == [*range(last + 1, last + len(rest))]


async def test_a_dead_letter_is_shown_with_its_reason_and_revived_at_any_gateway(autojump_clock):
    alive, began = [], []

    async def think(_):
        began.append(len(alive))
        if alive:
            await trio.sleep_forever()
        return "done"

    poison = partial(gr.Agent, "poison", model=FunctionModel(think))
    operator = Principal(name="ann", token="a-token-of-sixteen")
    async with cluster() as processes:
        edge = await processes.open()
        api = Api(edge)
        for attempt in range(1, 6):
            alive.append(await processes.open(poison()))
            if attempt == 1:
                await edge.start("poison", "hi", run_id="r1")
            await until(lambda attempt=attempt: len(began) == attempt, 200)
            assert await api.revive(operator, "r1") is False
            assert await edge.store.bury(await processes.kill(alive[-1]))
        (row,) = (await api.runs(operator, api.query(operator, {}))).rows
        assert "5 processes" in row.dead
        assert (row.owner, row.queue) == (None, "poison")
        alive.clear()
        await processes.open(poison())
        assert await api.revive(operator, "r1") is True
        run = await edge.get("r1")
        assert (await run.result()).output == "done"
        (row,) = (await api.runs(operator, api.query(operator, {}))).rows
        assert row.dead is None


async def test_the_chat_protocols_run_agents_of_other_processes():
    async with cluster() as processes:
        await processes.open(agent("hello"))
        edge = await processes.open()
        async with gateway(edge) as address:
            message = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
            body = {"id": "chat-1", "messages": [message], "trigger": "submit-message"}
            spoken = await http(address, "POST", "/v1/ai-sdk/v6/agents/helper/chat", body=body)
            assert spoken.status == 200
            assert '"delta":"hello"' in spoken.body.decode().replace(" ", "")
            message = {"id": "m2", "role": "user", "content": "hi"}
            fields = {"state": {}, "tools": [], "context": [], "forwardedProps": {}}
            body = {"threadId": "t", "runId": "r", "messages": [message], **fields}
            spoken = await http(address, "POST", "/v1/ag-ui/agents/helper/run", body=body)
            assert spoken.status == 200
            assert "RUN_FINISHED" in spoken.body.decode()
            unknown = await http(address, "POST", "/v1/ag-ui/agents/nobody/run", body=body)
            assert unknown.status == 404


async def test_a_run_is_forked_at_a_gateway_without_its_agent():
    async with cluster() as processes:
        worker, edge = await processes.open(agent("one", "two")), await processes.open()
        run = await worker.start("helper", "hi", run_id="a")
        await run.result()
        async with gateway(edge) as address, connect(address.url, token=TOKEN) as client:
            forked = await client.fork("a", step=0, new_run_id="b")
            async with client.follow(forked.run_id) as events:
                assert [event.type async for event in events][-1] == "run.completed"
