"""The order in which ready runs are claimed, and the pauses after crashes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from ...errors import UsageError

PRIORITY_STEP: Final = timedelta(seconds=10)
"""A step of priority counts like this much waiting: a less urgent run is claimed later, and never starves."""
GREATEST_PRIORITY: Final = 100
"""Priorities are within plus and minus this: together 2,000 seconds of waiting."""

DEAD_AFTER: Final = 5
"""Crashes of its owners without a finished step between them, after which a run is a dead letter."""
DEAD_TEXT: Final = " processes in a row ended while they worked on the run, and none of them finished a step"
"""Why a run is a dead letter, after the number of processes."""
FIRST_PAUSE: Final = 1.0
"""Seconds before a run is claimed again after the second crash of its owner; doubled for each further one."""
LONGEST_PAUSE: Final = 60.0
"""Seconds; most for the pause after a crash."""

_EARLIEST: Final = datetime.min.replace(tzinfo=UTC)
_LATEST: Final = datetime.max.replace(tzinfo=UTC)


def check_priority(priority: object) -> int:
    """Return a valid priority.

    Raises:
        UsageError: the priority is not an integer from -100 to 100.
    """
    if type(priority) is not int or abs(priority) > GREATEST_PRIORITY:
        way = f"give an int from -{GREATEST_PRIORITY} to {GREATEST_PRIORITY}; a higher one is claimed earlier"
        raise UsageError(f"priority={priority!r:.100}: {way}")
    return priority


def rank(ready_at: datetime, priority: int) -> datetime:
    """Return the place of a run in its queue, lower first: when it became ready, less ten seconds for each priority.

    Only an order: the run is not claimed before `ready_at`. At the ends of the calendar the rank is cut off.
    """
    try:
        return ready_at.astimezone(UTC) - priority * PRIORITY_STEP
    except OverflowError:
        return _EARLIEST if ready_at.year < _LATEST.year // 2 else _LATEST


def back_off(crashes: int, jitter: float) -> float:
    """Return the seconds until a run may be claimed again after a crash of its owner.

    None after the first crash, which is most often a lost machine's and not the run's. One second after the second,
    doubled for each further one up to 60, of which the upper half is drawn, so that the runs of one owner do not come
    back together ("equal jitter": Brooker, "Exponential Backoff And Jitter", 2015).

    Args:
        crashes: The crashes of owners of this run since its last finished step, this one included; at least 1.
        jitter: drawn by the caller, from 0 up to 1.
    """
    if crashes == 1:
        return 0.0
    longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(crashes - 2, 30))
    return longest * (1 + jitter) / 2


def dead_reason(crashes: int) -> str | None:
    """Return why a run whose owners crashed so often is a dead letter; None if it is not one yet."""
    if crashes < DEAD_AFTER:
        return None
    return f"{crashes}{DEAD_TEXT}"
