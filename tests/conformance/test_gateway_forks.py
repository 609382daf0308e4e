"""Forks through the gateway: who may, what a fork begins with, and what asks twice forks once."""

import pytest
from tests.support.gateway import gateway, http, talking
from tests.support.runs import agent

import greenroom as gr
from greenroom.testing import call
from greenroom.transport import Principal

pytestmark = pytest.mark.slow

ANN, BOB, EVE = "token-of-ann-0123456789", "token-of-bob-0123456789", "token-of-eve-0123456789"
PEOPLE = [
    Principal(name="ann", token=ANN, scopes=frozenset({"follow", "start"})),
    Principal(name="bob", token=BOB, scopes=frozenset({"follow", "decide"})),
    Principal(name="eve", token=EVE, sees=lambda info: info.by == "eve"),
]


@gr.tool(replay="safe")
async def look_up(order: str) -> str:
    """Look an order up."""
    return f"order {order}"


def counter(steps=2):
    """An agent that looks an order up and answers, and then again in each fork."""
    return agent(*[call("look_up", order="7"), "done"] * steps, tools=[look_up])


async def test_a_fork_begins_where_the_step_ended_and_belongs_to_its_requester():
    async with gr.open_runtime(agents=[counter()]) as runtime, gateway(runtime, principals=PEOPLE) as address:
        run = await runtime.start("helper", "hi", by="operator", run_id="r1")
        await run.wait()
        async with talking(address, token=ANN) as talk:
            await talk.hear()
            ack = await talk.ask("fork", id="f1", run="r1", step=1)
            assert (ack["type"], ack["status"]) == ("gw.ack", "accepted")
            assert ack["run"] != "r1"
            again = await talk.ask("fork", id="f1", run="r1", step=1)
            assert (again["run"], again["status"]) == (ack["run"], "duplicate")
        fork = await runtime.get(ack["run"])
        await fork.wait()
        info = (await runtime.store.load(fork.id)).info
        assert (info.by, info.forked_from, info.forked_step) == ("ann", "r1", 1)
        assert info.thread_id == ack["thread"] != run.thread_id
        created = (await http(address, "GET", f"/v1/runs/{fork.id}/events?limit=1", token=ANN)).json()["events"][0]
        assert created["payload"]["forkedFrom"] == "r1@1"
        assert created["payload"]["by"] == "ann"


async def test_http_forks_and_the_key_makes_it_once():
    async with gr.open_runtime(agents=[counter(3)]) as runtime, gateway(runtime) as address:
        await (await runtime.start("helper", "hi", run_id="r1")).wait()
        reported = [
            await http(address, "POST", "/v1/runs/r1/fork", body={"step": 0}, headers={"idempotency-key": "k"})
            for _ in range(2)
        ]
        assert [one.status for one in reported] == [201, 200]
        assert len({one.json()["run"] for one in reported}) == 1
        named = await http(address, "POST", "/v1/runs/r1/fork", body={"step": 0, "newRun": "mine"})
        assert (named.status, named.json()["run"]) == (201, "mine")
        for run in ("mine", reported[0].json()["run"]):
            await (await runtime.get(run)).wait()


@pytest.mark.parametrize(
    ("token", "run", "body", "status", "code"),
    [
        (BOB, "r1", {"step": 0}, 403, "not_allowed"),
        (EVE, "r1", {"step": 0}, 404, "unknown_run"),
        (ANN, "r2", {"step": 0}, 404, "unknown_run"),
        (ANN, "r1", {"step": 9}, 422, "unprocessable"),
        (ANN, "r1", {"step": -1}, 400, "bad_message"),
        (ANN, "r1", {"step": 1.5}, 400, "bad_message"),
        (ANN, "r1", {}, 400, "bad_message"),
        (ANN, "r1", {"step": 0, "run": "r2"}, 400, "bad_message"),
        (ANN, "r1", {"step": 0, "steps": 1}, 400, "bad_message"),
        (ANN, "r1", {"step": 0, "newRun": "r1"}, 409, "run_exists"),
        (ANN, "r1", {"step": 0, "newRun": "no blanks"}, 422, "unprocessable"),
    ],
)
async def test_what_cannot_be_forked_is_refused_and_makes_no_run(token, run, body, status, code):
    async with gr.open_runtime(agents=[counter()]) as runtime, gateway(runtime, principals=PEOPLE) as address:
        await (await runtime.start("helper", "hi", by="operator", run_id="r1")).wait()
        reply = await http(address, "POST", f"/v1/runs/{run}/fork", token=token, body=body)
        assert (reply.status, reply.json()["error"]["code"]) == (status, code)
        assert [run.info.run_id for run in (await runtime.runs()).runs] == ["r1"]
