"""The writer thread: whatever all runs have queued becomes one transaction, with no timer and no delay when idle.

Theory of operation. Requests go through a queue to the thread, which takes all that wait, writes them and hands all
results back with one `run_sync_soon`. While it writes, the next batch gathers: the group grows with the load by itself.
In an outage the thread tries the same batch again; when its patience is over, or it dies of anything else, its end is
reported to the trio thread, and everything that waits is told "down".

The queue is bounded by those who fill it: a run takes streamed text only when none of its commits is in flight, and a
command's task waits for the answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Final, NoReturn

import trio

from ..abc import StoreHooks
from ..errors import StoreDown, StoreUnavailable
from ._desk import Execute, Silent, closed, failed, pauses
from ._requests import Request
from .faults import Outage

LARGEST_BATCH: Final = 1_000
"""Requests per transaction: the first of them waits for the last."""

LOOK: Final = 2.0
"""Seconds after which an idle writer looks whether its file is where it was: a file that is gone is noticed by then."""

LONGEST_STOP: Final = 60.0
"""Seconds that closing waits for a thread that hangs in the disk; then it is left to itself."""


class ThreadDesk:
    """Takes requests in order and has them executed in a thread of its own.

    Attributes:
        outage: why the whole store does not answer now; None if it does.
        down: set when it never will (again).
    """

    def __init__(self, execute: Execute, *, patience: float, look: Callable[[], None] = lambda: None) -> None:
        """`look`: called in the thread every `LOOK` seconds while nothing is written; what it raises ends the store."""
        self._execute = execute
        self._look = look
        self._patience = patience
        self._incoming: SimpleQueue[Request | None] = SimpleQueue()
        self._stop = threading.Event()
        self._hooks: StoreHooks = Silent()
        self._token: trio.lowlevel.TrioToken | None = None
        self._ended = trio.Event()
        self._current: Sequence[Request] = ()
        self._waiting = 0
        self._deserted = False
        self.outage: Exception | None = None
        self.down: StoreDown | None = closed()

    def __len__(self) -> int:
        """How many requests wait."""
        return self._waiting

    def open(self, hooks: StoreHooks) -> None:
        """From now on requests are taken."""
        self._hooks = hooks
        self._token = trio.lowlevel.current_trio_token()
        self._incoming = SimpleQueue()
        self._stop = threading.Event()
        self._ended = trio.Event()
        self._current = ()
        self._waiting = 0
        self._deserted = False
        self.down = self.outage = None

    def put(self, request: Request) -> None:
        """Queue a request. Raises nothing."""
        if self.down is not None:
            request.lose(self.down, self._hooks)
            return
        self._waiting += 1
        self._incoming.put(request)

    def refuse_outage(self) -> None:
        """Let nobody ask who would have to wait for the end of an outage.

        Raises:
            StoreUnavailable: there is one. StoreDown: for good.
        """
        if self.down is not None:
            raise StoreDown(str(self.down)) from self.down.__cause__
        if self.outage is not None:
            raise StoreUnavailable(f"the store does not answer now: {self.outage}; try again") from self.outage

    async def serve(self) -> NoReturn:
        """Run the thread until cancelled; then let it write what is queued, and shut.

        Raises:
            StoreDown: the store has failed for good.
        """
        try:
            await self._begin()
        except BaseException:
            self._shut(closed())
            raise
        try:
            await self._ended.wait()
        finally:
            self._stop.set()
            self._incoming.put(None)
            with trio.move_on_after(LONGEST_STOP, shield=True):
                await self._ended.wait()
            self._deserted = not self._ended.is_set()
            self._shut(closed())
        raise StoreDown(str(self.down)) from self.down.__cause__ if self.down is not None else None

    async def _begin(self) -> None:
        """Start the thread. A system that gives none now is waited for, as long as for a disk."""
        until = trio.current_time() + self._patience
        for pause in pauses():
            try:
                trio.lowlevel.start_thread_soon(self._loop, self._report, name="greenroom store writer")
            except (RuntimeError, MemoryError) as error:
                if trio.current_time() >= until:
                    self._shut(failed(error))
                    raise StoreDown(str(self.down)) from error
                self._stall(error)
                await trio.sleep(min(pause, until - trio.current_time()))
            else:
                break
        if self.outage is not None:
            self._recovered()

    # --- in the writer thread ----------------------------------------------------------------------------------------

    def _loop(self) -> None:
        """Write until told to stop, and then what is left."""
        while True:
            batch, more = self._gather()
            if batch:
                self._current = batch
                results = self._write(batch)
                self._current = ()
                self._soon(self._settle, batch, results)
            if not more:
                return

    def _gather(self) -> tuple[list[Request], bool]:
        """Wait for a request and take what else there is; False with the last of them."""
        batch: list[Request] = []
        request = self._first()
        more = True
        while True:
            if request is None:
                more = False
            else:
                batch.append(request)
            if len(batch) >= LARGEST_BATCH:
                return batch, more
            try:
                request = self._incoming.get_nowait()
            except Empty:
                return batch, more

    def _first(self) -> Request | None:
        """Wait for a request."""
        while True:
            try:
                return self._incoming.get(timeout=LOOK)
            except Empty:
                self._look()

    def _write(self, batch: Sequence[Request]) -> Sequence[Any]:
        until = None
        for pause in pauses():
            last_try = self._stop.is_set() or (until is not None and time.monotonic() >= until)
            try:
                results = self._execute(batch)
            except Outage as outage:
                if last_try:
                    raise outage.error from None
                if until is None:
                    until = time.monotonic() + self._patience
                self._soon(self._stall, outage.error)
                self._stop.wait(max(0.0, min(pause, until - time.monotonic())))
                continue
            if until is not None:
                self._soon(self._recovered)
            return results
        raise AssertionError("pauses() never ends")

    def _soon(self, function: Any, *arguments: object) -> None:
        assert self._token is not None  # noqa: S101 - open() has set it before the thread was started
        self._token.run_sync_soon(function, *arguments)

    def _report(self, end: Any) -> None:
        """Called in the thread with its outcome: a value, or an error."""
        self._soon(self._finish, getattr(end, "error", None))

    # --- in the trio thread ------------------------------------------------------------------------------------------

    def _settle(self, batch: Sequence[Request], results: Sequence[Any]) -> None:
        """Hand results over in commit order; who fails to take his harms nobody else, and ends the store."""
        failure = None
        if self._deserted:
            return
        for request, result in zip(batch, results, strict=True):
            self._waiting -= 1
            try:
                request.settle(result, self._hooks)
            except Exception as error:  # noqa: BLE001 - a supervision boundary: the others' results must not be lost
                failure = failure or error
        if failure is not None and self.down is None:
            self.down = failed(failure)
            self._stop.set()
            self._incoming.put(None)

    def _stall(self, error: Exception) -> None:
        first, self.outage = self.outage is None, error
        if first:
            self._hooks.unavailable(error)

    def _recovered(self) -> None:
        self.outage = None
        self._hooks.unavailable(None)

    def _finish(self, error: BaseException | None) -> None:
        """The thread has ended."""
        if error is not None:
            self._shut(failed(error))
        self._ended.set()

    def _shut(self, down: StoreDown) -> None:
        """Tell every waiting and later request that the store is down; the first reason stays."""
        if self.down is None:
            self.down = down
        lost, self._current = list(self._current), ()
        while True:
            try:
                request = self._incoming.get_nowait()
            except Empty:
                break
            if request is not None:
                lost.append(request)
        for request in lost:
            self._waiting -= 1
            request.lose(self.down, self._hooks)
