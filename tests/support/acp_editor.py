"""An editor in this process: the other side of an ACP agent, over memory streams, that keeps to the protocol itself.

Every line of the agent is held to JSON-RPC and to the form of updates (`acp_rules.py`): each request of the editor is
answered once, requests of the agent have new ids, and are answered or withdrawn.
"""

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import attrs
import trio

from greenroom.transport import Address
from greenroom.transport.acp.agent import ACPAgent, Servers
from greenroom.transport.acp.link import GatewayLink, ServedAt
from greenroom.transport.acp.servers import BridgedServers, EditorServers

from .acp_rules import check_update, demand
from .gateway import TOKEN

PATIENCE = 15.0
"""Seconds after which a test that waits for a line is informed that it never comes."""
ALL = {"session": {"notices": {}}, "elicitation": {"form": {}}}
"""An editor that shows everything."""


@attrs.frozen
class Place:
    """Where a gateway is."""

    url: str
    token: str | None = TOKEN


class Places:
    """The gateway of a bridge, as a test moves it."""

    def __init__(self, address: Address | None = None) -> None:
        self.place = None if address is None else Place(address.url)
        self.lost_places: list[str] = []
        self._moved = trio.Event()

    async def address(self) -> ServedAt:
        while self.place is None:
            await self._moved.wait()
        return self.place

    def lost(self, address: ServedAt, /) -> None:
        self.lost_places.append(address.url)
        if self.place is address:
            self.place = None

    def move(self, address: Address) -> None:
        self.place = Place(address.url)
        self._moved.set()
        self._moved = trio.Event()


class AgentError(Exception):
    """The agent has answered with an error."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(error["message"])
        self.code, self.data = error["code"], error.get("data")


class Editor:
    """The editor.

    Attributes:
        updates: (session, update) in order.
        asked: requests of the agent that are not answered yet: id -> message.
        withdrawn: ids of requests that the agent has withdrawn.
    """

    def __init__(self, send: Callable[[bytes], Any]) -> None:
        self._send = send
        self._next = 0
        self._open: dict[int | str, dict[str, Any] | None] = {}
        self._ids: set[int] = set()
        self.lines: list[dict[str, Any]] = []
        self.updates: list[tuple[str, dict[str, Any]]] = []
        self.asked: dict[int, dict[str, Any]] = {}
        self.withdrawn: list[int] = []
        self.notices = True
        self._news, self._reads = trio.Event(), trio.Event()
        self._reads.set()

    @contextmanager
    def not_reading(self) -> Iterator[None]:
        """Read nothing for the block."""
        self._reads = trio.Event()
        yield
        self._reads.set()

    # --- what the agent sends ---

    async def take(self, data: bytes) -> None:
        await self._reads.wait()
        demand(data.endswith(b"\n") and data.count(b"\n") == 1, "one line")
        message = json.loads(data)
        demand(message["jsonrpc"] == "2.0", "jsonrpc 2.0")
        self.lines.append(message)
        if "method" not in message:
            demand(message["id"] is None or self._open.get(message["id"], 0) is None, f"answered once: {message}")
            demand(("result" in message) is not ("error" in message), "a result or an error")
            if message["id"] is not None:
                self._open[message["id"]] = message
        elif "id" in message:
            demand(message["id"] not in self._ids, "a new id")
            self._ids.add(message["id"])
            self.asked[message["id"]] = message
        elif message["method"] == "session/update":
            check_update(message["params"]["update"], notices=self.notices)
            self.updates.append((message["params"]["sessionId"], message["params"]["update"]))
        else:
            demand(message["method"] == "$/cancel_request", f"known notification: {message['method']}")
            self.withdrawn.append(message["params"]["requestId"])
            self.asked.pop(message["params"]["requestId"], None)
        news, self._news = self._news, trio.Event()
        news.set()

    async def until(self, condition: Callable[[], Any]) -> Any:
        """Wait until a condition is true; returns its value."""
        with trio.fail_after(PATIENCE):
            while not (value := condition()):
                await self._news.wait()
        return value

    # --- what the editor sends ---

    async def say(self, **message: Any) -> None:
        await self._send(json.dumps({"jsonrpc": "2.0", **message}).encode())

    async def request(self, method: str, **params: Any) -> int:
        """Send a request, and return its id."""
        self._next += 1
        self._open[self._next] = None
        await self.say(id=self._next, method=method, params=params)
        return self._next

    async def answer_to(self, request_id: int) -> dict[str, Any]:
        """Wait for the answer to a request."""
        message = await self.until(lambda: self._open[request_id])
        if "error" in message:
            raise AgentError(message["error"])
        result: dict[str, Any] = message["result"]
        return result

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        return await self.answer_to(await self.request(method, **params))

    async def notify(self, method: str, **params: Any) -> None:
        await self.say(method=method, params=params)

    async def initialize(self, capabilities: Mapping[str, Any] = ALL) -> dict[str, Any]:
        self.notices = "session" in capabilities
        return await self.call("initialize", protocolVersion=1, clientCapabilities=capabilities)

    async def new(self, cwd: str = "/work", servers: Any = ()) -> str:
        session_id: str = (await self.call("session/new", cwd=cwd, mcpServers=[*servers]))["sessionId"]
        return session_id

    async def prompt(self, session_id: str, *blocks: Any) -> int:
        """Send a prompt of texts and blocks, and return the id of the request."""
        prompt = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
        return await self.request("session/prompt", sessionId=session_id, prompt=prompt)

    async def question(self) -> dict[str, Any]:
        """Wait for the oldest request of the agent."""
        return await self.until(lambda: next(iter(self.asked.values()), None))

    async def answer(self, question: Mapping[str, Any], **result: Any) -> None:
        self.asked.pop(question["id"])
        await self.say(id=question["id"], result=result)

    async def select(self, question: Mapping[str, Any], option: str) -> None:
        await self.answer(question, outcome={"outcome": "selected", "optionId": option})

    # --- what a person sees ---

    def said(self, session_id: str, kind: str = "agent_message_chunk") -> str:
        return "".join(
            update["content"]["text"]
            for name, update in self.updates
            if name == session_id and update["sessionUpdate"] == kind
        )

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [update for _, update in self.updates if update["sessionUpdate"] == kind]


@asynccontextmanager
async def editing(
    places: Places | Address,
    agent: str = "helper",
    *,
    capabilities: Mapping[str, Any] | None = ALL,
    servers: Servers | None = None,
) -> AsyncIterator[Editor]:
    """An editor and its agent, as a client of a gateway, for the time of the block; None: not initialized."""
    send, lines = trio.open_memory_channel[bytes | None](0)
    editor, link = Editor(send.send), GatewayLink()
    gateways = Places(places) if isinstance(places, Address) else places
    served = ACPAgent(
        link,
        agent,
        editor.take,
        where=lambda run: f"See {run}.",
        servers=servers or BridgedServers(lambda: None, EditorServers()),
    )

    async def speak() -> None:
        await served.serve(lines)

    async with trio.open_nursery() as nursery:
        await nursery.start(link.stay_connected, gateways)
        nursery.start_soon(speak)
        if capabilities is not None:
            await editor.initialize(capabilities)
        yield editor
        nursery.cancel_scope.cancel()
