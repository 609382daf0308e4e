"""`UnreadEvents`: the events of a run that its reader has not read yet, bounded, with a cursor. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Literal

from greenroom.actors.contract.envelope import Event
from greenroom.actors.contract.plain import JSONObject
from greenroom.actors.errors import GreenroomError

from .errors import LogReset

MOST_EVENTS: Final = 1024
"""Events in a full buffer. A full buffer accepts events again when three quarters of them have been read."""
MOST_BYTES: Final = 4 * 1024 * 1024
"""Bytes (as sent) in a full buffer, for large events."""

OnReset = Literal["raise", "continue"]


class UnreadEvents:
    """The unread events of one reader of a run.

    Attributes:
        run_id: The run.
        after: Sequence of the last event that was read; with `epoch`, the cursor to store.
        reset: The newest reset of the log, with on_reset="continue"; following events continue its snapshot.
        cursor: Sequence of the last event that was taken from the connection.
    """

    def __init__(
        self,
        run_id: str,
        *,
        after: int,
        epoch: str | None,
        on_reset: OnReset,
        poke: Callable[[], None],
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        """`poke`: wakes the connection, which may deliver more; `wake`: wakes the reader."""
        self.run_id, self.after, self.reset = run_id, after, None
        self.cursor, self.epoch, self.strayed = after, epoch, False
        self._on_reset, self._poke, self._wake = on_reset, poke, wake
        self._waiting: deque[tuple[Event, int]] = deque()
        self._bytes = 0
        self._full = False
        self._ended = False
        self._error: Callable[[], GreenroomError] | None = None

    reset: LogReset | None

    def __repr__(self) -> str:
        """Show the run, the cursor and the size of the buffer."""
        return f"<{type(self).__name__} of {self.run_id} after {self.after}, {len(self._waiting)} waiting>"

    def read(self) -> Event | None:
        """Return the next event; None if there is none yet.

        Raises:
            StopAsyncIteration: The last event was the terminal event.
            GreenroomError: The reason why no more events follow.
        """
        if not self._waiting:
            if self._ended:
                raise StopAsyncIteration if self._error is None else self._error()
            return None
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
        """True if the buffer has room and the iteration has not ended."""
        return not self._full and not self._ended

    def take(self, event: Event, size: int) -> None:
        """Append the next event. The event that fills the buffer is accepted; `hungry` is False afterwards."""
        self._waiting.append((event, size))
        self._bytes += size
        self.cursor = event.sequence
        if len(self._waiting) >= MOST_EVENTS or self._bytes >= MOST_BYTES:
            self._full = True
        self._wake()

    def begin_again(self, reason: Literal["epoch", "ahead"], sequence: int, snapshot: JSONObject) -> None:
        """Drop the buffered events, which belong to a replaced log, and move the cursor to the snapshot."""
        self._waiting.clear()
        self._bytes, self._full = 0, False
        self.cursor = self.after = sequence
        self.reset = LogReset(self.run_id, reason, sequence, snapshot)
        if self._on_reset == "raise":
            self.end(lambda: LogReset(self.run_id, reason, sequence, snapshot))
        self._wake()

    def end(self, error: Callable[[], GreenroomError] | None) -> None:
        """End the iteration after the buffered events. The first reason wins."""
        if not self._ended:
            self._ended, self._error = True, error
            self._wake()
