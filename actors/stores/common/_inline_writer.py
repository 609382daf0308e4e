"""The writer that executes requests in the calling task, for stores in memory and under virtual time.

Theory of operation. The queue's `wake` writes immediately, in the stretch of the caller. A result may make its receiver
queue the next request from inside `settle`; the loop of the outer `wake` executes that, so the stack stays flat. In an
outage, and after a crash (`_restarts.py`), `wake` does nothing, and the task in `serve` retries the same batch on
trio's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic

import trio

from ._restarts import Restarts
from ._write_queue import Execute, R, WriteQueue, failed, pauses
from .faults import Outage


class InlineWriter(Generic[R]):
    """Executes requests as they are queued; in an outage, the task in `serve` retries.

    Args:
        queue: holds the requests.
        execute: writes a batch.
        patience: seconds of retries while the store is unavailable.
        batch: most requests per transaction.
        renew: called after a crash of `execute`, which may have left a connection in any state.
    """

    def __init__(
        self,
        queue: WriteQueue[R],
        execute: Execute[R],
        *,
        patience: float,
        batch: int,
        renew: Callable[[], None] = lambda: None,
    ) -> None:
        self._queue, self._renew = queue, renew
        self._execute = execute
        self._patience = patience
        self._most = batch
        self._batch: Sequence[R] = ()  # retried unchanged
        self._busy = self._paused = False
        self._trouble = trio.Event()
        self._restarts = Restarts(queue.report)
        queue.wake = self._wake

    def _wake(self) -> None:
        if self._queue.outage is None:
            self._flush()

    def stop(self) -> None:
        """Let `serve` return."""
        self._trouble.set()

    def pause(self) -> None:
        """Execute nothing until `resume`: requests wait. Cancelled meanwhile, `serve` leaves them unwritten."""
        self._paused = True

    def resume(self) -> None:
        """Execute what waits, and what comes."""
        self._paused = False
        self._wake()

    def _flush(self) -> None:
        """Execute the queue. A receiver may queue another request meanwhile, which the outer loop executes."""
        if self._busy or self._paused:
            return
        self._busy = True
        queue = self._queue
        try:
            while self._batch or queue.unsettled:
                batch = self._batch = self._batch or queue.take(self._most)[0]
                results = self._execute(batch)
                self._batch = ()
                queue.executed()
                if queue.outage is not None:
                    queue.recover()
                queue.settle(batch, results)
        except Outage as outage:
            queue.stall(outage.error)
            self._trouble.set()
        except Exception as error:  # noqa: BLE001 - a supervision boundary: all waiting requests must be settled
            if self._restarts.begins_again("the store's writer", error):
                self._renew()
                queue.stall(error)
                self._trouble.set()
            else:
                self.fail(error)
        finally:
            self._busy = False

    def fail(self, error: Exception) -> None:
        """Settle everything as "down", and let `serve` return."""
        self._queue.shut(failed(error))
        self._trouble.set()

    async def serve(self) -> None:
        """Retry through every outage until cancelled or the store has failed; on a cancel try a last time."""
        try:
            await self._restarts.kept("the task of the store's writer", self._attend)
        finally:
            if self._queue.down is None:
                self._flush()

    async def _attend(self) -> None:
        queue = self._queue
        while queue.down is None:
            if queue.outage is None:
                await self._trouble.wait()
            self._trouble = trio.Event()
            if queue.outage is not None and queue.down is None:
                await self._recover()

    async def _recover(self) -> None:
        until = trio.current_time() + self._patience
        for pause in pauses():
            await trio.sleep(min(pause, max(0.0, until - trio.current_time())))
            self._flush()
            if self._queue.outage is None or self._queue.down is not None:
                return
            if trio.current_time() >= until:
                self.fail(self._queue.outage)
                return
