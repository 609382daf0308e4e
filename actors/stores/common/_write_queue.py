"""The queue between a store and its writer: requests in, results out, in order, also through an outage.

Theory of operation. `put` accepts a request and wakes the writer. The writer, a strategy made for each opening,
takes requests from the queue, executes them as one transaction and settles them in order. If the whole store is
unavailable, the writer retries the same batch with growing pauses, while commands are refused immediately. When its
patience is over, or it dies of another error, the queue is shut: each waiting and each later request is settled as
"down".

Only `take`, `keep`, `executed` and `end` may be called outside of the trio thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, NoReturn, Protocol, TypeVar

import trio

from ...errors import StoreDown
from ...store_events import OutageChanged, Report, ignore
from ._outages import Damaged, no_answer
from ._requests import PendingRequest


class Queued(Protocol):
    """A request in a queue. The type of its result belongs to the request, so that here a result may be any."""

    @property
    def size(self) -> int:
        """Bytes that the request carries."""

    def settle(self, result: Any, report: Report) -> None:
        """Report what the request changed, and deliver its result."""

    def lose(self, error: StoreDown, report: Report) -> None:
        """Settle the request as down."""


T = TypeVar("T")
R = TypeVar("R", bound=Queued)

FIRST_PAUSE: Final = 0.05
"""Seconds until the first retry; most locks are released by then."""
LONGEST_PAUSE: Final = 2.0
"""Seconds between retries: a disk with space again is noticed within this time."""

PATIENCE: Final = 30.0
"""Seconds of retries while the store is unavailable: enough to make space on a disk."""

LARGEST_BATCH: Final = 1_000
"""Most requests per transaction, because the first waits for the last."""

LARGEST_BYTES: Final = 8 * 2**20
"""Bytes of the requests of a transaction beyond which no other is added: each of them waits for all of them."""

Execute = Callable[[Sequence[R]], Sequence[object]]
"""Writes requests as one transaction: one result each. Raises Outage; any other exception ends the writer."""


def pauses() -> Iterator[float]:
    """Yield the seconds to wait before each retry."""
    pause = FIRST_PAUSE
    while True:
        yield pause
        pause = min(2 * pause, LONGEST_PAUSE)


def closed() -> StoreDown:
    """Return the error of a store that is not open."""
    return StoreDown("the store is not open; it serves while its run() is running")


def failed(error: BaseException) -> StoreDown:
    """Return the error of a store that has failed for good."""
    error = one_of(error)
    if isinstance(error, StoreDown | Damaged):  # says the way out itself
        down = StoreDown(str(error))
    else:
        down = StoreDown(f"the store has failed for good: {error}; start again, every run can be resumed")
    down.__cause__ = error
    return down


def one_of(error: BaseException) -> BaseException:
    """Return the first error of a group in which every task says that the store is down; another error as it is."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    first = one_of(error.exceptions[0])
    return first if isinstance(first, StoreDown) and error.split(StoreDown)[1] is None else error


class Writer(Protocol):
    """Executes queued requests, for one opening of the store."""

    def stop(self) -> None:
        """Write the queue, then let `serve` return: the store has failed."""

    async def serve(self) -> None:
        """Write until cancelled or the store has failed, and then the rest of the queue."""


class WriteQueue(Generic[R]):
    """Accepts requests of the kinds `R` in order and has them executed by a writer.

    The callers bound the queue: a run takes streamed text only when none of its commits is in flight, and a command's
    task waits for the result.

    Attributes:
        outage: why the whole store is unavailable; None if it answers.
        down: set while the store is closed, and once it has failed for good.
        unsettled: requests that wait for their result.
        report: receives the store's reports.
        wake: set by a writer that does not wait in `take`: called after each queued request.
    """

    _writer: Writer

    def __init__(self, make_writer: Callable[[WriteQueue[R]], Writer], down: StoreDown | None = None) -> None:
        """`make_writer`: called at each opening. `down`: why requests are refused before the first opening."""
        self._make_writer = make_writer
        self.report: Report = ignore
        self._report_outage: Report = ignore
        self._waiting: SimpleQueue[Any] = SimpleQueue()
        self._taken: Sequence[R] = ()
        self.unsettled = 0
        self.outage: Exception | None = None
        self.down: StoreDown | None = down or closed()
        self.wake: Callable[[], None] | None = None

    # --- the store's side
    # ------------------------------------------------------------------------------------------------

    def open(self, report: Report, outages: Report | None = None) -> None:
        """Accept requests from now on. `outages`: receives the reports about outages instead of `report`."""
        self.report, self._report_outage = report, report if outages is None else outages
        self._waiting = SimpleQueue()
        self._taken = ()
        self.unsettled = 0
        self.down = self.outage = self.wake = None
        self._writer = self._make_writer(self)

    def put(self, request: Queued) -> None:
        """Queue a request. A writer in the calling task settles it before this returns, except in an outage."""
        if self.down is not None:
            request.lose(self.down, self.report)
            return
        self.unsettled += 1
        self._waiting.put(request)
        if self.wake is not None:
            self.wake()

    async def ask(self, request: PendingRequest[T]) -> T:
        """Queue a request and return its result. Refused in an outage: the request would wait for the outage's end.

        Cancellation: raises Cancelled before the request is queued, or waits (shielded) and returns the result.

        Raises:
            StoreUnavailable: there is an outage; nothing was queued.
            StoreDown: the store is closed or has failed for good; if it failed meanwhile, it is unknown whether the
                request was written.
            Exception: the error with which the request was refused.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self.down is not None:
            raise StoreDown(str(self.down)) from self.down.__cause__
        if (refusal := self.refusal()) is not None:
            raise no_answer(refusal) from refusal
        self.put(request)
        return await request.wait()

    def refusal(self) -> Exception | None:
        """Return why requests are refused now; None if they are accepted."""
        return self.outage

    async def serve(self) -> NoReturn:
        """Let the writer work until cancelled; then let it write the queue, and shut.

        Raises:
            StoreDown: the store has failed for good.
        """
        try:
            await self._writer.serve()
        finally:
            self.shut(closed())
        raise StoreDown(str(self.down)) from self.down.__cause__ if self.down is not None else None

    # --- the writer's side
    # -----------------------------------------------------------------------------------------------

    def take(self, most: int, *, wait: float | None = None) -> tuple[Sequence[R], bool]:
        """Return the next requests, at most `most` and not many bytes; with False if they precede `end`.

        Args:
            most: most requests to take.
            wait: seconds to wait for the first; None: do not wait.
        """
        batch: list[R] = []
        more, size = True, 0
        try:
            request = self._waiting.get_nowait() if wait is None else self._waiting.get(timeout=wait)
            while True:
                if request is None:
                    more = False
                else:
                    batch.append(request)
                if len(batch) >= most or self._waiting.empty():
                    break
                if request is not None:
                    size += request.size
                if size >= LARGEST_BYTES:
                    break
                request = self._waiting.get_nowait()
        except Empty:
            pass
        self._taken = batch
        return batch, more

    def executed(self) -> None:
        """Note that the requests taken last are written; `settle` follows."""
        self._taken = ()

    def keep(self, batch: Sequence[R]) -> None:
        """Note that of the requests taken last only these are still to be written; `settle` of the others follows."""
        self._taken = batch

    def end(self) -> None:
        """Mark the end of the queue, for a writer that waits in `take`."""
        self._waiting.put(None)

    def settle(self, batch: Sequence[R], results: Sequence[object]) -> None:
        """Deliver results in commit order. A receiver that raises affects no other receiver, and ends the store."""
        failure = None
        for index, request in enumerate(batch):  # a strict zip costs ten times as much, for each commit
            self.unsettled -= 1
            try:
                request.settle(results[index], self.report)
            except Exception as error:  # noqa: BLE001 - a supervision boundary: the other results must still be delivered
                failure = failure or error
        if failure is not None and self.down is None:
            self.down = failed(failure)
            self._writer.stop()

    def stall(self, error: Exception) -> None:
        """Note that the whole store is unavailable."""
        first, self.outage = self.outage is None, error
        if first:
            self._report_outage(OutageChanged(error))

    def recover(self) -> None:
        """Note that the store answers again."""
        if self.outage is not None:
            self.outage = None
            self._report_outage(OutageChanged(None))

    def shut(self, down: StoreDown) -> None:
        """Settle each waiting and each later request as "down"; the first reason is kept.

        A receiver that raises affects no other receiver; the error of the store notes it.
        """
        if self.down is None:
            self.down = down
        unwritten, self._taken = list(self._taken), ()
        while True:
            try:
                request = self._waiting.get_nowait()
            except Empty:
                break
            if request is not None:
                unwritten.append(request)
        for request in unwritten:
            self.unsettled -= 1
            try:
                request.lose(self.down, self.report)
            except Exception as error:  # noqa: BLE001 - the tasks behind the other requests wait shielded, without an end
                self.down.add_note(f"a receiver of a receipt raised {type(error).__name__}: {error}")
