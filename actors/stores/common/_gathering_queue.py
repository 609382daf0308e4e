"""A queue that gathers what the trio thread submits while it has work, so that few transactions write much.

Theory of operation. Many commits follow each other within one burst of work: the end of a call, and immediately the
answer of a quick model. A writer that begins with the first of them makes the second wait for a whole transaction. So
requests are kept while the writer has nothing to do, until trio has no task to run (an instrument is called before each
wait for input), and then given to the writer together: an idle process pays nothing, and no timer is needed. A writer
that works gets each request immediately, because its own batch lasts longer than a burst. A busy trio thread gives
after `LONGEST`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import trio

from ...errors import StoreDown
from ._write_queue import Queued, R, WriteQueue, Writer

LONGEST: Final = 0.001
"""Seconds after which a busy trio thread gives at its next opportunity."""
FULL: Final = 100
"""Requests that are given to the writer immediately."""


class GatheringQueue(WriteQueue[R], trio.abc.Instrument):
    """See the module. Requests are kept only within `gathering`, and only while the writer has none."""

    def __init__(self, make_writer: Callable[[WriteQueue[R]], Writer], down: StoreDown | None = None) -> None:
        super().__init__(make_writer, down)
        self._kept: deque[Queued] = deque()
        self._since = 0.0
        self._gathers = False

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """Keep requests while trio has work, for the time of the block. In the trio thread."""
        trio.lowlevel.add_instrument(self)
        self._gathers = True
        try:
            yield
        finally:
            self._gathers = False
            self._give()
            trio.lowlevel.remove_instrument(self)

    def put(self, request: Queued) -> None:
        """Queue a request; the writer gets it when trio has nothing else to do, or immediately if the writer works."""
        if not self._gathers or self.down is not None:
            super().put(request)
            return
        now = time.monotonic()
        if not self._kept:
            self._since = now
        self.unsettled += 1
        self._kept.append(request)
        if self._taken or not self._waiting.empty() or now - self._since >= LONGEST or len(self._kept) >= FULL:
            self._give()

    def before_io_wait(self, timeout: float) -> None:
        """Called by trio: give the writer what was kept if no task can run, or after a while."""
        if self._kept and (timeout > 0 or time.monotonic() - self._since >= LONGEST):
            with suppress(MemoryError):  # trio removes an instrument that raises; what is kept is given the next time
                self._give()

    def end(self) -> None:
        """Mark the end of the queue, behind what was kept. In the trio thread."""
        self._give()
        super().end()

    def shut(self, down: StoreDown) -> None:
        """Settle each waiting and each later request as "down"; the first reason is kept."""
        self._give()
        super().shut(down)

    def _give(self) -> None:
        requests = self._kept
        while requests:
            self._waiting.put(requests[0])
            requests.popleft()  # only now: nothing is lost if memory ran out
