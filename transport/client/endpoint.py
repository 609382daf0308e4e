"""The address of a gateway for its WebSocket and its HTTP API, parsed from any of its URLs. Pure."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qs, urlsplit

import attrs

from greenroom.actors.errors import UsageError

from ..protocol.codes import PATH
from .errors import NotReachable

_SECURE: Final = {"ws": False, "http": False, "wss": True, "https": True}


@attrs.frozen(kw_only=True)
class Endpoint:
    """The address of a gateway.

    Attributes:
        host, port: The TCP address.
        secure: True for TLS.
        prefix: Path before /v1 if a proxy serves the gateway below a path; "" or "/something".
        token: Token in the URL's fragment, as in the console's URL; never sent in a URL.
    """

    host: str
    port: int
    secure: bool = False
    prefix: str = ""
    token: str | None = attrs.field(default=None, repr=False)

    @property
    def authority(self) -> str:
        """Value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The URL for display, without secrets."""
        return f"{'https' if self.secure else 'http'}://{self.authority}{self.prefix}"

    @property
    def path(self) -> str:
        """Path of the WebSocket."""
        return self.prefix + PATH

    def unreachable(self, why: str) -> NotReachable:
        """Return the error for an address that does not answer, with a remedy."""
        way = "check the address" if self.secure else "start one with `greenroom serve`, or check the address"
        return NotReachable(f"no gateway answers at {self.url} ({why}); {way}", url=self.url)


def read_endpoint(url: str) -> Endpoint:
    """Parse the URL of a gateway: ws, wss, http or https, with or without the path of the WebSocket.

    Raises:
        UsageError: The URL is invalid; the message says why.
    """
    if not isinstance(url, str):
        raise UsageError(f"url={url!r}: give a str, such as ws://HOST:PORT")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"{_shown(url)} is not a URL ({error}); write ws://HOST:PORT") from error
    secure = _SECURE.get(parts.scheme)
    if secure is None or not parts.hostname:
        raise UsageError(f"{_shown(url)} is not the URL of a gateway; write ws://HOST:PORT or http://HOST:PORT")
    if parts.query or parts.username is not None:
        raise UsageError(f"{_shown(url)}: a token does not belong into a URL, where it would be logged; give token=...")
    prefix = parts.path.rstrip("/").removesuffix(PATH).rstrip("/")
    token = parse_qs(parts.fragment).get("token", [None])[0]
    return Endpoint(
        host=parts.hostname, port=port or (443 if secure else 80), secure=secure, prefix=prefix, token=token
    )


def read_target(url: str, token: str | None) -> tuple[Endpoint, str | None]:
    """Return the address of a gateway, and the token for it: the given one, or that of the URL's fragment.

    Raises:
        UsageError: The URL or the token is invalid; the message says why.
    """
    address = read_endpoint(url)
    token = token if token is not None else address.token
    if token is not None and not (token.isascii() and token.isprintable()):
        raise UsageError("the token has characters that no token has; give what `greenroom serve` has written")
    return address, token


def _shown(url: str) -> str:
    """Return the part of an invalid URL that cannot contain a secret."""
    text = str(url).partition("#")[0].partition("?")[0]
    head, at, tail = text.rpartition("@")
    return repr(f"...@{tail}" if at and head else text)[:200]
