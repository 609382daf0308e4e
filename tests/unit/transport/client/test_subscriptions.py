"""The machine behind following, without a network: every reader gets every event once and in order."""

import random
from collections import deque
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greenroom import Event, RunDegradedError, UnknownRun
from greenroom.transport.client.errors import NotAllowed
from greenroom.transport.client.subscriptions import JUMP, RunSubscriptions, SubscriptionState
from greenroom.transport.protocol.down import Error, Renamed, Reset, Subscribed, Unsubscribed
from greenroom.transport.protocol.up import Subscribe, Unsubscribe


def event(sequence: int, type_: str = "run.message.delta", run: str = "r") -> Event:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return Event(
        id=f"{run}-{sequence}",
        sequence=sequence,
        type=type_,
        version=2,
        run_id=run,
        session_id=None,
        agent_id="a",
        timestamp=now,
        payload={},
    )


class Reader:
    """A reader with room for a few events, which the test takes from it."""

    def __init__(self, cursor: int = 0, *, room: int = 1_000_000, epoch: str | None = None) -> None:
        self.begun = self.cursor = cursor
        self.epoch, self.strayed, self.room = epoch, False, room
        self.waiting: list[int] = []
        self.got: list[int] = []
        self.ended = False
        self.why: Any = None
        self.reset: tuple[str, int] | None = None
        self.full = False

    @property
    def hungry(self) -> bool:
        return not self.full and not self.ended

    def take(self, one: Event, size: int) -> None:
        assert one.sequence == self.cursor + 1
        self.cursor = one.sequence
        self.waiting.append(one.sequence)
        self.full = len(self.waiting) >= self.room

    def consume(self, count: int) -> None:
        self.got += self.waiting[:count]
        del self.waiting[:count]
        self.full = self.full and len(self.waiting) > self.room // 4

    def begin_again(self, reason: str, sequence: int, snapshot: Any) -> None:
        self.reset, self.cursor, self.waiting = (reason, sequence), sequence, []

    def end(self, error: Any) -> None:
        self.ended, self.why = True, error


class Wire:
    """The machine with what it has sent."""

    def __init__(self, epoch: str = "e") -> None:
        self.machine = RunSubscriptions(patience=1.0)
        self.machine.connected(epoch)

    def sends(self, now: float = 0.0) -> Any:
        return self.machine.frame(now)

    def opened(self, after: int = 0, head: int = 100) -> None:
        """Ask, and be answered."""
        frame = self.sends()
        assert isinstance(frame, Subscribe)
        assert frame.after == after
        self.hears(Subscribed(run="r", after=after, head=head, mode="replay", id=frame.id))

    def events(self, *sequences: int) -> None:
        for sequence in sequences:
            self.machine.event(event(sequence), 100, now=0.0)

    def last(self, sequence: int) -> None:
        """The terminal event, and what follows it."""
        self.machine.event(event(sequence, "run.completed"), 100, now=0.0)
        self.hears(Unsubscribed(run="r", reason="done"))

    def hears(self, frame: Any) -> None:
        self.machine.receive(frame, 0.0)


def joined(*readers: Reader, epoch: str = "e") -> Wire:
    wire = Wire(epoch)
    for reader in readers:
        wire.machine.join("r", reader)
    return wire


def test_a_reader_is_subscribed_at_its_position_and_gets_what_follows() -> None:
    reader = Reader(7)
    wire = joined(reader)
    wire.opened(after=7)
    wire.events(8, 9)
    assert reader.waiting == [8, 9]
    assert wire.sends() is None


def test_the_epoch_goes_with_a_cursor_and_not_with_a_beginning() -> None:
    frame = joined(Reader(7)).sends()
    assert (frame.after, frame.epoch) == (7, "e")
    frame = joined(Reader(0)).sends()
    assert (frame.after, frame.epoch) == (0, None)


def test_what_comes_twice_is_dropped() -> None:
    reader = Reader()
    wire = joined(reader)
    wire.opened()
    wire.events(1, 1, 2, 1, 2, 3)
    assert reader.waiting == [1, 2, 3]


def test_after_a_hole_it_subscribes_again_from_the_last_event() -> None:
    reader = Reader()
    wire = joined(reader)
    wire.opened()
    wire.events(1, 2, 4, 5)
    assert reader.waiting == [1, 2]
    wire.opened(after=2)
    wire.events(3, 4)
    assert reader.waiting == [1, 2, 3, 4]


def test_a_gateway_that_leaves_out_the_same_event_again_is_asked_at_intervals() -> None:
    wire = joined(Reader())
    wire.opened()
    wire.events(2)
    assert wire.sends(now=0.5) is None
    assert wire.machine.due(0.5) == 1.0
    assert isinstance(wire.sends(now=1.0), Subscribe)
    assert wire.machine.due(1.0) == float("inf")


def test_events_of_a_subscription_that_was_replaced_do_not_count() -> None:
    """They come before the answer to the new one."""
    reader = Reader()
    wire = joined(reader)
    wire.opened()
    wire.events(1)
    other = Reader()
    wire.machine.join("r", other)
    frame = wire.sends()
    assert frame.after == 0
    wire.events(2, 3)
    wire.hears(Unsubscribed(run="r", reason="done"))
    assert (reader.waiting, other.waiting, reader.ended) == ([1], [], False)
    wire.hears(Subscribed(run="r", after=0, head=3, mode="replay", id=frame.id))
    wire.events(1, 2, 3)
    assert (reader.waiting, other.waiting) == ([1, 2, 3], [1, 2, 3])


def test_when_no_reader_has_room_it_unsubscribes_and_comes_back_for_the_rest() -> None:
    reader = Reader(room=4)
    wire = joined(reader)
    wire.opened()
    wire.events(1, 2, 3, 4, 5, 6)
    assert reader.waiting == [1, 2, 3, 4]
    assert isinstance(wire.sends(), Unsubscribe)
    assert wire.sends() is None
    reader.consume(2)
    assert wire.sends() is None
    reader.consume(1)
    wire.opened(after=4)
    wire.events(5, 6)
    assert reader.waiting == [4, 5, 6]


def test_a_full_reader_does_not_hold_up_another_one() -> None:
    slow, fast = Reader(room=2), Reader()
    wire = joined(slow, fast)
    wire.opened()
    wire.events(1, 2, 3, 4)
    assert (slow.waiting, fast.waiting) == ([1, 2], [1, 2, 3, 4])
    assert wire.sends() is None
    slow.consume(2)
    wire.opened(after=2)
    wire.events(3, 4, 5)
    assert (slow.waiting, fast.waiting) == ([3, 4], [1, 2, 3, 4, 5])


def test_what_only_a_full_reader_needed_is_jumped_over() -> None:
    slow, fast = Reader(room=2), Reader(JUMP + 10)
    wire = joined(slow, fast)
    wire.opened(after=0, head=JUMP + 10)
    wire.events(1, 2)
    wire.opened(after=JUMP + 10, head=JUMP + 10)


def test_the_terminal_event_ends_those_who_have_it_and_is_fetched_for_the_others() -> None:
    slow, fast = Reader(room=2), Reader()
    wire = joined(slow, fast)
    wire.opened(head=3)
    wire.events(1, 2)
    wire.last(3)
    assert (fast.ended, fast.why, slow.ended) == (True, None, False)
    slow.consume(2)
    wire.opened(after=2, head=3)
    wire.last(3)
    assert (slow.ended, slow.waiting) == (True, [3])


def test_a_run_that_was_known_to_its_end_ends_at_once() -> None:
    reader = Reader(3)
    wire = joined(reader)
    wire.opened(after=3, head=3)
    wire.hears(Unsubscribed(run="r", reason="done"))
    assert (reader.ended, reader.why) == (True, None)


def test_an_end_without_the_terminal_event_is_a_hole() -> None:
    reader = Reader()
    wire = joined(reader)
    wire.opened(head=3)
    wire.events(1, 2)
    wire.hears(Unsubscribed(run="r", reason="done"))
    assert not reader.ended
    wire.opened(after=2, head=3)
    wire.last(3)
    assert (reader.ended, reader.waiting) == (True, [1, 2, 3])


def test_who_leaves_is_unsubscribed_and_forgotten() -> None:
    reader = Reader()
    wire = joined(reader)
    wire.opened()
    wire.machine.leave("r", reader)
    wire.machine.leave("r", reader)
    assert isinstance(wire.sends(), Unsubscribe)
    assert wire.sends() is None
    assert repr(wire.machine) == "<RunSubscriptions to 0 runs>"


def test_a_degraded_run_raises_with_its_reason() -> None:
    reader = Reader()
    wire = joined(reader)
    wire.opened()
    reported = str(RunDegradedError("r", "agent_unknown", "no agent has the key 'a'"))
    wire.hears(Unsubscribed(run="r", reason="degraded", code="agent_unknown", detail="no agent has the key 'a'"))
    error = reader.why()
    assert isinstance(error, RunDegradedError)
    assert (error.reason, str(error)) == ("agent_unknown", reported)


@pytest.mark.parametrize("detail", [None, "something else"])
def test_a_degraded_run_of_another_wording_raises_too(detail: str | None) -> None:
    reader = Reader()
    wire = joined(reader)
    wire.opened()
    wire.hears(Unsubscribed(run="r", reason="degraded", detail=detail))
    assert isinstance(reader.why(), RunDegradedError)


def test_a_run_that_is_gone_is_unknown() -> None:
    reader = Reader()
    wire = joined(reader)
    wire.opened()
    wire.hears(Unsubscribed(run="r", reason="gone"))
    assert isinstance(reader.why(), UnknownRun)


def test_a_refused_subscription_ends_its_readers_unless_it_may_work_later() -> None:
    reader = Reader()
    wire = joined(reader)
    frame = wire.sends()
    assert not wire.machine.refused(Error(code="not_allowed", message="no", id="other"), 0.0)
    assert wire.machine.refused(Error(code="store_unavailable", message="no", id=frame.id, retry=True), 0.0)
    assert not reader.ended
    assert wire.sends(now=0.9) is None
    again = wire.sends(now=1.0)
    assert wire.machine.refused(Error(code="not_allowed", message="no", id=again.id), 1.0)
    assert isinstance(reader.why(), NotAllowed)


def test_after_a_lost_connection_it_subscribes_at_the_cursor() -> None:
    reader = Reader()
    wire = joined(reader)
    wire.opened()
    wire.events(1, 2)
    wire.machine.disconnected()
    wire.machine.connected("e")
    wire.opened(after=2)


def test_another_epoch_resets_every_reader_of_the_old_one() -> None:
    first, second, new = Reader(), Reader(), Reader()
    wire = joined(first, second)
    wire.opened()
    wire.events(1, 2, 3)
    wire.machine.connected("other")
    wire.machine.join("r", new)
    frame = wire.sends()
    assert (frame.after, frame.epoch) == (3, "e")
    wire.hears(Reset(run="r", reason="epoch", sequence=1, snapshot={}))
    assert (first.reset, second.reset, new.reset) == (("epoch", 1), ("epoch", 1), None)
    wire.opened(after=0)
    wire.events(1, 2)
    assert (first.waiting, new.waiting) == ([2], [1, 2])


def test_a_cursor_beyond_the_log_is_reset_also_beside_a_good_one() -> None:
    good, ahead = Reader(5), Reader(50)
    wire = joined(good, ahead)
    wire.opened(after=5, head=10)
    assert wire.sends().after == 50
    wire.hears(Reset(run="r", reason="ahead", sequence=10, snapshot={}))
    assert (good.reset, ahead.reset) == (None, ("ahead", 10))
    wire.opened(after=5, head=10)


def test_a_cursor_beyond_the_log_is_noticed_also_when_the_stream_is_near_it() -> None:
    """Otherwise it would wait for events that are other ones when they come."""
    good, ahead = Reader(5), Reader(12)
    wire = joined(good)
    wire.opened(after=5, head=10)
    wire.machine.join("r", ahead)
    wire.opened(after=5, head=10)
    assert wire.sends().after == 12
    wire.hears(Reset(run="r", reason="ahead", sequence=10, snapshot={}))
    assert (good.reset, ahead.reset) == (None, ("ahead", 10))


def test_a_tail_that_was_lost_is_noticed_by_the_second_tick() -> None:
    """The first may have overtaken what is on its way."""
    reader = Reader()
    wire = joined(reader)
    wire.opened()
    wire.events(1)
    wire.machine.heads({"r": 1, "unknown": 5})
    wire.machine.heads({"r": 3})
    assert wire.sends() is None
    wire.events(2)
    wire.machine.heads({"r": 3})
    assert wire.sends() is None
    wire.machine.heads({"r": 3})
    wire.opened(after=2)


def test_when_there_will_be_no_connection_every_reader_learns_why() -> None:
    reader = Reader()
    wire = joined(reader)
    wire.machine.end(lambda: UnknownRun("r"))
    assert isinstance(reader.why(), UnknownRun)


class Gateway:
    """The other end, one frame at a time, over a wire that keeps the order and may lose events."""

    def __init__(self, length: int) -> None:
        self.length, self.done = length, False
        self.place: int | None = None
        self.down: deque[Any] = deque()

    def takes(self, frame: Subscribe | Unsubscribe) -> None:
        if isinstance(frame, Unsubscribe):
            self.place = None
            self.down.append(Unsubscribed(run="r", reason="asked"))
            return
        self.place = frame.after
        head = self.length
        self.down.append(Subscribed(run="r", after=frame.after, head=head, mode="replay", id=frame.id))

    def writes(self, count: int) -> None:
        for _ in range(count):
            if self.place is not None and self.place < self.length:
                self.place += 1
                self.down.append(self.place)
        if self.place == self.length and self.done:
            self.place = None
            self.down.append(Unsubscribed(run="r", reason="done"))

    def cut(self) -> None:
        self.place = None
        self.down.clear()


class Weather:
    """Lets happen what may happen, as the lots say."""

    def __init__(self, rng: random.Random, readers: int) -> None:
        self.rng, self.now = rng, 0.0
        self.wire, self.gateway = Wire(), Gateway(rng.randint(0, 40))
        length = self.gateway.length
        self.readers = [Reader(rng.randint(0, length), room=rng.choice([2, 5, 1000])) for _ in range(readers)]
        self.coming = list(self.readers)

    def step(self) -> None:
        self.now += 0.3
        self.rng.choice(
            [
                self.join,
                self.grow,
                self.cut,
                self.write,
                self.write,
                self.deliver,
                self.deliver,
                self.consume,
                self.speak,
            ]
        )()

    def join(self) -> None:
        if self.coming:
            self.wire.machine.join("r", self.coming.pop())

    def grow(self) -> None:
        self.gateway.length += self.rng.randint(0, 5)

    def cut(self) -> None:
        if self.rng.random() < 0.3:
            self.gateway.cut()
            self.wire.machine.disconnected()
            self.wire.machine.connected("e")

    def write(self) -> None:
        self.gateway.writes(self.rng.randint(1, 10))

    def deliver(self) -> None:
        """One frame; an event may be lost on the way, or come twice."""
        if not self.gateway.down:
            return
        frame = self.gateway.down.popleft()
        if not isinstance(frame, int):
            self.wire.machine.receive(frame, self.now)
            return
        last = self.gateway.done and frame == self.gateway.length
        one = event(frame, "run.completed" if last else "run.message.delta")
        for _ in range(self.rng.choice([0] + [1] * 18 + [2])):
            self.wire.machine.event(one, 1, self.now)

    def consume(self) -> None:
        self.rng.choice(self.readers).consume(self.rng.randint(1, 5))

    def speak(self) -> None:
        while (frame := self.wire.sends(self.now)) is not None:
            self.gateway.takes(frame)

    def clears(self) -> bool:
        """Continue until all have everything."""
        while self.coming:
            self.join()
        self.gateway.done = True
        for _ in range(10_000):
            self.now += 1.1
            self.wire.machine.heads({"r": self.gateway.length})
            self.speak()
            self.gateway.writes(5)
            while self.gateway.down:
                self.deliver()
            for reader in self.readers:
                reader.consume(3)
            if all(reader.ended and not reader.waiting for reader in self.readers):
                return True
        return False


@pytest.mark.slow
@settings(max_examples=settings.default.max_examples * 3)
@given(st.integers(0, 2**32), st.integers(1, 4))
def test_every_reader_gets_every_event_once_and_in_order(lots: int, readers: int) -> None:
    """Whatever the order of writes, reads, losses, repeats, cuts, late comers and pauses."""
    rng = random.Random(lots)
    weather = Weather(rng, readers)
    for _ in range(rng.randint(0, 300)):
        weather.step()
    assert weather.clears()
    for reader in weather.readers:
        assert reader.got == list(range(reader.begun + 1, weather.gateway.length + 1))
    assert all(run.state is SubscriptionState.IDLE for run in weather.wire.machine._runs.values())


def reset_by(wire: Wire, epoch: str, sequence: int) -> None:
    """The gateway's logs are replaced."""
    wire.hears(Renamed(epoch=epoch))
    wire.hears(Reset(run="r", reason="epoch", sequence=sequence, snapshot={}))


def test_a_renamed_log_resets_each_reader_once_and_asks_for_nothing() -> None:
    readers = [Reader(), Reader()]
    wire = joined(*readers)
    wire.opened()
    wire.events(1, 2, 3)
    wire.hears(Renamed(epoch="e2"))
    assert wire.sends() is None
    wire.events(4)  # late, of the replaced log
    wire.hears(Reset(run="r", reason="epoch", sequence=2, snapshot={}))
    assert [(reader.reset, reader.epoch) for reader in readers] == [(("epoch", 2), "e2")] * 2
    wire.events(3)
    assert [reader.waiting for reader in readers] == [[3], [3]]
    assert wire.sends() is None


def test_a_reader_without_an_event_reads_a_renamed_log_from_the_beginning() -> None:
    reader = Reader()
    wire = joined(reader)
    wire.opened()
    reset_by(wire, "e2", 2)
    assert reader.reset is None
    wire.opened(after=0)
    wire.events(1, 2)
    assert reader.waiting == [1, 2]


def test_a_run_that_a_renamed_log_does_not_have_is_unknown() -> None:
    reader = Reader()
    wire = joined(reader)
    wire.opened()
    wire.events(1)
    wire.hears(Renamed(epoch="e2"))
    wire.hears(Unsubscribed(run="r", reason="gone"))
    assert isinstance(reader.why(), UnknownRun)


def test_a_subscribe_that_is_pending_at_a_rename_is_not_repeated() -> None:
    reader = Reader(7, epoch="e")
    wire = joined(reader)
    frame = wire.sends()
    wire.hears(Renamed(epoch="e2"))
    assert wire.sends() is None
    wire.hears(Reset(run="r", reason="epoch", sequence=3, snapshot={}, id=frame.id))
    assert (reader.reset, reader.cursor) == (("epoch", 3), 3)
