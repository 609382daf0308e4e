"""No process is declared dead while it may use its claims, whenever the two are stopped; each dead one is found."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.actors.errors import UsageError
from greenroom.actors.stores.common._leases import LEASE, MARGIN, TURN, BeatWatch, LeaseTimes

TIMES = LeaseTimes()


def watch_for(watch: BeatWatch[str], beats: dict[str, int], start: float, seconds: float) -> dict[str, int]:
    """Look once a turn; the result of the last look."""
    still: dict[str, int] = {}
    for turn in range(int(seconds / TURN) + 1):
        still = dict(watch.look(start + turn * TURN, beats))
    return still


def test_a_beat_that_stands_still_for_a_lease_is_reported_with_its_value() -> None:
    watch = BeatWatch[str](TIMES)
    assert watch_for(watch, {"a": 7}, 100.0, LEASE) == {}
    assert watch.look(100.0 + LEASE + 0.1, {"a": 7}) == {"a": 7}


def test_a_process_is_reported_until_it_beats_or_is_left_out() -> None:
    watch = BeatWatch[str](TIMES)
    assert watch_for(watch, {"a": 7, "b": 1}, 0.0, LEASE + TURN) == {"a": 7, "b": 1}
    assert watch.look(LEASE + 2 * TURN, {"a": 8, "b": 1}) == {"b": 1}
    assert watch.look(LEASE + 3 * TURN, {"a": 8}) == {}
    assert watch.look(LEASE + 4 * TURN, {"a": 8, "b": 1}) == {}, "b came back: its time begins anew"


def test_a_live_process_is_never_reported() -> None:
    watch = BeatWatch[str](TIMES)
    assert [dict(watch.look(turn * TURN, {"a": turn // 5})) for turn in range(100)] == [{}] * 100


@pytest.mark.parametrize("gap", [2 * TURN + 0.1, LEASE, 10 * LEASE])
def test_a_gap_in_the_looks_begins_the_watch_anew(gap: float) -> None:
    """The watcher itself may have been stopped: it cannot know whether the other beat meanwhile."""
    watch = BeatWatch[str](TIMES)
    watch_for(watch, {"a": 1}, 0.0, LEASE - TURN)
    later = LEASE - TURN + gap
    assert watch_for(watch, {"a": 1}, later, LEASE) == {}
    assert watch.look(later + LEASE + 1, {"a": 1}) == {"a": 1}


def test_a_lost_connection_begins_the_watch_anew() -> None:
    watch = BeatWatch[str](TIMES)
    watch_for(watch, {"a": 1}, 0.0, LEASE - TURN)
    watch.restart()
    assert watch_for(watch, {"a": 1}, LEASE, LEASE - 1) == {}
    assert "looked at" in repr(watch)


@pytest.mark.parametrize(
    ("lease", "turn", "margin"), [(30, 0, 8), (30, 3, 0), (30, 3, 25), (30, 11.5, 8), (0, 1, 1), (float("nan"), 3, 8)]
)
def test_times_that_leave_no_two_turns_are_refused(lease: float, turn: float, margin: float) -> None:
    with pytest.raises(UsageError, match=r"2 \* turn <= lease - margin"):
        LeaseTimes(lease, turn, margin)


def test_claims_are_good_until_the_margin_before_the_end_of_the_lease() -> None:
    assert TIMES.good_until(1_000.0) == 1_000.0 + LEASE - MARGIN
    assert LeaseTimes(1.0, 0.2, 0.3).good_until(5.0) == pytest.approx(5.7)


Delays = st.one_of(st.floats(0, 0.2), st.floats(0, 3 * LEASE))
"""Mostly short, sometimes longer than a lease: a stopped process, or a storage that does not answer."""


@attrs.define
class Storage:
    """The beat of the owner in the storage, with the times at which it was written."""

    writes: list[tuple[float, int]] = attrs.field(factory=list)

    def read(self, at: float) -> int:
        return max((beat for time, beat in self.writes if time <= at), default=0)


@given(
    st.lists(st.tuples(Delays, Delays, Delays), min_size=1, max_size=30),
    st.lists(st.tuples(Delays, Delays, Delays), min_size=20, max_size=60),
)
def test_no_process_is_declared_dead_while_it_may_use_its_claims(
    owner: list[tuple[float, float, float]], watcher: list[tuple[float, float, float]]
) -> None:
    """Each of the two pauses anywhere: before it sends, until the storage acts, until the answer is there."""
    storage, now, good = Storage(), 0.0, 0.0
    spans: list[tuple[float, float, int]] = []
    for beat, (pause, there, back) in enumerate(owner, 1):
        sent = now + TURN + pause
        storage.writes.append((sent + there, beat))
        good = TIMES.good_until(sent)
        spans.append((sent + there, good, beat))
        now = sent + there + back
    watch, now = BeatWatch[str](TIMES), 0.0
    for pause, there, back in watcher:
        now += TURN + pause
        beat = storage.read(now + there)
        now += there + back
        for seen in watch.look(now, {"owner": beat}).values():
            if storage.read(now) != seen:
                continue  # the storage compares the beat: nothing happens
            ends = max((good for written, good, number in spans if number <= seen), default=0.0)
            assert now > ends + MARGIN


@given(st.integers(0, 20), st.floats(0, TURN), st.lists(st.floats(0, 0.999 * TURN), min_size=40, max_size=40))
def test_a_dead_process_is_found_within_a_lease_and_two_turns(beats: int, phase: float, pauses: list[float]) -> None:
    """The watcher looks at least every two turns; the owner's last beat is at `beats * TURN`."""
    storage = Storage([(beat * TURN, beat) for beat in range(1, beats + 1)])
    watch, now = BeatWatch[str](TIMES), phase
    while not watch.look(now, {"owner": storage.read(now)}):
        assert now <= beats * TURN + LEASE + 4 * TURN
        now += TURN + (pauses.pop() if pauses else 0.0)
    assert now > beats * TURN + LEASE - TURN
