"""Streamed text before it is stored: merged, never dropped, bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import attrs
import trio

from ..contract.excerpt import LARGE
from .sanitize import text_of

PIECE: Final = 65_536
"""Most characters of streamed text in one event. With every character escaped the event is still within its limit."""
BUFFER_LIMIT: Final = 65_536
"""Characters of one message that may wait for the store before `DeltaBuffer.put` waits."""

SplitText = Callable[[str], tuple[int, str]]
"""(unfinished text) -> the number of characters that may be shown, and the part of the rest to keep."""


def pieces(text: str) -> Iterator[str]:
    """Yield a text in pieces that are taken immediately, without a copy of the whole.

    Raises:
        TypeError: it is not a str.
    """
    if not isinstance(text, str) or len(text) <= PIECE:
        yield text_of(text)
        return
    for at in range(0, len(text), PIECE):
        yield text_of(text[at : at + PIECE])


class DeltaBuffer:
    """Streamed text of one message (or one call's output) before it is stored: merged, never dropped, bounded.

    `put` waits while more than `BUFFER_LIMIT` characters wait for the store. A possible beginning of a secret waits for
    the text after it, and is shortened if it grows too long: see `StreamRedactor.hold`. `take` returns at most `PIECE`
    characters, so that an event stays small whatever the size of a chunk; the rest stays for the next `take`.
    """

    def __init__(self, nudge: Callable[[], None], split: SplitText) -> None:
        self._nudge = nudge
        self._split = split
        self._parts: list[str] = []
        self._size = 0
        self._ready = 0
        self._room: trio.Event | None = None
        self._discards_further = False

    def add(self, text: str) -> None:
        """Add text immediately, whatever its size (for threads, which limit their own pace)."""
        for piece in pieces(text):
            self._parts.append(piece)
            self._size += len(piece)
        if self._ready <= 0 or self._size <= PIECE:
            self._ready = -1
        self._nudge()

    def discard_further(self) -> None:
        """Stop all waiting for room: the work is being stopped and no more text is taken."""
        self._discards_further = True
        if self._room is not None:
            self._room.set()

    async def put(self, text: str) -> None:
        """Add text, piece by piece; wait while the buffer is over `BUFFER_LIMIT`, unless `discard_further` was called.

        Raises:
            TypeError: the text is not a str.
        """
        for piece in pieces(text):
            while self._size > BUFFER_LIMIT and not self._discards_further:
                if self._room is None:
                    self._room = trio.Event()
                await self._room.wait()
            self.add(piece)

    def take(self, *, last: bool = False) -> str:
        """Return the waiting text that may be shown, at most `PIECE` characters. `last`: no text will follow.

        After the last text, call `take` until it returns "".
        """
        self._look()
        text = self._front()
        cut = len(text) if last and not self._parts else min(self._ready, len(text))
        if cut < len(text):
            self._parts.insert(0, text[cut:])
        self._size -= cut
        self._ready = -1 if self._parts else 0
        self._make_room()
        return text[:cut]

    def _front(self) -> str:
        """Remove and return the first `PIECE` waiting characters."""
        size = count = 0
        while count < len(self._parts) and size < PIECE:
            size += len(self._parts[count])
            count += 1
        text = "".join(self._parts[:count])
        del self._parts[:count]
        if size > PIECE:
            self._parts.insert(0, text[PIECE:])
        return text[:PIECE]

    @property
    def waiting(self) -> int:
        """Waiting characters, including a possible beginning of a secret."""
        return self._size

    def __bool__(self) -> bool:
        """Return True if text that may be shown waits."""
        self._look()
        return self._ready > 0

    def _look(self) -> None:
        """Compute how much may be shown, at most one piece; shorten a secret that is too long to hold back."""
        while self._ready < 0:
            text = self._front()
            more = bool(self._parts)
            cut, tail = self._split(text)
            if len(tail) >= PIECE:  # held-back text is bounded: from this size on it is shown
                cut, tail = len(text), ""
            dropped_size = len(text) - cut - len(tail)
            if dropped_size:
                text = text[:cut] + tail
                self._size -= dropped_size
                self._make_room()
            if text:
                self._parts.insert(0, text)
            if cut or not more:  # a piece is longer than the text that may be held back: the next round is shorter
                self._ready = cut

    def _make_room(self) -> None:
        if self._room is not None:
            self._room.set()
            self._room = None


@attrs.define(eq=False)
class DeltaBuffers:
    """The streams of one child: text and reasoning of a message, or output and progress of a call.

    Attributes:
        text, reasoning: The buffers; `text` also for output.
        progress: the newest report of the progress.
        printed, thought: the deltas taken so far, of the output or of a body's message: text and reasoning.
    """

    text: DeltaBuffer
    reasoning: DeltaBuffer
    progress: tuple[float, str] | None = None
    printed: int = 0
    thought: int = 0

    def discard_further(self) -> None:
        """Stop all waiting for room."""
        self.text.discard_further()
        self.reasoning.discard_further()

    def tell(self, fraction: float, text: str) -> None:
        """Record the progress of a call; the newest report wins."""
        self.progress = (fraction, text_of(text, LARGE))
