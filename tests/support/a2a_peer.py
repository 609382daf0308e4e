"""A server of A2A with one agent, in memory, whose connections fail as a test says. Not the code of Greenroom's server.

`Peer` is a transport of httpx: `served(peer)` puts it behind the backends of a trio program. The text of a message says
what the agent does: "slow N" says N numbers, one a second; "ask" and "ask twice" ask; "auth", "fail", "reject" and
"cancel" come to that; anything else is repeated.
"""

import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

import attrs
import httpx
import trio

from greenroom.actors.backends.a2a_http import POOL
from greenroom.actors.models import http

URL = "https://far.example"
TERMINAL = ("COMPLETED", "FAILED", "CANCELED", "REJECTED")
Data = dict[str, Any]


@attrs.frozen
class Fault:
    """What happens to a request.

    Attributes:
        kind: "refuse": no connection; "cut": it is taken, and the connection breaks after `items` items of the answer;
            "lose": it breaks before the request is taken; "hang": it is taken, and nothing comes behind the items;
            "end": the stream ends there; "answer": it gets `answer`, with `status`.
    """

    kind: str
    items: int = 0
    status: int = 200
    answer: bytes = b""
    headers: Data = attrs.field(factory=dict)


@attrs.define(eq=False)
class PeerTask:
    """A task of the agent, with the items of its stream."""

    id: str
    context: str
    state: str = "SUBMITTED"
    words: str = ""
    parts: list[Data] = attrs.field(factory=list)
    asked: int = 0
    artifacts: dict[str, list[Data]] = attrs.field(factory=dict)
    history: list[Data] = attrs.field(factory=list)
    items: list[Data] = attrs.field(factory=list)
    news: trio.Event = attrs.field(factory=trio.Event)

    def status(self) -> Data:
        said: Data = {}
        if self.words or self.parts:
            texts = [{"text": self.words}] if self.words else []
            said = {
                "message": {
                    "messageId": f"{self.id}-{self.asked}",
                    "role": "ROLE_AGENT",
                    "parts": [*texts, *self.parts],
                }
            }
        return {"state": f"TASK_STATE_{self.state}", **said}

    def shown(self, *, history: bool = False) -> Data:
        artifacts = [{"artifactId": name, "parts": parts} for name, parts in self.artifacts.items()]
        more = {"history": self.history} if history else {}
        return {"id": self.id, "contextId": self.context, "status": self.status(), "artifacts": artifacts, **more}

    def put(self, item: Data) -> None:
        self.items.append(item)
        self.news.set()
        self.news = trio.Event()

    def move(self, state: str, words: str = "", parts: tuple[Data, ...] = ()) -> None:
        self.state, self.words, self.parts = state, words, list(parts)
        self.asked += state == "INPUT_REQUIRED"
        self.put({"statusUpdate": {"taskId": self.id, "contextId": self.context, "status": self.status()}})

    def say(self, *parts: Data | str, name: str = "out", append: bool = False) -> None:
        pieces: list[Data] = [{"text": part} if isinstance(part, str) else part for part in parts]
        self.artifacts[name] = [*(self.artifacts.get(name, []) if append else []), *pieces]
        artifact = {"artifactId": name, "parts": pieces}
        self.put({"artifactUpdate": {"taskId": self.id, "artifact": artifact, "append": append}})

    @property
    def rests(self) -> bool:
        return self.state in (*TERMINAL, "INPUT_REQUIRED", "AUTH_REQUIRED")


Work = Callable[[PeerTask, Data], Any]


async def play(task: PeerTask, message: Data) -> None:
    """Do what the text of a message says."""
    text = "".join(part.get("text", "") for part in message["parts"])
    first = task.history[0]["parts"][0].get("text", "")
    if text == "ask" or (first == "ask twice" and len(task.history) < 3):
        task.move("INPUT_REQUIRED", "which order?")
        return
    ends = {"auth": "AUTH_REQUIRED", "fail": "FAILED", "reject": "REJECTED", "cancel": "CANCELED"}
    if text in ends:
        task.move(ends[text], f"I {text}")
        return
    task.move("WORKING")
    if text.startswith("slow"):
        for number in range(int(text.split()[1])):
            await trio.sleep(1)
            if task.state == "CANCELED":
                return
            task.say(f"{number} ", append=number > 0)
    else:
        task.say(f"done: {text}")
    task.move("COMPLETED")


class Peer(httpx.AsyncBaseTransport):
    """The server.

    Attributes:
        executed: The ids of the messages that the agent has worked on.
        cancelled: The ids of the cancelled tasks.
        requests: (operation, headers) of all requests, refused ones included.
        faults: Operation -> what happens to its next requests, in order.
        lists: It lists its tasks.
        keeps_open: The stream of a task that waits stays open, as those of official servers do.
    """

    def __init__(self, nursery: trio.Nursery, work: Work = play, *, rpc: bool = False, streams: bool = True) -> None:
        self._nursery, self._work, self._rpc = nursery, work, rpc
        self.card: Data = {
            "name": "far",
            "version": "7",
            "capabilities": {"streaming": streams},
            "supportedInterfaces": [
                {"url": f"{URL}/grpc", "protocolBinding": "GRPC", "protocolVersion": "1.0"},
                {"url": f"{URL}/a2a", "protocolBinding": "JSONRPC" if rpc else "HTTP+JSON", "protocolVersion": "1.0"},
            ],
        }
        self.tasks: dict[str, PeerTask] = {}
        self.executed: list[str] = []
        self.cancelled: list[str] = []
        self.requests: list[tuple[str, httpx.Headers]] = []
        self.faults: defaultdict[str, list[Fault]] = defaultdict(list)
        self.hooks: dict[str, Callable[[], object]] = {}
        self.lists = self.keeps_open = True

    def __repr__(self) -> str:
        return f"<Peer: {len(self.executed)} messages>"

    @property
    def operations(self) -> list[str]:
        return [name for name, _ in self.requests if name != "card"]

    # --- HTTP --------------------------------------------------------------------------------------------------------

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await trio.lowlevel.checkpoint()
        operation, params = self._called(request)
        self.requests.append((operation, request.headers))
        self.hooks.get(operation, lambda: None)()
        fault = self.faults[operation].pop(0) if self.faults[operation] else None
        match fault:
            case Fault(kind="refuse"):
                raise httpx.ConnectError("no connection", request=request)
            case Fault(kind="lose"):
                raise httpx.ReadError("reset", request=request)
            case Fault(kind="answer"):
                headers = {"content-type": "application/json", **fault.headers}
                return httpx.Response(fault.status, headers=headers, stream=Bytes(once(fault.answer)))
        if operation == "card":
            return self._answer(self.card, bare=True)
        result = getattr(self, f"_on_{operation}")(params)
        if isinstance(result, PeerTask):
            lines = self._lines(result, fault)
            return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=Bytes(lines))
        if fault is not None and fault.kind == "hang":
            await trio.sleep_forever()
        if fault is not None:
            raise httpx.ReadError("reset", request=request)
        return self._answer(result)

    def _called(self, request: httpx.Request) -> tuple[str, Data]:
        path = request.url.path.removeprefix("/a2a")
        body: Data = json.loads(request.content) if request.content else {}
        if path.endswith("agent-card.json"):
            return "card", {}
        if self._rpc:
            names = {
                "SendMessage": "send",
                "SendStreamingMessage": "stream",
                "GetTask": "get",
                "ListTasks": "list",
                "CancelTask": "cancel",
                "SubscribeToTask": "subscribe",
            }
            return names[body["method"]], body["params"]
        if path.startswith("/message:"):
            return path.removeprefix("/message:"), body
        if path == "/tasks":
            return "list", dict(request.url.params)
        name, _, verb = unquote(path).removeprefix("/tasks/").partition(":")
        return verb or "get", {"id": name, **dict(request.url.params)}

    def _answer(self, result: Data, *, bare: bool = False) -> httpx.Response:
        status = 200
        if "reason" in result:
            info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": result["reason"]}
            status = 200 if self._rpc else result.get("status", 400)
            error = {"code": result["code"] if self._rpc else status, "message": result["text"]}
            result = {"error": {**error, "data" if self._rpc else "details": [info]}}
        elif not bare:
            result = {"result": result} if self._rpc else result
        body = json.dumps({"jsonrpc": "2.0", "id": "1", **result} if self._rpc and not bare else result).encode()
        return httpx.Response(status, headers={"content-type": "application/json"}, stream=Bytes(once(body)))

    async def _lines(self, task: PeerTask, fault: Fault | None) -> AsyncIterator[bytes]:
        """The stream of a task: the task as it is, and what comes."""
        position, number = len(task.items), 0
        first: Data | None = {"task": task.shown()}
        while True:
            if fault is not None and number == fault.items:
                if fault.kind == "hang":
                    await trio.sleep_forever()
                if fault.kind == "cut":
                    raise httpx.ReadError("reset")
                return
            if first is None and position == len(task.items):
                if task.state in TERMINAL or (task.rests and not self.keeps_open):
                    return
                await task.news.wait()
                continue
            item, first = (first, None) if first is not None else (task.items[position], None)
            position += number > 0
            number += 1
            data = {"jsonrpc": "2.0", "id": "1", "result": item} if self._rpc else item
            yield f"data: {json.dumps(data)}\n\n".encode()
            await trio.lowlevel.checkpoint()

    # --- operations --------------------------------------------------------------------------------------------------

    def _begun(self, params: Data) -> PeerTask | Data:
        message = params["message"]
        name = message.get("taskId")
        if name:
            task = self.tasks[name]
            if task.state in TERMINAL:
                return {"reason": "UNSUPPORTED_OPERATION", "code": -32004, "text": "the task has ended"}
            task.state, task.words, task.parts = "WORKING", "", []
        else:
            name = f"t{len(self.tasks) + 1}"
            task = self.tasks[name] = PeerTask(name, message["contextId"])
        task.history.append(message)
        self.executed.append(message["messageId"])
        self._nursery.start_soon(self._work, task, message)
        return task

    def _on_stream(self, params: Data) -> PeerTask | Data:
        return self._begun(params)

    def _on_send(self, params: Data) -> Data:
        task = self._begun(params)
        return {"task": task.shown()} if isinstance(task, PeerTask) else task

    def _on_subscribe(self, params: Data) -> PeerTask | Data:
        task = self.tasks[params["id"]]
        if task.state in TERMINAL:
            return {"reason": "UNSUPPORTED_OPERATION", "code": -32004, "text": "the task has ended"}
        return task

    def _on_get(self, params: Data) -> Data:
        if params["id"] not in self.tasks:
            return {"reason": "TASK_NOT_FOUND", "code": -32001, "status": 404, "text": "no such task"}
        return self.tasks[params["id"]].shown()

    def _on_list(self, params: Data) -> Data:
        if not self.lists:
            return {"reason": "UNSUPPORTED_OPERATION", "code": -32004, "text": "tasks are not listed"}
        tasks = [task.shown(history=True) for task in self.tasks.values() if task.context == params["contextId"]]
        return {"tasks": tasks, "nextPageToken": "", "pageSize": 100, "totalSize": len(tasks)}

    def _on_cancel(self, params: Data) -> Data:
        task = self.tasks[params["id"]]
        if task.state in TERMINAL:
            return {"reason": "TASK_NOT_CANCELABLE", "code": -32002, "text": "the task has ended"}
        self.cancelled.append(task.id)
        task.move("CANCELED")
        return task.shown()


class Bytes(httpx.AsyncByteStream):
    """A body of pieces."""

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces

    def __repr__(self) -> str:
        return "<Bytes>"

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._pieces:
            yield piece

    async def aclose(self) -> None:
        with trio.CancelScope(shield=True):
            await self._pieces.aclose()  # type: ignore[attr-defined]


async def once(body: bytes) -> AsyncIterator[bytes]:
    await trio.lowlevel.checkpoint()
    yield body


@contextmanager
def served(peer: httpx.AsyncBaseTransport) -> Iterator[None]:
    """Let the backends of this trio program speak to a peer."""
    client = httpx.AsyncClient(transport=peer)
    token = http._clients.set({POOL: http._Shared(client, users=1)})
    try:
        yield
    finally:
        http._clients.reset(token)
