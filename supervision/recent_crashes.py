"""`RecentCrashes`: which parts of a program have crashed of late, for a page that people or a load balancer read."""

from __future__ import annotations

import math
from collections.abc import Mapping

import trio
from attrs import define, field

from .intensity import Intensity, Window


@define(eq=False)
class RecentCrashes:
    """Counts crashes by the name of the part, over the last minute, or `within` seconds."""

    within: float = 60.0
    _windows: dict[str, Window] = field(init=False, factory=dict)

    def note(self, name: str) -> None:
        """Count a crash of a part."""
        fresh = Window(intensity=Intensity(max_restarts=math.inf, within=self.within))
        self._windows[name] = self._windows.get(name, fresh).record(trio.current_time())

    def counts(self) -> Mapping[str, int]:
        """Return the number of crashes of each part that has crashed within the time, in the order of their names."""
        now = trio.current_time()
        self._windows = {
            name: window for name in sorted(self._windows) if (window := self._windows[name].at(now)).times
        }
        return {name: len(window.times) for name, window in self._windows.items()}
