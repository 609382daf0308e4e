"""Lists of runs: the query, a page and its lines."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal, TypedDict, get_args

import attrs

from ..errors import UsageError
from .lifecycle import RunStatus, Stage
from .plain import encodable
from .rows import RunInfo, RunRow
from .ticket_lists import LARGEST_PAGE, TicketSummary
from .titles import searched


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
RunOrder = Literal["newest", "waiting_longest"]
ORDERS: Final[tuple[str, ...]] = get_args(RunOrder)


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
        text: a part of the title or the id; case is ignored, and no character is special. At most 200 characters, not
            blank.
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
    order: RunOrder = "newest"
    limit: int = 100
    cursor: str | None = None
    counts: bool = False

    def check(self) -> None:
        """Check the values of the query; the store checks the cursor.

        Raises:
            UsageError: a value is invalid; the message names it and says what to give.
        """
        for name in ("agent", "thread_id", "by", "text", "cursor", "prefix"):
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
        if self.order == "waiting_longest" and self.status not in (None, RunStatus.WAITING):
            other = self.status.value
            raise UsageError(f"order='waiting_longest' lists runs that wait, not status={other!r}; leave one out")
        if self.text is not None and not (self.text.strip() and len(self.text) <= LONGEST_TEXT):
            way = f"give 1 to {LONGEST_TEXT} characters that are not all white space"
            raise UsageError(f"text={self.text!r:.100}: {way}")

    def matches(self, summary: RunSummary) -> bool:
        """Return True if the run is in this query's list, on any page."""
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
            and (self.text is None or self.text.casefold() in searched(info.title, info.run_id))
        )


@attrs.frozen(kw_only=True)
class RunCounts:
    """The number of runs that are not done, by status."""

    created: int = 0
    running: int = 0
    waiting: int = 0


@attrs.frozen(kw_only=True)
class RunPage:
    """A page of a list, in the order of its query.

    Attributes:
        runs: the lines. A page that is not the last may have fewer than `limit`, if its rows are very large.
        cursor: for the next page; None on the last page.
        counts: The counts of all runs, if the query asks for them; from the same snapshot as the lines.
        unreadable: ids of runs of this page whose rows are unreadable (damaged, or written by a newer release); such a
            run has no line and does not count for `limit`.
    """

    runs: tuple[RunSummary, ...]
    cursor: str | None
    counts: RunCounts | None = None
    unreadable: tuple[str, ...] = ()
