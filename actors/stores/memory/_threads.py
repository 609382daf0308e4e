"""Threads in the memory store: their list, and pages of their messages."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from operator import itemgetter

from ...contract.messages import Message
from ...contract.sizes import measured
from ...contract.threads.lists import (
    MESSAGE_BYTES,
    MOST_OPEN,
    HistoryPage,
    HistoryQuery,
    OpenRun,
    ThreadQuery,
    ThreadSummary,
    producers,
    within_bytes,
)
from ..common._thread_pages import ThreadLine, open_run
from ._rows import RunTables, ThreadRecord
from ._tables import MemoryTables


def thread_lines(ledger: MemoryTables, query: ThreadQuery, behind: int | None) -> Iterator[ThreadLine]:
    """Yield the threads of a list behind a run's number."""
    listed_threads = set[int]()
    for run in reversed(ledger.runs.values()):
        thread = run.thread
        if query.by is None:
            place = next(reversed(thread.runs.values()))
        elif query.by != run.info.by or id(thread) in listed_threads:
            continue
        else:
            place = run
            listed_threads.add(id(thread))
        if place is run and (behind is None or run.number < behind):
            yield run.number, _line(run.info.thread_id, thread), 0


def _line(thread_id: str, thread: ThreadRecord) -> ThreadSummary:
    oldest, newest = next(iter(thread.runs.values())), next(reversed(thread.runs.values()))
    return ThreadSummary(
        thread_id=thread_id,
        owner=thread.owner,
        created_at=thread.created_at,
        runs=thread.created,
        title=oldest.info.title or oldest.info.run_id,
        newest_at=newest.info.created_at,
        run=next(_unfinished(thread), newest).summary(),
    )


def _unfinished(thread: ThreadRecord) -> Iterator[RunTables]:
    """Yield the unfinished runs, the oldest first: the active one, then the held ones."""
    active = None if thread.active is None else thread.runs.get(thread.active)
    if active is not None and active.ended is None:
        yield active
    for run_id in thread.held:
        run = thread.runs[run_id]
        if run is not active and run.ended is None:
            yield run


def history_of(ledger: MemoryTables, thread: ThreadRecord, query: HistoryQuery) -> HistoryPage:
    """Return a part of a thread's history."""
    all_messages = thread.messages
    end = len(all_messages) if query.before is None else min(len(all_messages), query.before - 1)
    places = range(end - 1, -1, -1) if query.after is None else range(query.after, len(all_messages))
    rows = ((at + 1, all_messages[at], _size(all_messages[at])) for at in places)
    messages = sorted(within_bytes(rows, query.limit), key=itemgetter(0))
    runs = (ledger.runs.get(run_id) for run_id in producers(messages))
    return HistoryPage(
        messages=tuple(messages),
        newest=len(all_messages),
        newest_run=next(reversed(thread.runs), None),
        open_runs=tuple(map(_open_run, islice(_unfinished(thread), MOST_OPEN))),
        infos={run.info.run_id: run.info for run in runs if run is not None},
    )


def _open_run(run: RunTables) -> OpenRun:
    return open_run(run.info.run_id, run.info.agent, run.row.placed, run.row if run.row.placed else None)


def _size(message: Message) -> int:
    return len(message.content) + sum(measured(call.arguments, MESSAGE_BYTES) for call in message.calls)
