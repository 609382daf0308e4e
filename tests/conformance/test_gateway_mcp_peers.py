"""MCP at several gateways on one shared store: a call goes on wherever its client arrives."""

import pytest
from tests.support.gateway import gateway
from tests.support.mcp_client import MODERN
from tests.support.mcp_scenes import HANDSHAKE, Effects, accept, asking, begun
from tests.support.shared import cluster

pytestmark = pytest.mark.slow


@pytest.mark.rule("MS-4", "MS-6")
async def test_an_answer_at_another_gateway_is_the_decision():
    effects = Effects()
    async with cluster() as processes:
        here, there = await processes.open(*effects.agents()), await processes.open(*effects.agents())
        async with gateway(here) as first, gateway(there) as second:
            client = await begun(first, HANDSHAKE[0])
            async with asking(client) as (stream, question):
                client.address = second
                assert (await client.answer(question, "accept", decision="approve")).status == 202
                result = await stream.result()
            client.check(stream)
            async with client.resuming(stream.last_id) as again:
                assert await again.result() == result
    assert result["content"] == [{"type": "text", "text": "invoice 7 is paid"}]
    assert effects.paid == [7]


@pytest.mark.rule("MS-3")
async def test_a_stream_goes_on_at_another_gateway_while_the_run_works_elsewhere():
    effects = Effects()
    async with cluster() as processes:
        here, there = await processes.open(*effects.agents()), await processes.open(*effects.agents())
        async with gateway(here) as first, gateway(there) as second:
            client = await begun(first, HANDSHAKE[0])
            async with asking(client) as (stream, question):
                pass
            client.address = second
            async with client.resuming(stream.last_id) as rest:
                assert (await rest.until("elicitation/create"))["id"] == question["id"]
                client.address = first
                await client.answer(question, "accept", decision="approve")
                result = await rest.result()
    assert result["content"] == [{"type": "text", "text": "invoice 7 is paid"}]
    assert effects.paid == [7]


@pytest.mark.rule("MS-4")
async def test_a_modern_call_is_repeated_at_another_gateway():
    effects = Effects()
    async with cluster() as processes:
        here, there = await processes.open(*effects.agents()), await processes.open(*effects.agents())
        async with gateway(here) as first, gateway(there) as second:
            client = await begun(first, MODERN)
            asked = await client.call("pay")
            client.address = second
            result = await client.call("pay", **accept(asked, decision="approve"))
    assert result["content"] == [{"type": "text", "text": "invoice 7 is paid"}]
    assert effects.paid == [7]


@pytest.mark.rule("MS-8")
async def test_a_cancel_at_another_gateway_ends_the_call():
    effects = Effects()
    async with cluster() as processes:
        here, there = await processes.open(*effects.agents()), await processes.open(*effects.agents())
        async with gateway(here) as first, gateway(there) as second:
            client = await begun(first, HANDSHAKE[0])
            async with asking(client) as (stream, _):
                client.address = second
                note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": client.last}}
                assert (await client.post(note)).status == 202
                result = await stream.result()
    assert result["isError"] is True
    assert effects.paid == []
