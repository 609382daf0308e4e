"""The newest events of a followed run, in memory, so that many followers read the store once or never.

Theory of operation. A buffer exists while its run is followed, and fills with events that become durable from then on.
Older and dropped events are in the store. A follower that falls behind costs nothing here: it reads pages of the store
until it has caught up. Followers at the same position share one `EventSlice` and its encodings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ..contract.catalogue import TERMINAL_EVENTS
from ..contract.envelope import event_type

RING_FRAMES: Final = 4096
"""Events of a run kept in memory at least, if they are not too large."""
RING_BYTES: Final = 2 * 2**20
"""Bytes of a run's events kept in memory at least: bounds the memory for large results."""
SLICE_BYTES: Final = 65_536
"""Bytes after which a slice ends: one write of this size is near the best rate and shares the connection fairly."""
SLICE_FRAMES: Final = 1024
"""Events after which a slice ends."""


class EventSlice:
    """Encoded events, in order and without a gap. Immutable, and shared by all readers of these events.

    Attributes:
        first, last: sequences of the first and the last event.
        frames: the stored bytes of each event.
    """

    __slots__ = ("_encoded", "_ends", "first", "frames", "last")

    def __init__(self, first: int, frames: Sequence[bytes]) -> None:
        self.first = first
        self.frames = tuple(frames)
        self.last = first + len(self.frames) - 1
        self._ends: bool | None = None
        self._encoded: dict[Callable[[EventSlice], bytes], bytes] = {}

    def __repr__(self) -> str:
        return f"<EventSlice {self.first}..{self.last}>"

    @property
    def ends(self) -> bool:
        """True if the last event is the run's terminal event."""
        if self._ends is None:
            self._ends = event_type(self.frames[-1]) in TERMINAL_EVENTS
        return self._ends

    def encoded(self, encode: Callable[[EventSlice], bytes]) -> bytes:
        """Return the slice in a transport's form, encoded once for all readers. `encode` must be a pure function."""
        encoding = self._encoded.get(encode)
        if encoding is None:
            encoding = self._encoded[encode] = encode(self)
        return encoding


class EventBuffer:
    """The newest events of one run.

    Attributes:
        head: sequence of the newest event that was appended; -1 before the first.
        replaced: the events are of a log that has been replaced.
    """

    def __init__(self) -> None:
        self.head = -1
        self.replaced = False
        self._frames: list[bytes] = []
        self._bytes = 0
        self._newest_slice: EventSlice | None = None
        self._whole = False  # the cached slice is full

    def __repr__(self) -> str:
        return f"<EventBuffer {self.head - len(self._frames) + 1}..{self.head}>"

    def append(self, last: int, frames: Sequence[bytes]) -> None:
        """Append events that became durable. After a gap (another process has written) only the new events are kept.

        The log may begin again at 1, if the run was deleted and its id used again.
        """
        if last - len(frames) != self.head:
            self._frames.clear()
            self._bytes = 0
            self._newest_slice = None
        self.head = last
        self._frames.extend(frames)
        self._bytes += sum(map(len, frames))
        if len(self._frames) <= 2 * RING_FRAMES and self._bytes <= 2 * RING_BYTES:
            return
        # the older half is dropped in one go, so rarely: dropping moves the rest
        drop = max(0, len(self._frames) - RING_FRAMES)
        size = sum(map(len, self._frames[:drop]))
        while self._bytes - size > RING_BYTES and drop < len(self._frames) - 1:
            size += len(self._frames[drop])
            drop += 1
        del self._frames[:drop]
        self._bytes -= size

    def replace(self) -> None:
        """Drop all events: another log has replaced the one that they belong to."""
        self.head, self.replaced = -1, True
        self._frames, self._bytes, self._newest_slice = [], 0, None

    def slice(self, after: int) -> EventSlice | None:
        """Return the events after `after`, at most one slice; None if there are none or they are not in memory.

        All callers at the same position get the same object until new events are appended.
        """
        start = after - self.head + len(self._frames)
        if not 0 <= start < len(self._frames):
            return None
        newest = self._newest_slice
        if newest is None or newest.first != after + 1 or not (self._whole or newest.last == self.head):
            frames, full = within(self._frames[start : start + SLICE_FRAMES])
            self._whole = full or len(frames) == SLICE_FRAMES
            self._newest_slice = newest = EventSlice(after + 1, frames)
        return newest


def within(frames: Sequence[bytes], most: int = SLICE_BYTES) -> tuple[Sequence[bytes], bool]:
    """Return as many of the frames as fit `most` bytes, at least one, and whether the limit was reached."""
    size = 0
    for index, frame in enumerate(frames):
        size += len(frame)
        if size >= most:
            return frames[: index + 1], True
    return frames, False
