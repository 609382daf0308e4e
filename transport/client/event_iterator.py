"""A run as its reader sees it: an async iterator with a cursor, and a buffer with a limit."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Final, Literal

import trio

from greenroom.actors.contract.envelope import Event
from greenroom.actors.contract.plain import JSONObject
from greenroom.actors.errors import GreenroomError

from .errors import LogReset

MOST_EVENTS: Final = 1024
"""Events that wait for a reader; then it is given no more until it has taken three quarters of them."""
MOST_BYTES: Final = 4 * 1024 * 1024
"""The same in bytes as sent, for events that are large."""

OnReset = Literal["raise", "continue"]


class EventIterator(AsyncIterator[Event]):
    """The events of one run, each exactly once and in order, through any number of connections. For one task.

    When the iteration is cancelled nothing is lost: the next event is the one that would have come.

    Attributes:
        run_id: whose.
        after: sequence of the last event that the iteration has given; together with `epoch` the cursor to keep.
        reset: the newest change of the log, with on_reset="continue": the events now are those after its snapshot.
    """

    def __init__(
        self, run_id: str, *, after: int, epoch: str | None, on_reset: OnReset, poke: Callable[[], None]
    ) -> None:
        self.run_id, self.after, self.reset = run_id, after, None
        self.cursor, self.epoch, self.strayed = after, epoch, False
        self._on_reset, self._poke = on_reset, poke
        self._waiting: deque[tuple[Event, int]] = deque()
        self._bytes = 0
        self._full = False
        self._ended = False
        self._error: Callable[[], GreenroomError] | None = None
        self._news = trio.Event()

    reset: LogReset | None

    def __repr__(self) -> str:
        """Whose events, and how far."""
        return f"<Following {self.run_id} after {self.after}, {len(self._waiting)} waiting>"

    async def __anext__(self) -> Event:
        """The next event.

        Raises:
            StopAsyncIteration: the terminal event was the last one.
            LogReset: the cursor is not of this log (on_reset="raise").
            RunDegraded, UnknownRun, RequestRefused, ConnectError: no more events come, and why.
        """
        await trio.lowlevel.checkpoint()
        while not self._waiting:
            if self._ended:
                if self._error is not None:
                    raise self._error()
                raise StopAsyncIteration
            await self._news.wait()
        event, size = self._waiting.popleft()
        self._bytes -= size
        self.after = event.sequence
        if self._full and len(self._waiting) <= MOST_EVENTS // 4 and self._bytes <= MOST_BYTES // 4:
            self._full = False
            self._poke()
        return event

    # --- what the connection does ------------------------------------------------------------------------------------

    @property
    def hungry(self) -> bool:
        """There is room, and there is something to come."""
        return not self._full and not self._ended

    def take(self, event: Event, size: int) -> None:
        """The next event has come. The one that makes the buffer full is taken; no more are given then."""
        self._waiting.append((event, size))
        self._bytes += size
        self.cursor = event.sequence
        if len(self._waiting) >= MOST_EVENTS or self._bytes >= MOST_BYTES:
            self._full = True
        self._tell()

    def begin_again(self, reason: Literal["epoch", "ahead"], sequence: int, snapshot: JSONObject) -> None:
        """The log is another one: what waits is of one that is gone."""
        self._waiting.clear()
        self._bytes, self._full = 0, False
        self.cursor = self.after = sequence
        self.reset = LogReset(self.run_id, reason, sequence, snapshot)
        if self._on_reset == "raise":
            self.end(lambda: LogReset(self.run_id, reason, sequence, snapshot))
        self._tell()

    def end(self, error: Callable[[], GreenroomError] | None) -> None:
        """No more come; what waits is still given. The first reason stays."""
        if not self._ended:
            self._ended, self._error = True, error
            self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = trio.Event()
