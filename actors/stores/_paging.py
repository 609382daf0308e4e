"""Cursors for lists of runs: opaque to callers, and good only for the query that they came from."""

from __future__ import annotations

import base64
import binascii
from typing import Final

import msgspec

from greenroom.actors.abc import RunQuery
from greenroom.actors.contract.ids import content_digest
from greenroom.actors.errors import UsageError

LARGEST_PAGE: Final = 1_000
"""Runs per page: more would hold a reader, and its snapshot, too long."""


def _digest(query: RunQuery) -> str:
    status = None if query.status is None else query.status.value
    return content_digest([status, query.agent, query.thread_id, query.prefix])[:8]


def encode(query: RunQuery, number: int) -> str:
    """The cursor of the page that follows run `number` (runs are numbered in the order of their creation)."""
    return base64.urlsafe_b64encode(msgspec.json.encode([_digest(query), number])).decode()


def start(query: RunQuery) -> int | None:
    """The number below which the page begins; None for the first page.

    Raises:
        UsageError: limit out of range, or the cursor is not one of this query.
    """
    if not 1 <= query.limit <= LARGEST_PAGE:
        raise UsageError(f"limit={query.limit}: give 1 to {LARGEST_PAGE:,}, and take the next page with the cursor")
    if query.cursor is None:
        return None
    try:
        digest, number = msgspec.json.decode(base64.urlsafe_b64decode(query.cursor), type=tuple[str, int])
    except (binascii.Error, ValueError) as error:
        raise UsageError(f"cursor={query.cursor!r} is none of ours; start again without one") from error
    if digest != _digest(query):
        raise UsageError("this cursor is of another query; keep status, agent and thread_id, or start without a cursor")
    return number
