"""A page with one chat, as `useChat` keeps it, against a gateway in this process."""

from typing import Any

import h11
import trio

from .ai_sdk_rules import Chat, Part, check_stream, read_sse
from .gateway import TOKEN, Reply, http


class Page:
    """A page with one chat: keeps the messages as `useChat` does, and holds every stream to the rules."""

    def __init__(self, address: Any, version: Any = "v7", chat: str = "ch", token: str = TOKEN) -> None:
        self.address, self.version, self.chat, self.token = address, version, chat, token
        self.messages: list[Part] = []
        self.last = Chat(version)
        self.parts: list[Part] = []

    @property
    def path(self) -> str:
        return f"/v1/ai-sdk/{self.version}/agents/helper/chat"

    @property
    def run_of_ours(self) -> str:
        return str(self.parts[0]["messageId"])

    def say(self, name: str, *words: str) -> None:
        self.messages.append({"id": name, "role": "user", "parts": [{"type": "text", "text": word} for word in words]})

    def body(self, **more: Any) -> dict[str, Any]:
        return {"id": self.chat, "messages": self.messages, "trigger": "submit-message", **more}

    async def post(self, **more: Any) -> Reply:
        return await http(self.address, "POST", self.path, body=self.body(**more), token=self.token)

    async def get(self, query: str = "", **headers: str) -> Reply:
        path = f"{self.path}/{self.chat}/stream{query}"
        return await http(self.address, "GET", path, token=self.token, headers=headers)

    async def watch(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Resume as a page does; started as soon as there is something to read."""
        connection = h11.Connection(h11.CLIENT)
        headers = {"host": f"{self.address.host}:{self.address.port}", "authorization": f"Bearer {self.token}"}
        request = h11.Request(method="GET", target=f"{self.path}/{self.chat}/stream", headers=list(headers.items()))
        found, parts = dict[str, str](), list[bytes]()
        async with await trio.open_tcp_stream(self.address.host, self.address.port) as stream:
            await stream.send_all((connection.send(request) or b"") + (connection.send(h11.EndOfMessage()) or b""))
            while not isinstance(event := connection.next_event(), h11.EndOfMessage):
                if event is h11.NEED_DATA:
                    connection.receive_data(await stream.receive_some(65_536))
                elif isinstance(event, h11.Response):
                    found = {name.decode(): value.decode() for name, value in event.headers}
                elif isinstance(event, h11.Data):
                    parts.append(bytes(event.data))
                    if len(parts) == 1:
                        task_status.started()
        self.take(Reply(200, found, b"".join(parts)), fresh=True)

    async def cancel(self) -> Reply:
        return await http(self.address, "POST", f"{self.path}/{self.chat}/cancel", body={}, token=self.token)

    def take(self, reply: Reply, *, fresh: bool) -> list[Part]:
        """A response becomes the assistant's message: a new one, or more of the last one."""
        assert (reply.status, reply.headers["content-type"]) == (200, "text/event-stream"), reply.body
        assert reply.headers["x-vercel-ai-ui-message-stream"] == "v1"
        assert (reply.headers["cache-control"], reply.headers["x-accel-buffering"]) == ("no-cache", "no")
        self.parts = read_sse(reply.body.decode())
        check_stream(self.parts, self.version, message_id=str(self.parts[0].get("messageId")))
        before = None if fresh else self.last.message
        self.last = Chat(self.version, before).stream(self.parts)
        self.messages = [message for message in self.messages if message["id"] != self.last.message["id"]]
        self.messages.append(self.last.sent())
        return self.parts

    async def ask(self, name: str, *words: str, **more: Any) -> list[Part]:
        self.say(name, *words)
        return self.take(await self.post(**more), fresh=True)

    async def answer(self, **more: Any) -> list[Part]:
        """Send the message back as the user has answered it."""
        self.messages[-1] = self.last.sent()
        return self.take(await self.post(**more), fresh=False)

    async def refused(self, **more: Any) -> tuple[int, str, str]:
        """What a request is refused for."""
        if self.messages and self.messages[-1]["role"] == "assistant":
            self.messages[-1] = self.last.sent()
        reply = await self.post(**more)
        error = reply.json()["error"]
        return reply.status, error["code"], error["message"]

    def approve(self, *calls: str, deny: str = "") -> None:
        for one in (*calls, deny):
            if one:
                self.last.respond(self.last.tool(one)["approval"]["id"], one != deny, "because")


def states(page: Page) -> list[str]:
    """Of the tool parts, by call id: parts stand in the order in which something has happened to their calls."""
    return [tool["state"] for tool in sorted(page.last.tools(), key=lambda part: str(part["toolCallId"]))]
