"""An MCP server in the same process, over streams in memory: for tests in virtual time."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from typing import Any

import anyio
import attrs
import trio
from mcp import types
from mcp.shared.message import SessionMessage

import greenroom as gr
from greenroom.actors.toolsets.mcp_messages import ServerConnection

MODERN, HANDSHAKE = "2026-07-28", "2025-11-25"
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
STATE = "state-1"
QUESTION = {"mode": "form", "message": "Who are you?", "requestedSchema": FORM}


@attrs.define(eq=False)
class World:
    """What the server has done, over all connections.

    Attributes:
        era: modern or handshake.
        seconds: how long a call takes, after its effect.
        cuts: how many connections break after the effect of a call and before its answer.
        executed: idempotency key -> how often a call of it took effect.
        cancelled: how many calls were cancelled.
        replies: how many questions to the client were answered, with an error or not.
        is_down: no connection can be opened.
        answered: the state and the responses of each call that brought the answer of people (modern).
        connections: how many were opened, and closed.
    """

    era: str = "modern"
    seconds: float = 0.5
    cuts: int = 0
    executed: Counter[str] = attrs.field(factory=Counter)
    cancelled: int = 0
    replies: int = 0
    is_down: bool = False
    answered: list[Any] = attrs.field(factory=list)
    connections: list[int] = attrs.field(factory=lambda: [0, 0])


@attrs.define(eq=False)
class Conversation:
    """One connection to the server."""

    world: World
    connection: ServerConnection
    outgoing: Any
    nursery: trio.Nursery
    scopes: dict[Any, trio.CancelScope] = attrs.field(factory=dict)
    answers: dict[Any, Any] = attrs.field(factory=dict)

    async def say(self, **message: Any) -> None:
        parsed = types.jsonrpc_message_adapter.validate_python({"jsonrpc": "2.0", **message}, by_name=False)
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self.outgoing.send(SessionMessage(parsed))

    async def heed(self, message: dict[str, Any]) -> None:
        params, number = message.get("params") or {}, message.get("id")
        match message.get("method"):
            case "server/discover" if self.world.era == "modern":
                found = {"supportedVersions": [MODERN], "capabilities": {"tools": {}}, "ttlMs": 0}
                await self.result(number, {**found, "cacheScope": "private"})
            case "initialize" if self.world.era == "handshake":
                info = {"name": "memory", "version": "1"}
                found = {"protocolVersion": HANDSHAKE, "capabilities": {"tools": {}}, "serverInfo": info}
                await self.result(number, found)
            case "tools/list":
                tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("pay", "look", "ask")]
                await self.result(number, {"tools": tools, "ttlMs": 60_000, "cacheScope": "private"})
            case "tools/call":
                self.nursery.start_soon(self.call, number, params)
            case "notifications/cancelled":
                scope = self.scopes.get(params["requestId"])
                if scope is not None:
                    scope.cancel()
            case None if number in self.answers:
                self.world.replies += 1
                if "error" not in message:
                    self.answers.pop(number).set()
            case str() if number is not None:
                await self.say(id=number, error={"code": -32601, "message": "no such method"})

    async def call(self, number: Any, params: dict[str, Any]) -> None:
        self.scopes[number] = scope = trio.CancelScope()
        with scope:
            if params["name"] == "ask" and not await self.asked(number, params):
                return
            self.world.executed[params["_meta"]["greenroom/key"]] += 1
            if self.world.cuts:
                self.world.cuts -= 1
                self.outgoing.close()
                self.connection.lose("it broke")
                return
            await trio.sleep(self.world.seconds)
            await self.result(number, {"content": [{"type": "text", "text": params["name"]}]})
        if scope.cancelled_caught:
            self.world.cancelled += 1

    async def asked(self, number: Any, params: dict[str, Any]) -> bool:
        """Ask, and return whether the answer is there."""
        if self.world.era == "modern" and "inputResponses" not in params:
            requests = {"who": {"method": "elicitation/create", "params": QUESTION}}
            result = {"resultType": "input_required", "inputRequests": requests, "requestState": STATE}
            await self.say(id=number, result=result)
            return False
        if self.world.era == "modern":
            self.world.answered.append((params.get("requestState"), params["inputResponses"]))
        if self.world.era == "handshake":
            answer = self.answers[f"q{number}"] = trio.Event()
            await self.say(id=f"q{number}", method="elicitation/create", params=QUESTION)
            await answer.wait()
        return True

    async def result(self, number: Any, value: dict[str, Any]) -> None:
        await self.say(id=number, result={"resultType": "complete", **value} if self.world.era == "modern" else value)


@attrs.frozen(eq=False)
class MemoryServer(gr.mcp.Server):
    """A server whose connections are streams in memory."""

    world: World = attrs.field(factory=World, kw_only=True)

    @asynccontextmanager
    async def _connect(self) -> AsyncIterator[ServerConnection]:
        self.world.connections[0] += 1
        if self.world.is_down:
            self.world.connections[1] += 1
            raise ConnectionRefusedError("nobody is there")
        write, incoming = anyio.create_memory_object_stream[Any](0)
        outgoing, read = anyio.create_memory_object_stream[Any](0)
        connection = ServerConnection(streams=nullcontext((read, write)), is_one=True)
        async with trio.open_nursery() as nursery:
            conversation = Conversation(self.world, connection, outgoing, nursery)
            nursery.start_soon(self._serve, conversation, incoming)
            try:
                yield connection
            finally:
                nursery.cancel_scope.cancel()
                for stream in (write, incoming, outgoing, read):
                    stream.close()
                self.world.connections[1] += 1

    async def _serve(self, conversation: Conversation, incoming: Any) -> None:
        async for item in incoming:
            await conversation.heed(item.message.model_dump(by_alias=True, exclude_none=True))


def memory_server(world: World, **options: Any) -> MemoryServer:
    """A server in memory, without approvals unless the options say otherwise."""
    free = gr.mcp.Rule(needs_approval=False)
    return MemoryServer("m", command=["-"], world=world, **({"tools": {"*": free}} | options))
