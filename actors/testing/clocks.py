"""Clocks for tests: virtual time for a store that is opened again, and a wall clock that can be set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import trio


class FakeWall:
    """A wall clock that advances as trio's clock does until it is set, as NTP, a person or a sleep of the machine do.

    Eight hours of sleep:

        wall = FakeWall()
        async with gr.open_runtime(clock=Clock(wall)) as runtime:
            wall.step(8 * 3600)  # trio's clock has seen none of these hours
    """

    def __init__(self, start: datetime = datetime(2031, 5, 1, 12, tzinfo=UTC)) -> None:
        """Must be made inside a trio run. `start`: the present time of the clock, with time zone."""
        self._start = start - timedelta(seconds=trio.current_time())

    def __repr__(self) -> str:
        """Return the present time."""
        return f"<FakeWall: {self().isoformat()}>"

    def __call__(self) -> datetime:
        """Return the present time, UTC."""
        return self._start.astimezone(UTC) + timedelta(seconds=trio.current_time())

    def step(self, seconds: float) -> None:
        """Set the clock forward, or back (negative)."""
        self._start += timedelta(seconds=seconds)
