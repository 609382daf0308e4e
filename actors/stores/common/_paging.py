"""Pages of events and values, bounded in bytes; queries for lists of runs, validated, with opaque cursors."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from itertools import islice

import msgspec

from ...contract.ids import content_digest
from ...contract.run_lists import ORDERS, RunQuery
from ...contract.threads.lists import ThreadQuery
from ...contract.ticket_lists import TicketQuery
from ...errors import UsageError
from ...stored_values import PAGE_BYTES, StoredValue


def page(frames: Iterable[bytes], max_bytes: int | None) -> Sequence[bytes]:
    """Return the frames up to the one that reaches `max_bytes`; later frames are not fetched."""
    if max_bytes is None:
        return tuple(frames)
    frames_of_page, size = [], 0
    for frame in frames:
        frames_of_page.append(frame)
        size += len(frame)
        if size >= max_bytes:
            break
    return tuple(frames_of_page)


def values_page(values: Iterable[StoredValue], limit: int) -> Sequence[StoredValue]:
    """Return up to `limit` values, and none behind the one that reaches `PAGE_BYTES`; later ones are not fetched."""
    values_of_page, size = [], 0
    for value in islice(values, limit):
        values_of_page.append(value)
        size += len(value.value)
        if size >= PAGE_BYTES:
            break
    return tuple(values_of_page)


Position = tuple[int, int]
"""The end of a page: when the run began to wait (0 in the order of age), and its number, in the order of creation.

Of a list of tickets: when the ticket was opened, and its number.
"""


def _digest(query: RunQuery) -> str:
    status = None if query.status is None else query.status.value
    parts: list[str | None] = [status, query.agent, query.thread_id, query.prefix]
    if query.by is not None or query.text is not None or query.since or query.until or query.order != ORDERS[0]:
        moments = [None if moment is None else moment.isoformat() for moment in (query.since, query.until)]
        parts += [query.by, query.text, *moments, query.order]
    if query.outcome is not None or query.code is not None or query.tool is not None:
        parts += ["", query.outcome, query.code, query.tool]
    return content_digest(parts)[:8]


def encode(query: RunQuery, position: Position) -> str:
    """Return the cursor of the page after a run."""
    return _cursor(_digest(query), position)


def start(query: RunQuery) -> Position | None:
    """Return the position behind which the page begins; None for the first page.

    Raises:
        UsageError: a value is invalid, or the cursor belongs to another query.
    """
    query.check()
    return None if query.cursor is None else _position(query.cursor, _digest(query))


def encode_tickets(query: TicketQuery, position: Position) -> str:
    """Return the cursor of the page after a ticket."""
    return _cursor(_ticket_digest(query), position)


def start_tickets(query: TicketQuery) -> Position | None:
    """Return the position behind which the page begins; None for the first page.

    Raises:
        UsageError: a value is invalid, or the cursor belongs to another query.
    """
    query.check()
    return None if query.cursor is None else _position(query.cursor, _ticket_digest(query))


def _ticket_digest(query: TicketQuery) -> str:
    return content_digest(["tickets", query.agent, query.tool, query.order, *(query.run_ids or ())])[:8]


def _cursor(digest: str, position: Position) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode([digest, *position])).decode()


def _position(cursor: str, digest: str) -> Position:
    try:
        own, *position = msgspec.json.decode(base64.urlsafe_b64decode(cursor), type=tuple[str, int, int])
    except (binascii.Error, ValueError) as error:
        raise UsageError(f"cursor={cursor!r:.200} is invalid; start again without a cursor") from error
    if own != digest:
        raise UsageError("this cursor is of another query; keep the filters and the order, or start without a cursor")
    since, number = position
    if not (0 <= since < 2**63 and 0 <= number < 2**63):
        raise UsageError(f"cursor={cursor!r:.200} is invalid; start again without a cursor")
    return since, number


def encode_thread(query: ThreadQuery, number: int) -> str:
    """Return the cursor of the page after a thread; `number` is that of the run by which the thread is in its place."""
    return base64.urlsafe_b64encode(msgspec.json.encode([content_digest(["thread", query.by])[:8], number])).decode()


def thread_start(query: ThreadQuery) -> int | None:
    """Return the number of the run behind which the page begins; None for the first page.

    Raises:
        UsageError: a value is invalid, or the cursor belongs to another query.
    """
    query.check()
    if query.cursor is None:
        return None
    try:
        digest, number = msgspec.json.decode(base64.urlsafe_b64decode(query.cursor), type=tuple[str, int])
    except (binascii.Error, ValueError) as error:
        raise UsageError(f"cursor={query.cursor!r:.200} is invalid; start again without a cursor") from error
    if digest != content_digest(["thread", query.by])[:8] or not 0 <= number < 2**63:
        raise UsageError("this cursor is of another query; keep the filter, or start without a cursor")
    return number
