"""A secret of a runtime and the token of the client are in nothing that an MCP client gets, and not in the log."""

import base64
import logging
import re
from typing import Any

import pytest

import greenroom as gr
from greenroom.testing import ScriptedModel, call, fail
from greenroom.transport import Address

from ..support.gateway import TOKEN, Reply, gateway
from ..support.mcp_client import FORMS, MODERN, TASKS, McpClient, Stream
from ..support.mcp_scenes import HANDSHAKE, accept

CANARY = "canary-7d1f-4b2e-very-secret"
SEALED = re.compile(rb"[A-Za-z0-9_-]{24,}")


class Listener(McpClient):
    """A client that keeps all bytes that it gets."""

    heard: list[bytes]

    def __init__(self, address: Address, version: str) -> None:
        super().__init__(address, version, capabilities={**FORMS, **(TASKS if version == MODERN else {})})
        self.heard = []

    async def post(self, body: Any, **headers: str) -> Reply:
        reply = await super().post(body, **headers)
        self.heard += [reply.body, *(value.encode() for value in reply.headers.values())]
        return reply

    async def taken(self, stream: Stream) -> Any:
        result = await stream.result()
        self.heard += [f"{event.id} {event.message!r}".encode() for event in stream.events]
        return result

    def check(self) -> None:  # type: ignore[override]
        for text in self.heard:
            opened = [base64.urlsafe_b64decode(one + b"=" * (-len(one) % 4)) for one in SEALED.findall(text)]
            for shown in (text, *opened):
                assert CANARY.encode() not in shown
                assert TOKEN.encode() not in shown


@gr.tool
async def leaks(ctx: gr.ToolContext, key: str) -> dict[str, str]:
    await ctx.progress(0.5, f"with {CANARY}")
    return {"key": key, CANARY: CANARY}


@gr.tool
async def asks(key: str) -> str:
    raise gr.Suspend(
        message=f"May I use {CANARY}?",
        action=f"use {CANARY}",
        parameters={"key": CANARY, CANARY: 1},
        resume_mode="use_decision_as_tool_result",
        response_schema={"type": "object", "properties": {"a": {"type": "string", "description": CANARY}}},
    )


@gr.tool
async def gives() -> gr.File:
    return gr.File(data=b"abc", name=f"{CANARY}.txt", media_type="text/plain")


@gr.tool
async def breaks() -> str:
    raise RuntimeError(f"no {CANARY}")


def agents() -> list[gr.Agent[Any]]:
    steps = [call("leaks", key=CANARY), call("gives"), call("asks", key=CANARY), f"the key is {CANARY}"]
    tools = [leaks, asks, gives, breaks]
    return [
        gr.Agent("clerk", model=ScriptedModel(steps), tools=tools, instructions=f"use {CANARY}"),
        gr.Agent("broken", model=ScriptedModel([fail("invalid_request", f"bad key {CANARY}")])),
        gr.Agent("first", model=ScriptedModel([call("leaks", key=CANARY)]), tools=tools, tool_use="stop_on_first_tool"),
        gr.Agent("raises", model=ScriptedModel([call("breaks"), f"it broke: {CANARY}"]), tools=tools),
    ]


@pytest.mark.parametrize("version", [MODERN, HANDSHAKE[0]])
async def test_no_secret_leaves_by_mcp(version, caplog):
    caplog.set_level(logging.DEBUG)
    async with gr.open_runtime(agents=agents(), secrets=[CANARY]) as runtime, gateway(runtime) as address:
        client = Listener(address, version)
        await client.begin()
        await client.post(client.message("tools/list"))
        async with client.calling("clerk", _meta={"progressToken": 1}) as stream:
            if client.modern:
                asked = await client.taken(stream)
            else:
                await client.answer(await stream.until("elicitation/create"), "accept", a=CANARY)
                result = await client.taken(stream)
        if client.modern:
            async with client.calling("clerk", **accept(asked, a=CANARY)) as stream:
                result = await client.taken(stream)
            await client.ask("tasks/get", taskId=result["_meta"]["greenroom/run"])
        assert result["content"][0]["text"].startswith("the key is ")
        for tool in ("broken", "first", "raises"):
            async with client.calling(tool) as stream:
                await client.taken(stream)
        async with client.calling("run_result", {"run": result["_meta"]["greenroom/run"]}) as stream:
            await client.taken(stream)
    assert len(client.heard) > 10
    client.check()
    assert CANARY not in caplog.text
    assert TOKEN not in caplog.text


def test_the_listener_finds_a_secret_in_a_sealed_text():
    client = Listener(Address(host="127.0.0.1", port=1), MODERN)
    client.heard.append(base64.urlsafe_b64encode(b"x" * 12 + f'["{CANARY}"]'.encode()).rstrip(b"="))
    with pytest.raises(AssertionError):
        client.check()
