"""A call of an MCP client whose server ends after each commit: the client comes back, and gets the result.

Streams in memory run through `serve_connection` under virtual time. The client keeps what a client keeps: its session,
the id of its request, the newest event, `requestState`. It answers each question that it is asked, also twice. The
effect is counted by the tool: once, whatever happens. Each stream satisfies the rules of the protocol.
"""

import logging
import os
from collections.abc import Iterator
from typing import Any

import pytest
import trio
from trio.testing import memory_stream_pair

import greenroom as gr
from greenroom.supervision import chaos
from greenroom.testing import ScriptedModel, call, crash_points
from greenroom.transport import Address
from greenroom.transport.gateway.access import OriginPolicy, Principal, TokenTable
from greenroom.transport.gateway.gateway import Gateway
from greenroom.transport.gateway.http_connection import serve_connection
from greenroom.transport.protocol.limits import Limits
from greenroom.transport.server.routes import ROUTES

from ..support.gateway import TOKEN
from ..support.mcp_client import FORMS, MODERN, TASKS, McpClient, Stream

FULL = os.environ.get("GREENROOM_CHAOS") == "full"
SEEDS = (1, 2, 3) if FULL else (1,)
HANDSHAKE = "2025-11-25"
PAID = "invoice 7 is paid"

pytestmark = pytest.mark.slow


class MemoryClient(McpClient):
    """A client whose connections are streams in memory to the gateway of the present process."""

    gateway: Gateway
    nursery: trio.Nursery

    async def connect(self) -> trio.abc.Stream:
        ours, theirs = memory_stream_pair()
        self.nursery.start_soon(serve_connection, self.gateway, theirs)
        return ours

    async def said(self, body: dict[str, Any]) -> Stream:
        """The whole response to a message that is answered without a stream."""
        async with self.streaming("POST", body) as stream:
            while await stream.hear() is not None:
                pass
            return stream


class World:
    """The client, and what it has heard; and the effects of the tool. Both outlive the processes."""

    def __init__(self, version: str, **capabilities: Any) -> None:
        self.client = MemoryClient(Address(host="m", port=1), version, capabilities={**FORMS, **capabilities})
        self.client.last = 6
        self.body: dict[str, Any] = {}
        self.last_id, self.result = "", None
        self.paid: list[int] = []
        self.streams: list[Stream] = []

    @property
    def agent(self) -> gr.Agent[Any]:
        @gr.tool(needs_approval=True, effect="publish")
        async def pay(ctx: gr.ToolContext, invoice: int) -> str:
            self.paid.append(invoice)
            await ctx.progress(0.5, "half")
            return PAID

        return gr.Agent("pay", model=ScriptedModel([call("pay", invoice=7, id="P"), "done"]), tools=[pay])

    @property
    def content(self) -> dict[str, str]:
        """An approval; and what has come of the call, for the question about one that was cut off after its effect."""
        return {"decision": "approve", **({"result": f'"{PAID}"'} if self.paid else {})}

    async def talk(self) -> None:
        """Get the result of the call; after a crash, go on where the client was."""
        await (self._modern if self.client.modern else self._handshake)()

    async def _handshake(self) -> None:
        client = self.client
        if not client.session:
            begun = {"protocolVersion": HANDSHAKE, "capabilities": client.capabilities, "clientInfo": {}}
            client.session = (await client.said(client.message("initialize", **begun))).headers["mcp-session-id"]
        self.body = self.body or client.message(
            "tools/call", {"progressToken": "t"}, name="pay", arguments={"input": "go"}
        )
        while self.result is None:
            opening = client.resuming(self.last_id) if self.last_id else client.streaming("POST", self.body)
            async with opening as stream:
                self.streams.append(stream)
                while (message := await stream.hear()) is not None:
                    self.last_id = stream.last_id
                    if message.get("method") == "elicitation/create":
                        answer = {"action": "accept", "content": self.content}
                        await client.said({"jsonrpc": "2.0", "id": message["id"], "result": answer})
                    elif "method" not in message:
                        self.result = message["result"]

    async def _modern(self) -> None:
        client = self.client
        self.body = self.body or client.message(
            "tools/call",
            {"progressToken": "t", "greenroom/run": "mine"},
            name="pay",
            arguments={"input": "go"},
        )
        while self.result is None:
            async with client.streaming("POST", self.body) as stream:
                self.streams.append(stream)
                result = await stream.result()
            if result.get("resultType") == "input_required":
                answers = {key: {"action": "accept", "content": self.content} for key in result["inputRequests"]}
                self.body["params"] |= {"requestState": result["requestState"], "inputResponses": answers}
            elif result.get("resultType") == "task":
                await self._task(result["taskId"])
            else:
                self.result = result

    async def _task(self, task: str) -> None:
        """Poll a task, and answer what it asks."""
        while self.result is None:
            await trio.sleep(1)
            found = await self._asked("tasks/get", taskId=task)
            self.result = found.get("result")
            if found["status"] == "input_required":
                answers = {key: {"action": "accept", "content": self.content} for key in found["inputRequests"]}
                await self._asked("tasks/update", taskId=task, inputResponses=answers)

    async def _asked(self, method: str, **params: Any) -> Any:
        return (await self.client.said(self.client.message(method, **params))).events[-1].message["result"]


async def scenario(world: World, store: gr.Store) -> None:
    async with gr.open_runtime(store, agents=[world.agent], drain=0.0) as runtime, trio.open_nursery() as nursery:
        gateway = Gateway(
            runtime=runtime,
            keyring=TokenTable([Principal(name="operator", token=TOKEN)]),
            doorway=OriginPolicy(hosts=None),
            limits=Limits(),
            routes=ROUTES,
        )
        gateway.fanout.open(nursery)
        world.client.gateway, world.client.nursery = gateway, nursery
        with trio.fail_after(5_000):
            await world.talk()
        nursery.cancel_scope.cancel()


def check(world: World) -> Iterator[str]:
    if world.result is None or world.result["content"] != [{"type": "text", "text": "done"}]:
        yield f"the call came to {world.result}"
    if world.paid != [7]:
        yield f"paid {world.paid}"
    for stream in world.streams:
        try:
            world.client.check(stream, request_id=world.body["id"], token="t")
        except AssertionError as broken:
            yield f"a stream breaks a rule: {broken}"


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What the next process says of unknown outcomes is expected."""
    logger = logging.getLogger("greenroom")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)


@pytest.mark.rule("MS-2", "MS-3", "MS-4", "MS-9")
@pytest.mark.parametrize(
    ("version", "capabilities"), [(HANDSHAKE, {}), (MODERN, {}), (MODERN, TASKS)], ids=["handshake", "modern", "tasks"]
)
def test_a_call_ends_with_its_result_and_one_effect_wherever_the_server_ends(version, capabilities, seed):
    report = crash_points(
        lambda: World(version, **capabilities), scenario, check, seeds=SEEDS, sample=None if FULL else (8, seed)
    )
    report.require()
    assert min(report.steps.values()) >= 8


class CancelledWorld(World):
    """A world whose first process is cancelled, and with it the connections of the client."""

    def __init__(self, version: str, **capabilities: Any) -> None:
        super().__init__(version, **capabilities)
        self.store, self.scope, self.has_finished = gr.MemoryStore(), trio.CancelScope(), False


async def two_processes(world: CancelledWorld) -> None:
    with world.scope:
        await scenario(world, world.store)
        world.has_finished = True
    if not world.has_finished:
        await scenario(world, world.store)


def check_cancelled(world: CancelledWorld) -> Iterator[str]:
    """In the modern era a closed stream is a cancel: then the call ends with that, and the effect may be missing."""
    text = "" if world.result is None else world.result["content"][0]["text"]
    if world.client.modern and text.endswith(": the client has closed its call"):
        yield from [] if world.paid in ([], [7]) else [f"paid {world.paid}"]
    else:
        yield from check(world)


@pytest.mark.rule("MS-2", "MS-3", "MS-8")
@pytest.mark.parametrize("version", [HANDSHAKE, MODERN])
def test_a_server_that_is_cancelled_at_each_step_leaves_a_call_that_the_next_one_ends(version, seed):
    sample = None if FULL else (12, seed)
    report = chaos.sweep_cancel(
        lambda: CancelledWorld(version), two_processes, check_cancelled, seeds=SEEDS, sample=sample
    )
    report.require()
