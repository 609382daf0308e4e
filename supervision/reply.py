"""`Reply`: a one-shot answer that one task awaits."""

from __future__ import annotations

from typing import Generic, TypeVar

from attrs import define, field
from trio.lowlevel import Abort, Task, checkpoint, current_task, reschedule, wait_task_rescheduled

T = TypeVar("T")


@define(eq=False)
class Reply(Generic[T]):
    """A one-shot reply. The first `send` or `fail` wins; later calls have no effect."""

    _done: bool = field(init=False, default=False)
    _value: T | None = field(init=False, default=None)
    _error: BaseException | None = field(init=False, default=None)
    _waiter: Task | None = field(init=False, default=None)

    def __repr__(self) -> str:
        return f"<Reply {'resolved' if self._done else 'open'} at {id(self):#x}>"

    @property
    def done(self) -> bool:
        """True if the reply is resolved or abandoned; a further answer would be dropped."""
        return self._done

    def send(self, value: T) -> bool:
        """Resolve with a value; never waits, never raises. Return False if already resolved or abandoned."""
        if self._done:
            return False
        self._value = value
        return self._resolve()

    def fail(self, error: BaseException) -> bool:
        """Resolve with an error that `wait` raises; never waits, never raises. Return False as `send` does."""
        if self._done:
            return False
        self._error = error
        return self._resolve()

    def abandon(self) -> None:
        """Mark the reply as abandoned by its asker: later answers are dropped."""
        self._done = True

    async def wait(self) -> T:
        """Wait for the answer; only one task may wait.

        Raises:
            BaseException: The error passed to `fail`.

        Cancellation: nothing is lost; a later `wait` returns the answer.
        """
        if self._done:
            await checkpoint()
        else:
            self._waiter = current_task()
            await wait_task_rescheduled(self._abort)
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # None only if T admits None: send() is the one writer

    def _resolve(self) -> bool:
        self._done = True
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            reschedule(waiter)
        return True

    def _abort(self, _: object) -> Abort:
        self._waiter = None
        return Abort.SUCCEEDED
