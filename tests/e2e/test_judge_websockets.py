"""The `websockets` client, in a process of its own, follows a run, decides, comes back, is shown why it is closed."""

import json
import sys

import pytest
import trio

import greenroom as gr
from greenroom.testing import call
from greenroom.transport import Limits

from ..support.gateway import TOKEN, gateway
from ..support.judges import FOLDER
from ..support.runs import agent

pytest.importorskip("websockets", reason="another client is missing: pip install websockets")
pytestmark = [pytest.mark.judge, pytest.mark.slow]


@gr.tool(needs_approval=True, effect="write")
async def refund(order: str, cents: int) -> str:
    return f"paid {cents}"


async def play(scenario, **options):
    """What the client has seen, and what the store holds of the run it started."""
    clerk = agent(call("refund", order="7", cents=5, id="c1"), "done", key="clerk", tools=[refund])
    async with gr.open_runtime(agents=[clerk]) as runtime, gateway(runtime, **options) as address:
        command = [sys.executable, str(FOLDER / "websockets_client.py")]
        command += [f"ws://{address.host}:{address.port}/v1/ws", TOKEN, scenario]
        done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        seen = json.loads(done.stdout)
        runs = (await runtime.runs()).runs
        stored = [json.loads(frame) for run in runs for frame in await runtime.store.events(run.info.run_id)]
        return seen, stored


async def test_another_client_follows_a_run_through_a_lost_connection():
    """Every event once and in order, as it is stored; the decision acts once; the subprotocol is the one asked for."""
    seen, stored = await play("life")
    assert seen["events"] == stored
    assert seen["told"] == ["gw.subscribed", "gw.live", "gw.ack", "gw.unsubscribed"]
    assert seen["duplicate"] == "duplicate"
    assert [event["payload"]["by"] for event in stored if event["type"] == "run.approval.resolved"] == ["operator"]
    assert (seen["subprotocol"], seen["extensions"], seen["closed"]) == ("greenroom.v1", [], [1000, ""])
    assert seen["welcome"]["protocol"] == "greenroom.v1"


async def test_another_client_is_shown_why_it_is_closed():
    """The close code, and gw.bye before it: a page sees both."""
    seen, _ = await play("codes", limits=Limits(hello_seconds=2.0))
    assert seen.pop("too big")[0] == 1009  # it may come from the library below us, which says no gw.bye
    assert seen == {
        "another subprotocol": [4406, "gw.bye"],
        "no subprotocol": [4406, "gw.bye"],
        "wrong token": [4401, "gw.bye"],
        "no hello first": [4401, "gw.bye"],
        "says nothing": [4408, "gw.bye"],
        "no json": [4400, "gw.bye"],
        "no object": [4400, "gw.bye"],
        "binary": [4400, "gw.bye"],
        "too fast": [4429, "gw.bye"],
        "the client closes": [1000, None],
    }


async def test_an_upgrade_that_is_refused_has_a_status():
    seen, _ = await play("handshakes")
    assert seen == {"another origin": 403, "two hosts": 400, "another path": 404, "a wrong header": 401}
