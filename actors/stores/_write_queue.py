"""The queue between a store and its writer: requests in, results out, in order, also through an outage.

Theory of operation. `put` accepts a request and wakes the writer. The writer, a strategy that is made anew for each
opening, takes requests from the queue, executes them as one transaction and settles them in the order in which they
came. If the whole store does not answer, the writer tries the same batch again with growing pauses, while commands are
refused at once. When its patience is over, or when it has died of anything else, the queue is shut: each waiting and
each later request is settled as "down".

Only `take`, `executed` and `end` may be called outside of the trio thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Final, NoReturn, Protocol

from ..abc import StoreHooks
from ..errors import StoreDown, StoreUnavailable
from ._outages import Damaged
from ._requests import Request

FIRST_PAUSE: Final = 0.05
"""Seconds until the first new try: most locks are gone by then."""
LONGEST_PAUSE: Final = 2.0
"""Seconds between tries: a disk that has room again is noticed within this time."""

PATIENCE: Final = 30.0
"""Seconds for which a store that does not answer is tried again: enough to make room on a disk."""

LARGEST_BATCH: Final = 1_000
"""Requests per transaction: the first of them waits for the last."""

Execute = Callable[[Sequence[Request]], Sequence[Any]]
"""Write requests as one transaction: one result each. Raises Outage; any other exception is the death of the writer."""


def pauses() -> Iterator[float]:
    """Seconds to wait before each new try."""
    pause = FIRST_PAUSE
    while True:
        yield pause
        pause = min(2 * pause, LONGEST_PAUSE)


def closed() -> StoreDown:
    """The error of a store that is not open."""
    return StoreDown("the store is not open; it serves while its run() is running")


def failed(error: BaseException) -> StoreDown:
    """The error of a store that has failed for good."""
    if isinstance(error, StoreDown | Damaged):  # says the way out itself
        down = StoreDown(str(error))
    else:
        down = StoreDown(f"the store has failed for good: {error}; start again, every run can be resumed")
    down.__cause__ = error
    return down


class NullHooks(StoreHooks):
    """The hooks of a store that is not open: they do nothing."""

    def posted(self, run_id: str, item: object) -> None:
        """Nothing."""

    def committed(self, run_id: str, last: int, frames: object) -> None:
        """Nothing."""

    def pruned(self) -> None:
        """Nothing."""

    def unavailable(self, error: Exception | None) -> None:
        """Nothing."""


class Writer(Protocol):
    """Executes what is queued, for one opening of the store."""

    def wake(self) -> None:
        """A request was queued."""

    def stop(self) -> None:
        """The store has failed: write what is queued, then let `serve` return."""

    async def serve(self) -> None:
        """Write until cancelled or the store has failed, and what is queued at that moment."""


class WriteQueue:
    """Takes requests in order and has them executed by a writer.

    A queue is bounded by those who fill it: a run takes streamed text only when none of its commits is in flight, and a
    command's task waits for the answer.

    Attributes:
        outage: why the whole store does not answer now; None if it does.
        down: set when it never will (again).
        unsettled: requests that wait for their result.
    """

    _writer: Writer

    def __init__(self, make_writer: Callable[[WriteQueue], Writer]) -> None:
        """`make_writer`: called at each opening."""
        self._make_writer = make_writer
        self._hooks: StoreHooks = NullHooks()
        self._waiting: SimpleQueue[Request | None] = SimpleQueue()
        self._taken: Sequence[Request] = ()
        self.unsettled = 0
        self.outage: Exception | None = None
        self.down: StoreDown | None = closed()

    # --- for the store -----------------------------------------------------------------------------------------------

    def open(self, hooks: StoreHooks) -> None:
        """Accept requests from now on."""
        self._hooks = hooks
        self._waiting = SimpleQueue()
        self._taken = ()
        self.unsettled = 0
        self.down = self.outage = None
        self._writer = self._make_writer(self)

    def put(self, request: Request) -> None:
        """Queue a request; a writer in the calling task settles it before this returns, but in an outage."""
        if self.down is not None:
            request.lose(self.down, self._hooks)
            return
        self.unsettled += 1
        self._waiting.put(request)
        self._writer.wake()

    def refuse_outage(self) -> None:
        """Refuse a command that would have to wait for the end of an outage.

        Raises:
            StoreUnavailable: there is one. StoreDown: for good.
        """
        if self.down is not None:
            raise StoreDown(str(self.down)) from self.down.__cause__
        if self.outage is not None:
            raise StoreUnavailable(f"the store does not answer now: {self.outage}; try again") from self.outage

    async def serve(self) -> NoReturn:
        """Let the writer work until this is cancelled; then let it write what is queued, and shut.

        Raises:
            StoreDown: the store has failed for good.
        """
        try:
            await self._writer.serve()
        finally:
            self.shut(closed())
        raise StoreDown(str(self.down)) from self.down.__cause__ if self.down is not None else None

    # --- for the writer ----------------------------------------------------------------------------------------------

    def take(self, most: int, *, wait: float | None = None) -> tuple[Sequence[Request], bool]:
        """The next requests, at most so many; False beside those before `end`.

        Args:
            most: how many.
            wait: seconds to wait for the first; None: do not wait.
        """
        batch: list[Request] = []
        more = True
        try:
            request = self._waiting.get_nowait() if wait is None else self._waiting.get(timeout=wait)
            while True:
                if request is None:
                    more = False
                else:
                    batch.append(request)
                if len(batch) >= most:
                    break
                request = self._waiting.get_nowait()
        except Empty:
            pass
        self._taken = batch
        return batch, more

    def executed(self) -> None:
        """The requests that were taken last are written; `settle` is to follow."""
        self._taken = ()

    def end(self) -> None:
        """Mark the end of the queue, for a writer that waits in `take`."""
        self._waiting.put(None)

    def settle(self, batch: Sequence[Request], results: Sequence[Any]) -> None:
        """Hand results over in commit order. A receiver that raises harms no other one, and ends the store."""
        failure = None
        for request, result in zip(batch, results, strict=True):
            self.unsettled -= 1
            try:
                request.settle(result, self._hooks)
            except Exception as error:  # noqa: BLE001 - a supervision boundary: the others' results must not be lost
                failure = failure or error
        if failure is not None and self.down is None:
            self.down = failed(failure)
            self._writer.stop()

    def stall(self, error: Exception) -> None:
        """The whole store does not answer."""
        first, self.outage = self.outage is None, error
        if first:
            self._hooks.unavailable(error)

    def recover(self) -> None:
        """The store answers again."""
        if self.outage is not None:
            self.outage = None
            self._hooks.unavailable(None)

    def shut(self, down: StoreDown) -> None:
        """Settle each waiting and each later request as "down"; the first reason stays."""
        if self.down is None:
            self.down = down
        lost, self._taken = list(self._taken), ()
        while True:
            try:
                request = self._waiting.get_nowait()
            except Empty:
                break
            if request is not None:
                lost.append(request)
        for request in lost:
            self.unsettled -= 1
            request.lose(self.down, self._hooks)
