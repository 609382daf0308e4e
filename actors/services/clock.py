"""The one clock: wall time for stored moments and due times, trio's time for waiting.

Theory of operation. A deadline and an expiry are moments of wall time: they mean what a clock on a wall shows, also
after the machine has slept (on Linux trio's clock stops meanwhile) or its clock was set. So wall time is read again
each time. Wall time may go back; the times in a run's log may not (`RunTime`). A task can only sleep in trio's time: it
converts the moment when it begins to wait, and `ClockWatch` wakes it when the two clocks have moved apart.

Under a virtual clock (trio's MockClock, or any clock other than the system's) wall time is derived from trio's, so that
tests move stored times, too, and the clocks never move apart.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

import trio

from greenroom.supervision import ActorContext

from ..engine.state import RunState

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_MARGIN: Final = 0.001
"""Seconds added when waiting for a moment, because stored times are whole milliseconds."""

CLOCK: Final = ":clock"
"""Id of the child that watches the clocks; no run id begins with a colon."""
TICK: Final = 1.0
"""Seconds between two comparisons of the clocks, while a task waits: after a jump a timer may be that late."""
SLEW: Final = 0.1
"""Seconds by which the clock of a shared store is moved in each second."""
LEAP: Final = 60.0
"""Seconds by which the storage's clock may be ahead before the clock jumps to it."""
JUMP: Final = 0.25
"""Seconds of difference that count as a jump: more than the slewing of NTP."""


class Clock:
    """Wall time in UTC, in whole milliseconds.

    Attributes:
        jumps: wall time can be set, or advance while trio's time does not.
        trio_now: returns trio's time.
    """

    def __init__(self, wall: datetime | Callable[[], datetime] | None = None) -> None:
        """Must be made inside a trio run.

        Args:
            wall: None: the system's clock, or virtual time under a virtual clock. A datetime: it is that now, and moves
                as trio's time does. A callable: asked each time.
        """
        trio_clock: Any = trio.lowlevel.current_clock()
        self.jumps = callable(wall) or (wall is None and type(trio_clock).__module__.startswith("trio._core"))
        self._ask = wall if callable(wall) else None
        self._wall = wall if isinstance(wall, datetime) else datetime.now(UTC) if self._ask is None else self._ask()
        self._microseconds = (self._wall - _EPOCH) // timedelta(microseconds=1)
        self.trio_now: Callable[[], float] = trio_clock.current_time  # trio's own function looks the clock up each time
        self._start = self.trio_now()
        self._newest = (0, _EPOCH)

    def __repr__(self) -> str:
        """Return the clock's present time."""
        return f"<Clock: {self.now().isoformat()}>"

    def now(self) -> datetime:
        """Return the present, UTC."""
        return self.read()[1]

    def read(self) -> tuple[float, datetime]:
        """Return the present twice: in seconds since 1970, and as a moment in UTC."""
        if self.jumps and self._ask is None:  # called for each input: a datetime would cost several times as much
            millisecond = time.time_ns() // 1_000_000
        elif self._ask is not None:
            millisecond = (self._ask() - _EPOCH) // timedelta(milliseconds=1)
        else:
            millisecond = (self._microseconds + round((self.trio_now() - self._start) * 1e6)) // 1000
        newest, moment = self._newest
        if millisecond != newest:  # many inputs arrive within one millisecond
            moment = _EPOCH + _MILLISECOND * millisecond  # half the price of a timedelta by name
            self._newest = millisecond, moment
        return millisecond / 1000, moment

    def settle(self) -> None:
        """Take the time of a shared store's storage now: it is known for the first time, and no run has begun."""
        if isinstance(self._ask, SharedClock):
            self._ask.step()

    def trio_time(self, moment: datetime) -> float:
        """Return `moment` on trio's clock (slightly later, so that `now()` has reached it), as the clocks are now.

        A task that waits longer than an instant does so in `ClockWatch.waiting`, and converts again when nudged.
        """
        start, wall = (self.trio_now(), self.now()) if self.jumps else (self._start, self._wall)
        return start + (moment - wall).total_seconds() + _MARGIN

    def apart(self) -> float:
        """Return the seconds from trio's time to wall time; the value changes when the clocks move apart."""
        return self.read()[0] - self.trio_now()


class OffsetSource(Protocol):
    """A store, as the clock sees it."""

    @property
    def offset(self) -> float:
        """Seconds to add to this machine's clock to get the storage's clock."""


class SharedClock:
    """The clock of a shared store's storage, as this process knows it: for `Clock(wall=...)`.

    It is this machine's clock, moved towards the storage's: a deadline then means the same in all processes. It never
    goes back while this machine's clock does not: a difference is made up for at `SLEW` seconds in each second, except
    that the clock may jump forward over more than `LEAP` seconds.
    """

    def __init__(self, base: Clock, source: OffsetSource) -> None:
        self._base, self._source = base, source
        self._offset, self._at = 0.0, base.trio_now()

    def __repr__(self) -> str:
        return f"<SharedClock {self._offset:+.3f} s>"

    def step(self) -> None:
        """Take the storage's clock immediately."""
        self._offset = self._source.offset

    def __call__(self) -> datetime:
        """Return the present, UTC."""
        now = self._base.trio_now()
        most, missing = (now - self._at) * SLEW, self._source.offset - self._offset
        self._at = now
        self._offset += missing if missing > LEAP else max(-most, min(most, missing))
        return self._base.now() + timedelta(seconds=self._offset)


class ClockWaiter(Protocol):
    """A task that waits for a moment of wall time."""

    def nudge(self) -> None:
        """Convert the moment again."""


class ClockWatch:
    """Wakes the waiters of wall time when the clock was set, or the machine has slept.

    The clocks are compared once a second, and only while a task waits: a process without timers stays idle.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sleepers: dict[ClockWaiter, None] = {}
        self._some = trio.Event()
        self._apart: float | None = None  # while tasks wait; kept over a crash, so that no jump is missed meanwhile

    def __repr__(self) -> str:
        """Return the number of waiters."""
        return f"<ClockWatch of {len(self._sleepers)} sleepers>"

    @contextmanager
    def waiting(self, sleeper: ClockWaiter) -> Iterator[None]:
        """Nudge the sleeper, for the time of the block, whenever the clocks have moved apart."""
        if not self._clock.jumps:
            yield
            return
        self._sleepers[sleeper] = None
        self._some.set()
        try:
            yield
        finally:
            self._sleepers.pop(sleeper, None)

    async def body(self, ctx: ActorContext[object]) -> None:
        """Compare the clocks until cancelled."""
        ctx.ready()
        while True:  # noqa: ASYNC913 - each time round waits, or ends the loop
            self._some = trio.Event()
            if not self._sleepers:
                self._apart = None
                await self._some.wait()
            while self._sleepers:
                self._compare()
                await trio.sleep(TICK)

    def _compare(self) -> None:
        """Wake all waiters if the clocks have moved apart since the last comparison."""
        now = self._clock.apart()
        before, self._apart = self._apart, now
        if before is None:
            return
        if abs(now - before) <= JUMP:
            self._apart = before  # slow drift adds up
            return
        for sleeper in tuple(self._sleepers):
            sleeper.nudge()


class RunTime:
    """The times of one run's inputs: wall time that never goes back, and the part of it that was not active."""

    __slots__ = ("_apart", "_clock", "_newest", "_seconds", "begins")

    def __init__(self, clock: Clock, state: RunState) -> None:
        self._clock, row = clock, state.row
        tickets = [*row.run_tickets]
        moments = [state.info.created_at, row.counters.active_since, *[task.started_at for task in row.tasks]]
        if row.inference is not None:
            moments.append(row.inference.started_at)
        for call in state.calls.values() if state.calls.all else ():
            moments.append(call.started_at)
            tickets += [mirror.ticket for mirror in call.mirrors]
            if call.ticket is not None:
                tickets.append(call.ticket)
        for ticket in tickets:
            moments += (ticket.requested_at, ticket.decided_at)
        self._newest = max(filter(None, moments))
        self._seconds, self._apart = self._newest.timestamp(), 0.0
        self.begins, _ = self.next()
        self._apart = self._seconds - clock.trio_now()

    def next(self) -> tuple[datetime, float]:
        """Return the time of the next input, and by how many seconds the wall clock advanced more than trio's.

        A stretch in which the clocks moved apart (the machine slept, the clock was set) counts like a stretch without
        an owner: it is not active time (`state.shifted`). 0 if the clocks did not move apart.
        """
        seconds, now = self._clock.read()
        if seconds > self._seconds:
            self._seconds, self._newest = seconds, now
        if self._clock.jumps:
            skew = self._seconds - self._clock.trio_now() - self._apart
            if not -JUMP < skew < JUMP:
                self._apart += skew
                return self._newest, skew
        return self._newest, 0.0
