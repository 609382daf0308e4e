"""The throughput of the last hours: how many runs ended, by hour and outcome."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import greenroom as gr
from greenroom.actors.contract.lifecycle import RunStatus
from greenroom.actors.contract.run_lists import LISTED_OUTCOMES, EndedRuns, outcome_of

from .access import Principal, everything
from .gateway import Gateway
from .http import Request, Response, Route, json_response
from .listing import visible_page

HOURS: Final = 24
MOST_HOURS: Final = 168
COUNTED: Final = 5_000
"""Most visible runs that are counted one by one, for a principal that may not see all runs."""
PAGE: Final = 500

Cell = tuple[datetime, str]
"""An hour and an outcome."""


async def throughput(gateway: Gateway, request: Request) -> Response:
    """Count the runs that ended in each of the last hours."""
    hours = request.number("hours", HOURS, least=1, most=MOST_HOURS)
    first = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=hours - 1)
    reader = gateway.runtime.reader
    if request.who.sees is everything:
        counts, complete = _cells(await reader.throughput(first)), True
    else:
        counts, complete = await _visible(reader, request.who, first)
    lines = [
        {"hour": hour.isoformat(), **{outcome: counts[hour, outcome] for outcome in LISTED_OUTCOMES}}
        for hour in (first + timedelta(hours=number) for number in range(hours))
    ]
    return json_response({"hours": lines, "complete": complete})


def _cells(ends: Iterable[EndedRuns]) -> Counter[Cell]:
    return Counter({(end.hour, end.outcome): end.count for end in ends})


async def _visible(reader: gr.RunReader, who: Principal, first: datetime) -> tuple[Counter[Cell], bool]:
    """Count the visible runs that began and ended since a time; the newest ones only, if there are very many."""
    counts, total, cursor = Counter[Cell](), 0, None
    while True:
        query = gr.RunQuery(status=RunStatus.DONE, since=first, limit=PAGE, cursor=cursor)
        page = await visible_page(reader, who, query)
        counts.update(_ends(page.lines))
        total, cursor = total + len(page.lines), page.cursor
        if cursor is None or total >= COUNTED:
            return counts, cursor is None


def _ends(lines: Sequence[gr.RunSummary]) -> Iterable[Cell]:
    for line in lines:
        outcome = outcome_of(line.row)
        if line.ended_at is not None and outcome is not None:
            yield line.ended_at.replace(minute=0, second=0, microsecond=0), outcome


ROUTES: Final[tuple[Route[Gateway], ...]] = (
    Route(
        method="GET", template="/v1/throughput", handler=throughput, scope="follow",
        summary="How many runs ended in each of the last hours",
        query={"hours": f"how many hours up to now, 1 to {MOST_HOURS} (default {HOURS})"},
        responses={200: ("Counts by hour and outcome, the oldest hour first.", "Throughput")},
    ),
)  # fmt: skip
