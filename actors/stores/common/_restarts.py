"""Restarts of the tasks and the thread of a store: a crash is repaired at most 3 times within 60 s.

Theory of operation. A crash is an exception that no outage explains: a bug, or an injected fault. The store repairs it
itself, because its queue must outlive the restart: owners stay, requests wait, and the batch in hand is executed again,
by code that finds out what of it is durable already. A store that crashes more often has failed for good.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import trio

from greenroom.supervision import Intensity, Window

from ...errors import StoreDown
from ...store_events import PartCrashed, Report
from ._outages import Damaged
from .faults import InjectedCrash

T = TypeVar("T")

INTENSITY: Final = Intensity(max_restarts=3, within=60.0)
"""Crashes that are repaired: a cause that stays ends the store within seconds, not after minutes of retries."""
PAUSE: Final = 0.05
"""Seconds before a task begins again."""


class Restarts:
    """The restarts of one part of an open store. Made in the trio thread; may be used in any thread."""

    def __init__(self, report: Report) -> None:
        """`report`: called in the thread of the crash."""
        self._report = report
        self._window = Window(intensity=INTENSITY)
        self._lock = threading.Lock()
        self._now = trio.lowlevel.current_clock().current_time  # `trio.current_time` works in trio's thread only

    def __repr__(self) -> str:
        return f"<Restarts, {len(self._window.times)} of late>"

    def begins_again(self, part: str, error: Exception) -> bool:
        """Note and report a crash; returns False if the part ends with it.

        That is so for the errors by which a store says that it has failed for good, and after too many crashes.
        """
        if isinstance(error, StoreDown | Damaged | InjectedCrash):
            return False
        with self._lock:
            now = self._now()
            if not self._window.allows(now):
                return False
            self._window = self._window.record(now)
        self._report(PartCrashed(part, error))
        return True

    def start(self, nursery: trio.Nursery, part: str, serve: Callable[[], Awaitable[object]]) -> None:
        """Start a task that begins again after a crash; the task has the name of the part."""
        nursery.start_soon(self.kept, part, serve, name=part)

    async def kept(self, part: str, serve: Callable[[], Awaitable[T]]) -> T:
        """Run a task, and begin it again after a crash.

        Raises:
            StoreDown: the task raised it.
            Exception: the last one of too many crashes.
        """
        while True:
            try:
                return await serve()
            except Exception as error:  # a supervision boundary: of a bug, or an injected fault
                if not self.begins_again(part, error):
                    raise
            await trio.sleep(PAUSE)
