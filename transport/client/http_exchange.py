"""`HttpExchange`: one HTTP request and its answer, as bytes out and bytes in. Pure."""

from __future__ import annotations

from typing import Final

import h11

LARGEST: Final = 64 * 1024 * 1024
"""Maximum bytes of a response body."""


class InvalidAnswer(Exception):
    """The answer is not HTTP, is too large, or has ended before it was whole."""


class HttpExchange:
    """One request on a connection of its own.

    Attributes:
        data: The bytes to send.
        status: The status of the answer; 0 before.
    """

    def __init__(self, request: h11.Request, body: bytes = b"") -> None:
        self._http = h11.Connection(h11.CLIENT)
        events = [request, *([h11.Data(data=body)] if body else []), h11.EndOfMessage()]
        self.data = b"".join(self._http.send(event) or b"" for event in events)
        self.status = 0
        self._body = bytearray()

    def __repr__(self) -> str:
        return f"<HttpExchange {self.status or 'unanswered'}>"

    @property
    def body(self) -> bytes:
        """The body of the answer, as far as it has arrived."""
        return bytes(self._body)

    def receive(self, data: bytes) -> bool:
        """Read bytes of the answer; none: the connection has ended. Returns True if the answer is whole.

        Raises:
            InvalidAnswer: The answer cannot be read.
        """
        try:
            self._http.receive_data(data)
            return self._read()
        except h11.RemoteProtocolError as error:
            raise InvalidAnswer(f"the answer is not HTTP: {error}") from error

    def _read(self) -> bool:
        while (event := self._http.next_event()) is not h11.NEED_DATA:
            if isinstance(event, h11.Response):
                self.status = event.status_code
            elif isinstance(event, h11.Data):
                self._body += event.data
                if len(self._body) > LARGEST:
                    raise h11.RemoteProtocolError(f"an answer of more than {LARGEST} bytes")
            elif isinstance(event, h11.EndOfMessage):
                return True
            elif not isinstance(event, h11.InformationalResponse):
                raise h11.RemoteProtocolError("the connection was closed before the answer was whole")
        return False
