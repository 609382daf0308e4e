"""A model service on loopback that fails as services do: real sockets, four formats, one reply after the other.

    async with open_fault_server(reply("Hello"), reply(status=429, headers={"retry-after": "2"})) as server:
        model = OpenAIChat("small", base_url=server.base_url("chat"), api_key="none")

The path of a request tells its format. A request without a reply is answered with status 400. A program that asks in
its own order, or asks for a title beside its work, is served by a function of the request:

    async with open_fault_server(answer=lambda request: reply("A title" if not request.body.get("tools") else "Done.")):
        ...
"""

from __future__ import annotations

import json
import math
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import chain, repeat
from typing import Any

import attrs
import h11
import trio

from greenroom.supervision.fields import did_you_mean

from ..errors import UsageError
from ..state.values import shown
from .wire_formats import FORMATS, Answer, Format, Part


@attrs.frozen(kw_only=True)
class FaultReply:
    """The reply of the service to one request.

    Attributes:
        answer: the parts of a streamed answer.
        status: other than 200: a refusal, in the format's own form unless there is a body.
        headers: The headers of the reply, such as {"retry-after": "2"}.
        body: bytes in place of the refusal's own form, or of the stream.
        code: The code of a refusal or of an error in the stream; "": the usual one of the status.
        message: The message of the refusal.
        error: text of an error that comes in the stream, after the sent part of it.
        begun: the stream is sent up to its first text.
        cut: bytes of the stream after which the connection breaks.
        clean: the body ends properly at `cut`.
        hang: after the sent part nothing comes, and nothing ends.
        endless: the stream is sent up to its first text, which then comes again and again until the client closes the
            connection; the answer begins with a text.
        pause: seconds between two events.
        raw: bytes in place of the stream.
        media: the content type of the stream.

    Raises:
        UsageError: no service can send a value; the message names it.
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
    endless: bool = False
    pause: float = 0.0
    raw: bytes | None = None
    media: str = "text/event-stream; charset=utf-8"

    def __attrs_post_init__(self) -> None:
        lines = isinstance(self.headers, dict) and all(
            isinstance(text, str) and text.isascii() and text.isprintable()
            for pair in self.headers.items()
            for text in pair
        )
        for name, fits, way in (
            ("status", isinstance(self.status, int) and 100 <= self.status <= 599, "a number from 100 to 599"),
            ("headers", lines, "a dict of printable ASCII texts"),
            ("body", isinstance(self.body, bytes | None), "bytes, or None"),
            ("raw", isinstance(self.raw, bytes | None), "bytes, or None"),
            ("cut", self.cut is None or (isinstance(self.cut, int) and self.cut >= 0), "a number of bytes, or None"),
            ("pause", isinstance(self.pause, int | float) and 0 <= self.pause < math.inf, "seconds, 0 or more"),
            ("media", isinstance(self.media, str), "a str"),
        ):
            if not fits:
                raise UsageError(f"reply({name}={shown(getattr(self, name))}): give {way}")


def reply(*parts: Part, finish: str = "", **faults: Any) -> FaultReply:
    """Return a reply with these parts: texts, `think(...)`, `call(...)` and `malformed(...)`.

    Args:
        *parts: The parts of the answer, in order.
        finish: the format's own word for why the answer ends; "": the usual one.
        **faults: fields of `FaultReply`.

    Raises:
        UsageError: there is no such fault, or no service can send a value.
    """
    names = [field.name for field in attrs.fields(FaultReply) if field.name != "answer"]
    for name in faults:
        if name not in names:
            raise UsageError(f"reply({name:.100}=...): {did_you_mean(name, names)}the faults are {', '.join(names)}")
    return FaultReply(answer=Answer(parts=parts, finish=finish), **faults)


@attrs.define(eq=False)
class ReceivedRequest:
    """A request as the service received it.

    Attributes:
        format: the wire format; None for an unknown path.
        path: with its query.
        headers: by lower-case name.
        body: JSON data.
        stream: the connection.
        began: set once the beginning of the reply has been sent.
    """

    format: Format | None
    path: str
    headers: dict[str, str]
    body: Any
    stream: trio.SocketStream
    began: trio.Event = attrs.field(factory=trio.Event)

    def closed_by_peer(self) -> bool:
        """Return True if the client has closed the connection, as the kernel has it at this moment."""
        ours = self.stream.socket
        if ours.fileno() < 0:
            return True
        with socket.fromfd(ours.fileno(), ours.family, ours.type) as peeking:
            try:
                return peeking.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
            except BlockingIOError:
                return False
            except OSError:  # a reset: what was sent last has met a closed connection
                return True


@attrs.define(eq=False)
class FaultServer:
    """The service; `open_fault_server` makes one.

    Attributes:
        replies: still to be given, in order.
        answer: gives the reply to a request, in place of `replies`.
        port: on 127.0.0.1.
        requests: received so far, in order.
        connections: open now.
        asked: set at the first request.
        begun: has one more for each stream that hangs.
        left: set when the last connection has closed.
    """

    replies: list[FaultReply]
    answer: Callable[[ReceivedRequest], FaultReply] | None = None
    port: int = 0
    requests: list[ReceivedRequest] = attrs.field(factory=list)
    connections: int = 0
    asked: trio.Event = attrs.field(factory=trio.Event)
    begun: trio.Semaphore = attrs.field(factory=lambda: trio.Semaphore(0))
    left: trio.Event = attrs.field(factory=trio.Event)

    def base_url(self, name: str) -> str:
        """Return the base URL for a format: chat, responses, anthropic or gemini.

        OpenAI's ends in /v1, the others have no version.
        """
        return f"http://127.0.0.1:{self.port}" + ("/v1" if name in ("chat", "responses") else "")

    async def serve(self, stream: trio.SocketStream) -> None:
        """Serve one connection until its end."""
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
            record = self._note(request, body, stream)
            await self._answer(wire, record, self._reply(record))
            if wire.our_state is not h11.DONE or wire.their_state is not h11.DONE:
                return
            wire.start_next_cycle()

    def _reply(self, record: ReceivedRequest) -> FaultReply:
        if self.answer is not None:
            fault = self.answer(record)
            return _checked(fault, f"open_fault_server(answer=): the function has returned {shown(fault)}")
        return self.replies.pop(0) if self.replies else FaultReply(status=400, message="there is no reply left")

    def _note(self, request: h11.Request, body: bytes, stream: trio.SocketStream) -> ReceivedRequest:
        path = request.target.decode()
        form = next((one for one in FORMATS.values() if one.path in path), None)
        headers = {name.decode(): value.decode() for name, value in request.headers}
        record = ReceivedRequest(form, path, headers, json.loads(body or b"null"), stream)
        self.requests.append(record)
        self.asked.set()
        return record

    async def _answer(self, wire: h11.Connection, record: ReceivedRequest, fault: FaultReply) -> None:
        send = partial(_send, wire, record.stream)
        if fault.status != 200 or (record.format is None and fault.body is None):
            error = (record.format or next(iter(FORMATS.values()))).error(fault.status, fault.code, fault.message)
            body = fault.body if fault.body is not None else json.dumps(error).encode()
            length = {"content-type": "application/json", "content-length": str(len(body))}
            await send(h11.Response(status_code=fault.status, headers=[*({**length, **fault.headers}).items()]))
            await send(h11.Data(data=body), h11.EndOfMessage())
            return
        headers = {"content-type": fault.media, **fault.headers}
        if fault.body is not None:
            headers["content-length"] = str(len(fault.body))
        await send(h11.Response(status_code=200, headers=[*headers.items()]))
        sent_bytes = 0
        events = _events(record.format, fault) if record.format is not None else [fault.body or b""]
        for event in chain(events, repeat(events[-1])) if fault.endless else events:
            rest = event if fault.cut is None else event[: fault.cut - sent_bytes]
            sent_bytes += len(rest)
            if rest:
                await send(h11.Data(data=rest))
            record.began.set()
            if fault.cut is not None and sent_bytes >= fault.cut:
                break
            if fault.pause:
                await trio.sleep(fault.pause)
        record.began.set()
        if fault.hang:
            self.begun.release()
            await record.stream.receive_some(1)  # until the other side closes the connection
        elif fault.cut is None or fault.clean:
            await send(h11.EndOfMessage())
        else:
            await record.stream.aclose()


def _events(form: Format, fault: FaultReply) -> Sequence[bytes]:
    if fault.body is not None:
        return [fault.body]
    if fault.raw is not None:
        return [fault.raw]
    events = form.stream(fault.answer)[: form.first if fault.begun or fault.endless else None]
    if fault.error is not None:
        events.append(form.stream_error(fault.code, fault.error))
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


def _checked(value: object, where: str) -> FaultReply:
    if not isinstance(value, FaultReply):
        raise UsageError(f"{where}: give replies, as reply('a text')")
    return value


@asynccontextmanager
async def open_fault_server(
    *replies: FaultReply, answer: Callable[[ReceivedRequest], FaultReply] | None = None
) -> AsyncIterator[FaultServer]:
    """Open a service that gives these replies in order, until the block ends.

    The service listens on a free port of 127.0.0.1, in real time: sockets and a virtual clock do not fit together.

    Args:
        *replies: The replies, one for each request.
        answer: A function of the request that returns its reply, in place of `replies`. The service calls the function
            once for each request, also for a path of no format (`request.format` is None), where a reply has a `body`
            or another status than 200. What the function raises ends the block.

    Raises:
        UsageError: A value, or what `answer` returns, is not a reply; replies and `answer` are both given.
    """
    if answer is not None and (replies or not callable(answer)):
        raise UsageError("open_fault_server: give replies, or answer= as a function of the request")
    server = FaultServer([_checked(fault, f"open_fault_server({shown(fault)})") for fault in replies], answer)
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, server.serve, 0, host="127.0.0.1"))
        server.port = listeners[0].socket.getsockname()[1]
        yield server
        nursery.cancel_scope.cancel()
