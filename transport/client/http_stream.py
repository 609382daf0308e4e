"""`open_response`: an HTTP request whose answer is read while it arrives, as server-sent events are."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

import attrs
import h11
import trio

from greenroom import __version__

from .endpoint import Endpoint
from .trio_streams import open_stream

_CHUNK: Final = 64 * 1024


class ResponseCut(Exception):
    """The connection ended before the answer was whole; the gateway may have acted on the request."""


@attrs.define(eq=False)
class StreamedResponse:
    """The head of an answer; `pieces` has the rest.

    Attributes:
        status: The HTTP status.
        headers: Name in lower case -> value.
    """

    status: int
    headers: Mapping[str, str]
    _stream: trio.abc.Stream
    _http: h11.Connection

    def __repr__(self) -> str:
        return f"<StreamedResponse {self.status}>"

    @property
    def content_type(self) -> str:
        """The media type without its parameters; "" if the answer names none."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield the body in pieces, until it is whole.

        Raises:
            ResponseCut: The connection ended before.
        """
        while True:
            event = await _next_event(self._http, self._stream)
            if isinstance(event, h11.Data):
                yield bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return

    async def body(self, limit: int) -> bytes:
        """Return the body.

        Raises:
            ResponseCut: The connection ended before the body was whole, or the body has more bytes than `limit`.
        """
        body = bytearray()
        async for piece in self.pieces():
            body += piece
            if len(body) > limit:
                raise ResponseCut(f"the answer has more than {limit:,} bytes")
        return bytes(body)


@asynccontextmanager
async def open_response(
    address: Endpoint,
    method: str,
    path: str,
    headers: Sequence[tuple[str, str]],
    *,
    token: str | None,
    data: bytes = b"",
    context: ssl.SSLContext | None = None,
) -> AsyncIterator[StreamedResponse]:
    """Send a request on a new connection, and return the head of the answer; the connection is closed at the end.

    Raises:
        NotReachable: The gateway does not answer.
        ResponseCut: The connection ended before the head of the answer.
    """
    own = [("host", address.authority), ("user-agent", f"greenroom/{__version__}"), ("connection", "close")]
    if token:
        own.append(("authorization", f"Bearer {token}"))
    if data:
        own.append(("content-length", str(len(data))))
    request = h11.Request(method=method, target=address.prefix + path, headers=[*own, *headers])
    http = h11.Connection(h11.CLIENT)
    events = [request, *([h11.Data(data=data)] if data else []), h11.EndOfMessage()]
    sent = b"".join(http.send(event) or b"" for event in events)
    stream = await open_stream(address, context)
    try:
        with suppress(trio.BrokenResourceError):  # the gateway may have answered before it has read all
            await stream.send_all(sent)
        event = await _next_event(http, stream)
        while isinstance(event, h11.InformationalResponse):
            event = await _next_event(http, stream)
        if not isinstance(event, h11.Response):
            raise ResponseCut("the answer has no head")
        fields = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
        yield StreamedResponse(event.status_code, fields, stream, http)
    finally:
        await trio.aclose_forcefully(stream)


async def _next_event(http: h11.Connection, stream: trio.abc.Stream) -> h11.Event:
    while True:
        try:
            event = http.next_event()
            if isinstance(event, h11.ConnectionClosed):
                raise ResponseCut("the connection was closed before the answer was whole")
            if isinstance(event, h11.Event):
                return event
            http.receive_data(bytes(await stream.receive_some(_CHUNK)))
        except (h11.RemoteProtocolError, trio.BrokenResourceError) as error:
            raise ResponseCut(str(error) or "the connection was lost") from error
