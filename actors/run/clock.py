"""The one clock: wall time for what is stored, trio's time for what is waited for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import trio

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MARGIN: Final = 0.001
"""Seconds added when waiting for a moment: stored times are whole milliseconds."""


class Clock:
    """now() = wall time at opening + trio time since then, so that trio's MockClock moves stored times too.

    Must be made inside a trio run. Times are UTC with whole milliseconds; they never go back while the clock lives.
    """

    def __init__(self, wall: datetime | None = None) -> None:
        self._wall = wall or datetime.now(UTC)
        self._start = trio.current_time()
        self._microseconds = (self._wall - _EPOCH) // timedelta(microseconds=1)
        self._newest = (0, _EPOCH)

    def now(self) -> datetime:
        """The present, UTC."""
        millisecond = (self._microseconds + round((trio.current_time() - self._start) * 1e6)) // 1000
        newest, moment = self._newest
        if millisecond != newest:  # many inputs are taken within one millisecond
            moment = _EPOCH + timedelta(milliseconds=millisecond)
            self._newest = millisecond, moment
        return moment

    def trio_time(self, moment: datetime) -> float:
        """When `moment` is, on trio's clock (a hair later, so that `now()` has reached it)."""
        return self._start + (moment - self._wall).total_seconds() + _MARGIN
