"""The limits of what a server sends, applied before the SDK reads the items of a message, each of which costs time.

A message that exceeds a limit becomes an error of its request: the others go on.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Self

import attrs

from .mcp_sdk import SessionMessage, log_line, types

MOST_PARTS: Final = 1_000
"""Parts of the content of a result."""
MOST_LISTED: Final = 2_000
"""Tools of a page."""
PAGE_LIMIT: Final = 2 * 2**20
"""Bytes of a page of tools."""


@attrs.define(eq=False, repr=False)
class LimitedStream:
    """The stream on which the SDK reads messages, each within the limits."""

    _inner: Any

    def __repr__(self) -> str:
        return f"<LimitedStream of {self._inner!r}>"

    @property
    def last_context(self) -> Any:
        """The context in which the last message was sent; the SDK asks for it."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> Any:
        """Return the next message."""
        return _within(await self._inner.receive())

    async def aclose(self) -> None:
        """Close the stream."""
        await self._inner.aclose()

    def __aiter__(self) -> LimitedStream:
        return self

    async def __anext__(self) -> Any:
        return _within(await self._inner.__anext__())

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> Any:
        return await self._inner.__aexit__(*error)  # noqa: ASYNC102 - the stream decides how it ends


@asynccontextmanager
async def limited(streams: AbstractAsyncContextManager[tuple[Any, Any]]) -> AsyncIterator[tuple[Any, Any]]:
    """Limit what is read on the streams of a transport."""
    async with streams as (read, write):
        yield LimitedStream(read), write


def _within(item: Any) -> Any:
    message = item.message if isinstance(item, SessionMessage) else None
    if not isinstance(message, types.JSONRPCResponse):
        return item
    for name, most in (("content", MOST_PARTS), ("tools", MOST_LISTED)):
        items = message.result.get(name)
        if isinstance(items, list) and len(items) > most:
            return refusal(message, f"it sent {len(items):,} items as {name}; at most {most:,} are read")
    tools = message.result.get("tools")
    if isinstance(tools, list) and not all(map(_fits, tools)):
        log_line(
            logging.WARNING, "an MCP server lists tools without a name or a schema of an object; they are left out"
        )
        message.result["tools"] = [*filter(_fits, tools)]
    return item


def _fits(tool: object) -> bool:
    """Whether the SDK reads a tool: it refuses a whole page for one that it does not."""
    match tool:
        case {"name": str(), "inputSchema": {"type": "object"}}:
            return True
        case _:
            return False


def refusal(message: types.JSONRPCResponse, text: str) -> SessionMessage:
    """Return the error in place of an answer."""
    error = types.ErrorData(code=types.INVALID_REQUEST, message=text)
    return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=message.id, error=error))
