"""The connection to an A2A server: the card, operations, and streams of items, over HTTP.

Theory of operation. The codec writes requests and reads answers; this module moves the bytes. Nothing is followed: an
answer that names another place is a failure. Headers that the user has given go to the origin of the address that the
user has given, and to no other, whatever a card says. What the other side sends is limited, and the values of those
headers are masked in it before anything else reads it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from ipaddress import ip_address
from typing import Final, TypeVar, TypeVarTuple
from urllib.parse import urlsplit

import attrs
import httpx
import msgspec
import trio

from ..contract.plain import JSONObject, JSONValue
from ..contract.secrets.secret_readers import hides
from ..contract.sizes import measured
from ..environment import EnvironmentValue, text_of_variable
from ..json_text import ANSWER_VALUES, JSONTextError, read_json
from ..models.codecs.masking import KeyMask
from ..models.codecs.settings import is_header
from ..models.codecs.sse import EventParser, EventTooLong, ServerSentEvent
from ..models.http import CONNECT, IDENTITY, leave, pieces_of, shared_client
from .a2a_codec import (
    CARD_PATH,
    A2AFault,
    Binding,
    Operation,
    WireRequest,
    read_answer,
    read_event,
    speaks,
    wire_request,
)
from .a2a_values import A2AInvalid, AgentCard, AgentInterface, read

BODY_LIMIT: Final = 16 * 1024 * 1024
"""Most bytes of an answer that is not a stream; a page of 100 tasks with their histories."""
CARD_LIMIT: Final = 256 * 1024
"""Most bytes of a card."""
CARD_TIME: Final = 600.0
"""Seconds for which a card is used before it is fetched again."""
ANSWER_TIME: Final = 30.0
"""Seconds for an answer that is not a stream."""
SHOWN: Final = 200
"""Characters of a foreign text in a message."""
POOL: Final = "the servers of A2A"
"""The name of the connections, which all agents of a program share."""
LARGE: Final = 256 * 1024
"""Bytes that are read or written in a thread: more would stop the loop for more than 10 ms."""
T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_NOT_DONE: Final = (429, 503)
"""Statuses of a server that has not taken the request."""
_IN_DOUBT: Final = (408, 500, 502, 504)
"""Statuses after which the request may, or may not, have been taken."""
_BINDINGS: Final[Mapping[str, Binding]] = {"HTTP+JSON": "HTTP+JSON", "JSONRPC": "JSONRPC"}


class Away(Exception):
    """The other side does not answer now.

    Attributes:
        reached: The request may have reached the other side.
    """

    def __init__(self, text: str, *, reached: bool) -> None:
        super().__init__(text)
        self.reached = reached


class Unusable(Exception):
    """The other side cannot be used as it is set up: refused, moved, or of another kind; the text has the way out."""


@attrs.frozen(kw_only=True)
class Target:
    """The address of an agent that is spoken to, and how.

    Attributes:
        url: The address.
        binding: The form on the wire.
        tenant: As the card says, or "".
        streams: The agent streams.
        facts: The card, for people.
    """

    url: str
    binding: Binding
    tenant: str = ""
    streams: bool = False
    facts: JSONObject = attrs.field(factory=dict)


def origin_of(url: str) -> str:
    """Return scheme, host and port of an address.

    Raises:
        ValueError: the text is not an address of http or https.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
        raise ValueError(url)
    try:
        httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(str(error)) from None
    return f"{parts.scheme}://{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"


def is_safe(url: str) -> bool:
    """Return True for https, and for an address of this machine."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        return parts.scheme == "https" or host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


class A2AConnection:
    """Speaks to one agent.

    Args:
        name: The backend, for messages.
        url: The address of the agent, or of its card (.json).
        headers: Sent to the origin of that address.
        insecure: Plain http to other machines is allowed.
    """

    def __init__(
        self, name: str, url: str, headers: Mapping[str, str | EnvironmentValue], *, insecure: bool = False
    ) -> None:
        self._name, self._url, self._headers, self._insecure = name, url, headers, insecure
        self._target: Target | None = None
        self._fetched_at = 0.0

    def __repr__(self) -> str:
        return f"<A2AConnection of {self._name!r} to {self._url}>"

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Keep the connections to the agent open for later requests."""
        async with shared_client(POOL):
            yield

    async def target(self) -> Target:
        """Return where and how to speak to the agent, as its card says; a card is used for ten minutes.

        Raises:
            Away: the card cannot be fetched now.
            Unusable: there is no card, or no interface in it can be used.
        """
        if self._target is None or trio.current_time() > self._fetched_at + CARD_TIME:
            try:
                card = await self._card()
            except Away as error:
                raise Away(str(error), reached=False) from None  # whatever was to be sent was not
            self._target, self._fetched_at = self._chosen(card), trio.current_time()
        return self._target

    async def _card(self) -> AgentCard:
        url = self._url if urlsplit(self._url).path.endswith(".json") else f"{self._url.rstrip('/')}{CARD_PATH}"
        request = WireRequest(method="GET", path="", query={}, body=None, headers={"Accept": "application/json"})
        status, data = await self._answer(url, request, limit=CARD_LIMIT)
        if status != 200:
            raise Unusable(f"there is no card at {url} (status {status}); give the address of the agent as url=")
        try:
            return read(AgentCard, data)
        except A2AInvalid as error:
            raise Unusable(f"the card at {url} is not one of A2A 1.0: {error}") from None

    def _chosen(self, card: AgentCard) -> Target:
        """Return the first interface that this client speaks."""
        interfaces = card.supported_interfaces
        interface = next(
            (one for one in interfaces if one.protocol_binding in _BINDINGS and speaks(one.protocol_version)), None
        )
        if interface is None:
            offers = ", ".join(f"{one.protocol_binding} {one.protocol_version}" for one in interfaces[:10]) or "nothing"
            raise Unusable(f"its card offers {offers:.300}; this client speaks HTTP+JSON and JSONRPC 1.0")
        self._check(interface)
        facts = {"agent": card.name[:SHOWN], "version": card.version[:SHOWN], "url": interface.url[:SHOWN]}
        return Target(
            url=interface.url.rstrip("/"),
            binding=_BINDINGS[interface.protocol_binding],
            tenant=interface.tenant,
            streams=card.capabilities.streaming,
            facts={**facts, "binding": interface.protocol_binding},
        )

    def _check(self, interface: AgentInterface) -> None:
        try:
            origin_of(interface.url)
        except ValueError:
            raise Unusable(f"its card names the address {interface.url!r:.200}, which is not one of http") from None
        if not (self._insecure or is_safe(interface.url)):
            raise Unusable(f"its card names {interface.url!r:.200}; use https, or say insecure=True")

    # --- operations --------------------------------------------------------------------------------------------------

    async def call(self, operation: Operation, params: JSONObject) -> JSONObject:
        """Return the result of an operation.

        Raises:
            Away: the other side does not answer now.
            A2AFault: the answer is an error.
            Unusable: as `target`, or the other side refuses the headers.
        """
        target = await self.target()
        request = wire_request(target.binding, operation, params, tenant=target.tenant)
        status, data = await self._answer(f"{target.url}{request.path}", request, limit=BODY_LIMIT)
        return read_answer(target.binding, status, data)

    @asynccontextmanager
    async def stream(self, operation: Operation, params: JSONObject) -> AsyncIterator[AsyncIterator[JSONObject]]:
        """Stream the items of an operation; raises as `call`, also while the items are read."""
        target = await self.target()
        request = wire_request(target.binding, operation, params, tenant=target.tenant)
        async with self._sent(f"{target.url}{request.path}", request) as answer:
            media = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
            if answer.status_code != 200 or media != "text/event-stream":
                body = await self._read(answer, BODY_LIMIT)
                self._refuse(answer)
                result = read_answer(target.binding, answer.status_code, await self._decoded(body))
                async with aclosing(_one(result)) as items:
                    yield items
                return
            async with aclosing(self._items(answer, target.binding)) as items:
                yield items

    async def _items(self, answer: httpx.Response, binding: Binding) -> AsyncGenerator[JSONObject, None]:
        parser, pieces = EventParser(), pieces_of(answer)
        try:
            while (piece := await self._next(pieces)) is not None:
                for event in _events(parser, piece):
                    yield read_event(binding, await self._decoded(event.data), kind=event.name)
            last = parser.end()
            if last is not None:
                yield read_event(binding, await self._decoded(last.data), kind=last.name)
        finally:
            await leave(answer, pieces)  # noqa: ASYNC102 - shielded and bounded inside

    async def _next(self, pieces: AsyncGenerator[bytes, None]) -> bytes | None:
        """Return the next bytes of a stream; None at its end."""
        with self._mapped():
            return await anext(pieces, None)

    async def _answer(self, url: str, request: WireRequest, *, limit: int) -> tuple[int, JSONValue]:
        with trio.move_on_after(ANSWER_TIME):
            async with self._sent(url, request) as answer:
                body = await self._read(answer, limit)
                self._refuse(answer)
                return answer.status_code, await self._decoded(body)
        raise Away(f"no answer within {ANSWER_TIME:g} s", reached=True)

    @asynccontextmanager
    async def _sent(self, url: str, request: WireRequest) -> AsyncIterator[httpx.Response]:
        body = request.body
        headers = {
            "user-agent": "greenroom",
            "accept-encoding": "identity",
            **request.headers,
            **({} if body is None else {"content-type": "application/json"}),
            **self._own_headers(url),
        }
        content = None if body is None else await at_length(measured(body, LARGE), msgspec.json.encode, body)
        timeout = httpx.Timeout(None, connect=CONNECT, pool=None)
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(shared_client(POOL))
            with self._mapped():
                answer = await stack.enter_async_context(
                    client.stream(
                        request.method,
                        url,
                        params=request.query or None,
                        content=content,
                        headers=headers,
                        timeout=timeout,
                    )
                )
            yield answer

    def _own_headers(self, url: str) -> dict[str, str]:
        """Return the headers of the user, for the origin of the user's address only."""
        if origin_of(url) != origin_of(self._url):
            return {}
        values = {name: text_of_variable(value) for name, value in self._headers.items()}
        for pair in values.items():
            if not is_header(pair):
                raise Unusable(f"the header {pair[0]!r:.100} cannot be sent: give printable ASCII")
        return values

    # --- answers -----------------------------------------------------------------------------------------------------

    def _mask(self) -> KeyMask:
        texts = {name: text_of_variable(value) for name, value in self._headers.items()}
        return KeyMask(part for name, text in texts.items() for part in secret_parts(name, text))

    async def _decoded(self, body: bytes) -> JSONValue:
        """Return a body as JSON data without the values of our headers; None if the body is not JSON."""
        return await at_length(len(body), _decode, body, self._mask())

    async def _read(self, answer: httpx.Response, limit: int) -> bytes:
        body, pieces = bytearray(), pieces_of(answer)
        try:
            with self._mapped():
                async for piece in pieces:
                    body += piece
                    if len(body) > limit:
                        raise Unusable(f"it answered with more than {limit:,} bytes")
        finally:
            await leave(answer, pieces)  # noqa: ASYNC102 - shielded and bounded inside
        return bytes(body)

    def _refuse(self, answer: httpx.Response) -> None:
        """Raise the failure of an answer by its status alone."""
        status = answer.status_code
        if answer.headers.get("content-encoding", "").strip().lower() not in IDENTITY:
            raise Unusable("it answered with a content encoding, although none was asked for; switch compression off")
        if 300 <= status < 400:
            place = self._mask().beginning(answer.headers.get("location", "another place"), SHOWN)
            raise Unusable(f"it moved to {place}; change url=")
        if status in (401, 403, 407):
            raise Unusable(f"it refused the request with status {status}; check headers=")
        if status in _NOT_DONE or status in _IN_DOUBT:
            raise Away(f"it answered with status {status}", reached=status in _IN_DOUBT)

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        """Turn the errors of httpx into ours, without the original as the cause: its text may quote a header."""
        try:
            yield
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise Away(self._mask().text(f"no connection: {error}"), reached=False) from None
        except httpx.HTTPError as error:
            raise Away(self._mask().text(f"the connection broke: {error}"), reached=True) from None


async def at_length(size: int, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
    """Return the result of a function that takes long if `size` bytes are large: in a thread then."""
    if size > LARGE:
        return await trio.to_thread.run_sync(function, *arguments)
    return function(*arguments)


def secret_parts(name: str, value: str) -> tuple[str, ...]:
    """Return what must not be shown of a header: the value, and its words if the name is telling, as in "Bearer x"."""
    words = value.split() if hides(name) else ()
    return (value, *(word for word in words if word.lower() not in ("bearer", "basic")))


def _events(parser: EventParser, piece: bytes) -> Iterator[ServerSentEvent]:
    try:
        yield from parser.feed(piece)
    except EventTooLong as error:
        raise A2AFault(None, str(error)) from None


def _decode(body: bytes, mask: KeyMask) -> JSONValue:
    try:
        return mask.value(read_json(body, most=ANSWER_VALUES))
    except JSONTextError:
        return None


async def _one(item: JSONObject) -> AsyncGenerator[JSONObject, None]:
    await trio.lowlevel.checkpoint()
    yield item
