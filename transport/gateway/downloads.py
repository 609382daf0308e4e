"""Downloads: bytes of strangers, served so that no browser executes them, and how many are in memory concurrently.

Theory of operation. An artifact or a file of a message may be a page with scripts. So it is a download (`attachment`),
its type is the declared one (`nosniff`, as of every response), and a page that a browser opens all the same has a
separate origin and no scripts (`sandbox`). The console fetches the bytes with its token and decides itself what to
show.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Final, Protocol
from urllib.parse import quote

import attrs

from ..protocol.codes import Refused
from .access import Principal
from .http import Request, Response

MOST: Final = 32
"""Downloads that are being sent: 8 MiB each, so 256 MiB at most."""
MOST_EACH: Final = 4
"""Of them to one principal, so that one who reads slowly leaves room for others."""
POLICY: Final = "default-src 'none'; sandbox"
"""The Content-Security-Policy of a download: no script, no form, no source, a separate origin."""
ANY: Final = "*/*"
"""The media type in the document: that of the stored bytes."""
UNCHANGED: Final = {"If-None-Match": "the ETag of an earlier response: 304 if the bytes are the same"}
BYTES: Final = {200: ("The bytes, under their media type.", ANY), 304: ("The bytes are the same.", None)}
"""The responses of a route of downloads, for the document."""


class StoredBytes(Protocol):
    """An artifact or a part with its bytes."""

    @property
    def name(self) -> str:
        """The name of a file, or ""."""

    @property
    def media_type(self) -> str:
        """The declared type."""

    @property
    def sha256(self) -> str:
        """The digest of the bytes."""

    @property
    def data(self) -> bytes | None:
        """The bytes."""


@attrs.define(eq=False)
class Downloads:
    """The downloads that are being sent, by principal."""

    _of: Counter[str] = attrs.field(factory=Counter)

    def __repr__(self) -> str:
        return f"<Downloads: {self._of.total()} of {MOST}>"

    def begin(self, who: Principal) -> None:
        """Count one more. Each `begin` that returns needs an `end`.

        Raises:
            Refused: too_many_connections.
        """
        if self._of[who.name] >= MOST_EACH or self._of.total() >= MOST:
            whose = f"{MOST_EACH} to {who.name}" if self._of[who.name] >= MOST_EACH else f"{MOST} of all principals"
            raise Refused("too_many_connections", f"as many files as may be are being sent: {whose}; try again")
        self._of[who.name] += 1

    def end(self, who: Principal) -> None:
        """Count one less."""
        self._of[who.name] -= 1
        if not self._of[who.name]:
            del self._of[who.name]

    async def response(self, request: Request, read: Callable[[], Awaitable[StoredBytes]]) -> Response:
        """Return the response with the bytes that `read` returns; they count until they have been sent.

        Raises:
            Refused: too_many_connections, or what `read` raises.
        """
        who = request.who
        self.begin(who)
        with ExitStack() as stack:
            stack.callback(self.end, who)
            file = await read()
            end = stack.pop_all().close  # now the response ends the download
        tag = f'"{file.sha256}"'
        headers = [
            ("content-disposition", _attachment(file.name or file.sha256[:16])),
            ("content-security-policy", POLICY),
            ("cross-origin-resource-policy", "same-origin"),
            ("cache-control", "private, no-cache"),
            ("etag", tag),
        ]
        if request.headers.get("if-none-match") == tag:
            return Response(status=304, headers=headers, sent=end)
        return Response(body=file.data or b"", content_type=_type(file.media_type), headers=headers, sent=end)


def _type(kind: str) -> str:
    return f"{kind}; charset=utf-8" if kind.startswith("text/") else kind


def _attachment(name: str) -> str:
    """Return the header that makes browsers save a file under a name (RFC 6266), which may have any letters."""
    plain = "".join(letter if letter.isascii() and letter not in '"\\%' else "_" for letter in name)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"
