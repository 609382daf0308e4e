"""The newest events of followed runs in memory: what is kept, what is dropped, and what its readers share."""

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.actors.services.change_signals import ChangeSignals
from greenroom.actors.services.event_buffer import (
    RING_BYTES,
    RING_FRAMES,
    SLICE_BYTES,
    SLICE_FRAMES,
    EventBuffer,
    EventSlice,
    within,
)


def frames(first: int, last: int, size: int = 0, kind: str = "run.message.delta") -> tuple[bytes, ...]:
    """Events, as far as a tail looks into them, of `size` bytes and a little more each."""
    rest = b'"type":"%b"%b' % (kind.encode(), b" " * size)
    return tuple(b"%d,%b" % (number, rest) for number in range(first, last + 1))


def filled(last: int, size: int = 0) -> EventBuffer:
    """A tail that has learned of all events from the first one on."""
    tail = EventBuffer()
    tail.append(last, frames(1, last, size))
    return tail


def given_after(tail: EventBuffer, after: int) -> tuple[int, int] | None:
    """First and last sequence of what follows."""
    found = tail.slice(after)
    return None if found is None else (found.first, found.last)


# --- positions -------------------------------------------------------------------------------------------------------


def test_a_new_tail_knows_nothing():
    tail = EventBuffer()
    assert tail.head == -1
    assert [tail.slice(after) for after in (0, 1, 100)] == [None, None, None]


def test_events_after_a_position_come_from_memory_if_the_buffer_reaches_back():
    tail = EventBuffer()
    tail.append(12, frames(11, 12))
    tail.append(13, frames(13, 13))
    assert tail.head == 13
    assert given_after(tail, 9) is None, "event 10 is older than the tail"
    assert given_after(tail, 10) == (11, 13)
    assert given_after(tail, 12) == (13, 13)
    assert given_after(tail, 13) is None, "nothing is newer"
    assert given_after(tail, 99) is None, "the position is beyond the head"
    assert tail.slice(10).frames == frames(11, 13)


def test_after_a_hole_the_buffer_keeps_only_the_new_events():
    """Another writer has written 4 and 5: a reader of 4 must not be given 6."""
    tail = filled(3)
    tail.append(6, frames(6, 6))
    assert [given_after(tail, after) for after in range(7)] == [None, None, None, None, None, (6, 6), None]


def test_a_log_that_begins_again_shares_nothing_with_the_one_before():
    """A run that was deleted and started again under its id, while a reader held its tail."""
    tail = filled(2_000)
    before = tail.slice(0)
    assert before is not None
    assert before.last == SLICE_FRAMES
    again = frames(1, 1_500, kind="run.step.started")
    tail.append(1_500, again)
    assert tail.head == 1_500
    assert tail.slice(0).frames == again[:SLICE_FRAMES]


# --- slices ----------------------------------------------------------------------------------------------------------


def test_a_slice_ends_after_so_many_events_and_the_next_one_continues():
    tail = filled(2 * SLICE_FRAMES + 3)
    assert given_after(tail, 0) == (1, SLICE_FRAMES)
    assert given_after(tail, SLICE_FRAMES) == (SLICE_FRAMES + 1, 2 * SLICE_FRAMES)
    assert given_after(tail, 2 * SLICE_FRAMES) == (2 * SLICE_FRAMES + 1, 2 * SLICE_FRAMES + 3)


def test_a_slice_ends_with_the_event_that_makes_it_large_enough():
    tail = filled(40, size=SLICE_BYTES // 10)
    first, last = given_after(tail, 5)
    assert (first, last) == (6, 15)
    assert sum(map(len, tail.slice(5).frames)) >= SLICE_BYTES
    assert sum(map(len, tail.slice(5).frames[:-1])) < SLICE_BYTES


def test_an_event_larger_than_a_slice_comes_alone():
    tail = filled(3, size=2 * SLICE_BYTES)
    assert [given_after(tail, after) for after in range(3)] == [(1, 1), (2, 2), (3, 3)]


@given(st.lists(st.integers(0, 50), min_size=1), st.integers(1, 200))
def test_within_takes_the_shortest_beginning_that_is_large_enough(sizes: list[int], most: int):
    all_frames = [b"x" * size for size in sizes]
    taken, full = within(all_frames, most)
    assert list(taken) == all_frames[: len(taken)]
    assert len(taken) >= 1
    assert full is (sum(map(len, taken)) >= most)
    assert full or len(taken) == len(all_frames)
    assert sum(map(len, taken[:-1])) < most


def test_readers_of_one_position_share_a_slice_and_its_encoding():
    tail = filled(10)
    made = []

    def encode(found: EventSlice) -> bytes:
        made.append(found)
        return b"".join(found.frames)

    slices = [tail.slice(4) for _ in range(5)]
    assert all(one is slices[0] for one in slices)
    assert len({page.encoded(encode) for page in slices}) == 1
    assert made == [slices[0]]
    assert slices[0].encoded(lambda found: b"%d" % found.first) == b"5", "each form is made by itself"
    assert made == [slices[0]]


def test_a_slice_that_cannot_grow_stays_the_same_when_more_comes_in():
    many, large, one = filled(SLICE_FRAMES), filled(10, size=SLICE_BYTES // 10), filled(1, size=SLICE_BYTES)
    for tail in (many, large, one):
        before, head = tail.slice(0), tail.head
        assert before.last == head
        tail.append(head + 1, frames(head + 1, head + 1))
        assert tail.slice(0) is before


def test_a_slice_that_was_not_full_is_made_anew_when_more_has_come_in():
    tail = filled(10)
    before = tail.slice(4)
    tail.append(11, frames(11, 11))
    assert given_after(tail, 4) == (5, 11)
    assert before.frames == frames(5, 10), "who has the old one keeps it as it was"


@pytest.mark.parametrize("kind", ["run.completed", "run.failed", "run.cancelled"])
def test_a_slice_whose_last_event_is_terminal_ends_the_run(kind: str):
    assert EventSlice(7, (*frames(7, 8), *frames(9, 9, kind=kind))).ends
    assert not EventSlice(7, (*frames(7, 8, kind=kind), *frames(9, 9))).ends


# --- how much is kept ------------------------------------------------------------------------------------------------


def kept(tail: EventBuffer) -> tuple[int, int]:
    """How many of the newest events are in memory, and how many bytes those are."""
    found = tail._frames
    return len(found), sum(map(len, found))


def test_so_many_events_are_kept_and_the_older_ones_dropped_now_and_then():
    tail = EventBuffer()
    for last in range(100, 30_001, 100):
        tail.append(last, frames(last - 99, last))
        count, size = kept(tail)
        assert count <= 2 * RING_FRAMES
        assert count >= min(last, RING_FRAMES)
        assert size == tail._bytes
        assert given_after(tail, last - count)[0] == last - count + 1
        assert given_after(tail, last - count - 1) is None


def test_large_events_are_kept_by_their_bytes():
    tail = EventBuffer()
    for last in range(1, 60):
        tail.append(last, frames(last, last, size=300_000))
        count, size = kept(tail)
        assert size <= 2 * RING_BYTES
        assert count >= min(last, RING_BYTES // 300_500)
        assert size == tail._bytes


def test_the_newest_event_is_kept_whatever_its_size():
    tail = filled(20)
    tail.append(21, frames(21, 21, size=3 * RING_BYTES))
    assert kept(tail)[0] == 1
    assert given_after(tail, 20) == (21, 21)
    tail.append(22, frames(22, 22))
    assert given_after(tail, 21) == (22, 22)
    assert kept(tail)[1] <= 2 * RING_BYTES


def test_more_events_at_once_than_are_kept_leave_the_newest():
    tail = filled(3 * RING_FRAMES)
    assert kept(tail)[0] == RING_FRAMES
    assert given_after(tail, 2 * RING_FRAMES) == (2 * RING_FRAMES + 1, 2 * RING_FRAMES + SLICE_FRAMES)


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from([1, 2, 3_000]), st.sampled_from([0, 50, 70_000, 900_000])),
        max_size=8,
    )
)
def test_the_tail_is_always_the_end_of_the_log(commits: list[tuple[int, int, int]]):
    """Commits of any size with holes before some of them: what is in memory is what the log ends with."""
    tail, log = EventBuffer(), []
    for hole, count, size in commits:
        log += [b"missed"] * max(0, hole - 2)
        new: Sequence[bytes] = frames(len(log) + 1, len(log) + (count if size < 1_000 else min(count, 3)), size)
        log += new
        tail.append(len(log), new)
        there, memory = kept(tail)
        oldest = len(log) - there
        assert tail.head == len(log)
        assert tail._frames == log[oldest:]
        assert b"missed" not in tail._frames
        assert memory == tail._bytes
        assert memory <= 2 * RING_BYTES or there == 1
        for after in {0, oldest - 1, oldest, len(log) - 1, len(log)}:
            found = tail.slice(after) if after >= 0 else None
            inside = oldest <= after < len(log)
            assert (found is not None) is inside
            if found is not None:
                assert found.frames == tuple(log[after : found.last])


# --- who holds -------------------------------------------------------------------------------------------------------


def test_a_tail_is_filled_while_it_is_referenced_and_is_the_same_for_all():
    signals = ChangeSignals()
    signals.committed("r", 1, frames(1, 1))
    with signals.follow("r") as (first, one), signals.follow("r") as (second, two):
        assert first is second
        assert one is two
        assert one.head == -1, "nobody held it before"
        signals.committed("r", 2, frames(2, 2))
        signals.committed("another", 3, frames(3, 3))
        assert one.head == 2
        assert signals.followed == 1
    assert signals.followed == 0
    with signals.follow("r") as (_, later):
        assert later is not one
        assert later.head == -1


def test_a_tail_stays_until_the_last_one_lets_go_in_any_order():
    signals = ChangeSignals()
    first, second = ExitStack(), ExitStack()
    _, tail = first.enter_context(signals.follow("r"))
    second.enter_context(signals.follow("r"))
    first.close()
    signals.committed("r", 5, frames(5, 5))
    assert (signals.followed, tail.head) == (1, 5)
    with pytest.raises(ZeroDivisionError), second:
        raise ZeroDivisionError
    assert signals.followed == 0


def test_a_commit_without_events_changes_no_tail_and_is_reported_all_the_same():
    signals, reported = ChangeSignals(), []
    with signals.follow("r") as (signal, tail):
        signal.listeners.add(lambda: reported.append(tail.head))
        signals.committed("r", 7, ())
        assert reported == [-1]
        signals.committed("r", 8, frames(8, 8))
        assert reported == [-1, 8]
        signals.left("another")
        assert reported == [-1, 8]


def test_a_listener_may_let_go_while_it_is_reported():
    """The last reader of a run leaves because of what it receives; another one of the same run leaves, too."""
    signals, reported = ChangeSignals(), []
    stacks = [ExitStack() for _ in range(3)]

    def leave(number: int) -> None:
        reported.append(number)
        stacks[number].close()

    for number, run_id in enumerate(["a", "a", "b"]):
        signal, _ = stacks[number].enter_context(signals.follow(run_id))
        signal.listeners.add(partial(leave, number))
    signals.close()
    assert sorted(reported) == [0, 1, 2]
    assert signals.followed == 0


def test_the_repr_of_a_buffer_and_a_slice_names_the_range():
    signals = ChangeSignals()
    with signals.follow("r") as (_, tail):
        signals.committed("r", 5, frames(4, 5))
        assert repr(tail) == "<EventBuffer 4..5>"
        assert repr(tail.slice(3)) == "<EventSlice 4..5>"
