"""A gateway whose store gets another identity while it serves, as a shared store does after a failover."""

import json

import pytest
import trio
from tests.support.gateway import TOKEN, gateway, http, welcomed
from tests.support.runs import agent
from trio.testing import wait_all_tasks_blocked

import greenroom as gr
from greenroom.actors.store_events import LogsRenamed
from greenroom.testing import call
from greenroom.transport import connect
from greenroom.transport.client import LogReset

pytestmark = pytest.mark.slow


class Renamed(gr.MemoryStore):
    """A store in memory whose logs a test may rename."""

    name = "first"

    @property
    def epoch(self):
        return self.name

    async def run(self, report, *, task_status=trio.TASK_STATUS_IGNORED):  # noqa: ASYNC128 - the base calls it
        self.report = report
        await super().run(report, task_status=task_status)

    def rename(self, name):
        self.name = name
        self.report(LogsRenamed(name))


@gr.tool(needs_approval=True, effect="write")
async def refund(order: str) -> str:
    """Pay back."""
    return "paid"


def clerk():
    return agent(call("refund", order="7", id="c1"), "done", tools=[refund])


async def waiting(runtime, run_id):
    run = await runtime.start("helper", "hi", run_id=run_id)
    assert isinstance(await run.wait(), gr.Waiting)
    return run


async def test_every_subscription_is_reset_once_and_goes_on_from_its_snapshot():
    store = Renamed()
    async with gr.open_runtime(store, agents=[clerk()]) as runtime, gateway(runtime) as address:
        runs = [await waiting(runtime, name) for name in ("a", "b")]
        async with welcomed(address) as talk:
            for run in runs:
                await talk.say("subscribe", run=run.id)
                await talk.until("gw.live")
            store.rename("second")
            frames = [await talk.hear() for _ in range(5)]
            assert frames[0] == {"type": "gw.renamed", "epoch": "second"}
            resets = {frame["run"]: frame for frame in frames if frame["type"] == "gw.reset"}
            assert resets.keys() == {"a", "b"}
            assert {frame["reason"] for frame in resets.values()} == {"epoch"}
            assert len([frame for frame in frames if frame["type"] == "gw.live"]) == 2
            for run in runs:
                view = await run.view()
                assert resets[run.id]["sequence"] == view.last_sequence
                await run.decide(view.tickets[0].approve())
                rest = await talk.until("gw.unsubscribed")
                last = resets[run.id]["sequence"]
                assert [frame["sequence"] for frame in rest[:-1]] == [*range(last + 1, last + len(rest))]
            again = await talk.ask("subscribe", run="a", after=2, epoch="first")
            assert (again["type"], again["reason"]) == ("gw.reset", "epoch")


async def test_a_client_raises_log_reset_and_knows_the_new_epoch():
    store = Renamed()
    async with gr.open_runtime(store, agents=[clerk()]) as runtime, gateway(runtime) as address:
        run = await waiting(runtime, "a")
        last = (await run.view()).last_sequence
        async with connect(address.url, token=TOKEN) as client:
            assert client.epoch == "first"
            async with client.follow("a") as first, client.follow("a", on_reset="continue") as second:
                for events in (first, second):
                    while events.after < last:
                        await anext(events)
                store.rename("second")
                with pytest.raises(LogReset) as caught:
                    await anext(first)
                assert (caught.value.reason, caught.value.sequence) == ("epoch", last)
                assert client.epoch == "second"
                await run.decide((await run.view()).tickets[0].approve())
                assert (await anext(second)).sequence == last + 1
                assert second.reset.sequence == last


async def test_streams_over_http_end_and_their_ids_are_of_another_log():
    store = Renamed()
    async with gr.open_runtime(store, agents=[clerk()]) as runtime, gateway(runtime) as address:
        run = await waiting(runtime, "a")
        replies = []

        async def stream():
            headers = {"accept": "text/event-stream"}
            replies.append(await http(address, "GET", "/v1/runs/a/events", headers=headers))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream)
            while not runtime.reader.statistics().followed:  # noqa: ASYNC110 - over a socket
                await trio.sleep(0.01)
            await wait_all_tasks_blocked(0.05)
            store.rename("second")
        text = replies[0].body.decode()
        ids = [line.removeprefix("id: ") for line in text.splitlines() if line.startswith("id: ")]
        assert ids == [f"first-{number}" for number in range(1, (await run.view()).last_sequence + 1)]
        assert "was replaced" in text
        headers = {"accept": "text/event-stream", "last-event-id": ids[-1]}
        again = await http(address, "GET", "/v1/runs/a/events", headers=headers)
        assert (again.status, again.json()["error"]["code"]) == (410, "reset")
        assert json.loads((await http(address, "GET", "/v1/runs/a/events")).body)["epoch"] == "second"


async def test_a_watched_list_is_sent_again():
    store = Renamed()
    async with gr.open_runtime(store, agents=[clerk()]) as runtime, gateway(runtime) as address:
        await waiting(runtime, "a")
        async with welcomed(address) as talk:
            assert (await talk.ask("watch", id="w"))["reason"] == "asked"
            store.rename("second")
            frames = await talk.until("gw.runs")
            assert [frame["type"] for frame in frames] == ["gw.renamed", "gw.runs"]
            assert [row["run"] for row in frames[-1]["runs"]] == ["a"]


async def test_followers_in_the_process_raise_log_replaced():
    store = Renamed()
    async with gr.open_runtime(store, agents=[clerk()]) as runtime:
        run = await waiting(runtime, "a")
        last = (await run.view()).last_sequence
        async with run.events() as events:
            while (await anext(events)).sequence < last:
                pass
            store.rename("second")
            with pytest.raises(gr.LogReplaced, match="was replaced"):
                await anext(events)
        async with run.events(after=last) as events:
            await run.decide((await run.view()).tickets[0].approve())
            assert (await anext(events)).sequence == last + 1
