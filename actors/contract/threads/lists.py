"""Threads as readers see them: lines of a list, and pages of stored messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

import attrs

from ...errors import UsageError
from ..messages import Message
from ..plain import encodable
from ..rows import RunInfo
from ..run_lists import RunSummary

LARGEST_PAGE: Final = 1_000
"""Most lines or messages of a page."""
MESSAGE_BYTES: Final = 1_048_576
"""Bytes of stored messages after which a page ends."""
MOST_OPEN: Final = 100
"""Unfinished runs of a thread that a page of its messages names; the oldest ones."""


@attrs.frozen(kw_only=True)
class ThreadQuery:
    """The filter of a list of threads. A cursor is valid only for the query that it came from.

    Attributes:
        by: Only threads in which this principal has started a run, in the order of its newest runs.
        limit: most lines of the page, 1 to 1,000.
        cursor: from the previous page.
    """

    by: str | None = None
    limit: int = 50
    cursor: str | None = None

    def check(self) -> None:
        """Check the values of the query; the store checks the cursor.

        Raises:
            UsageError: a value is invalid; the message names it and says what to give.
        """
        for name, value in (("by", self.by), ("cursor", self.cursor)):
            if value is not None and (not isinstance(value, str) or not encodable(value) or "\0" in value):
                raise UsageError(f"{name}={value!r:.200}: give a str without lone surrogates and NUL characters")
        check_limit(self.limit)


@attrs.frozen(kw_only=True)
class ThreadSummary:
    """One line of a list of threads.

    Attributes:
        thread_id, owner, created_at, runs: as in `ThreadInfo`.
        title: The title of the oldest remaining run, or its id.
        newest_at: when the newest remaining run was started, UTC.
        run: The run that the thread is at: the oldest unfinished one, else the newest.
    """

    thread_id: str
    owner: str
    created_at: datetime
    runs: int
    title: str
    newest_at: datetime
    run: RunSummary


@attrs.frozen(kw_only=True)
class ThreadPage:
    """A page of a list of threads, in the order of the newest runs, the newest first; none of them is of a child run.

    Attributes:
        threads: the lines.
        cursor: for the next page; None on the last page.
        unreadable: ids of runs whose rows are unreadable; their threads have no line.
    """

    threads: tuple[ThreadSummary, ...]
    cursor: str | None
    unreadable: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class HistoryQuery:
    """A part of a thread's history. A position is the place of a message in its thread, from 1.

    Attributes:
        after: the messages behind this position, the oldest first.
        before: without `after`, the newest messages before this position; None: the newest ones.
        limit: most messages, 1 to 1,000.
    """

    after: int | None = None
    before: int | None = None
    limit: int = 100

    def check(self) -> None:
        """Check the values.

        Raises:
            UsageError: a value is invalid; the message names it and says what to give.
        """
        for name, value, least in (("after", self.after, 0), ("before", self.before, 1)):
            if value is not None and (type(value) is not int or not least <= value < 2**53):
                raise UsageError(f"{name}={value!r:.100}: give the position of a message, {least} or more")
        if self.after is not None and self.before is not None:
            raise UsageError("after and before: give one of them")
        check_limit(self.limit)


@attrs.frozen(kw_only=True)
class OpenRun:
    """An unfinished run of a thread, and the place where a reader of the history begins to follow the run.

    Attributes:
        run_id, agent: the run, and the key of the agent with which it was started.
        after: Sequence of an event. What the events up to it tell of the conversation is in the history or in
            `pending`; what later events tell is not.
        pending: input that waits for the next step of the run, in order; empty for a run that has begun no step.
    """

    run_id: str
    agent: str
    after: int
    pending: tuple[Message, ...] = ()


@attrs.frozen(kw_only=True)
class HistoryPage:
    """A part of a thread's history, from one consistent snapshot. Private.

    Attributes:
        messages: The messages with their positions, the oldest first.
        newest: position of the thread's newest message; 0 if the thread has none.
        newest_run: id of the newest remaining run; None if there is none.
        open_runs: the unfinished runs, the oldest first, at most `MOST_OPEN`.
        infos: run id -> facts of the remaining runs, of any thread, that wrote the messages.
    """

    messages: tuple[tuple[int, Message], ...] = ()
    newest: int = 0
    newest_run: str | None = None
    open_runs: tuple[OpenRun, ...] = ()
    infos: Mapping[str, RunInfo] = attrs.field(factory=dict)


def check_limit(limit: object) -> None:
    """Check the size of a page.

    Raises:
        UsageError: the size is not a whole number from 1 to 1,000.
    """
    if type(limit) is not int or not 1 <= limit <= LARGEST_PAGE:
        raise UsageError(f"limit={limit!r:.100}: give 1 to {LARGEST_PAGE:,}, and take the next page")


def within_bytes(rows: Iterable[tuple[int, Message, int]], limit: int) -> list[tuple[int, Message]]:
    """Return messages up to the limit, or up to the one that reaches `MESSAGE_BYTES`; later rows are not fetched.

    Args:
        rows: position, message, and the bytes of its row.
        limit: most messages.
    """
    messages, size = list[tuple[int, Message]](), 0
    for position, message, read in rows:
        messages.append((position, message))
        size += read
        if len(messages) >= limit or size >= MESSAGE_BYTES:
            break
    return messages


def producers(messages: Sequence[tuple[int, Message]]) -> list[str]:
    """Return the ids of the runs that wrote some messages, each once, in order."""
    return [*dict.fromkeys(message.producer.run_id for _, message in messages if message.producer is not None)]
