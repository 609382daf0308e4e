"""Lists of runs, the same for every database: find the numbers of a page from indexes alone, then read its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final, assert_never

import attrs

from ...contract import codec
from ...contract.lifecycle import STATUS, RunStatus, Stage
from ...contract.rows import RunInfo, RunRow
from ...contract.run_lists import (
    SEARCHED,
    SEARCHED_BYTES,
    EndedRuns,
    ListedOutcome,
    RunCounts,
    RunPage,
    RunQuery,
    RunSummary,
)
from ...contract.ticket_lists import TicketSummary
from . import _paging
from ._paging import Position
from ._timestamps import milliseconds, moment

LAST: Final = "\U0010ffff"
"""Sorts behind every other character."""
PAGE_BYTES: Final = 8 * 2**20
"""Bytes of rows after which a page ends, because a row may hold a whole answer of a model."""

Line = tuple[Position, RunSummary | str | None, int]
"""A run of a list: its position, its line (for an unreadable run, its id; None: the run has no such text), and the
bytes read for it."""


@attrs.frozen(kw_only=True)
class ListDialect:
    """The parts of the statement of a list that each database writes in its own way.

    Attributes:
        mark: stands for a value.
        schema: before the name of a table.
        to_do, waits: the conditions of runs that are not done, and that wait.
        prefix: the condition of an id between two values.
        among: the condition of an id among others.
        ids: ids -> the value of that condition.
        time: milliseconds since 1970 -> the value of a column of times.
    """

    mark: str
    schema: str = ""
    to_do: str
    waits: str
    prefix: str
    among: str
    ids: Callable[[Sequence[str]], object]
    time: Callable[[int], object]

    def statement(
        self, query: RunQuery, behind: Position | None, table: str, among: Sequence[str] | None = None
    ) -> tuple[str, tuple[object, ...]]:
        """Return the statement, and its values, for the positions of a page, and of one more run if there is one.

        A query with a text gets the positions of the runs that are to be searched.
        """
        where = self._where(query)
        if among is not None:
            where.add(self.among, self.ids(among))
        longest = query.order == "waiting_longest"
        if behind is not None:
            since, number = behind
            if longest:
                where.add(f"(waiting_since, number) > ({self.mark}, {self.mark})", self.time(since), number)
            else:
                where.add(f"number < {self.mark}", number)
        sql = (
            f"SELECT {'waiting_since' if longest else '0'}, number FROM {self.schema}{table}"  # noqa: S608 - constants
            f" WHERE {' AND '.join(where.conditions)}"
            f" ORDER BY {'waiting_since, number' if longest else 'number DESC'} LIMIT {self.mark}"
        )
        return sql, (*where.values, read_together(query) + 1)

    def _where(self, query: RunQuery) -> _Conditions:
        where, mark = _Conditions(), self.mark
        self._add_status(where, query)
        for column, value in (("agent", query.agent), ("started_by", query.by)):
            if value is not None:
                where.add(f"{column} = {mark}", value)
        if query.thread_id is not None:
            threads = f"{self.schema}threads"
            where.add(f"thread = (SELECT number FROM {threads} WHERE thread_id = {mark})", query.thread_id)  # noqa: S608
        if query.prefix:
            where.add(self.prefix, query.prefix, query.prefix + LAST)
        if query.since is not None:
            where.add(f"created_at >= {mark}", self.time(milliseconds(query.since)))
        if query.until is not None:
            where.add(f"created_at < {mark}", self.time(milliseconds(query.until)))
        if query.code is not None:
            where.add(f"code = {mark}", query.code)
        if query.tool is not None:
            calls = f"{self.schema}calls"
            where.add(
                f"EXISTS (SELECT 1 FROM {calls} c WHERE c.tool = {mark} AND c.run = runs.number)",  # noqa: S608
                query.tool,
            )
        self._add_outcome(where, query)
        return where

    def _add_outcome(self, where: _Conditions, query: RunQuery) -> None:
        """Add the condition of an outcome; a stop condition leaves its name as the code of a completed run."""
        match query.outcome:
            case None:
                pass
            case "completed":
                where.add("stage = 'completed' AND code IS NULL AND ended_at IS NOT NULL")
            case "stopped":
                where.add("stage = 'completed' AND code IS NOT NULL")
            case "failed" | "cancelled":
                where.add(f"stage = '{query.outcome}'")
            case _ as never:
                assert_never(never)

    def _add_status(self, where: _Conditions, query: RunQuery) -> None:
        if query.order == "waiting_longest" or query.status is RunStatus.WAITING:
            where.add(self.waits)
        elif isinstance(query.status, Stage):
            # Written out, for the planner has to see which partial index fits.
            where.add(f"stage = '{query.status.value}'")
            if query.status not in (Stage.FAILED, Stage.CANCELLED):
                where.add(self._open(STATUS[query.status]))
        elif query.status is RunStatus.DONE:
            where.add("ended_at IS NOT NULL")
        elif query.status is not None:
            where.add(f"{self.to_do} AND status = {self.mark}", query.status.value)

    def _open(self, status: RunStatus) -> str:
        """Return the condition of the index in which the runs of a status are."""
        if status is RunStatus.DONE:
            return "ended_at IS NOT NULL"
        return self.waits if status is RunStatus.WAITING else self.to_do


@attrs.define
class _Conditions:
    """The conditions of a statement, and their values."""

    conditions: list[str] = attrs.field(factory=lambda: ["true"])
    values: list[object] = attrs.field(factory=list)

    def add(self, condition: str, *values: object) -> None:
        self.conditions.append(condition)
        self.values += values


def positions(
    query: RunQuery, behind: Position | None, find: Callable[[Position | None], Sequence[Position]]
) -> Iterator[Sequence[Position]]:
    """Yield the runs of a list behind a position, one page at a time.

    A page with unreadable rows needs more runs than its limit.
    """
    while True:
        batch = find(behind)
        yield batch
        if len(batch) <= read_together(query):
            return
        behind = batch[-1]


def read_together(query: RunQuery) -> int:
    """Return how many runs of a list are looked up together."""
    return query.limit if query.text is None else SEARCHED


def page_of(query: RunQuery, lines: Iterable[Line], counts: RunCounts | None) -> RunPage:
    """Return the first page of the lines; the rest is not read."""
    runs, unreadable, size, last, more = list[RunSummary](), list[str](), 0, None, False
    most_runs, most_bytes = (None, PAGE_BYTES) if query.text is None else (SEARCHED, SEARCHED_BYTES)
    for number, (position, line, read) in enumerate(lines):
        if len(runs) >= query.limit or size >= most_bytes or number == most_runs:
            more = True
            break
        if isinstance(line, str):
            unreadable.append(line)
        elif line is not None:
            runs.append(line)
        last, size = position, size + read
    return RunPage(
        runs=tuple(runs),
        cursor=_paging.encode(query, last) if more and last is not None else None,
        counts=counts,
        unreadable=tuple(unreadable),
    )


HOUR: Final = 3_600_000
"""Milliseconds."""


def ended_of(rows: Iterable[tuple[int, str, bool, int]]) -> tuple[EndedRuns, ...]:
    """Return the counts of rows: number of the hour since 1970, stage, whether there is a code, count."""
    return tuple(
        EndedRuns(hour=moment(hour * HOUR), outcome=_outcome(stage, with_code), count=count)
        for hour, stage, with_code, count in sorted(rows)
    )


def _outcome(stage: str, with_code: bool) -> ListedOutcome:
    match Stage(stage):
        case Stage.FAILED:
            return "failed"
        case Stage.CANCELLED:
            return "cancelled"
        case _:
            return "stopped" if with_code else "completed"


def whole_page(lines: Iterable[RunSummary | str], counts: RunCounts | None) -> RunPage:
    """Return all lines as one page; an id is of an unreadable run."""
    lines_of_page = tuple(lines)
    return RunPage(
        runs=tuple(line for line in lines_of_page if not isinstance(line, str)),
        cursor=None,
        counts=counts,
        unreadable=tuple(line for line in lines_of_page if isinstance(line, str)),
    )


def summary_of(
    info: RunInfo,
    row: bytes,
    *,
    pending: int,
    held: bool,
    ended: int | None,
    since: int | None,
    briefs: Iterable[bytes],
    count: int,
    queue: str,
    owner: str | None = None,
    dead: str | None = None,
) -> RunSummary:
    """Return a line of a list from the columns of a run.

    Raises:
        SchemaError: a part is unreadable.
    """
    return RunSummary(
        info=info,
        row=codec.load(RunRow, row),
        pending=pending,
        held=held,
        ended_at=moment_of(ended),
        waiting_since=moment_of(since),
        asked=tuple(codec.load(TicketSummary, brief) for brief in briefs),
        asked_count=count,
        queue=queue,
        owner=owner,
        dead=dead,
    )


def moment_of(at: int | None) -> datetime | None:
    """Return a time of a column in milliseconds; None for none."""
    return None if at is None else moment(at)
