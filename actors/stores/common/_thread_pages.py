"""Threads, the same for every database: a page of a list, and the runs that a reader of a history may follow."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ...contract.rows import RunRow
from ...contract.threads.lists import OpenRun, ThreadPage, ThreadQuery, ThreadSummary
from . import _paging
from ._run_pages import PAGE_BYTES

ThreadLine = tuple[int, ThreadSummary | str | None, int]
"""A thread of a list: the number of the run by which it is in its place, its line, and the bytes read for the line.

None in place of a line: no run is left. A text: the id of a run that is unreadable.
"""


class PlacedRow(msgspec.Struct, frozen=True):
    """The part of a run's row that says where a reader begins to follow."""

    placed: int = 0


def page_of(query: ThreadQuery, lines: Iterable[ThreadLine]) -> ThreadPage:
    """Return the first page of the lines; the rest is not read."""
    threads, unreadable, size, last, more = list[ThreadSummary](), list[str](), 0, 0, False
    for number, line, read in lines:
        if len(threads) >= query.limit or size >= PAGE_BYTES:
            more = True
            break
        if isinstance(line, str):
            unreadable.append(line)
        elif line is not None and line.run.info.parent_run is None:
            threads.append(line)
        last, size = number, size + read
    return ThreadPage(
        threads=tuple(threads),
        cursor=_paging.encode_thread(query, last) if more else None,
        unreadable=tuple(unreadable),
    )


def open_run(run_id: str, agent: str, placed: int, row: RunRow | None) -> OpenRun:
    """Return an unfinished run of a thread; the row is needed once messages of the run have joined the thread."""
    return OpenRun(run_id=run_id, agent=agent, after=placed, pending=() if row is None else row.pending_input)
