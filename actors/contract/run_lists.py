"""Lists of runs: the query, a page and its lines."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal, TypedDict, get_args

import attrs

from ..errors import UsageError
from .lifecycle import RunStatus, Stage, TerminationKind
from .plain import encodable
from .rows import RunInfo, RunRow
from .ticket_lists import LARGEST_PAGE, TicketSummary


@attrs.frozen(kw_only=True)
class RunProgress:
    """How far a run is, as a process asks that waits for a run of another process.

    Attributes:
        last: sequence of its newest event.
        waits: it waits for people or tasks.
        done: it has ended.
        owned: a process owns the run.
        dead: why the run is a dead letter; None if it is not.
    """

    last: int
    waits: bool
    done: bool
    owned: bool
    dead: str | None


@attrs.frozen(kw_only=True)
class RunSummary:
    """One line of a list of runs.

    Attributes:
        info, row: the two halves of the run; private. The row may lack the messages of `row.sent`, whose texts are in
            the inbox.
        pending: accepted commands that have not acted yet.
        held: another run works on the thread, and this run waits for its end.
        ended_at: UTC; None while the run is not done.
        waiting_since: for a waiting run, when its oldest open ticket was opened (without one, when the wait began),
            UTC; None while the run does not wait.
        asked: the first open tickets, oldest first, at most `ASKED`.
        asked_count: how many tickets are open.
        queue: the run's queue.
        owner: name of the process that owns the run; None if no process does, or the store is not shared.
        dead: why the run is a dead letter: no process claims it any more, until it is revived; None if it is not.
    """

    info: RunInfo
    row: RunRow
    pending: int
    held: bool = False
    ended_at: datetime | None = None
    waiting_since: datetime | None = None
    asked: tuple[TicketSummary, ...] = ()
    asked_count: int = 0
    queue: str = ""
    owner: str | None = None
    dead: str | None = None

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.info.run_id

    @property
    def agent(self) -> str:
        """The key of the agent with which the run was started."""
        return self.info.agent

    @property
    def status(self) -> RunStatus:
        """The run's status."""
        return self.row.status

    @property
    def stage(self) -> Stage:
        """The run's stage."""
        return self.row.stage

    @property
    def title(self) -> str:
        """One line that describes the run; the run id without a title."""
        return self.info.title or self.info.run_id

    @property
    def progress(self) -> RunProgress:
        """How far the run is."""
        row, status = self.row, self.row.status
        return RunProgress(
            last=row.last_sequence,
            waits=status is RunStatus.WAITING,
            done=status is RunStatus.DONE,
            owned=self.owner is not None,
            dead=self.dead,
        )


Listed = RunStatus | Stage
"""A limit of a list: the runs of one status, or of one stage."""
LISTED: Final = (
    *(status.value for status in RunStatus),
    *(stage.value for stage in Stage if stage.value not in {*RunStatus}),
)
"""The names of these, as callers give them; "created" and "running" name the statuses."""


def listed(name: str) -> Listed:
    """Return the status of a name, or else the stage.

    Raises:
        ValueError: neither has this name.
    """
    return RunStatus(name) if name in {*RunStatus} else Stage(name)


ASKED: Final = 3
"""Open tickets in a line of a list."""

LONGEST_TEXT: Final = 200
"""Most characters of a search text."""
SEARCHED: Final = 256
"""Most runs whose events one page of a query with a text reads. The memory store reads them in the trio thread."""
SEARCHED_BYTES: Final = 2**19
"""Bytes of events after which such a page ends."""
RunOrder = Literal["newest", "waiting_longest"]
ORDERS: Final[tuple[str, ...]] = get_args(RunOrder)
ListedOutcome = Literal["completed", "stopped", "failed", "cancelled"]
"""How a run has ended, for lists: a stop condition has stopped a run that is not completed."""
LISTED_OUTCOMES: Final[tuple[str, ...]] = get_args(ListedOutcome)


def outcome_of(row: RunRow) -> str | None:
    """Return the outcome of a run for lists; None for a run that is not done."""
    if row.status is not RunStatus.DONE:
        return None
    if row.termination is not None and row.termination.kind is TerminationKind.STOPPED:
        return "stopped"
    return row.stage.value


def code_of(row: RunRow) -> str | None:
    """Return the code of the termination of a run that is done; None without one."""
    termination = row.termination if row.status is RunStatus.DONE else None
    return None if termination is None else termination.code


class WatchFilters(TypedDict, total=False):
    """The filters of a list of runs that is watched, as callers give them; `RunQuery` documents each."""

    status: Listed | str | None
    agent: str | None
    thread_id: str | None
    prefix: str | None
    by: str | None
    since: datetime | None
    until: datetime | None
    text: str | None
    outcome: ListedOutcome | None
    code: str | None
    tool: str | None
    order: RunOrder
    limit: int


class RunFilters(WatchFilters, total=False):
    """The filters of a page of a list of runs, the same from the command line and the client to the store."""

    cursor: str | None
    counts: bool


def _check_text(name: str, value: object, *, optional: bool) -> None:
    if value is None and optional:
        return
    if not isinstance(value, str) or not encodable(value) or "\0" in value:
        raise UsageError(f"{name}={value!r:.200}: give a str without lone surrogates and NUL characters")


def _check_moment(name: str, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, datetime):
        raise UsageError(f"{name}={value!r:.200}: give a datetime with a time zone")
    if value.tzinfo is None:
        raise UsageError(f"{name}={value.isoformat()} has no time zone; write it with Z for UTC")


@attrs.frozen(kw_only=True)
class RunQuery:
    """The filters and the order of a list of runs. A cursor is valid only for the query that it came from.

    Attributes:
        status, agent, thread_id, by: all given values must match. `status` may be a stage, such as failed. `by` is the
            principal that started the run.
        prefix: the beginning of the run's id.
        since, until: creation time of the run: not before `since`, and before `until`; with time zone.
        text: a part of the title, the id, the input, the output or the reason of a failure, as events show them; case
            is ignored, and no character is special. At most 200 characters, not blank.
        outcome: how the run has ended: completed, stopped (by a stop condition), failed or cancelled.
        code: the code of the run's termination, such as "model_error" or the name of a stop condition.
        tool: the name of a tool that the run has called.
        order: "newest" (newest first), or "waiting_longest": waiting runs only, the longest waiting first.
        limit: most lines of the page, 1 to 1,000.
        cursor: from the previous page.
        counts: also count the runs that are not done (`RunPage.counts`).
    """

    status: Listed | None = None
    agent: str | None = None
    thread_id: str | None = None
    prefix: str = ""
    by: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    text: str | None = None
    outcome: ListedOutcome | None = None
    code: str | None = None
    tool: str | None = None
    order: RunOrder = "newest"
    limit: int = 100
    cursor: str | None = None
    counts: bool = False

    def check(self) -> None:
        """Check the values of the query; the store checks the cursor.

        Raises:
            UsageError: a value is invalid; the message names it and says what to give.
        """
        for name in ("agent", "thread_id", "by", "text", "code", "tool", "cursor", "prefix"):
            _check_text(name, getattr(self, name), optional=name != "prefix")
        for name in ("since", "until"):
            _check_moment(name, getattr(self, name))
        if type(self.limit) is not int or not 1 <= self.limit <= LARGEST_PAGE:
            way = f"give 1 to {LARGEST_PAGE:,}, and take the next page with the cursor"
            raise UsageError(f"limit={self.limit!r:.100}: {way}")
        if self.order not in ORDERS:
            raise UsageError(f"order={self.order!r:.100} is not known; use one of {', '.join(ORDERS)}")
        if not isinstance(self.status, RunStatus | Stage | None):
            raise UsageError(f"status={self.status!r:.100}: give a RunStatus, a Stage, or None")
        if self.outcome is not None and self.outcome not in LISTED_OUTCOMES:
            raise UsageError(f"outcome={self.outcome!r:.100} is not known; use one of {', '.join(LISTED_OUTCOMES)}")
        if self.order == "waiting_longest" and self.status not in (None, RunStatus.WAITING):
            other = self.status.value
            raise UsageError(f"order='waiting_longest' lists runs that wait, not status={other!r}; leave one out")
        if self.text is not None and not (self.text.strip() and len(self.text) <= LONGEST_TEXT):
            way = f"give 1 to {LONGEST_TEXT} characters that are not all white space"
            raise UsageError(f"text={self.text!r:.100}: {way}")

    @property
    def deep(self) -> bool:
        """True if more than the line of a run says whether the run is in the list: its events, or its calls."""
        return self.text is not None or self.tool is not None

    def matches(self, summary: RunSummary) -> bool:
        """Return True if the run is in this query's list, on any page.

        Of a `deep` query the store alone knows whether the text and the tool match: then True says that all other
        filters do.
        """
        info, row = summary.info, summary.row
        return (
            (self.status is None or self.status is (row.stage if isinstance(self.status, Stage) else row.status))
            and (self.order == "newest" or summary.waiting_since is not None)
            and self.agent in (None, info.agent)
            and self.thread_id in (None, info.thread_id)
            and self.by in (None, info.by)
            and info.run_id.startswith(self.prefix)
            and (self.since is None or info.created_at >= self.since)
            and (self.until is None or info.created_at < self.until)
            and self.outcome in (None, outcome_of(row))
            and (self.code is None or self.code == code_of(row))
        )


@attrs.frozen(kw_only=True)
class RunCounts:
    """The number of runs that are not done, by status."""

    created: int = 0
    running: int = 0
    waiting: int = 0


@attrs.frozen(kw_only=True)
class Backlog:
    """What a store has to do and waits for, over all processes.

    Attributes:
        runs: the number of runs that are not done, by status.
        threads: the number of threads with a run that is not done.
        tickets: the number of open tickets of these runs.
        oldest_ticket: when the oldest of these tickets was opened, UTC; None without one.
    """

    runs: RunCounts
    threads: int
    tickets: int
    oldest_ticket: datetime | None


@attrs.frozen(kw_only=True)
class EndedRuns:
    """How many runs ended within one hour with one outcome.

    Attributes:
        hour: the beginning of the hour, UTC.
        outcome: the outcome.
        count: the number of runs, at least 1.
    """

    hour: datetime
    outcome: ListedOutcome
    count: int


@attrs.frozen(kw_only=True)
class RunPage:
    """A page of a list, in the order of its query.

    Attributes:
        runs: the lines. A page that is not the last may have fewer than `limit`, or none: if its rows are very large,
            and of a query with a text, whose pages read a bounded number of runs. Go on with the cursor.
        cursor: for the next page; None on the last page.
        counts: The counts of all runs, if the query asks for them; from the same snapshot as the lines.
        unreadable: ids of runs of this page whose rows are unreadable (damaged, or written by a newer release); such a
            run has no line and does not count for `limit`.
    """

    runs: tuple[RunSummary, ...]
    cursor: str | None
    counts: RunCounts | None = None
    unreadable: tuple[str, ...] = ()
