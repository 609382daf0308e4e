"""Threads for a principal: a list of those that are open, pages of messages, and the bytes of parts.

Theory of operation. A thread is open to a principal that may see each of its runs: reading it is a road into it, as a
start is (`actors/runtime/thread_access.py`). A thread that is not open is unknown to the principal, and is in no list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

import attrs
import msgspec
from msgspec.structs import replace

import greenroom as gr
from greenroom.actors.contract.parts import Part
from greenroom.actors.contract.threads.messages import ThreadMessage, ThreadMessages
from greenroom.actors.runtime.thread_access import MayJoin

from ..protocol.limits import PAGE_BYTES
from ..protocol.lines import ThreadLine
from ..protocol.up import ListThreads, ReadMessages
from .access import Principal, everything
from .api import refusals
from .listing import row_of, sealed, unsealed

SCAN: Final = 100
"""Threads per read where some may be hidden."""

_encode = msgspec.json.Encoder().encode


@attrs.define
class _ThreadLines:
    """The lines of a page under construction, and the query and index of the last one."""

    limit: int
    lines: list[ThreadLine] = attrs.field(factory=list)
    size: int = 0
    last: tuple[gr.ThreadQuery, int] | None = None

    @property
    def full(self) -> bool:
        """True if no further line fits."""
        return len(self.lines) >= self.limit or self.size >= PAGE_BYTES

    def take(self, line: ThreadLine, query: gr.ThreadQuery, index: int) -> None:
        """Add a line."""
        self.lines.append(line)
        self.size += len(_encode(line))
        self.last = query, index


class ThreadAccess:
    """The operations on threads, each on behalf of a principal. Refusals raise `Refused`."""

    def __init__(self, reader: gr.RunReader) -> None:
        self._reader = reader

    def __repr__(self) -> str:
        return f"<ThreadAccess of {self._reader!r}>"

    async def page(self, who: Principal, order: ListThreads) -> tuple[Sequence[ThreadLine], str | None]:
        """Return a page of the threads that are open to the principal, and the cursor of the next page.

        Hidden threads shorten no page, and only the last page has no cursor.

        Raises:
            Refused: not_allowed; unprocessable: a value is invalid.
        """
        who.need("follow")
        with refusals():
            cursor = None if order.cursor is None else unsealed(who, order.cursor)
            query = gr.ThreadQuery(by=order.by, limit=order.limit, cursor=cursor)
            query.check()
            return await self._gathered(who, query)

    async def _gathered(self, who: Principal, query: gr.ThreadQuery) -> tuple[Sequence[ThreadLine], str | None]:
        reader, lines = self._reader, _ThreadLines(query.limit)
        scan = query.limit if who.sees is everything else SCAN
        part: gr.ThreadQuery | None = attrs.evolve(query, limit=scan)
        while part is not None:
            page = await reader.threads.page(part)
            for index, line in enumerate(page.threads):
                if not await self._is_open(who, line):
                    continue
                if lines.full:
                    return lines.lines, await self._cursor(who, lines)
                lines.take(_line(line, reader), part, index)
            part = None if page.cursor is None else attrs.evolve(part, cursor=page.cursor)
            if part is not None and lines.full and who.sees is everything:
                return lines.lines, await self._cursor(who, lines)
        return lines.lines, None

    async def _cursor(self, who: Principal, lines: _ThreadLines) -> str | None:
        """Return the cursor after the last line: that of a page that ends there."""
        if lines.last is None:
            return None
        query, index = lines.last
        return sealed(who, (await self._reader.threads.page(attrs.evolve(query, limit=index + 1))).cursor)

    async def _is_open(self, who: Principal, line: gr.ThreadSummary) -> bool:
        may_join = _asked(who)
        if may_join is None:
            return True
        return may_join(line.run.info) and await self._reader.threads.may_read(line.thread_id, who.name, may_join)

    async def messages(self, who: Principal, order: ReadMessages) -> ThreadMessages:
        """Return a page of a thread's messages; without a position the newest ones.

        Raises:
            Refused: not_allowed, unknown_thread; unprocessable: a value is invalid.
        """
        who.need("follow")
        with refusals():
            query = gr.HistoryQuery(after=order.after, before=order.before, limit=order.limit)
            page = await self._reader.threads.messages(order.thread, query, by=who.name, may_join=_asked(who))
        return replace(page, messages=tuple(_linked(order.thread, message) for message in page.messages))

    async def part(self, who: Principal, thread: str, position: int, place: int) -> Part:
        """Return an image or a file of a message, with its bytes.

        Raises:
            Refused: not_allowed, unknown_thread, unknown_part.
        """
        who.need("follow")
        with refusals():
            return await self._reader.threads.part(thread, position, place, by=who.name, may_join=_asked(who))


def _asked(who: Principal) -> MayJoin | None:
    """Return the question that each road into a thread asks about its runs; None for a principal that sees all."""
    return None if who.sees is everything else who.sees


def _line(line: gr.ThreadSummary, reader: gr.RunReader) -> ThreadLine:
    return ThreadLine(
        thread_id=line.thread_id,
        by=line.owner,
        title=line.title,
        created_at=line.created_at,
        newest_at=line.newest_at,
        runs=line.runs,
        run=row_of(line.run, reader)[0],
    )


def _linked(thread: str, message: ThreadMessage) -> ThreadMessage:
    """Return a message whose parts have the paths of their bytes."""
    if not message.parts:
        return message
    path = f"/v1/threads/{quote(thread, safe='')}/messages/{message.position}/parts"
    parts = (replace(part, href=f"{path}/{n}") if part.sha256 else part for n, part in enumerate(message.parts))
    return replace(message, parts=tuple(parts))
