"""A gateway without agents whose database vanishes: every door answers store_unavailable, without a password."""

from urllib.parse import urlsplit

import pytest
import trio
from tests.support.cutting_proxy import CuttingProxy
from tests.support.gateway import TOKEN, gateway, http
from tests.support.runs import agent

import greenroom as gr
from greenroom.actors.stores.postgres.store import PostgresStore
from greenroom.testing import call
from greenroom.transport import connect

from ..support.ai_sdk_page import Page
from .test_gateway_ag_ui import TOOLS, Front

pytestmark = [pytest.mark.slow, pytest.mark.no_cover]

CANARY = "canary-of-a-password"
REFUND = {"order": "1", "cents": 5}
TIMES = {"lease": 30.0, "turn": 1.0, "margin": 8.0, "answer": 1.0}


@pytest.mark.parametrize("way", ["refused", "silent"])
async def test_every_door_says_that_the_store_is_unavailable(
    way: str, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    helper = agent(call("refund", **REFUND, id="c1"), "done", tools=TOOLS)
    port = urlsplit(postgres_url).port or 5432
    with CuttingProxy(port) as proxy:
        url = postgres_url.replace("greenroom@", f"greenroom:{CANARY}@").replace(f":{port}/", f":{proxy.port}/")
        store = PostgresStore(f"{url}&connect_timeout=2", **TIMES)
        async with gr.open_runtime(postgres_url, agents=[helper]), gr.open_runtime(store) as edge:
            async with gateway(edge) as address:
                front, page = Front(address), Page(address, "v7")
                await front.ask("r1", "refund")
                await page.ask("u1", "refund")
                path = f"/v1/runs/{front.run_of_ours}/commands"
                proxy.refusing, proxy.frozen = way == "refused", way == "silent"
                proxy.cut_all()
                with trio.fail_after(30):
                    while store._queue.outage is None:  # noqa: ASYNC110 - a thread meets the outage
                        await trio.sleep(0.05)
                seen: list[str] = []
                with trio.fail_after(60):
                    for edits in ({}, {"editedArguments": REFUND}):
                        body = {"type": "decide", "target": "c1", "action": "approve", **edits}
                        reply = await http(address, "POST", path, body=body)
                        assert (reply.status, reply.json()["error"]["code"]) == (503, "store_unavailable")
                        seen.append(reply.body.decode())
                    resumed = await front.post(front.body("r2", front.answers({"approved": True})))
                    assert b"store_unavailable" in resumed.body
                    page.approve("c1")
                    status, code, text = await page.refused()
                    assert (status, code) == (503, "store_unavailable")
                    ready = await http(address, "GET", "/readyz", token=None)
                    assert ready.status == 503
                    async with connect(address.url, token=TOKEN) as client:
                        answer = await client.decide(front.run_of_ours, "c1", "approve")
                        assert answer.code == "store_unavailable"
                seen += [resumed.body.decode(), text, ready.body.decode(), str(answer), repr(store), repr(edge)]
                assert any(f"127.0.0.1:{proxy.port}" in text for text in seen) or way == "refused"
                assert "try again; try again" not in "".join(seen)
                assert CANARY not in "".join(seen) + caplog.text
                proxy.refusing = proxy.frozen = False
                with trio.fail_after(60):
                    while store._queue.outage is not None:  # noqa: ASYNC110 - a thread meets the server again
                        await trio.sleep(0.05)
                    await front.run("r3", front.answers({"approved": True, "editedArgs": {"order": "9", "cents": 1}}))
        assert front.results == {"c1": "paid 1 for 9"}
