"""Ranks order the runs of a queue without starving any; pauses after crashes double, and end in a dead letter."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.actors.errors import UsageError
from greenroom.actors.stores.common._ranks import (
    DEAD_AFTER,
    FIRST_PAUSE,
    GREATEST_PRIORITY,
    LONGEST_PAUSE,
    PRIORITY_STEP,
    back_off,
    check_priority,
    dead_reason,
    rank,
)

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
Priorities = st.integers(-GREATEST_PRIORITY, GREATEST_PRIORITY)
Moments = st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=-5)), timezone(timedelta(hours=14))]))


def test_a_step_of_priority_counts_like_ten_seconds_of_waiting() -> None:
    assert rank(NOON, 1) == NOON - timedelta(seconds=10)
    assert rank(NOON, 2) < rank(NOON - timedelta(seconds=19), 0)
    assert rank(NOON, 2) > rank(NOON - timedelta(seconds=21), 0)


@given(Moments, Priorities, Priorities)
def test_a_higher_priority_is_never_claimed_later(ready: datetime, one: int, other: int) -> None:
    low, high = sorted((one, other))
    assert rank(ready, high) <= rank(ready, low)
    assert rank(ready, high).tzinfo is UTC


@given(Moments, Moments, Priorities, Priorities)
def test_no_run_starves(one: datetime, other: datetime, first: int, second: int) -> None:
    """Whatever the priorities: a run that waited 2,000 seconds longer for each 200 steps between them is first."""
    early, late = sorted((one.astimezone(UTC), other.astimezone(UTC)))
    if late - early > 2 * GREATEST_PRIORITY * PRIORITY_STEP:
        assert rank(early, first) <= rank(late, second)


@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))])
def test_a_rank_exists_at_both_ends_of_the_calendar(zone: timezone) -> None:
    ends = datetime.min.replace(tzinfo=zone), datetime.max.replace(tzinfo=zone)
    for priority in (-GREATEST_PRIORITY, 0, GREATEST_PRIORITY):
        assert rank(ends[0], priority) < NOON < rank(ends[1], priority)


@pytest.mark.parametrize("value", [-101, 101, 1.0, True, "1", None])
def test_an_invalid_priority_is_refused_with_the_range(value: object) -> None:
    with pytest.raises(UsageError, match="from -100 to 100"):
        check_priority(value)


@pytest.mark.parametrize("value", [-100, 0, 100])
def test_a_valid_priority_is_returned(value: int) -> None:
    assert check_priority(value) == value


@given(st.integers(2, 10_000), st.floats(0, 1, exclude_max=True))
def test_a_pause_is_the_upper_half_of_a_doubled_second(crashes: int, jitter: float) -> None:
    longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(crashes - 2, 100))
    assert longest / 2 <= back_off(crashes, jitter) < longest


def test_there_is_no_pause_after_the_first_crash_and_then_pauses_double_up_to_a_minute() -> None:
    assert [back_off(crashes, 0.0) * 2 for crashes in range(1, 10)] == [0, 1, 2, 4, 8, 16, 32, 60, 60]


def test_the_fifth_crash_makes_a_dead_letter_and_names_the_reason() -> None:
    assert [dead_reason(crashes) is None for crashes in range(DEAD_AFTER + 1)] == [True] * 5 + [False]
    assert (dead_reason(5) or "").startswith("5 processes in a row")
