"""What a handler gets and gives: a request, and a whole response or a stream of chunks. The bytes are front.py's."""

from __future__ import annotations

import difflib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Generic, Literal, TypeVar
from urllib.parse import unquote

import attrs
import msgspec

from ..protocol.codes import ERRORS, Refused
from ..protocol.up import structure
from .access import Principal, Scope

G = TypeVar("G")
"""What a handler is given beside the request: in `serve` the gateway."""

JSON: Final = "application/json"
EVENT_STREAM: Final = "text/event-stream"

_encode = msgspec.json.Encoder().encode


@attrs.frozen(kw_only=True)
class Request:
    """One request, whole.

    Attributes:
        method, path: as sent; the path is decoded. params: what the route's template took from it.
        query: the last value of each name. headers: names in lower case, the last value of each.
        body: at most `limits.body_bytes`.
        principal: who asks; None only for routes without a scope.
    """

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""
    params: Mapping[str, str] = attrs.field(factory=dict)
    principal: Principal | None = None

    @property
    def who(self) -> Principal:
        """Who asks.

        Raises:
            Refused: unauthenticated.
        """
        if self.principal is None:
            raise Refused("unauthenticated", "send the token as Authorization: Bearer ...")
        return self.principal

    def json(self) -> dict[str, Any]:
        """The body as a JSON object.

        Raises:
            Refused: bad_message.
        """
        try:
            data = msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise Refused("bad_message", f"the body is not JSON: {error}") from error
        if not isinstance(data, dict):
            raise Refused("bad_message", "the body must be a JSON object")
        return data

    def read(self, cls: type[object], what: str) -> Any:
        """The body as an attrs class of plain fields; unknown ones are refused.

        Raises:
            Refused: bad_message; names every field that is wrong.
        """
        return structure(self.json(), cls, what)

    def number(self, name: str, default: int, *, most: int, least: int = 0) -> int:
        """A whole number of the query, from `least` to `most`.

        Raises:
            Refused: bad_message.
        """
        text = self.query.get(name)
        if text is None:
            return default
        if not re.fullmatch(r"[0-9]{1,18}", text) or not least <= int(text) <= most:
            raise Refused("bad_message", f"{name}={text!r:.40}: give a whole number from {least} to {most}")
        return int(text)


@attrs.frozen(kw_only=True)
class Response:
    """A whole response."""

    status: int = 200
    body: bytes = b""
    content_type: str = JSON
    headers: Sequence[tuple[str, str]] = ()


@attrs.frozen(kw_only=True)
class Streamed:
    """A response that goes on: each chunk is written as it comes, a comment keeps the connection alive between them.

    Attributes:
        chunks: opened when the head has been sent; closed when the client goes, the gateway stops, or it is exhausted.
        last: what is still sent if the gateway stops, to leave the stream well-formed.
        abandoned: awaited if the peer hangs up before the end; it has `ABANDONED` seconds and must not raise.
    """

    chunks: Callable[[], AbstractAsyncContextManager[AsyncIterator[bytes]]]
    status: int = 200
    content_type: str = EVENT_STREAM
    headers: Sequence[tuple[str, str]] = ()
    last: Callable[[], bytes] = attrs.field(default=bytes)
    abandoned: Callable[[], Awaitable[None]] | None = None


Handler = Callable[[G, Request], Awaitable[Response | Streamed]]


@attrs.frozen(kw_only=True, eq=False)
class Route(Generic[G]):
    """One operation. The table of all is what the router walks and what the OpenAPI document is made of.

    Attributes:
        method, template: such as GET and /v1/runs/{run}; a name in braces takes one part of the path.
        handler: answers it.
        scope: what the principal needs; "any": a token is enough; None: anybody, without a token.
        summary: for the documents.
        tag: how the documents group it.
        body: attrs class of the request's body, or a name in the document's components.
        query, headers: name -> what it says, of those that the handler reads; for the documents.
        answers: status -> (what it says, what its body holds: a name in the document's components, a media type such
            as text/html, several of these, or None for an empty one). Refusals need not be named.
    """

    method: Literal["GET", "POST"]
    template: str
    handler: Handler[G]
    scope: Scope | Literal["any"] | None
    summary: str
    tag: str = "runs"
    body: type[object] | str | None = None
    query: Mapping[str, str] = attrs.field(factory=dict)
    headers: Mapping[str, str] = attrs.field(factory=dict)
    answers: Mapping[int, tuple[str, str | tuple[str, ...] | None]] = attrs.field(factory=dict)
    pattern: re.Pattern[str] = attrs.field(init=False, repr=False)

    @pattern.default
    def _compiled(self) -> re.Pattern[str]:
        parts = re.split(r"\{(\w+)\}", self.template)
        return re.compile("".join(f"(?P<{x}>[^/]+)" if i % 2 else re.escape(x) for i, x in enumerate(parts)))


def find(routes: Sequence[Route[G]], method: str, path: str) -> tuple[Route[G], dict[str, str]]:
    """The route of a request and what its template took from the (still encoded) path. HEAD finds GET.

    Raises:
        Refused: not_found, or method_not_allowed; `current` has the methods that there are.
    """
    wanted, others = "GET" if method == "HEAD" else method, []
    for route in routes:
        match = route.pattern.fullmatch(path)
        if match is None:
            continue
        if route.method == wanted:
            return route, {name: unquote(value) for name, value in match.groupdict().items()}
        others.append(route.method)
    if others:
        allowed = sorted({*others, *(["HEAD"] if "GET" in others else [])})
        raise Refused(
            "method_not_allowed", f"{path[:200]} takes {', '.join(allowed)}, not {method[:20]}", current=allowed
        )
    raise Refused("not_found", f"nothing is at {path[:200]}; /v1/openapi.json lists what there is")


def check_query(route: Route[Any], query: Mapping[str, str]) -> None:
    """Every field of the API is known: a misspelt `after` must not read a log from its start.

    Pages and health checks, outside of /v1, may be asked with anything.

    Raises:
        Refused: bad_message; names the field and those that there are.
    """
    unknown = next((name for name in query if name not in route.query), None)
    if unknown is None or not route.template.startswith("/v1/"):
        return
    close = difflib.get_close_matches(unknown, route.query, n=1)
    there = f"; there are {', '.join(route.query)}" if route.query else "; there are none"
    hint = f"; did you mean {close[0]}?" if close else there
    raise Refused("bad_message", f"the query field {unknown!r:.100} is not known here{hint}")


def answer(data: object, *, status: int = 200) -> Response:
    """A JSON response."""
    return Response(status=status, body=_encode(data))


def refusal(refused: Refused) -> Response:
    """The response to what was refused: `{"error": {code, message, retry, current?}}`."""
    error = refused.error
    error_body: dict[str, Any] = {"code": error.code, "message": refused.message, "retry": error.retry}
    if refused.current is not None:
        error_body["current"] = refused.current
    more = [("www-authenticate", 'Bearer realm="greenroom"')] if error.status == 401 else []
    more += [("retry-after", "1")] if error.retry else []
    if error.status == 405 and isinstance(refused.current, list):
        more.append(("allow", ", ".join(refused.current)))
    return Response(status=error.status, body=_encode({"error": error_body}), headers=more)


def failure() -> Response:
    """The response to a request at which the gateway itself failed."""
    return refusal(Refused(ERRORS["internal"].code, ERRORS["internal"].meaning))
