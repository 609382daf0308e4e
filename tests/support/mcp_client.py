"""A client of MCP over HTTP for tests, of either era: it posts messages and reads streams, and keeps no rule itself."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import h11
import trio

from greenroom.transport import Address

from .gateway import PATIENCE, TOKEN, Reply, http
from .mcp_rules import check

META = "io.modelcontextprotocol/"
MODERN = "2026-07-28"
FORMS: dict[str, Any] = {"elicitation": {}}
TASKS: dict[str, Any] = {"extensions": {f"{META}tasks": {}}}


class ServerEvent:
    """A server-sent event: its id ("" without one) and the message in it (None if it is empty)."""

    def __init__(self, text: str) -> None:
        fields = [line.partition(": ")[::2] for line in text.split("\n")]
        named = dict(fields)
        self.id, self.retry = named.get("id", ""), named.get("retry")
        data = "\n".join(value for name, value in fields if name == "data")
        self.message: Any = json.loads(data) if data.strip() else None


def read_stream(body: bytes) -> list[ServerEvent]:
    """The events of a stream, without comments."""
    parts = body.decode().split("\n\n")
    assert parts[-1] == "", "the stream ends within an event"
    return [ServerEvent(part) for part in parts[:-1] if not part.startswith(":")]


class Stream:
    """The response to a call while it arrives."""

    def __init__(self, stream: trio.abc.ReceiveStream, connection: h11.Connection) -> None:
        self._stream, self._http, self._rest, self.ended = stream, connection, b"", False
        self.status, self.last_id, self.request_id = 0, "", 0
        self.events: list[ServerEvent] = []
        self.headers: dict[str, str] = {}

    async def hear(self) -> Any:
        """The next message; None at the end of the stream."""
        with trio.fail_after(PATIENCE):
            while True:
                event = await self._event()
                if event is None:
                    return None
                self.events.append(event)
                self.last_id = event.id or self.last_id
                if event.message is not None:
                    return event.message

    async def until(self, method: str) -> Any:
        """The next message of a method, or the answer ("")."""
        while True:
            message = await self.hear()
            if message is None or message.get("method", "") == method:
                return message

    async def result(self) -> Any:
        """The result of the call; the stream has ended."""
        message = await self.until("")
        assert await self.hear() is None
        return message.get("result", message)

    async def _event(self) -> ServerEvent | None:
        while b"\n\n" not in self._rest:
            if self.ended:
                rest, self._rest = self._rest, b""
                return ServerEvent(f"data: {rest.decode()}") if rest else None  # an answer without a stream
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._http.receive_data(await self._stream.receive_some(65_536))
            elif isinstance(event, h11.Response):
                self.status = event.status_code
                self.headers = {name.decode(): value.decode() for name, value in event.headers}
            elif isinstance(event, h11.Data):
                self._rest += bytes(event.data)
            else:
                self.ended = True
        text, _, self._rest = self._rest.partition(b"\n\n")
        return ServerEvent(text.decode()) if not text.startswith(b":") else await self._event()


class McpClient:
    """One client; its requests are numbered from 1."""

    def __init__(
        self,
        address: Address,
        version: str = MODERN,
        *,
        capabilities: Mapping[str, Any] = FORMS,
        token: str = TOKEN,
    ) -> None:
        self.address, self.version, self.token = address, version, token
        self.capabilities, self.session, self.last = capabilities, "", 0

    @property
    def modern(self) -> bool:
        return self.version == MODERN

    async def begin(self) -> Any:
        """Initialize, or discover; the result."""
        if self.modern:
            return await self.ask("server/discover")
        reply = await self.post(
            self.message("initialize", protocolVersion=self.version, capabilities=self.capabilities, clientInfo={})
        )
        self.session = reply.headers["mcp-session-id"]
        noted = await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert (noted.status, noted.body) == (202, b"")
        return reply.json()["result"]

    def message(self, method: str, meta: Mapping[str, Any] | None = None, **params: Any) -> dict[str, Any]:
        """A request with the next id."""
        self.last += 1
        own = {f"{META}protocolVersion": self.version, f"{META}clientCapabilities": self.capabilities}
        meta = {**(own if self.modern else {}), **(meta or {})}
        params = {**params, **({"_meta": meta} if meta else {})}
        return {"jsonrpc": "2.0", "id": self.last, "method": method, "params": params}

    def headers(self, body: Any) -> dict[str, str]:
        if not isinstance(body, Mapping):
            return {}
        if not self.modern:
            session = {"mcp-session-id": self.session} if self.session else {}
            return {**session, **({"mcp-protocol-version": self.version} if self.session else {})}
        params = body.get("params", {})
        name = params.get("name", params.get("taskId"))
        head = {"mcp-protocol-version": self.version, "mcp-method": str(body.get("method"))}
        return head | ({"mcp-name": name} if isinstance(name, str) else {})

    async def post(self, body: Any, **headers: str) -> Reply:
        return await http(
            self.address,
            "POST",
            "/v1/mcp",
            body=body,
            token=self.token,
            headers={**self.headers(body), **{name.replace("_", "-"): value for name, value in headers.items()}},
        )

    async def ask(self, method: str, **params: Any) -> Any:
        """The result of a request, or its error."""
        reply = (await self.post(self.message(method, **params))).json()
        return reply["result"] if "result" in reply else reply["error"]

    async def call(self, name: str, arguments: Any = None, **more: Any) -> Any:
        """The result of a call that asks nothing on its way, or its error."""
        async with self.calling(name, arguments, **more) as stream:
            return await stream.result()

    @asynccontextmanager
    async def calling(self, name: str, arguments: Any = None, **more: Any) -> AsyncIterator[Stream]:
        """A call of a tool, while its stream is read."""
        params = {"name": name, "arguments": {"input": "go"} if arguments is None else arguments, **more}
        meta = params.pop("_meta", None)
        async with self.streaming("POST", self.message("tools/call", meta, **params)) as stream:
            stream.request_id = self.last
            yield stream

    @asynccontextmanager
    async def resuming(self, last_id: str) -> AsyncIterator[Stream]:
        """The rest of a stream."""
        async with self.streaming("GET", {}, last_event_id=last_id) as stream:
            yield stream

    async def connect(self) -> trio.abc.Stream:
        """A new connection to the gateway."""
        return await trio.open_tcp_stream(self.address.host, self.address.port)

    @asynccontextmanager
    async def streaming(self, method: str, body: Mapping[str, Any], **headers: str) -> AsyncIterator[Stream]:
        connection, data = h11.Connection(h11.CLIENT), json.dumps(body).encode() if body else b""
        fields = {
            "host": f"{self.address.host}:{self.address.port}",
            "authorization": f"Bearer {self.token}",
            "content-length": str(len(data)),
            **self.headers(body),
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        stream = await self.connect()
        try:
            request = h11.Request(method=method, target="/v1/mcp", headers=list(fields.items()))
            sent = connection.send(request) or b""
            sent += connection.send(h11.Data(data=data)) or b""
            await stream.send_all(sent + (connection.send(h11.EndOfMessage()) or b""))
            yield Stream(stream, connection)
        finally:
            await trio.aclose_forcefully(stream)

    def check(self, stream: Stream, *, request_id: Any = None, token: Any = None) -> None:
        """Hold a whole stream to the rules of the protocol."""
        messages = [event.message for event in stream.events if event.message is not None]
        own_id = stream.request_id if request_id is None else request_id
        forms = "elicitation" in self.capabilities
        check(messages, request_id=own_id, modern=self.modern, forms=forms, token=token, cut=not stream.ended)

    async def answer(self, question: Mapping[str, Any], action: str, **content: Any) -> Reply:
        """Answer a question of the handshake era."""
        result = {"action": action, **({"content": content} if content else {})}
        return await self.post({"jsonrpc": "2.0", "id": question["id"], "result": result})
