"""Clocks for tests: virtual time for a store that is opened again, and a wall clock that can be set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import trio


class FakeWall:
    """A wall clock that goes as trio's does, until it is set: by NTP, by a person, or by a machine that has slept.

    wall = FakeWall()
    async with gr.open_runtime(clock=Clock(wall)) as runtime:
        wall.step(8 * 3600)  # eight hours pass, of which trio's clock has not seen any
    """

    def __init__(self, start: datetime = datetime(2031, 5, 1, 12, tzinfo=UTC)) -> None:
        """Must be made inside a trio run. `start`: what it says now, with a timezone."""
        self._start = start - timedelta(seconds=trio.current_time())

    def __repr__(self) -> str:
        """What it says."""
        return f"<FakeWall: {self().isoformat()}>"

    def __call__(self) -> datetime:
        """What it says now, UTC."""
        return self._start.astimezone(UTC) + timedelta(seconds=trio.current_time())

    def step(self, seconds: float) -> None:
        """Set it forward, or back (less than 0)."""
        self._start += timedelta(seconds=seconds)
