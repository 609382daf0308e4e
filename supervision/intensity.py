"""Restart intensity: the number of restarts in a period that counts as repair and not as a loop. Pure, immutable."""

from __future__ import annotations

import math
from typing import Final

from attrs import evolve, field, frozen

from .fields import at_least, more_than

REMEMBERED: Final = 64
"""Restarts that a window without a limit keeps: more than any backoff grows for, and a bound for a crash loop."""


@frozen(kw_only=True)
class Intensity:
    """At most `max_restarts` restarts within any `within` seconds; the next restart exceeds the intensity (as in OTP).

    Attributes:
        max_restarts: Restarts; 0 means that the child is never restarted, math.inf that it is never given up.
        within: Seconds.

    Raises:
        InvalidSpec: A field has an invalid value.
    """

    max_restarts: float = field(default=3, validator=at_least(0))
    within: float = field(default=60.0, validator=more_than(0))


@frozen(kw_only=True)
class Window:
    """The restarts within the last `within` seconds, oldest first, in seconds of the caller's clock."""

    intensity: Intensity = field(factory=Intensity)
    times: tuple[float, ...] = ()

    def at(self, now: float) -> Window:
        """Return this window without the restarts that are older than `within` seconds."""
        start = now - self.intensity.within
        if not self.times or self.times[0] > start:
            return self
        return evolve(self, times=tuple(time for time in self.times if time > start))

    def record(self, now: float) -> Window:
        """Return this window with one more restart."""
        current = self.at(now)
        times = (*current.times, now)
        return evolve(current, times=times[-REMEMBERED:] if self.intensity.max_restarts == math.inf else times)

    def allows(self, now: float) -> bool:
        """Return True if one more restart now is within the intensity."""
        return len(self.at(now).times) < self.intensity.max_restarts
