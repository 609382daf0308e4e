"""One line of an MCP client on its way to a gateway, as often as it takes.

    posted -> (an event with an id) -> resumable
    cut, resumable: GET with Last-Event-ID          cut, else: POST again
    answered: the end                               no gateway for `PATIENCE` seconds: an error of the bridge

Both ways find the same run, since the ids are the same, in any process on the store.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final

import attrs
import trio

from greenroom.actors.models.codecs.sse import EventParser, EventTooLong

from ..client.close_reasons import message_of
from ..client.endpoint import read_endpoint
from ..client.errors import NotAGateway, NotReachable
from ..client.http_exchange import LARGEST
from ..client.http_stream import ResponseCut, StreamedResponse, open_response
from ..frontends.mcp.messages import INTERNAL, RequestId
from .bridge import BridgeGateway
from .mcp_session import ClientLine, McpSession, compact, failure, json_object, list_line, stopped
from .owner import ServedBy

PATH: Final = "/v1/mcp"
PATIENCE: Final = 60.0
"""Seconds without a gateway until a request is answered with an error: clients of MCP wait as long for an answer."""
MOST_PAGES: Final = 100
"""Pages of the list of tools that the bridge reads."""
PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 2.0
"""Seconds between two attempts; each pause is twice as long as the one before, up to the longest."""
_EVENTS: Final = "text/event-stream"
_JSON: Final = "application/json"
_FORMS: Final = [("accept", f"{_JSON}, {_EVENTS}")]


@attrs.define(eq=False)
class Post:
    """A line that is on its way.

    Attributes:
        line: The line.
        scope: Ends the post.
        begun: The answer has begun.
        resume_after: The id of the last event; "" before the first.
        streams, received: How many answers have begun as streams, and how many messages have come.
        done: The answer has come, or none is due.
        cancelled: The client has cancelled the request, so that no answer need come.
        asked: The ids of the gateway's own requests that the client has seen.
    """

    line: ClientLine
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    begun: trio.Event = attrs.field(factory=trio.Event)
    resume_after: str = ""
    streams: int = 0
    received: int = 0
    done: bool = False
    cancelled: bool = False
    asked: set[RequestId] = attrs.field(factory=set)

    def __repr__(self) -> str:
        return f"<Post of {self.line.method or 'an answer'}>"


class Poster:
    """Delivers the lines of one client.

    Args:
        gateway: The gateway.
        session: What the answers of the gateway have brought.
        write: Writes a line to the client.
    """

    def __init__(self, gateway: BridgeGateway, session: McpSession, write: Callable[[bytes], Awaitable[None]]) -> None:
        self._gateway, self._session, self._write = gateway, session, write
        self._tls: ssl.SSLContext | None = None

    def __repr__(self) -> str:
        return f"<Poster to {self._gateway!r}>"

    async def learn_tools(self, address: ServedBy) -> None:
        """Read the list of tools, whose schemas say which headers a call needs.

        Raises:
            ConnectError: The gateway does not answer, or has no MCP server.
        """
        endpoint, cursor = read_endpoint(address.url), None
        for _ in range(MOST_PAGES):
            line = list_line(cursor)
            headers = [*_FORMS, ("content-type", _JSON), *self._session.headers(line)]
            token = address.token or endpoint.token
            try:
                async with open_response(endpoint, "POST", PATH, headers, token=token, data=line.body) as response:
                    answer = json_object(await response.body(LARGEST)) or {}
            except ResponseCut as error:
                raise endpoint.unreachable(str(error)) from error
            result = answer.get("result")
            if not isinstance(result, dict):
                raise NotAGateway(
                    f"{endpoint.url} is not an MCP server; use a server of this release", url=endpoint.url
                )
            self._session.listed(result)
            cursor = result.get("nextCursor")
            if not isinstance(cursor, str):
                return

    async def deliver(self, post: Post) -> None:
        """Post a line until it is answered; the messages of the answer are written as they come.

        Raises:
            BrokenPipeError: The client has closed the output.
        """
        until, pause, fault = trio.current_time() + PATIENCE, PAUSE, "there is no gateway"
        while not (post.done or post.cancelled):
            streams, received = post.streams, post.received
            fault = await self._attempt(post, until) or fault
            now = trio.current_time()
            until = now + PATIENCE if post.streams > streams else until
            pause = PAUSE if post.received > received else pause
            if now + pause >= until:
                await self._answer(post, fault)
            elif not post.done:
                await trio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    async def _attempt(self, post: Post, until: float) -> str:
        """Make one attempt; return why the line is not answered, as far as this one shows it."""
        with trio.move_on_at(until) as waiting:
            address = await self._gateway.address()
        if waiting.cancelled_caught:
            return self._gateway.fault
        try:
            await self._exchange(post, address)
        except NotReachable as error:
            self._gateway.lost(address)
            return str(error)
        except (ResponseCut, EventTooLong) as error:
            return str(error)
        return "the answer has ended without a result"

    async def _exchange(self, post: Post, address: ServedBy) -> None:
        endpoint = read_endpoint(address.url)
        if endpoint.secure and self._tls is None:
            self._tls = ssl.create_default_context()
        headers = [*_FORMS, *self._session.headers(post.line)]
        if post.resume_after:
            method, data = "GET", b""
            headers.append(("last-event-id", post.resume_after))
        else:
            method, data = "POST", post.line.body
            headers.append(("content-type", _JSON))
        opened = open_response(
            endpoint,
            method,
            PATH,
            headers,
            token=address.token or endpoint.token,
            data=data,
            context=self._tls,
        )
        async with opened as response:
            post.begun.set()
            await self._read(post, response)

    async def _read(self, post: Post, response: StreamedResponse) -> None:
        if response.status < 300 and post.line.id is None:
            post.done = True  # accepted
            return
        if response.content_type == _EVENTS and response.status < 300:
            await self._read_events(post, response)
            return
        body = await response.body(LARGEST)
        message, fault = json_object(body), message_of(body) or f"the gateway answers with HTTP {response.status}"
        if response.status == 503:
            raise ResponseCut(fault)
        if response.status >= 400 and post.resume_after:
            post.resume_after = ""
            raise ResponseCut(fault)  # that stream cannot be resumed; the line is posted again
        if message is None or "jsonrpc" not in message:
            await self._answer(post, fault)
        elif post.line.id is None and post.line.is_message:
            post.done = True  # nothing answers a notification, or an answer
        else:
            await self._pass_on(post, {**message, "id": post.line.id}, response.headers.get("mcp-session-id"))

    async def _read_events(self, post: Post, response: StreamedResponse) -> None:
        parser = EventParser()
        post.streams += 1
        async with aclosing(response.pieces()) as pieces:
            async for piece in pieces:
                for event in parser.feed(piece):
                    message = json_object(event.data)
                    if message is not None:
                        await self._pass_on(post, message, None)
                    post.resume_after = parser.last_id
                    if post.done:
                        return
                post.resume_after = parser.last_id

    async def _pass_on(self, post: Post, message: dict[str, Any], session_id: str | None) -> None:
        """Write a message of the gateway; a question that the client has already seen is not repeated."""
        request_id = message.get("id")
        if stopped(message):
            raise ResponseCut("the gateway has stopped")  # the run goes on, and the line is posted again
        post.received += 1
        if "method" not in message:
            post.done = request_id == post.line.id
            message = self._session.answered(post.line, message, session_id)
        elif isinstance(request_id, str | int):
            if request_id in post.asked:
                return
            post.asked.add(request_id)
        await self._write(compact(message))

    async def _answer(self, post: Post, fault: str) -> None:
        """Answer with an error of the bridge; a notification and an answer are dropped."""
        post.done = True
        if post.line.id is not None or not post.line.is_message:
            await self._write(failure(post.line.id, fault, INTERNAL))
