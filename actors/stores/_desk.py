"""The desk of a store that writes in the calling task: requests in, results out, in order, also through an outage.

Theory of operation. A request is executed where it is handed in. If the whole store does not answer, the requests stay
in the queue, the task in `serve` tries again with growing pauses (trio's clock, so virtual time works), and asking
callers are refused at once. When the patience is over, or the writer has died, every waiting and later request is told
"down".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, NoReturn

import trio

from ..abc import StoreHooks
from ..errors import StoreDown, StoreUnavailable
from ._outages import Damaged
from ._requests import Request
from .faults import Outage

FIRST_PAUSE: Final = 0.05
"""Seconds until the first new try: most locks are gone by then."""
LONGEST_PAUSE: Final = 2.0
"""Seconds between tries: a disk that has room again is noticed within this time."""

PATIENCE: Final = 30.0
"""Seconds for which a store that does not answer is tried again: enough to make room on a disk."""

Execute = Callable[[Sequence[Request]], Sequence[Any]]
"""Write requests as one transaction: one result each. Raises Outage; any other exception is the death of the writer."""


def pauses() -> Iterator[float]:
    """Seconds to wait before each new try."""
    pause = FIRST_PAUSE
    while True:
        yield pause
        pause = min(2 * pause, LONGEST_PAUSE)


def closed() -> StoreDown:
    """What callers of a store that is not open are told."""
    return StoreDown("the store is not open; it serves while its run() is running")


def failed(error: BaseException) -> StoreDown:
    """What callers of a store that has failed for good are told."""
    if isinstance(error, StoreDown | Damaged):  # says the way out itself
        down = StoreDown(str(error))
        down.__cause__ = error
        return down
    down = StoreDown(f"the store has failed for good: {error}; start again, every run can be resumed")
    down.__cause__ = error
    return down


class Silent(StoreHooks):
    """Hooks of a store that is not open: nobody listens."""

    def posted(self, run_id: str, item: object) -> None:
        """Nothing."""

    def committed(self, run_id: str, last: int, frames: object) -> None:
        """Nothing."""

    def pruned(self) -> None:
        """Nothing."""

    def unavailable(self, error: Exception | None) -> None:
        """Nothing."""


class Desk:
    """Takes requests in order and has them executed in the calling task.

    Attributes:
        outage: why the whole store does not answer now; None if it does.
        down: set when it never will (again).
    """

    def __init__(self, execute: Execute, *, patience: float, batch: int) -> None:
        self._execute = execute
        self._patience = patience
        self._batch = batch
        self._queue: deque[Request] = deque()
        self._hooks: StoreHooks = Silent()
        self._busy = False
        self._trouble = trio.Event()
        self.outage: Exception | None = None
        self.down: StoreDown | None = closed()

    def __len__(self) -> int:
        """How many requests wait."""
        return len(self._queue)

    def open(self, hooks: StoreHooks) -> None:
        """From now on requests are executed."""
        self._hooks = hooks
        self._trouble = trio.Event()
        self.down = self.outage = None

    def put(self, request: Request) -> None:
        """Execute a request now, or keep it for after the outage. It may be settled before this returns."""
        if self.down is not None:
            request.lose(self.down, self._hooks)
            return
        self._queue.append(request)
        if self.outage is None:
            self._flush()

    def refuse_outage(self) -> None:
        """Let nobody ask who would have to wait for the end of an outage.

        Raises:
            StoreUnavailable: there is one. StoreDown: for good.
        """
        if self.down is not None:
            raise StoreDown(str(self.down)) from self.down.__cause__
        if self.outage is not None:
            raise StoreUnavailable(f"the store does not answer now: {self.outage}; try again") from self.outage

    def _flush(self) -> None:
        """Execute what waits. Whoever is told of a result may hand in the next request: the loop outside takes it."""
        if self._busy:
            return
        self._busy = True
        try:
            while self._queue:
                batch = list(islice(self._queue, self._batch))
                results = self._execute(batch)
                self._recovered()
                for result in results:
                    self._queue.popleft().settle(result, self._hooks)
        except Outage as outage:
            self._stall(outage.error)
        except Exception as error:  # noqa: BLE001 - a supervision boundary: all who wait must hear that the writer died
            self._fail(error)
        finally:
            self._busy = False

    def _recovered(self) -> None:
        if self.outage is not None:
            self.outage = None
            self._hooks.unavailable(None)

    def _stall(self, error: Exception) -> None:
        first, self.outage = self.outage is None, error
        if first:
            self._hooks.unavailable(error)
            self._trouble.set()

    def _fail(self, error: Exception) -> None:
        self.shut(failed(error))
        self._trouble.set()

    def shut(self, down: StoreDown) -> None:
        """Tell every waiting and later request that the store is down."""
        self.down = down
        waiting, self._queue = self._queue, deque()
        for request in waiting:
            request.lose(down, self._hooks)

    async def serve(self) -> NoReturn:
        """See every outage to its end, until cancelled; then try a last time, and shut.

        Raises:
            StoreDown: the store has failed for good.
        """
        try:
            while True:
                await self._trouble.wait()
                if self.outage is not None and self.down is None:
                    await self._recover()
                if self.down is not None:
                    raise self.down
                self._trouble = trio.Event()
        finally:
            if self.down is None:
                self._flush()
                self.shut(closed())

    async def _recover(self) -> None:
        until = trio.current_time() + self._patience
        for pause in pauses():
            await trio.sleep(min(pause, max(0.0, until - trio.current_time())))
            self._flush()
            if self.outage is None or self.down is not None:
                return
            if trio.current_time() >= until:
                self._fail(self.outage)
                return
