"""A model service on loopback that fails as services do: real sockets, four formats, one reply after the other.

    async with open_fault_server(reply("Hello"), reply(status=429, headers={"retry-after": "2"})) as server:
        model = OpenAIChat("small", base_url=server.base_url("chat"), api_key=KEY)

The format is known by the path. A reply that is missing is a failure of the test, and answered with 400.
"""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import attrs
import h11
import trio

from .wire_formats import FORMATS, Answer, Format, Part


@attrs.frozen(kw_only=True)
class Reply:
    """What the service does with one request.

    Attributes:
        status, headers, body: a refusal, in the format's own form unless there is a body.
        code, message: of the refusal.
        error: an error of this message comes in the stream, behind what is sent of it.
        begun: the stream is sent up to its first text.
        cut: bytes of the stream's body after which the connection breaks; `clean` ends the body properly there.
        hang: after what is sent, nothing comes, and nothing ends.
        pause: seconds between two events.
        raw: sent in place of the stream.
        media: the content type of the stream.
    """

    answer: Answer = attrs.field(factory=Answer)
    status: int = 200
    headers: dict[str, str] = attrs.field(factory=dict)
    body: bytes | None = None
    code: str = ""
    message: str = "no"
    error: str | None = None
    begun: bool = False
    cut: int | None = None
    clean: bool = False
    hang: bool = False
    pause: float = 0.0
    raw: bytes | None = None
    media: str = "text/event-stream; charset=utf-8"


def reply(*parts: Part, finish: str = "", **faults: Any) -> Reply:
    """A reply that says these parts, unless a fault keeps it from that."""
    return Reply(answer=Answer(parts=parts, finish=finish), **faults)


@attrs.define(eq=False)
class Asked:
    """A request as the service has seen it.

    Attributes:
        began: the beginning of the answer has been sent.
    """

    format: Format | None
    path: str
    headers: dict[str, str]
    body: Any
    stream: trio.SocketStream
    began: trio.Event = attrs.field(factory=trio.Event)

    def closed_by_peer(self) -> bool:
        """Whether the other side has closed the connection, as the kernel has it at this moment."""
        sock = self.stream.socket
        if sock.fileno() < 0:
            return True
        with suppress(BlockingIOError):
            return sock._sock.recv(1, 0x42) == b""  # MSG_PEEK | MSG_DONTWAIT
        return False


@attrs.define(eq=False)
class FaultServer:
    """The service. `requests` has what it was asked, in order."""

    replies: list[Reply]
    port: int = 0
    requests: list[Asked] = attrs.field(factory=list)
    connections: int = 0
    asked: trio.Event = attrs.field(factory=trio.Event)
    begun: trio.Semaphore = attrs.field(factory=lambda: trio.Semaphore(0))
    """Has one more for each stream that hangs."""
    left: trio.Event = attrs.field(factory=trio.Event)
    """Set when the last connection has closed."""

    def base_url(self, name: str) -> str:
        """The base URL for a format: OpenAI's ends in /v1, the others bear no version."""
        return f"http://127.0.0.1:{self.port}" + ("/v1" if name in ("chat", "responses") else "")

    async def serve(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        self.left = trio.Event()
        try:
            async with stream:
                with suppress(trio.BrokenResourceError, trio.ClosedResourceError, h11.RemoteProtocolError):
                    await self._connection(stream)
        finally:
            self.connections -= 1
            if not self.connections:
                self.left.set()

    async def _connection(self, stream: trio.SocketStream) -> None:
        wire = h11.Connection(h11.SERVER)
        while True:
            request = await _next(wire, stream)
            if not isinstance(request, h11.Request):
                return
            body = b""
            while isinstance(data := await _next(wire, stream), h11.Data):
                body += data.data
            asked = self._note(request, body, stream)
            given = self.replies.pop(0) if self.replies else Reply(status=400, message="there is no reply left")
            await self._answer(wire, asked, given)
            if wire.our_state is not h11.DONE or wire.their_state is not h11.DONE:
                return
            wire.start_next_cycle()

    def _note(self, request: h11.Request, body: bytes, stream: trio.SocketStream) -> Asked:
        path = request.target.decode()
        found = next((one for one in FORMATS.values() if one.path in path), None)
        headers = {name.decode(): value.decode() for name, value in request.headers}
        asked = Asked(found, path, headers, json.loads(body or b"null"), stream)
        self.requests.append(asked)
        self.asked.set()
        return asked

    async def _answer(self, wire: h11.Connection, asked: Asked, given: Reply) -> None:
        send = partial(_send, wire, asked.stream)
        if given.status != 200 or asked.format is None:
            error = (asked.format or next(iter(FORMATS.values()))).error(given.status, given.code, given.message)
            body = given.body if given.body is not None else json.dumps(error).encode()
            length = {"content-type": "application/json", "content-length": str(len(body))}
            await send(h11.Response(status_code=given.status, headers=[*({**length, **given.headers}).items()]))
            await send(h11.Data(data=body), h11.EndOfMessage())
            return
        headers = {"content-type": given.media, **given.headers}
        if given.body is not None:
            headers["content-length"] = str(len(given.body))
        await send(h11.Response(status_code=200, headers=[*headers.items()]))
        sent = 0
        for event in _events(asked.format, given):
            left = event if given.cut is None else event[: given.cut - sent]
            sent += len(left)
            if left:
                await send(h11.Data(data=left))
            asked.began.set()
            if given.cut is not None and sent >= given.cut:
                break
            if given.pause:
                await trio.sleep(given.pause)
        asked.began.set()
        if given.hang:
            self.begun.release()
            await asked.stream.receive_some(1)  # until the other side closes the connection
        elif given.cut is None or given.clean:
            await send(h11.EndOfMessage())
        else:
            await asked.stream.aclose()


def _events(form: Format, given: Reply) -> Sequence[bytes]:
    if given.body is not None:
        return [given.body]
    if given.raw is not None:
        return [given.raw]
    events = form.stream(given.answer)[: form.first if given.begun else None]
    if given.error is not None:
        events.append(form.stream_error(given.code, given.error))
    return events


async def _next(wire: h11.Connection, stream: trio.SocketStream) -> Any:
    while True:
        event = wire.next_event()
        if event is not h11.NEED_DATA:
            return event
        wire.receive_data(await stream.receive_some(65_536))


async def _send(wire: h11.Connection, stream: trio.SocketStream, *events: h11.Event) -> None:
    for event in events:
        await stream.send_all(wire.send(event) or b"")


@asynccontextmanager
async def open_fault_server(*replies: Reply) -> AsyncIterator[FaultServer]:
    """A service that gives these replies, as long as the block lasts."""
    server = FaultServer(list(replies))
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, server.serve, 0, host="127.0.0.1"))
        server.port = listeners[0].socket.getsockname()[1]
        yield server
        nursery.cancel_scope.cancel()
