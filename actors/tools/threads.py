"""Run one function in one worker thread that can be abandoned but not stopped.

Theory of operation. The thread and its waiting task share a `ThreadBody`, guarded by a lock that is held for
assignments only. The body is in one of four states: waiting (not begun), working, ended, given up. When the waiting
task is cancelled:

* a body that has not begun never begins;
* a working body gets `grace` seconds, shielded and bounded. If it ends in time its outcome counts, as if the cancel had
  come a moment later, because its effect has happened; trio's cancellation is level-triggered and meets the caller at
  its next checkpoint;
* a body that does not end is given up: its stack is recorded, its late outcome and reports are dropped. Its token of
  the limiter stays with the thread until that ends, so abandoned threads are counted.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from itertools import dropwhile
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from greenroom.supervision.cleanup import Overrun, cleanup

_HERE: Final = Path(__file__).parent
_STACK_LIMIT: Final = 40
"""Frames kept of an abandoned thread, innermost last: enough to find the place, small enough for an event."""

NO_THREAD: Final = 0.1
"""Seconds between two tries to get a thread from the system."""


@attrs.frozen
class ThreadResult:
    """The end of a body: its value, or its exception."""

    value: Any = None
    error: BaseException | None = None


@attrs.define(eq=False)
class ThreadBody:
    """A function that runs in a worker thread."""

    _function: Callable[[], Any]
    _token: trio.lowlevel.TrioToken = attrs.field(factory=trio.lowlevel.current_trio_token)
    done: trio.Event = attrs.field(factory=trio.Event)
    _lock: threading.Lock = attrs.field(factory=threading.Lock)
    _thread: int | None = None
    _given_up: bool = False
    _ended: ThreadResult | None = None

    def run(self) -> None:
        """Run the function: the worker thread's side."""
        with self._lock:
            if self._given_up:
                return
            self._thread = threading.get_ident()
        try:
            result = ThreadResult(value=self._function())
        except BaseException as error:  # noqa: BLE001, ASYNC103 - the boundary: the waiting task handles every outcome
            result = ThreadResult(error=error)
        with self._lock:
            self._ended = None if self.given_up else result
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self.done.set)

    def give_up_unbegun(self) -> bool:
        """Return True if the body has not begun; then it never will."""
        with self._lock:
            self._given_up = self._thread is None
            return self._given_up

    def give_up(self) -> ThreadResult | None:
        """Return the outcome if the body has ended; else None, and its later outcome is dropped."""
        with self._lock:
            self._given_up = self._ended is None
            return self._ended

    @property
    def started(self) -> bool:
        """True if a thread has begun the body."""
        return self._thread is not None

    @property
    def ended(self) -> bool:
        """True if the body has ended and its outcome counts."""
        return self._ended is not None

    @property
    def given_up(self) -> bool:
        """True if the body was abandoned."""
        return self._given_up

    def stack(self) -> tuple[str, ...]:
        """Return the thread's stack, outermost frame first, `file:line:function` each."""
        frame = None if self._thread is None else sys._current_frames().get(self._thread)
        if frame is None:
            return ()
        frames = list(traceback.extract_stack(frame))
        start = next((number for number, entry in enumerate(frames) if entry.filename == __file__), 0)
        # only frames of this package lie between the thread's start and the body
        body = dropwhile(lambda entry: Path(entry.filename).parent == _HERE, frames[start:])
        return tuple([f"{entry.filename}:{entry.lineno}:{entry.name}" for entry in body][-_STACK_LIMIT:])


async def run_body(body: ThreadBody, *, limiter: trio.CapacityLimiter, grace: float, name: str) -> ThreadResult | None:
    """Run a body in a worker thread.

    Returns:
        Its end. None if it was cancelled and did not end within `grace` seconds: it was abandoned, and the caller has a
        cancellation pending.

    Raises:
        trio.Cancelled: cancelled before the body began; it never will.
    """
    try:
        await _in_thread(body, limiter=limiter, name=name)
    except trio.Cancelled:  # noqa: ASYNC103 - an outcome in time counts; the cancel stays pending in its scope
        if body.give_up_unbegun():
            raise
    if not body.ended:
        with cleanup(grace, what=f"thread of {name}", on_overrun=_told_by_the_caller):
            await body.done.wait()
    return body.give_up()


async def _in_thread(body: ThreadBody, *, limiter: trio.CapacityLimiter, name: str) -> None:
    """Run the body; while the system has no thread, wait.

    The body has not begun, and its time limit bounds the wait.
    """
    while True:
        try:
            await trio.to_thread.run_sync(body.run, abandon_on_cancel=True, limiter=limiter, thread_name=name)
        except (RuntimeError, MemoryError):
            if body.started:
                raise
            await trio.sleep(NO_THREAD)
        else:
            return


def _told_by_the_caller(_: Overrun) -> None: ...
