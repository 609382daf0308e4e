"""The clocks of a program: how long it may work, say nothing, and take to begin."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import attrs
import trio

Which = Literal["start", "idle", "work"]
"""The clock that has run out."""


@attrs.frozen(kw_only=True)
class ProgramLimits:
    """The time limits of a program, in seconds.

    Attributes:
        start: Until its first output.
        idle: Without output, while no question is open and no allowed call runs.
        work: In all, the waits for answers not counted; None: no limit.
    """

    start: float = 60.0
    idle: float = 300.0
    work: float | None = None


class ProgramClocks:
    """Watches one program. `watch` ends when a limit has passed.

    Args:
        limits: The limits.
        heard_at: Returns trio's time of the newest output; None before the first.
        works: Returns True while an allowed call of the program runs.
    """

    def __init__(self, limits: ProgramLimits, heard_at: Callable[[], float | None], works: Callable[[], bool]) -> None:
        self._limits, self._heard_at, self._works = limits, heard_at, works
        self._began = self._quiet_since = trio.current_time()
        self._waiting = 0
        self._waited = 0.0
        self._waits_since = 0.0
        self._all_answered = trio.Event()

    def __repr__(self) -> str:
        return f"<ProgramClocks: {self._waiting} questions open>"

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Stop the clocks while a question of the program is open, or this side is not ready to listen."""
        if not self._waiting:
            self._waits_since, self._all_answered = trio.current_time(), trio.Event()
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._quiet_since = trio.current_time()
                self._waited += self._quiet_since - self._waits_since
                self._all_answered.set()

    def rest(self) -> None:
        """Begin to count a silence now: an allowed call has ended."""
        self._quiet_since = trio.current_time()

    async def watch(self) -> tuple[Which, float]:
        """Return the clock that has run out, and its limit."""
        while True:
            if self._waiting:
                await self._all_answered.wait()
                continue
            which, limit, ends_at = min(self._ends(), key=lambda end: end[2])
            if trio.current_time() >= ends_at:
                return which, limit
            # no silence that begins meanwhile ends before this
            await trio.sleep_until(min(ends_at, trio.current_time() + self._limits.idle))

    def _ends(self) -> Iterator[tuple[Which, float, float]]:
        limits, heard_at = self._limits, self._heard_at()
        if heard_at is None:
            yield "start", limits.start, self._began + limits.start
        elif self._works():
            yield "idle", limits.idle, trio.current_time() + limits.idle  # to be looked at again
        else:
            yield "idle", limits.idle, max(heard_at, self._quiet_since) + limits.idle
        work = math.inf if limits.work is None else limits.work
        yield "work", work, self._began + self._waited + work
