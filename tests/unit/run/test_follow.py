"""A follower of a log that the test writes by hand: each event once, in order, and a store that is rarely asked."""

import gc
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, Literal, TypeVar

import pytest
import trio
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import greenroom as gr
from greenroom.actors.contract.lifecycle import RunStatus
from greenroom.actors.services.change_signals import ChangeSignals
from greenroom.actors.services.event_buffer import RING_BYTES, RING_FRAMES, SLICE_BYTES, SLICE_FRAMES, EventSlice
from greenroom.actors.services.follow import PAGE, PAGE_BYTES, EventSource, Follower, follow
from greenroom.actors.stores.common._paging import page

T = TypeVar("T")
RUN = "r"
PATIENCE = 1_000.0
"""Virtual seconds after which a test is informed that what it waits for never comes."""


def frame(sequence: int, size: int = 0, kind: str = "run.message.delta") -> bytes:
    """An event, as far as a follower looks into it."""
    return b'%d,"type":"%b"%b' % (sequence, kind.encode(), b" " * size)


class Place:
    """What a follower asks of a runtime, with one run in it. `write` is durable at once, `tell` says so.

    Attributes:
        frames: the log. head: sequence of the newest event that the board has received.
        untold: commits that are durable and will be reported. meanwhile: done while the store is read, one per read.
        reads: what the store was asked for.
    """

    def __init__(self) -> None:
        self.signals = ChangeSignals()
        self.store = self
        self.frames: list[bytes] = []
        self.head = 0
        self.untold: deque[tuple[int, tuple[bytes, ...]]] = deque()
        self.meanwhile: deque[Callable[[], None]] = deque()
        self.reads: list[tuple[str, int]] = []
        self.status = RunStatus.RUNNING
        self.at_rest = False
        self.exists = True
        self.reason: tuple[str, str] | None = None

    # --- what happens to the run -------------------------------------------------------------------------------------

    def write(self, count: int = 1, size: int = 0, kind: str = "run.message.delta") -> None:
        """A commit; the board will learn of it."""
        head = len(self.frames)
        new = tuple(frame(head + number, size, kind) for number in range(1, count + 1))
        self.frames += new
        self.untold.append((len(self.frames), new))

    def tell(self) -> None:
        """The board learns of what is durable."""
        while self.untold:
            self.head, new = self.untold.popleft()
            self.signals.committed(RUN, self.head, new)

    def commit(self, count: int = 1, size: int = 0, kind: str = "run.message.delta") -> None:
        """A commit that is reported at once."""
        self.write(count, size, kind)
        self.tell()

    def foreign(self, count: int = 1) -> None:
        """Another process writes: the board receives nothing of it."""
        self.tell()
        self.write(count)
        self.untold.clear()

    def end(self) -> None:
        """The terminal event."""
        self.write(kind="run.completed")
        self.status, self.at_rest = RunStatus.DONE, True
        self.tell()

    def delete(self) -> None:
        """The run is pruned."""
        self.frames, self.exists = [], False

    # --- what a follower asks ----------------------------------------------------------------------------------------

    async def events(
        self, run_id: str, *, after: int = 0, limit: int = 1000, max_bytes: int | None = None
    ) -> Sequence[bytes]:
        """As a store's: a snapshot; something may happen while it is being made."""
        assert run_id == RUN
        assert len(self.reads) < 10_000, "the store is asked again and again"
        found = page(self.frames[after : after + limit], max_bytes)
        self.reads.append(("events", len(found)))
        if self.meanwhile:
            self.meanwhile.popleft()()
        return found

    async def load(self, run_id: str) -> Any:
        """As a store's."""
        assert run_id == RUN
        self.reads.append(("load", 0))
        row = SimpleNamespace(last_sequence=len(self.frames), status=self.status)
        found = SimpleNamespace(info=RUN, row=row, at_rest=self.at_rest) if self.exists else None
        if self.meanwhile:
            self.meanwhile.popleft()()
        return found

    def degraded(self, record: Any) -> tuple[str, str] | None:
        """As the runtime's."""
        assert record.info == RUN
        return self.reason

    def follow(self, stack: ExitStack, after: int = 0, until: Literal["end", "rest"] = "end") -> Follower:
        """A follower for as long as the stack is open."""
        store: Any = self.store
        return stack.enter_context(follow(EventSource(store, self.signals, self.degraded), RUN, after, until))


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.fixture
def stack():
    with ExitStack() as open_until_the_test_ends:
        yield open_until_the_test_ends


def at_once(step: Coroutine[Any, Any, T]) -> T:
    """The result of what does not wait."""
    try:
        step.send(None)
    except StopIteration as stopped:
        return stopped.value
    step.close()
    raise AssertionError("it waits")


def waiting(place: Place, stack: ExitStack) -> Follower:
    """A follower that has all there is (two events) and knows that."""
    place.commit(2)
    follower = place.follow(stack, after=2)
    assert at_once(follower.fetch()) is None
    assert not at_once(follower.finished())
    assert not follower.behind()
    return follower


async def taken(follower: Follower, into: list[bytes] | None = None) -> list[bytes]:
    """All that a follower gives."""
    got = [] if into is None else into
    with trio.fail_after(PATIENCE):
        async for found in follower:
            got.extend(found.frames)
    return got


# --- what it gives ---------------------------------------------------------------------------------------------------


async def test_an_old_log_is_read_from_the_store_and_ends_with_its_last_event(place, stack, autojump_clock):
    place.write(3_000)
    place.end()
    follower = place.follow(stack, after=7)
    assert await taken(follower) == place.frames[7:]
    assert follower.ended
    assert {kind for kind, _ in place.reads} == {"events"}, "the last event says that it is the end"


async def test_a_follower_reads_new_events_from_memory(place, stack, autojump_clock):
    place.write(2)
    place.tell()
    follower, got = place.follow(stack), []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(taken, follower, got)
        await trio.testing.wait_all_tasks_blocked()
        asked = list(place.reads)
        for _ in range(50):
            place.commit(3)
            await trio.testing.wait_all_tasks_blocked()
            assert got or follower.after == len(place.frames)
        place.end()
    assert got == place.frames
    assert place.reads == asked, "the store was asked at the beginning only"


async def test_events_that_are_durable_and_not_reported_yet_are_given_once(place, stack, autojump_clock):
    """A writer in a thread: a reader may see its events before the runtime learns of them."""
    place.write(5)
    place.tell()
    place.write(2)
    follower = place.follow(stack)
    assert at_once(follower.fetch()).last == 7
    assert at_once(follower.fetch()) is None
    assert not at_once(follower.finished())
    place.tell()
    assert follower.ready() is None
    assert not follower.behind()
    place.commit()
    assert follower.ready().frames == (frame(8),)


async def test_events_that_come_while_the_store_is_read_are_given_next(place, stack):
    place.write(2)
    place.tell()
    follower = place.follow(stack)
    place.meanwhile += [lambda: place.commit(3), lambda: place.commit(1)]
    given = [(found.first, found.last) for _ in range(5) if (found := at_once(follower.fetch())) is not None]
    assert given == [(1, 2), (3, 5)]
    assert at_once(follower.fetch()) is None


async def test_an_event_that_comes_while_the_store_shows_nothing_is_not_missed(place, stack):
    place.write()
    place.tell()
    follower = place.follow(stack, after=1)
    place.meanwhile.append(place.commit)
    assert at_once(follower.fetch()) is None
    assert follower.behind()
    assert at_once(follower.fetch()).first == 2


async def test_events_of_another_writer_that_come_between_two_looks_are_given(place, stack, autojump_clock):
    """They are not reported: the run's row has continued since the look for events, so there is another look."""
    place.write()
    place.tell()
    follower = place.follow(stack, after=1)
    place.meanwhile.append(place.foreign)
    with trio.fail_after(PATIENCE):
        assert (await anext(follower)).first == 2


@pytest.mark.parametrize("look", ["events", "load"])
async def test_nothing_is_lost_if_a_run_is_given_up_while_the_store_is_read(place, stack, look, autojump_clock):
    """What came in before the run was given up comes before the news of that."""
    follower = waiting(place, stack)
    place.foreign()
    place.commit()
    place.write()
    assert at_once(follower.fetch()).last == 5, "from the store, beyond what was told"

    def fail() -> None:
        place.commit(2)
        place.reason = ("gave_up", "crashed")

    place.meanwhile += [fail] if look == "events" else [lambda: None, fail]
    got: list[bytes] = []
    with pytest.raises(gr.RunDegradedError, match="gave_up"):
        await taken(follower, got)
    assert got == place.frames[5:]


# --- where it ends ---------------------------------------------------------------------------------------------------


async def test_a_follower_from_the_end_of_a_done_run_gets_no_event_and_ends(place, stack, autojump_clock):
    place.write(4)
    place.end()
    assert await taken(place.follow(stack, after=5)) == []
    assert await taken(place.follow(stack, after=99)) == []


@pytest.mark.parametrize("after", [1, 2, 3, 4, 6, 90])
async def test_a_cursor_beyond_the_head_gets_what_comes_after_it_and_learns_of_the_end(
    place, stack, after, autojump_clock
):
    """The run has one event and will have four: who claims to know the last one, or more than there is, is let go."""
    place.write()
    place.tell()
    follower, got = place.follow(stack, after=after), []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(taken, follower, got)
        for _ in range(2):
            await trio.testing.wait_all_tasks_blocked()
            place.commit()
        await trio.testing.wait_all_tasks_blocked()
        place.end()
    assert got == place.frames[after:]


async def test_a_run_that_is_not_there_is_unknown(place, stack):
    place.delete()
    follower = place.follow(stack)
    with pytest.raises(gr.UnknownRun):
        await taken(follower)


async def test_a_run_that_is_deleted_while_a_slow_reader_has_not_read_it_all_is_unknown(place, stack, autojump_clock):
    follower = waiting(place, stack)
    place.commit(2 * RING_FRAMES)
    place.commit(1)
    assert at_once(follower.fetch()).first == 3, "so old that it comes from the store"
    place.end()
    place.delete()
    with pytest.raises(gr.UnknownRun):
        await taken(follower)


async def test_until_rest_ends_where_the_run_waits_and_end_does_not(place, stack, autojump_clock):
    place.write(3)
    place.at_rest, place.status = True, RunStatus.WAITING
    assert await taken(place.follow(stack, until="rest")) == place.frames
    follower = place.follow(stack)
    assert at_once(follower.fetch()).last == 3
    assert at_once(follower.fetch()) is None
    assert not at_once(follower.finished())


async def test_until_rest_learns_of_a_rest_that_comes_without_an_event(place, stack, autojump_clock):
    place.write(3)
    place.tell()
    follower, got = place.follow(stack, until="rest"), []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(taken, follower, got)
        await trio.testing.wait_all_tasks_blocked()
        place.at_rest = True
        place.signals.committed(RUN, 3, ())
    assert got == place.frames


async def test_a_rest_that_comes_while_the_run_is_looked_at_is_not_missed(place, stack, autojump_clock):
    place.write(3)
    place.tell()

    def rest() -> None:
        place.at_rest = True
        place.signals.left(RUN)

    place.meanwhile += [lambda: None, lambda: None, rest]
    assert await taken(place.follow(stack, until="rest")) == place.frames
    assert place.reads[-1] == ("load", 0)


async def test_a_listener_learns_of_every_change_and_of_the_close(place, stack):
    reported: list[int] = []
    follower = place.follow(stack)
    follower.signal.listeners.add(lambda: reported.append(follower.tail.head))
    place.commit(2)
    place.signals.committed(RUN, 2, ())
    place.commit()
    place.signals.left(RUN)
    place.signals.committed("another", 9, (frame(9),))
    assert reported == [2, 2, 3, 3]
    place.signals.close()
    assert reported == [2, 2, 3, 3, 3]


async def test_closing_the_runtime_wakes_waiting_followers(place, stack, autojump_clock):
    place.write(3)
    place.tell()
    follower = place.follow(stack)
    async with trio.open_nursery() as nursery:

        async def read() -> None:
            with pytest.raises(gr.RuntimeClosed):
                await taken(follower)

        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        place.signals.close()
    with pytest.raises(gr.RuntimeClosed):
        place.follow(stack)


async def test_a_follower_reads_buffered_events_before_it_raises_runtime_closed(place, stack, autojump_clock):
    follower = place.follow(stack)
    place.commit(3)
    place.signals.close()
    got: list[bytes] = []
    with pytest.raises(gr.RuntimeClosed):
        await taken(follower, got)
    assert got == place.frames


async def test_a_follower_at_the_last_event_ends_also_after_the_runtime_closed(place, stack, autojump_clock):
    follower = place.follow(stack)
    place.commit(3)
    place.end()
    place.signals.close()
    assert await taken(follower) == place.frames


# --- what it costs ---------------------------------------------------------------------------------------------------


async def test_followers_that_are_up_to_date_share_slices_and_never_ask_the_store(place, stack):
    followers = [place.follow(stack) for _ in range(100)]
    made = []

    def encode(found: EventSlice) -> bytes:
        made.append((found.first, found.last))
        return b"".join(found.frames)

    place.commit()
    for _ in range(20):
        place.commit(2)
        found = [follower.ready() for follower in followers]
        assert all(one is found[0] for one in found)
        assert len({id(one.encoded(encode)) for one in found}) == 1
        assert not any(follower.behind() for follower in followers)
    assert made == [(1, 3), *((n, n + 1) for n in range(4, 42, 2))]
    assert place.reads == []


@pytest.mark.parametrize(("count", "size"), [(20_000, 0), (4_000, 250), (800, 4_000), (40, 70_000)])
async def test_no_event_is_read_twice_from_the_store(place, stack, autojump_clock, count, size):
    """Pages end by their bytes in the store, so a reader never holds more than a page, and reads no event again."""
    place.write(count, size)
    place.end()
    assert await taken(place.follow(stack)) == place.frames
    pages = [found for _, found in place.reads]
    assert max(pages) <= PAGE
    assert sum(pages) == len(place.frames)
    assert len(pages) < sum(map(len, place.frames)) / PAGE_BYTES + count / PAGE + 10


async def test_a_reader_in_a_hurry_lets_others_run(place, stack, autojump_clock):
    """Many slices that are all in memory come without waiting, but not without a checkpoint."""
    follower = place.follow(stack)
    place.commit(30, size=SLICE_BYTES)
    place.end()
    breaths, given = 0, 0

    async def other() -> None:
        nonlocal breaths
        while not follower.ended:
            breaths += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        async for _ in follower:
            given += 1
    assert given >= 30
    assert breaths >= 20


async def test_waiting_leaves_nothing_behind(place, stack, autojump_clock):
    """A reader of a run that does not change any more is forgotten when he has gone."""
    place.write(3)
    place.tell()
    with trio.move_on_after(1):
        await taken(place.follow(stack))
    place.status = RunStatus.DONE
    await taken(place.follow(stack, after=3))
    place.delete()
    with pytest.raises(gr.UnknownRun):
        await taken(place.follow(stack))
    await trio.lowlevel.checkpoint()
    assert len(place.signals) == place.signals.followed == 1, "all of them followed one run"
    stack.close()
    gc.collect()  # exceptions and the frames that they went through know each other
    assert len(place.signals) == place.signals.followed == 0


async def test_a_follower_that_is_cancelled_continues_where_it_was(place, stack, autojump_clock):
    """At each of its checkpoints: what was not given is given by the next call."""
    follower = place.follow(stack)
    place.write(700, 300)
    place.tell()
    place.commit(700, 300)
    place.end()
    got = []
    while not follower.ended:
        with trio.CancelScope() as scope:
            scope.cancel()
            got.extend((await anext(follower)).frames)
        if scope.cancelled_caught:
            got.extend((await anext(follower)).frames)
    assert got == place.frames


def test_the_repr_of_a_follower_names_the_run_and_the_position(place, stack):
    assert repr(place.follow(stack, after=3)) == "<Follower of r after 3>"


# --- everything at once ----------------------------------------------------------------------------------------------


class Followed(RuleBasedStateMachine):
    """Random commits, holes, delays and sizes; followers at random positions with random speeds.

    The model of a follower is its first position: whatever happens, it is given all that comes after it, in order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.place = Place()
        self.stack = ExitStack()
        self.followers: list[Follower] = []
        self.stacks: list[ExitStack] = []

    @initialize(before=st.integers(1, 1_200))
    def a_run_is_there(self, before: int) -> None:
        self.place.write(before)
        self.place.untold.clear()
        self.place.head = before

    @rule(
        commit=st.sampled_from(
            [(1, 0), (1, 0), (3, 0), (40, 900), (700, 0), (3_000, 0), (2, SLICE_BYTES), (2, 900_000)]
        ),
        later=st.booleans(),
    )
    def commit(self, commit: tuple[int, int], later: bool) -> None:
        self.place.write(*commit)
        if not later:
            self.place.tell()

    @rule()
    def tell(self) -> None:
        self.place.tell()

    @rule(count=st.integers(1, 3))
    def somebody_else_writes(self, count: int) -> None:
        self.place.foreign(count)

    @precondition(lambda self: len(self.followers) < 6)
    @rule(back=st.integers(-3, 4_000))
    def begin(self, back: int) -> None:
        stack = ExitStack()
        self.stacks.append(stack)
        self.followers.append(self.place.follow(stack, after=max(0, len(self.place.frames) - back)))

    @precondition(lambda self: self.followers)
    @rule(data=st.data(), meanwhile=st.sampled_from(["nothing", "commit", "write", "tell"]), times=st.integers(1, 5))
    def fetch(self, data: Any, meanwhile: str, times: int) -> None:
        follower = data.draw(st.sampled_from(self.followers))
        actions: dict[str, Callable[[], None]] = {
            "nothing": lambda: None,
            "commit": lambda: self.place.commit(2),
            "write": lambda: self.place.write(2),
            "tell": self.place.tell,
        }
        self.place.meanwhile = deque([actions[meanwhile]] * times)
        for _ in range(times):
            self.step(follower)
        self.place.meanwhile.clear()

    @precondition(lambda self: self.followers)
    @rule(data=st.data())
    def take_what_memory_has(self, data: Any) -> None:
        follower = data.draw(st.sampled_from(self.followers))
        after, reads = follower.after, len(self.place.reads)
        peeked = follower.peek()
        assert follower.after == after
        found = follower.ready()
        assert found is peeked
        self.check(after, follower, found)
        assert len(self.place.reads) == reads

    @precondition(lambda self: self.followers)
    @rule(data=st.data())
    def several_take_the_same(self, data: Any) -> None:
        first = data.draw(st.sampled_from(self.followers))
        same = [follower.peek() for follower in self.followers if follower.after == first.after]
        assert all(one is same[0] for one in same)
        if same[0] is not None:
            made: list[EventSlice] = []

            def encode(found: EventSlice) -> bytes:
                made.append(found)
                return b""

            assert {one.encoded(encode) for one in same} == {b""}
            assert made == [same[0]]

    @precondition(lambda self: self.followers)
    @rule(data=st.data())
    def leave(self, data: Any) -> None:
        index = data.draw(st.integers(0, len(self.followers) - 1))
        self.followers.pop(index)
        self.stacks.pop(index).close()

    def step(self, follower: Follower) -> None:
        """One look; if there is nothing, all reported events were given, or there is a reason to look on."""
        after, reported, reads = follower.after, self.place.head, len(self.place.reads)
        head, known = follower.tail.head, follower._read_to_end
        found = at_once(follower.fetch())
        self.check(after, follower, found)
        if found is not None:
            return
        if head == after or (known and head < after):
            assert len(self.place.reads) == reads, "up to date, so there was nothing to look for"
        assert not at_once(follower.finished())
        if not follower.behind():
            assert follower.after >= reported, "it would wait, and what it waits for is there already"

    def check(self, after: int, follower: Follower, found: EventSlice | None) -> None:
        if found is None:
            assert follower.after == after
            return
        assert found.first == after + 1
        assert found.frames == tuple(self.place.frames[after : found.last])
        assert follower.after == found.last
        shared = found is follower.tail._newest_slice  # else it is a page of the store's
        assert 0 < len(found.frames) <= (SLICE_FRAMES if shared else PAGE)
        assert sum(map(len, found.frames[:-1])) < (SLICE_BYTES if shared else PAGE_BYTES)

    @invariant()
    def memory_is_bounded_and_true(self) -> None:
        assert self.place.signals.followed == bool(self.followers)
        for follower in self.followers[:1]:
            tail = follower.tail
            assert len(tail._frames) <= 2 * RING_FRAMES
            assert tail._bytes <= 2 * RING_BYTES
            assert tail.head in (-1, self.place.head)
            oldest = tail.head - len(tail._frames)
            assert tail._frames == self.place.frames[max(0, oldest) : max(0, tail.head)]

    def teardown(self) -> None:
        """The run ends, and every client reads on to the end."""
        self.place.tell()
        self.place.end()
        for follower in self.followers:
            looks = 0
            while True:
                after = follower.after
                found = at_once(follower.fetch())
                self.check(after, follower, found)
                looks += 1
                assert looks < 1_000, "it looks again and again"
                if found is None and at_once(follower.finished()):
                    break
            assert follower.after >= len(self.place.frames)
        for stack in self.stacks:
            stack.close()
        assert self.place.signals.followed == 0


TestFollowed = pytest.mark.slow(Followed.TestCase)
TestFollowed.settings = settings(stateful_step_count=40, suppress_health_check=list(HealthCheck))
