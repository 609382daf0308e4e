"""The HTTP routes of threads: their list, their messages, and the bytes of parts."""

from __future__ import annotations

from typing import Final

from ..protocol.limits import PAGE_BYTES
from ..protocol.up import MESSAGES_PAGE, MOST_OF_PAGE, THREADS_PAGE, ListThreads, ReadMessages
from .downloads import BYTES, UNCHANGED
from .gateway import Gateway
from .http import Request, Response, Route, json_response

_LARGEST: Final = 2**53 - 1


async def list_threads(gateway: Gateway, request: Request) -> Response:
    """List a page of threads."""
    query = request.query
    limit = request.number("limit", THREADS_PAGE, least=1, most=MOST_OF_PAGE)
    order = ListThreads(id="http", by=query.get("by"), limit=limit, cursor=query.get("cursor"))
    threads, cursor = await gateway.threads.page(request.who, order)
    return json_response({"threads": threads, "cursor": cursor})


async def messages(gateway: Gateway, request: Request) -> Response:
    """Serve a page of a thread's messages."""
    query = request.query
    order = ReadMessages(
        id="http",
        thread=request.params["thread"],
        before=request.number("before", 0, least=1, most=_LARGEST) if "before" in query else None,
        after=request.number("after", 0, most=_LARGEST) if "after" in query else None,
        limit=request.number("limit", MESSAGES_PAGE, least=1, most=MOST_OF_PAGE),
    )
    return json_response(await gateway.threads.messages(request.who, order))


async def message_part(gateway: Gateway, request: Request) -> Response:
    """Serve the bytes of an image or a file of a message."""
    thread, position, place = (request.params[name] for name in ("thread", "position", "place"))
    return await gateway.downloads.response(
        request, lambda: gateway.threads.part(request.who, thread, _number(position), _number(place))
    )


def _number(text: str) -> int:
    """Return a number of the path; for any other text one that no message has."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else -1


_LIST: Final = {
    "by": "only threads in which this principal has started a run, in the order of its newest runs",
    "limit": f"at most so many, 1 to {MOST_OF_PAGE} (default {THREADS_PAGE})",
    "cursor": "from the page before; good for the same query only",
}
_PAGE: Final = {
    "before": "the newest messages before this position",
    "after": "the oldest messages behind this position; 0: from the beginning; not together with before",
    "limit": f"at most so many, 1 to {MOST_OF_PAGE} (default {MESSAGES_PAGE}); and a page has about {PAGE_BYTES} bytes",
}
ROUTES: Final[tuple[Route[Gateway], ...]] = (
    Route(
        method="GET", template="/v1/threads", handler=list_threads, scope="follow", tag="threads",
        summary="List threads, the one with the newest run first", query=_LIST,
        responses={200: ("A page.", "ThreadList")},
    ),
    Route(
        method="GET", template="/v1/threads/{thread}/messages", handler=messages, scope="follow", tag="threads",
        summary="The messages of a thread, the newest page first", query=_PAGE,
        responses={200: ("A page.", "ThreadMessages")},
    ),
    Route(
        method="GET", template="/v1/threads/{thread}/messages/{position}/parts/{place}", handler=message_part,
        scope="follow", tag="threads", summary="The bytes of an image or a file of a message, as a download",
        headers=UNCHANGED, responses=BYTES,
    ),
)  # fmt: skip
