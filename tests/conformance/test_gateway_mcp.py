"""MCP over HTTP: what a client may send, what it receives, and that a call outlives its connections.

Streams are held to `tests/support/mcp_rules.py`; the clients of others judge in `tests/e2e`.
"""

from typing import Any

import pytest

import greenroom as gr
from greenroom.testing import FunctionModel, call

from ..support.gateway import gateway
from ..support.mcp_client import FORMS, McpClient

HANDSHAKE = "2025-11-25"
eras = pytest.mark.parametrize("version", ["2026-07-28", HANDSHAKE, "2025-06-18", "2025-03-26", "2024-11-05"])


class Effects:
    """Counts what was done."""

    def __init__(self) -> None:
        self.paid: list[int] = []

    def agents(self) -> list[gr.Agent[Any]]:
        @gr.tool(needs_approval=True, effect="publish")
        async def pay(invoice: int) -> str:
            """Pay an invoice."""
            self.paid.append(invoice)
            return f"invoice {invoice} is paid"

        def pays(request: Any) -> Any:
            last = request.messages[-1]
            return last.content if last.role == "tool" else call("pay", invoice=7)

        def echo(request: Any) -> str:
            return f"you said {request.messages[-1].content}"

        return [
            gr.Agent("echo", model=FunctionModel(echo), description="Repeats."),
            gr.Agent("pay", model=FunctionModel(pays), tools=[pay], description="Pays an invoice."),
        ]


@eras
async def test_a_call_is_answered_with_the_output_of_its_run(version):
    async with gr.open_runtime(agents=Effects().agents()) as runtime, gateway(runtime) as address:
        client = McpClient(address, version)
        await client.begin()
        result = await client.call("echo", {"input": "hi"})
        assert result["content"] == [{"type": "text", "text": "you said hi"}]
        assert result["isError"] is False
        (line,) = (await runtime.runs()).runs
        assert (line.info.run_id, line.info.by) == (result["_meta"]["greenroom/run"], "operator")


async def test_a_question_of_the_handshake_era_is_put_on_the_stream_and_answered_by_a_post():
    effects = Effects()
    async with gr.open_runtime(agents=effects.agents()) as runtime, gateway(runtime) as address:
        client = McpClient(address, HANDSHAKE)
        await client.begin()
        async with client.calling("pay") as stream:
            question = await stream.until("elicitation/create")
            assert 'pay {"invoice":7}' in question["params"]["message"]
            assert effects.paid == []
            assert (await client.answer(question, "accept", decision="approve")).status == 202
            result = await stream.result()
    assert result["content"] == [{"type": "text", "text": "invoice 7 is paid"}]
    assert effects.paid == [7]
    assert [event.message.get("method", "") for event in stream.events if event.message] == ["elicitation/create", ""]


async def test_a_question_of_the_modern_era_is_a_result_and_answered_with_the_repeated_call():
    effects = Effects()
    async with gr.open_runtime(agents=effects.agents()) as runtime, gateway(runtime) as address:
        client = McpClient(address)
        asked = await client.call("pay")
        assert asked["resultType"] == "input_required"
        ((key, _),) = asked["inputRequests"].items()
        answers = {key: {"action": "accept", "content": {"decision": "approve"}}}
        result = await client.call("pay", requestState=asked["requestState"], inputResponses=answers)
    assert result["content"] == [{"type": "text", "text": "invoice 7 is paid"}]
    assert effects.paid == [7]


async def test_a_cut_stream_goes_on_in_another_connection():
    effects = Effects()
    async with gr.open_runtime(agents=effects.agents()) as runtime, gateway(runtime) as address:
        client = McpClient(address, HANDSHAKE)
        await client.begin()
        async with client.calling("pay") as stream:
            await stream.until("elicitation/create")
        async with client.resuming(stream.last_id) as rest:
            question = await rest.until("elicitation/create")
            await client.answer(question, "accept", decision="approve")
            result = await rest.result()
    assert result["content"] == [{"type": "text", "text": "invoice 7 is paid"}]
    assert effects.paid == [7]
    assert FORMS
