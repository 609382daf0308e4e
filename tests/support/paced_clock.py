"""Real time for scenes of minutes: a clock that runs on the system's, so many times as fast.

    clock = PacedClock(10)           # for trio.run: a body of ten seconds takes one
    with clock.hurrying(1_000):      # a wait of 1,000 seconds takes five
        await trio.sleep(1_000)

Nothing jumps: threads, servers and other processes work meanwhile, as under trio's own clock. When the machine is busy,
trio's thread may get no processor for a while, and each of these seconds would be `pace` seconds of the scene, in which
its run gets nothing done. So the clock stands still from `STALL` after the moment at which trio wanted to go on. What
the others are late is not known; so the times of a scene are compared as `About`.
"""

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import trio

PACE = 10.0
"""Seconds of a scene in one second, unless the scene is marked `pace(...)`."""
MOST = 250.0
"""The same during a wait in which nothing is measured."""
HURRIED = 1.0
"""Seconds that such a wait takes, if `MOST` allows."""
LATE = 0.25
"""Real seconds by which a moment may be off: some commits and threads of a busy machine."""
STALL = 0.02
"""Real seconds that trio may go on late, or work without a look at the clock, before the clock stands still."""
OPENING = 1.0
"""The pace while a process ends and the next one begins, which takes real time."""


class PacedClock(trio.abc.Clock):
    """The system's monotonic clock, faster.

    Attributes:
        pace: seconds of this clock in one of the system's. fastest: the greatest so far.
    """

    def __init__(self, pace: float = PACE) -> None:
        """Begin at 0."""
        self.pace = self.fastest = pace
        self._at, self._reading = time.monotonic(), 0.0
        self._thread, self._latest = threading.get_ident(), math.inf

    def __repr__(self) -> str:
        return f"<PacedClock {self.current_time():.1f} at {self.pace:g} to 1>"

    def start_clock(self) -> None:
        """Begin now."""
        self._at = time.monotonic()
        self._thread = threading.get_ident()

    def current_time(self) -> float:
        """The reading, in seconds."""
        now = time.monotonic()
        if threading.get_ident() == self._thread:
            self._at += max(0.0, now - self._latest)
            self._latest = now + STALL
        return self._reading + (now - self._at) * self.pace

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """The system's seconds until a reading. trio sleeps now, and looks at the clock when they are over."""
        seconds = (deadline - self.current_time()) / self.pace
        self._latest += max(0.0, seconds)
        return seconds

    @contextmanager
    def hurrying(self, seconds: float) -> Iterator[None]:
        """Run faster during a wait of so many seconds, and as before after it."""
        before = self.pace
        self._set(max(before, min(MOST, seconds / HURRIED)))
        try:
            yield
        finally:
            self._set(before)

    @contextmanager
    def unhurried(self) -> Iterator[None]:
        """Run at the pace of the system's clock for the time of the block."""
        before = self.pace
        self._set(OPENING)
        try:
            yield
        finally:
            self._set(before)

    def _set(self, pace: float) -> None:
        self._reading, self._at = self.current_time(), time.monotonic()
        self.pace = pace
        self.fastest = max(self.fastest, pace)

    @property
    def slack(self) -> float:
        """Seconds of this clock by which a moment may be off, also if it came in a wait that was hurried."""
        return LATE * self.fastest


class About(float):
    """A measured time: equal to every time that is at most `slack` away."""

    slack: float

    @classmethod
    def of(cls, value: float, slack: float) -> "About":
        """A time, and by how much it may be off."""
        about = cls(value)
        about.slack = slack
        return about

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int | float) and abs(float(self) - other) <= self.slack

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = float.__hash__


async def wait(seconds: float) -> None:
    """Let time go by in which a scene measures nothing: hurried, if the clock of the run can be."""
    clock = trio.lowlevel.current_clock()
    if isinstance(clock, PacedClock):
        with clock.hurrying(seconds):
            await trio.sleep(seconds)
    else:
        await trio.sleep(seconds)
