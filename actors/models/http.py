"""Models over HTTP: one streamed request with httpx, the only library of its kind here.

Theory of operation. A codec writes the request and reads the stream, without I/O; this module moves the bytes. Models
with the same base URL share one client, and so its connections, while any of them is open; the last one to leave closes
them. A cancel raises in the await on the socket; httpcore closes the connection on the way out, behind a shield.
"""

from __future__ import annotations

import math
import os
import platform
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    aclosing,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from importlib import metadata
from typing import Final, Literal
from urllib.parse import urlsplit

import attrs
import httpx
import msgspec
import trio
from typing_extensions import override

from greenroom.supervision import cleanup

from ..abc import Model, ModelEvent, UsageReport
from ..contract.messages import ModelRequest
from ..contract.plain import JSONObject
from ..contract.secrets.secret_readers import hides
from ..errors import AgentDefinitionError, ModelError
from .codecs.faults import plain_report, provider_error
from .codecs.masking import KeyMask
from .codecs.port import Codec, Encoded
from .codecs.reader import StreamReader
from .codecs.settings import is_header

CONNECT: Final = 10.0
"""Seconds to connect."""
SILENCE: Final = 120.0
"""Default for the seconds without a byte after which a request counts as timed out."""
BODY_LIMIT: Final = 65_536
"""Bytes that are read of an answer that is not a stream."""
BODY_TIME: Final = 5.0
"""Seconds that reading such an answer may take."""
LINGER: Final = 1.0
"""Seconds to wait for counts behind the end mark of an answer."""
DRAIN: Final = 0.05
"""Seconds to wait for the end of a finished body, so that the connection can be used again."""
SLICE: Final = 4_096
"""Bytes of a body that are read before other tasks may run: an empty line, of one byte, costs a microsecond."""
CHUNK: Final = 64
"""Bytes for which a chunk of a body counts beside its own: a chunk costs some 50 microseconds, whatever its size, and
one read of the socket may bring ten thousand."""
DELTAS: Final = 256
"""Deltas that are handed on before other tasks may run: one event may hold ten thousand."""
IDENTITY: Final = ("", "identity")
"""The content encodings that are read: a few bytes of any other one may unpack to gigabytes."""
SHOWN: Final = 200
"""Characters of a header that an error shows."""
KEEP: Final = 64
"""Idle connections that are kept for later requests."""


# --- connections -----------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class _Shared:
    """A client and the number of its users."""

    client: httpx.AsyncClient
    users: int = 0


_clients: trio.lowlevel.RunVar[dict[str, _Shared]] = trio.lowlevel.RunVar("greenroom.models.clients")


@cache
def _tls() -> ssl.SSLContext:
    """Return the TLS settings, made once per process: reading the certificates takes some 30 ms."""
    return httpx.create_ssl_context()


@cache
def _user_agent() -> str:
    """Return the name by which providers know this library, with the versions that a bug report of theirs needs."""
    python = ".".join(platform.python_version_tuple()[:2])
    return f"greenroom/{metadata.version('greenroom')} python/{python} httpx/{httpx.__version__}"


def no_cookies() -> CookieJar:
    """Return a jar that takes no cookie: a server could fill it, and read in it what other users of a client got."""
    return CookieJar(DefaultCookiePolicy(allowed_domains=()))


@asynccontextmanager
async def shared_client(base_url: str) -> AsyncIterator[httpx.AsyncClient]:
    """Open the client for a base URL, or use the one that is open in this trio program."""
    try:
        table = _clients.get()
    except LookupError:
        table = {}
        _clients.set(table)
    entry = table.get(base_url)
    if entry is None:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=KEEP, keepalive_expiry=30.0)
        client = httpx.AsyncClient(limits=limits, follow_redirects=False, verify=_tls(), cookies=no_cookies())
        entry = table[base_url] = _Shared(client)
    entry.users += 1
    try:
        yield entry.client
    finally:
        entry.users -= 1
        if not entry.users:
            del table[base_url]
            with cleanup(CONNECT, what=f"close the connections to {base_url}"):
                await entry.client.aclose()


# --- what a user gives -----------------------------------------------------------------------------------------------


def default_url(base_url: str | None, variable: str, official: str) -> str:
    """Return the base URL that was given, else that of the environment, else the official one.

    An empty text is refused: a request that is meant for another service must not go to the official one.
    """
    return base_url if base_url is not None else os.environ.get(variable) or official


def base_url_of(model: str, base_url: str) -> str:
    """Return a base URL without a slash at its end.

    Raises:
        AgentDefinitionError: the text is not a base URL.
    """
    try:
        parts = urlsplit(base_url)
        fits = (
            isinstance(base_url, str)
            and parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and (parts.port is None or parts.port >= 0)  # raises for a port that is none
            and not (parts.query or parts.fragment)
        )
        httpx.URL(base_url)
    except (ValueError, TypeError, AttributeError, httpx.InvalidURL):
        fits, parts = False, urlsplit("")
    if parts.username is not None or parts.password is not None:
        raise AgentDefinitionError(f"model {model!r}: base_url holds a password; give it as api_key= or in headers=")
    if not fits:
        raise AgentDefinitionError(f'model {model!r}: base_url={base_url!r:.200}: give one such as "https://host/v1"')
    return base_url.rstrip("/")


def key_of(model: str, api_key: str | None, *variables: str) -> str | None:
    """Return the given key, else the first of the environment variables that has a value; or None.

    Raises:
        AgentDefinitionError: the key cannot be sent.
    """
    source, key = "api_key", api_key
    if key is None:
        source, key = next(((name, value) for name in variables if (value := os.environ.get(name))), ("", ""))
    key = key.strip() if isinstance(key, str) else "\n"
    if not is_header(("key", key)):
        raise AgentDefinitionError(f"model {model!r}: {source} cannot be sent: give printable ASCII")  # never its value
    return key or None


# --- the model -------------------------------------------------------------------------------------------------------


class _Hidden:
    """Headers that may hold a key; their repr shows nothing, as in a debugger or a traceback with local variables."""

    __slots__ = ("value",)

    def __init__(self, value: dict[str, str]) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "<hidden>"


class HTTPModel(Model):
    """A model of a provider, asked over HTTP. Subclasses choose codec, base URL and key.

    Args:
        prefix: The prefix of the model's name, such as "openai".
        model: the provider's name of the model.
        codec: the format.
        base_url: without a slash at its end.
        key: None: none is sent.
        missing: what to do about a missing key; None if none is needed.
        headers: sent with each request.
        structured: "native" or "prompt"; see `Model`.
        idle_timeout: seconds without a byte; None: no limit.
    """

    def __init__(
        self,
        prefix: str,
        model: str,
        codec: Codec,
        *,
        base_url: str,
        key: str | None,
        missing: str | None = None,
        headers: Mapping[str, str] | None = None,
        structured: Literal["native", "prompt"] = "native",
        idle_timeout: float | None = SILENCE,
    ) -> None:
        self.name = f"{prefix}:{model}"
        self._codec = codec
        self.base_url = base_url_of(self.name, base_url)
        self.structured = _one_of(self.name, structured)
        own_headers = dict(headers or {})
        if not all(map(is_header, own_headers.items())):
            raise AgentDefinitionError(f"model {self.name!r}: headers has a faulty entry; give a dict of str")
        self._headers = _Hidden({**(codec.auth(key) if key else {}), **own_headers})
        secret = [part for name, value in own_headers.items() if hides(name) for part in (value, *value.split())]
        self._mask = KeyMask([*([key] if key else []), *secret])
        self._missing = None if key else missing
        self._timeout = httpx.Timeout(_seconds(self.name, idle_timeout), connect=CONNECT, pool=None)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} at {self.base_url}>"

    @override
    def check(self, settings: JSONObject) -> str | None:
        """Return why no request can be made with these settings: no key, or a setting that the provider lacks."""
        fault = self._codec.check(settings)
        return self._missing or (fault and f"model {self.name!r}: {fault}")

    @asynccontextmanager
    @override
    async def open(self) -> AsyncIterator[None]:
        """Keep the connections of this base URL open for later requests."""
        async with shared_client(self.base_url):
            yield

    @asynccontextmanager
    @override
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        fault = self._missing
        if fault is not None:
            raise ModelError(f"{self.name}: {fault}", kind="unauthorized")
        fault = self._codec.check(request.settings)
        if fault is not None:
            raise ModelError(f"{self.name}: {fault}", kind="invalid_request")
        encoded_request = self._codec.encode(request)
        reader = StreamReader(self.name, self._codec, self._mask)
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(shared_client(self.base_url))
            with self._mapped(reader):
                answer = await stack.enter_async_context(self._sent(client, encoded_request))
                await self._refuse(answer)
            yield await stack.enter_async_context(aclosing(self._read(answer, reader)))

    def _sent(self, client: httpx.AsyncClient, encoded_request: Encoded) -> AbstractAsyncContextManager[httpx.Response]:
        headers = {
            "content-type": "application/json",
            "accept": "text/event-stream",
            "user-agent": _user_agent(),
            **self._headers.value,
            **encoded_request.headers,
        }
        headers = {name.lower(): value for name, value in headers.items()} | {"accept-encoding": "identity"}
        return client.stream(
            "POST",
            f"{self.base_url}{encoded_request.path}",
            content=msgspec.json.encode(encoded_request.body),
            headers=headers,
            timeout=self._timeout,
        )

    async def _refuse(self, answer: httpx.Response) -> None:
        """Raise the error of an answer that is not a stream."""
        media = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        encoding = answer.headers.get("content-encoding", "").strip().lower()
        if answer.status_code == 200 and media in ("text/event-stream", "") and encoding in IDENTITY:
            return
        body = await _beginning(answer)
        if encoding not in IDENTITY:
            body = b""
            if answer.status_code == 200:
                text = f"{self.name} answered with the content encoding {encoding[:40]!r}, although none was asked for"
                raise ModelError(f"{text}; switch compression off in the service or in the proxy", kind="provider")
        report = plain_report(answer.status_code, body.decode("utf-8", "replace"))
        try:
            data = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            data = None
        if answer.status_code == 200 and not (isinstance(data, dict) and data.get("error")):
            beginning = self._mask.beginning(media, SHOWN)
            text = f"{self.name} answered with {beginning!r}, not with an event stream; is base_url right?"
            raise ModelError(text, kind="provider")
        if 300 <= answer.status_code < 400:
            place = self._mask.beginning(answer.headers.get("location", "another place"), SHOWN)
            raise ModelError(f"{self.name} moved to {place}; change base_url", kind="invalid_request")
        if data is not None:
            status = None if answer.status_code == 200 else answer.status_code
            report = self._codec.error(status, data)
        if answer.status_code == 404 and not report.codes:  # no service of models says so little
            report = attrs.evolve(report, message=f"{report.message}; is base_url {self.base_url} right?")
        raise provider_error(self.name, report, self._mask, headers=answer.headers)

    async def _read(self, answer: httpx.Response, reader: StreamReader) -> AsyncGenerator[ModelEvent, None]:
        pieces = pieces_of(answer)
        try:
            while not reader.finished and (piece := await self._next(pieces, reader)) is not None:
                usage = reader.usage
                for number, delta in enumerate(reader.feed(piece), 1):
                    yield delta
                    if not number % DELTAS:
                        await trio.lowlevel.checkpoint()
                if reader.usage != usage:
                    yield UsageReport(reader.usage)
            if reader.finished:
                await _drain(pieces)
        finally:
            await leave(answer, pieces)  # noqa: ASYNC102 - shielded and bounded inside
        last, response = reader.end()
        for delta in last:
            yield delta
        yield response

    async def _next(self, pieces: AsyncGenerator[bytes, None], reader: StreamReader) -> bytes | None:
        """Return the next bytes of a body; None at its end, and when nothing comes behind a whole answer."""
        try:
            with self._mapped(reader), trio.move_on_after(LINGER if reader.complete else math.inf):
                return await anext(pieces)
        except StopAsyncIteration:
            pass
        except ModelError:
            if not reader.complete:
                raise
        return None

    @contextmanager
    def _mapped(self, reader: StreamReader) -> Iterator[None]:
        """Turn the errors of httpx into those of models.

        Without the original as the cause: its text may quote a malformed response, and that may quote the key.
        """
        try:
            yield
        except httpx.ConnectError as error:
            text = self._mask.text(f"{self.name}: no connection to {self.base_url}: {error}")
            raise ModelError(text, kind="provider") from None
        except httpx.TimeoutException as error:
            what = type(error).__name__
            raise reader.interrupted(f"no byte for too long ({what})", timeout=True) from None
        except httpx.HTTPError as error:  # reset, cut, a body that is no body
            raise reader.interrupted(f"the connection broke: {error}") from None


async def pieces_of(answer: httpx.Response) -> AsyncGenerator[bytes, None]:
    """Yield a body as sent, for httpx would unpack a piece whole, in slices between which other tasks may run.

    The checkpoint is shielded, so that a cancel is raised inside of httpx, whose generators end with it.
    """
    cost = 0
    async for piece in answer.aiter_raw():
        for start in range(0, len(piece), SLICE):
            if cost > SLICE:
                await trio.lowlevel.cancel_shielded_checkpoint()
                cost = 0
            part = piece[start : start + SLICE]
            cost += len(part) + CHUNK
            yield part


async def _beginning(answer: httpx.Response) -> bytes:
    """Return the beginning of a body that is not a stream, as far as it comes in time."""
    body, pieces = bytearray(), pieces_of(answer)
    try:
        with trio.move_on_after(BODY_TIME), suppress(httpx.HTTPError):
            async for piece in pieces:
                body += piece
                if len(body) > BODY_LIMIT:
                    break
    finally:
        await leave(answer, pieces)  # noqa: ASYNC102 - shielded and bounded inside
    return bytes(body[:BODY_LIMIT])


async def leave(answer: httpx.Response, pieces: AsyncIterator[bytes]) -> None:
    """Close the response, then read on into that: the generators inside httpx end with the error of the closed socket.

    Otherwise they are left to the collector, because httpx closes none of the generators that it nests.
    """
    with cleanup(CONNECT, what="close the connection of a model request"):
        await answer.aclose()
        with suppress(httpx.HTTPError, httpx.StreamError):
            async for _ in pieces:
                pass


async def _drain(pieces: AsyncIterator[bytes]) -> None:
    """Read the end of a finished body, if it comes immediately."""
    with trio.move_on_after(DRAIN), suppress(httpx.HTTPError):
        async for _ in pieces:
            pass


def _one_of(model: str, structured: Literal["native", "prompt"]) -> Literal["native", "prompt"]:
    if structured not in ("native", "prompt"):
        raise AgentDefinitionError(f"model {model!r}: structured={structured!r}: use 'native' or 'prompt'")
    return structured


def _seconds(model: str, idle_timeout: float | None) -> float | None:
    seconds: object = idle_timeout
    if seconds is None or (isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds > 0):
        return idle_timeout
    raise AgentDefinitionError(f"model {model!r}: idle_timeout={idle_timeout!r}: give seconds, or None for no limit")
