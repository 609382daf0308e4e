"""An A2A client by hand, in both bindings: the official protobuf reads each answer, the rules hold each stream."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import h11
import trio
from a2a.types import a2a_pb2 as official
from google.protobuf.json_format import ParseDict

from greenroom.actors.backends import a2a_codec as codec
from greenroom.actors.backends.a2a_codec import Binding, Operation
from greenroom.transport import Address

from .a2a_rules import TICKET_TYPE, Client, check
from .gateway import TOKEN, Reply, http

KINDS: dict[str, Any] = {
    "SendMessage": official.SendMessageResponse,
    "GetTask": official.Task,
    "CancelTask": official.Task,
    "ListTasks": official.ListTasksResponse,
}


class Fault(Exception):
    """An error: its reason, and its metadata and text."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        error = body["error"]
        self.status, self.code, self.text = status, error["code"], error["message"]
        (info,) = error.get("details") or error["data"]
        self.reason, self.metadata = info["reason"], info["metadata"]
        super().__init__(f"{self.reason}: {self.text}")


class A2A:
    """A client of one agent."""

    def __init__(self, address: Address, binding: Binding, agent: str = "helper", token: str | None = TOKEN) -> None:
        self.address, self.binding, self.agent, self.token = address, binding, agent, token
        self.ids: list[str] = []

    def target(self, path: str, query: Any = ()) -> str:
        base = f"/v1/a2a/{self.agent}"
        return f"{base}/rpc" if self.binding == "JSONRPC" else f"{base}{path}{'?' if query else ''}{urlencode(query)}"

    async def post(self, operation: Operation, params: dict[str, Any], **headers: str) -> Reply:
        asked = codec.wire_request(self.binding, operation, params)
        wire = {name.lower(): value for name, value in {**asked.headers, **headers}.items() if value}
        wire["content-type"] = "application/json"
        target = self.target(asked.path, asked.query)
        return await http(self.address, asked.method, target, body=asked.body, token=self.token, headers=wire)

    async def ask(self, operation: Operation, params: dict[str, Any], **headers: str) -> dict[str, Any]:
        """Return the result of an operation.

        Raises:
            Fault: it is answered with an error.
        """
        reply = await self.post(operation, params, **headers)
        data = json.loads(reply.body)
        if "error" in data:
            assert self.binding == "HTTP+JSON" or (reply.status, data["id"]) == (200, "1")
            raise Fault(reply.status, data)
        result: dict[str, Any] = data if self.binding == "HTTP+JSON" else data["result"]
        ParseDict(result, KINDS[operation.name](), ignore_unknown_fields=False)
        return result

    async def items(self, operation: Operation, params: dict[str, Any], **headers: str) -> list[dict[str, Any]]:
        """Return the items of a stream; `ids` has the ids of its events."""
        reply = await self.post(operation, params, **headers)
        if reply.headers["content-type"] != "text/event-stream":
            raise Fault(reply.status, json.loads(reply.body))
        self.ids = [line[4:] for line in reply.body.decode().splitlines() if line.startswith("id: ")]
        return self.parsed(reply.body)

    def parsed(self, body: bytes) -> list[dict[str, Any]]:
        items = [json.loads(line[6:]) for line in body.decode().splitlines() if line.startswith("data: ")]
        return items if self.binding == "HTTP+JSON" else [item["result"] for item in items]

    async def send(self, message: dict[str, Any], **configuration: Any) -> dict[str, Any]:
        params = {"message": message, **({"configuration": configuration} if configuration else {})}
        task: dict[str, Any] = (await self.ask(codec.SEND_MESSAGE, params))["task"]
        return task

    async def stream(self, message: dict[str, Any]) -> Client:
        return check(await self.items(codec.SEND_STREAMING_MESSAGE, {"message": message}))

    async def subscribe(self, task: str, **headers: str) -> list[dict[str, Any]]:
        return await self.items(codec.SUBSCRIBE_TO_TASK, {"id": task}, **headers)

    async def get(self, task: str, **more: Any) -> dict[str, Any]:
        return await self.ask(codec.GET_TASK, {"id": task, **more})

    async def cancel(self, task: str) -> dict[str, Any]:
        return await self.ask(codec.CANCEL_TASK, {"id": task})

    async def list(self, **filters: Any) -> dict[str, Any]:
        return await self.ask(codec.LIST_TASKS, filters)

    @asynccontextmanager
    async def reading(self, operation: Operation, params: dict[str, Any], **headers: str) -> AsyncIterator["Reader"]:
        """A response that is read as it comes."""
        asked = codec.wire_request(self.binding, operation, params)
        fields = {"host": f"{self.address.host}:{self.address.port}", "authorization": f"Bearer {self.token}"}
        data = b"" if asked.body is None else json.dumps(asked.body).encode()
        fields |= {name.lower(): value for name, value in {**asked.headers, **headers}.items()}
        fields["content-length"] = str(len(data))
        request = h11.Request(method=asked.method, target=self.target(asked.path), headers=list(fields.items()))
        async with await trio.open_tcp_stream(self.address.host, self.address.port) as stream:
            reader = Reader(stream)
            parts = [reader.http.send(part) for part in (request, h11.Data(data=data), h11.EndOfMessage())]
            await stream.send_all(b"".join(part for part in parts if part))
            yield reader


class Reader:
    """The body of a response that is read as it comes."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream, self.http, self.body = stream, h11.Connection(h11.CLIENT), b""

    async def until(self, words: bytes | None) -> bytes:
        """The body up to where it holds these words, or to its end."""
        with trio.fail_after(60):
            while words is None or words not in self.body:
                event = self.http.next_event()
                if event is h11.NEED_DATA:
                    self.http.receive_data(await self.stream.receive_some(65_536))
                elif isinstance(event, h11.Data):
                    self.body += event.data
                elif isinstance(event, h11.EndOfMessage):
                    assert words is None, self.body
                    return self.body
        return self.body


def says(message_id: str, *parts: Any, **more: Any) -> dict[str, Any]:
    """A message of the user; a str is a part with this text."""
    whole = [{"text": part} if isinstance(part, str) else part for part in parts]
    return {"messageId": message_id, "role": "ROLE_USER", "parts": whole, **more}


def decides(ticket: Any, action: str = "approve", **more: Any) -> dict[str, Any]:
    """The part that decides a ticket."""
    answer = {"ticketId": ticket["ticketId"], "action": action, "fingerprint": ticket["fingerprint"], **more}
    return {"data": answer, "mediaType": TICKET_TYPE}


def tickets(task: dict[str, Any]) -> list[dict[str, Any]]:
    """The open tickets of an A2A task."""
    client = Client()
    client.take({"task": task})
    return client.tickets()


def texts(task: dict[str, Any]) -> list[str]:
    """The texts of the artifacts of an A2A task."""
    client = Client()
    client.take({"task": task})
    return [*client.texts().values()]


def state(task: dict[str, Any]) -> str:
    return str(task["status"]["state"]).removeprefix("TASK_STATE_")
