"""The writer thread: all queued requests become one transaction, with no timer and no delay when idle.

Theory of operation. The thread takes all waiting requests, writes them and returns all results with one
`run_sync_soon`. While it writes, the next batch gathers: the group grows with the load by itself. In an outage the
thread retries the same batch, and so it does after a crash (`_restarts.py`). When its patience is over, or it crashes
too often, its end is reported to the trio thread, which shuts the queue.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic

import trio

from ...errors import StoreDown
from ._restarts import Restarts
from ._write_queue import LARGEST_BATCH, Execute, R, WriteQueue, failed, pauses
from .faults import Outage

LOOK: Final = 2.0
"""Seconds after which an idle writer checks its file: a removed file is noticed within this time."""

LONGEST_STOP: Final = 60.0
"""Seconds that closing waits for a thread that hangs in the disk; then the thread is abandoned."""


class ThreadWriter(Generic[R]):
    """Executes requests in a thread of its own. Made in the trio thread, for one opening of the store.

    Args:
        queue: holds the requests.
        execute: writes a batch, in the thread.
        patience: seconds of retries while the store is unavailable.
        look: called in the thread every `LOOK` seconds while idle; an exception ends the store.
        renew: called in the thread after a crash of `execute`, which may have left a connection in any state.
        most: requests per batch, because the first waits for the last.
    """

    def __init__(
        self,
        queue: WriteQueue[R],
        execute: Execute[R],
        *,
        patience: float,
        look: Callable[[], None] = lambda: None,
        renew: Callable[[], None] = lambda: None,
        most: int = LARGEST_BATCH,
    ) -> None:
        self._queue = queue
        self._execute = execute
        self._look, self._renew = look, renew
        self._restarts = Restarts(lambda event: self._soon(queue.report, event))
        self._patience = patience
        self._most = most
        self._token = trio.lowlevel.current_trio_token()
        self._stop = threading.Event()
        self._ended = trio.Event()
        self._deserted = False

    def stop(self) -> None:
        """Let the thread write the queue, and end. In an outage it tries once more."""
        self._stop.set()
        self._queue.end()

    async def serve(self) -> None:
        """Run the thread until cancelled or the store has failed; then let it write the queue."""
        if not await self._begin():
            return
        try:
            await self._restarts.kept("the task of the store's writer", self._ended.wait)
        finally:
            self.stop()
            with trio.move_on_after(LONGEST_STOP, shield=True):
                await self._ended.wait()
            self._deserted = not self._ended.is_set()

    async def _begin(self) -> bool:
        """Start the thread. If the system has none now, retry as for a disk; returns False once the queue is shut."""
        until = trio.current_time() + self._patience
        for pause in pauses():
            try:
                trio.lowlevel.start_thread_soon(self._loop, self._report, name="greenroom store writer")
            except (RuntimeError, MemoryError) as error:
                if trio.current_time() >= until:
                    self._queue.shut(failed(error))
                    return False
                self._queue.stall(error)
                await trio.sleep(min(pause, until - trio.current_time()))
            else:
                break
        self._queue.recover()
        return True

    # --- in the writer thread ----------------------------------------------------------------------------------------

    def _loop(self) -> None:
        """Write until the end of the queue."""
        more = True
        while more and not self._deserted:
            batch, more = self._queue.take(self._most, wait=LOOK)
            if batch:
                batch, results = self._write(batch)
                self._queue.executed()
                self._soon(self._settle, batch, results)
            elif more:
                self._look()

    def _write(self, batch: Sequence[R]) -> tuple[Sequence[R], Sequence[Any]]:
        """Execute a batch until it is written; returns the requests that are left to settle, and their results.

        An outage may settle some of them before. Without any left, the retries look whether the store answers again.
        After a crash the same batch is executed, too: its durable part is not written twice.
        """
        until = None
        for pause in pauses():
            last_try = self._stop.is_set() or (until is not None and time.monotonic() >= until)
            try:
                results = self._execute(batch)
            except Outage as outage:
                if last_try:
                    raise failed(outage.error)  # noqa: B904 - its cause is the store's own error
                if until is None:
                    until = time.monotonic() + self._patience
                self._soon(self._queue.stall, outage.error)
                batch = self._settled_before(batch, outage)
                self._stop.wait(max(0.0, min(pause, until - time.monotonic())))
                continue
            except Exception as crash:  # a supervision boundary: of a bug, or an injected fault
                if not self._restarts.begins_again("the store's writer", crash):
                    raise
                self._renew()
                continue
            if until is not None:
                self._soon(self._queue.recover)
            return batch, results
        raise AssertionError("pauses() never ends")

    def _settled_before(self, batch: Sequence[R], outage: Outage) -> Sequence[R]:
        """Settle the requests that an outage need not hold up; returns the others."""
        if not outage.settled:
            return batch
        settled = [request for request in batch if request in outage.settled]
        remaining_requests = [request for request in batch if request not in outage.settled]
        self._queue.keep(remaining_requests)
        self._soon(self._settle, settled, [outage.settled[request] for request in settled])
        return remaining_requests

    def _soon(self, function: Any, *arguments: object) -> None:
        self._token.run_sync_soon(function, *arguments)

    def _report(self, end: object) -> None:
        """Called in the thread with its outcome: a value, or an error."""
        self._soon(self._finish, getattr(end, "error", None))

    # --- in the trio thread ------------------------------------------------------------------------------------------

    def _settle(self, batch: Sequence[R], results: Sequence[object]) -> None:
        """The writes of a thread that was left to itself have been settled as "down"."""
        if not self._deserted:
            self._queue.settle(batch, results)

    def _finish(self, error: BaseException | None) -> None:
        """The thread has ended."""
        if error is not None and not self._deserted:
            self._queue.shut(error if isinstance(error, StoreDown) else failed(error))
        self._ended.set()
