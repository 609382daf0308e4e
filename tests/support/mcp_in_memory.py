"""An MCP server inside the process of its client, for scenes in virtual time. It ends with its connection."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import anyio
import trio
from mcp import types
from mcp.shared.message import SessionMessage

import greenroom as gr
from greenroom.actors.toolsets.mcp_actor import ServerConnection

SECONDS = 0.2
"""Of one call."""
FORM = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
OBJECT: dict[str, Any] = {"type": "object", "properties": {}}


class InMemory:
    """What the server has done, over all its connections.

    The tool `work` works for a moment, and `ask` asks once before it does.

    Attributes:
        executed: tool -> how often its effect has happened.
        open: the connections that are open now.
    """

    def __init__(self, era: str) -> None:
        self.era = era
        self.executed: Counter[str] = Counter()
        self.open = 0

    def toolset(self, rule: gr.mcp.Rule, **options: Any) -> gr.mcp.Server:
        """The server as a toolset."""
        server = self

        class Local(gr.mcp.Server):
            @asynccontextmanager
            async def _connect(self) -> AsyncIterator[ServerConnection]:
                async with server.connected() as connection:
                    yield connection

        return Local("near", command=["nothing is started"], tools={"*": rule}, **options)

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[ServerConnection]:
        """One connection, and the tasks of the server behind it."""
        to_client, read = anyio.create_memory_object_stream[SessionMessage | Exception](100)
        write, from_client = anyio.create_memory_object_stream[SessionMessage](100)
        self.open += 1
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._serve, from_client, to_client, nursery)
                yield ServerConnection(streams=nullcontext((read, write)))
                nursery.cancel_scope.cancel()
        finally:
            self.open -= 1
            for stream in (to_client, read, write, from_client):
                stream.close()

    async def _serve(self, incoming: Any, outgoing: Any, nursery: trio.Nursery) -> None:
        waiting: dict[Any, trio.MemorySendChannel[Any]] = {}
        async for item in incoming:
            message = item.message.model_dump(by_alias=True, mode="json", exclude_none=True)
            if "method" in message and "id" in message:
                nursery.start_soon(self._answer, message, outgoing, waiting)
            elif message.get("id") in waiting:
                waiting.pop(message["id"]).send_nowait(message.get("result"))

    async def _answer(self, message: Any, outgoing: Any, waiting: Any) -> None:
        async def send(**members: Any) -> None:
            sent = types.jsonrpc_message_adapter.validate_python({"jsonrpc": "2.0", **members})
            await outgoing.send(SessionMessage(sent))

        async def ask() -> Any:
            answers, answer = trio.open_memory_channel[Any](1)
            waiting[f"s{message['id']}"] = answers
            await send(id=f"s{message['id']}", method="elicitation/create", params=FORM)
            return await answer.receive()

        match message["method"]:
            case "server/discover" if self.era == "modern":
                result: Any = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
            case "initialize" if self.era == "handshake":
                info = {"name": "near", "version": "1"}
                result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
            case "tools/list":
                result = {"tools": [{"name": name, "inputSchema": OBJECT} for name in ("work", "ask")]}
            case "tools/call":
                result = await self._call(message["params"], ask)
            case method:
                await send(id=message["id"], error={"code": -32601, "message": method})
                return
        if self.era == "modern":
            result = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **result}
        await send(id=message["id"], result=result)

    async def _call(self, params: Any, ask: Any) -> Any:
        answers = params.get("inputResponses")
        if params["name"] == "ask" and self.era == "modern" and answers is None:
            requests = {"who": {"method": "elicitation/create", "params": FORM}}
            return {"resultType": "input_required", "inputRequests": requests, "requestState": "state"}
        if params["name"] == "ask":
            answers = answers or {"who": await ask()}
            assert answers["who"] == {"action": "accept", "content": {"name": "Ada"}}, answers
            assert params.get("requestState") == ("state" if self.era == "modern" else None)
        await trio.sleep(SECONDS)
        self.executed[params["name"]] += 1
        return {"content": [{"type": "text", "text": f"did {params['name']}"}]}
