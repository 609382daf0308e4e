"""A server of ASGI made of lists: one connection whose every message the test sends and sees."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio

from .gateway import TOKEN

Message = dict[str, Any]
App = Callable[[Any, Any, Any], Awaitable[None]]
BEARER = (b"authorization", f"Bearer {TOKEN}".encode())
SERVER = ("203.0.113.5", 443)


def http_scope(method: str, target: str, *fields: tuple[bytes, bytes], **scope: Any) -> Message:
    """The scope of a request that came from outside."""
    path, _, query = target.partition("?")
    return {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "scheme": "http",
        "headers": [(b"host", b"runs.example"), *fields],
        "server": SERVER,
        **scope,
    }


def ws_scope(path: str = "/v1/ws", *fields: tuple[bytes, bytes], **scope: Any) -> Message:
    """The scope of a handshake."""
    extensions: Mapping[str, Any] = {"websocket.http.response": {}}
    rest = {"type": "websocket", "scheme": "ws", "subprotocols": ["greenroom.v1"], "extensions": extensions}
    return http_scope("GET", path, *fields) | rest | scope


class Peer:
    """One connection. A `send` of the application waits while `reading` is not set.

    Attributes:
        sent: What the application has sent. over: Set when it has returned; its error is in `error`.
        fail: Raised by the next `send`.
    """

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.over, self.news, self.reading = trio.Event(), trio.Event(), trio.Event()
        self.reading.set()
        self.error: Exception | None = None
        self.fail: Exception | None = None
        self.scope = trio.CancelScope()
        self._put, self._take = trio.open_memory_channel[Message](1000)

    async def run(self, app: App, scope: Message) -> None:
        """Call the application."""
        try:
            with self.scope:
                await app(scope, self._take.receive, self._send)
        except Exception as error:  # noqa: BLE001 - for the test to look at
            self.error = error
        self.over.set()

    async def _send(self, message: Message) -> None:
        await trio.lowlevel.checkpoint()
        await self.reading.wait()
        if self.fail is not None:
            raise self.fail
        self.sent.append(message)
        self.news.set()
        self.news = trio.Event()

    def say(self, kind: str, **fields: Any) -> None:
        """What the application receives next."""
        self._put.send_nowait({"type": kind, **fields})

    def body(self, data: bytes = b"", *, more: bool = False) -> None:
        """A part of the request's body."""
        self.say("http.request", body=data, more_body=more)

    def frame(self, kind: str, **fields: Any) -> None:
        """A frame of the protocol."""
        self.say("websocket.receive", text=json.dumps({"type": kind, **fields}))

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait until it holds of what was sent."""
        with trio.fail_after(60):
            while not holds() and not self.over.is_set():
                await self.news.wait()

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def data(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)

    @property
    def frames(self) -> list[Any]:
        return [json.loads(message["text"]) for message in self.sent if message["type"] == "websocket.send"]

    @property
    def code(self) -> str:
        """The code of a refusal."""
        return str(json.loads(self.data)["error"]["code"])


@asynccontextmanager
async def connection(app: App, scope: Message) -> AsyncIterator[Peer]:
    """A connection for the time of the block."""
    peer = Peer()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.run, app, scope)
        yield peer
        nursery.cancel_scope.cancel()


async def asked(
    app: App, method: str, target: str, *fields: tuple[bytes, bytes], body: Any = None, **scope: Any
) -> Peer:
    """One request with a token, answered."""
    async with connection(app, http_scope(method, target, BEARER, *fields, **scope)) as peer:
        peer.body(b"" if body is None else json.dumps(body).encode())
        with trio.fail_after(60):
            await peer.over.wait()
    return peer
