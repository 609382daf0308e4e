"""The interface of handlers: a request in; a complete response or a stream of chunks out.

`http_connection.py` has the I/O.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Generic, Literal, TypeVar
from urllib.parse import unquote

import attrs
import msgspec

from greenroom.actors.json_text import JSONTextError, read_json
from greenroom.supervision.fields import nearest

from ..protocol.codes import ERRORS, Refused
from ..protocol.up import structure
from .access import Principal, Scope

G = TypeVar("G")
"""The first argument of a handler: in `serve` the gateway."""

JSON: Final = "application/json"
EVENT_STREAM: Final = "text/event-stream"
COMMENT: Final = b": \n\n"
"""A server-sent comment, which keeps proxies and clients from closing the connection."""

_encode = msgspec.json.Encoder().encode


@attrs.frozen(kw_only=True)
class Request:
    """One complete request.

    Attributes:
        method, path: As sent; the path is decoded.
        params: Values of the route's template.
        query: The last value of each name.
        headers: Names in lower case, the last value of each.
        body: At most `limits.body_bytes`.
        principal: The authenticated principal; None only for routes whose scope is None or "maybe".
        root: Path under which the gateway is mounted in another application; "" if it is not.
        secure: True if the client uses TLS, as far as this process can see.
    """

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""
    params: Mapping[str, str] = attrs.field(factory=dict)
    principal: Principal | None = None
    root: str = ""
    secure: bool = False

    @property
    def who(self) -> Principal:
        """The authenticated principal.

        Raises:
            Refused: unauthenticated.
        """
        if self.principal is None:
            raise Refused("unauthenticated", "send the token as Authorization: Bearer ...")
        return self.principal

    def json(self) -> dict[str, Any]:
        """Return the body as a JSON object.

        Raises:
            Refused: bad_message.
        """
        try:
            data = read_json(self.body)
        except JSONTextError as error:
            raise Refused("bad_message", f"the body {error}") from error
        if not isinstance(data, dict):
            raise Refused("bad_message", "the body must be a JSON object")
        return data

    def read(self, cls: type[object], what: str) -> Any:
        """Return the body as an attrs class of plain fields; unknown fields are refused.

        Raises:
            Refused: bad_message; the text names every invalid field.
        """
        return structure(self.json(), cls, what)

    def number(self, name: str, default: int, *, most: int, least: int = 0) -> int:
        """Return an integer of the query, from `least` to `most`.

        Raises:
            Refused: bad_message.
        """
        text = self.query.get(name)
        if text is None:
            return default
        if not re.fullmatch(r"[0-9]{1,18}", text) or not least <= int(text) <= most:
            raise Refused("bad_message", f"{name}={text!r:.40}: give a whole number from {least} to {most}")
        return int(text)


def nothing() -> None:
    """Do nothing: most responses hold nothing that has to be given back."""


@attrs.frozen(kw_only=True)
class Response:
    """A complete response.

    `content_type`: "" for one without a body. `sent`: called once, when it has been sent, or cannot be.
    """

    status: int = 200
    body: bytes = b""
    content_type: str = JSON
    headers: Sequence[tuple[str, str]] = ()
    sent: Callable[[], None] = attrs.field(default=nothing, eq=False)


@attrs.frozen(kw_only=True)
class Streamed:
    """A streamed response: chunks are written as they arrive; comments keep the connection alive between them.

    Attributes:
        chunks: Opened after the head has been sent; closed when the client disconnects, the gateway stops, or the
            iterator is exhausted.
        comment: Bytes that mean nothing, for a connection that would be silent.
        last: Returns the end of the stream if the gateway stops, so that the stream is well-formed.
        abandoned: Awaited if the peer disconnects before the end; has `ABANDONED` seconds and must not raise.
        run: The run whose events the chunks have: the stream ends if the principal may not see it any more.
    """

    chunks: Callable[[], AbstractAsyncContextManager[AsyncIterator[bytes]]]
    status: int = 200
    content_type: str = EVENT_STREAM
    headers: Sequence[tuple[str, str]] = ()
    comment: bytes = COMMENT
    last: Callable[[], bytes] = attrs.field(default=bytes)
    abandoned: Callable[[], Awaitable[None]] | None = None
    run: str | None = None


def refusal(refused: Refused) -> Response:
    """Return the response of a refusal: `{"error": {code, message, retry, current?}}`."""
    error = refused.error
    error_body: dict[str, Any] = {"code": error.code, "message": refused.message, "retry": error.retry}
    if refused.current is not None:
        error_body["current"] = refused.current
    more = [("www-authenticate", 'Bearer realm="greenroom"')] if error.status == 401 else []
    more += [("retry-after", "1")] if error.retry else []
    if error.status == 405 and isinstance(refused.current, list):
        more.append(("allow", ", ".join(refused.current)))
    return Response(status=error.status, body=_encode({"error": error_body}), headers=more)


Handler = Callable[[G, Request], Awaitable[Response | Streamed]]


@attrs.frozen(kw_only=True, eq=False)
class Route(Generic[G]):
    """One operation. The router and the OpenAPI document use the table of all operations.

    Attributes:
        method, template: Such as GET and /v1/runs/{run}; a name in braces matches one path segment.
        handler: Answers the request.
        scope: Scope that the principal needs; "any" requires only a token; "maybe" takes a token, and nobody, too; None
            requires nothing.
        summary: For the documents.
        tag: Group in the documents.
        body: attrs class of the request's body, or the name of a component of the document.
        query, headers: Name -> description of the fields that the handler reads; for the documents.
        any_query: Unknown query fields are passed over.
        refusal: Makes the response of a request that the handler does not see, in the form of its protocol.
        responses: Status -> (description, body). The body is the name of a component of the document, a media type such
            as text/html, several of these, or None if empty. Refusals need not be listed.
    """

    method: Literal["GET", "POST", "DELETE"]
    template: str
    handler: Handler[G]
    scope: Scope | Literal["any", "maybe"] | None
    summary: str
    tag: str = "runs"
    body: type[object] | str | None = None
    query: Mapping[str, str] = attrs.field(factory=dict)
    headers: Mapping[str, str] = attrs.field(factory=dict)
    any_query: bool = False
    refusal: Callable[[Refused], Response] = attrs.field(default=refusal, repr=False)
    responses: Mapping[int, tuple[str, str | tuple[str, ...] | None]] = attrs.field(factory=dict)
    pattern: re.Pattern[str] = attrs.field(init=False, repr=False)

    @pattern.default
    def _compiled(self) -> re.Pattern[str]:
        parts = re.split(r"\{(\w+)\}", self.template)
        return re.compile("".join(f"(?P<{x}>[^/]+)" if i % 2 else re.escape(x) for i, x in enumerate(parts)))


def find(routes: Sequence[Route[G]], method: str, path: str) -> tuple[Route[G], dict[str, str]]:
    """Return the route of a request and the values of its template, from the encoded path. HEAD matches GET.

    The first template that fits a path is that of the path: `/tasks/7:cancel` is no task's, if that comes first.

    Raises:
        Refused: not_found, or method_not_allowed; `current` has the allowed methods.
    """
    verb, others, template = "GET" if method == "HEAD" else method, list[str](), None
    for route in routes:
        match = route.pattern.fullmatch(path) if template in (None, route.template) else None
        if match is None:
            continue
        template = route.template
        if route.method == verb:
            return route, {name: unquote(value) for name, value in match.groupdict().items()}
        others.append(route.method)
    if others:
        allowed = sorted({*others, *(["HEAD"] if "GET" in others else [])})
        raise Refused(
            "method_not_allowed", f"{path[:200]} takes {', '.join(allowed)}, not {method[:20]}", current=allowed
        )
    raise Refused("not_found", f"nothing is at {path[:200]}; /v1/openapi.json lists what there is")


def check_query(route: Route[Any], query: Mapping[str, str]) -> None:
    """Refuse unknown query fields: a misspelt `after` must not read a log from its start.

    Pages and health checks, outside of /v1, accept any query, as do protocols that pass over what they do not know.

    Raises:
        Refused: bad_message; the text names the field and the known ones.
    """
    unknown = next((name for name in query if name not in route.query), None)
    if unknown is None or route.any_query or not route.template.startswith("/v1/"):
        return
    close = nearest(unknown, route.query)
    there = f"; there are {', '.join(route.query)}" if route.query else "; there are none"
    hint = there if close is None else f"; did you mean {close}?"
    raise Refused("bad_message", f"the query field {unknown!r:.100} is not known here{hint}")


def json_response(data: object, *, status: int = 200) -> Response:
    """Return a JSON response."""
    return Response(status=status, body=_encode(data))


def failure() -> Refused:
    """Return the refusal of a request that failed because of a bug of the gateway."""
    return Refused(ERRORS["internal"].code, ERRORS["internal"].meaning)
