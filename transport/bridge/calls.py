"""The two forms of a call from asyncio into a trio thread: a function, and a block inside a context manager."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, Protocol, TypeVar

import trio
from typing_extensions import override

from greenroom.actors.errors import RuntimeClosed
from greenroom.supervision import Raised, Returned, failure_of, leaves

from .waiting import wait_through

T = TypeVar("T")

_CANCELS: Final = (asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit)
"""Exceptions of a block that cancel the manager around it: the program ends, and nothing is to be waited for."""


class CallingThread(Protocol):
    """What a call needs of its trio thread."""

    def send(self, callback: Callable[[], object]) -> None:
        """Call a function in the thread."""

    def tell(self, callback: Callable[[], object]) -> None:
        """Call a function in the host's thread."""

    def new_future(self) -> asyncio.Future[Any]:
        """Return a future that is None at the end of the thread at the latest."""

    def spawn(self, function: Callable[[], Awaitable[object]]) -> None:
        """Start a trio task."""


def closed() -> RuntimeClosed:
    """Return the error of a call to a thread that has ended."""
    return RuntimeClosed("the runtime is closed, and its thread has ended")


def value_of(end: Returned[T] | Raised | None) -> T:
    """Return or raise what a function has returned or raised; None: the thread has ended before."""
    match end:
        case Returned():
            return end.value
        case Raised():
            raise end.error
        case None:
            raise closed()


async def _end_of(scope: trio.CancelScope, function: Callable[[], Awaitable[T]]) -> Returned[T] | Raised | None:
    """Call a function under a scope, and return how the call ended; None: the scope was cancelled.

    Groups of errors stay as they are: the host is to meet the exceptions that a trio program would meet.
    """
    try:
        with scope:
            return Returned(await function())
    except BaseException as error:  # noqa: BLE001, ASYNC103 - the host gets it
        if any(isinstance(leaf, trio.Cancelled | GeneratorExit) for leaf in leaves(error)):
            return Raised(failure_of(error))  # noqa: ASYNC104 - it has raised a cancellation of the thread itself
        return Raised(error)  # noqa: ASYNC104 - as above
    return None


class TrioCall(Generic[T]):
    """One call: a future of the host, and the trio task that ends the wait for it."""

    def __init__(self, thread: CallingThread, function: Callable[[], Awaitable[T]]) -> None:
        self._thread, self._function = thread, function
        self._context = contextvars.copy_context()
        self._scope = trio.CancelScope()
        self._future: asyncio.Future[Returned[T] | Raised | None] = thread.new_future()

    def __repr__(self) -> str:
        return f"<TrioCall of {self._function!r}>"

    async def result(self) -> T:
        """Call the function, and return its result. See `TrioThread.run`."""
        self._thread.send(self._begin)
        cancellation = await wait_through(self._future, self._cancel)
        end = self._future.result()
        if cancellation is not None and not isinstance(end, Raised):
            raise cancellation
        return value_of(end)

    def _cancel(self) -> None:
        with suppress(RuntimeClosed):  # the end of the thread is the end of the call
            self._thread.send(self._scope.cancel)

    def _finish(self, end: Returned[T] | Raised | None) -> None:
        if not self._future.done():
            self._future.set_result(end)

    # --- in trio's thread --------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._context.run(self._thread.spawn, self._serve)

    async def _serve(self) -> None:
        end: Returned[T] | Raised | None = None
        try:
            end = await _end_of(self._scope, self._function)
        finally:
            self._thread.tell(partial(self._finish, end))


class Visit(AbstractAsyncContextManager[T]):
    """One block of the host inside a context manager of trio. See `TrioThread.enter`."""

    def __init__(self, thread: CallingThread, make: Callable[[], AbstractAsyncContextManager[T]]) -> None:
        self._thread, self._make = thread, make
        self._context = contextvars.copy_context()
        self._scope, self._leave = trio.CancelScope(), trio.Event()
        self._entered: asyncio.Future[Returned[T] | None] = thread.new_future()
        self._ended: asyncio.Future[Returned[None] | Raised | None] = thread.new_future()
        self._thrown: BaseException | None = None
        self._task: asyncio.Task[Any] | None = None  # while it is in the block
        self._cancels = 0
        self._is_interrupted = False

    def __repr__(self) -> str:
        return f"<Visit {'ended' if self._ended.done() else 'open'}>"

    @override
    async def __aenter__(self) -> T:
        self._thread.send(self._begin)
        cancellation = await wait_through(self._entered, self._cancel)
        if cancellation is not None:  # the manager may be entered nevertheless
            self._cancel()
            await wait_through(self._ended)
        if self._ended.done():
            end = self._ended.result()
            raise end.error if isinstance(end, Raised) else cancellation or closed()
        self._task = asyncio.current_task()
        self._cancels = 0 if self._task is None else self._task.cancelling()
        return value_of(self._entered.result())

    @override
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        task, self._task = self._task, None
        if isinstance(error, _CANCELS):
            self._cancel()
        else:
            self._thrown = error
            with suppress(RuntimeClosed):  # the end of the thread is the end of the manager
                self._thread.send(self._leave.set)
        cancellation = await wait_through(self._ended, self._cancel)  # noqa: ASYNC102 - no cancel is lost
        if self._is_interrupted and task is not None and task.uncancel() <= self._cancels:
            # only `_note_end` has cancelled the block, so its cancellation is not the block's error
            error = None if isinstance(error, asyncio.CancelledError) else error
        return self._settle(error, cancellation)

    def _settle(self, error: BaseException | None, cancellation: asyncio.CancelledError | None) -> bool:
        """Return True if the block ends without its error, False if it ends with that, or raise another one."""
        end = self._ended.result()
        is_cancel = isinstance(error, _CANCELS)
        if isinstance(end, Raised) and not (is_cancel and self._is_interrupted):
            if end.error is error:
                return False
            raise end.error
        if is_cancel:
            return False
        if cancellation is not None:
            raise cancellation
        if end is None and error is None:
            raise closed()
        return end is not None

    def _cancel(self) -> None:
        with suppress(RuntimeClosed):  # the end of the thread is the end of the manager
            self._thread.send(self._scope.cancel)

    def _note_entered(self, value: T) -> None:
        if not self._entered.done():
            self._entered.set_result(Returned(value))

    def _note_end(self, end: Returned[None] | Raised | None) -> None:
        if not self._ended.done():
            self._ended.set_result(end)
        if not self._entered.done():
            self._entered.set_result(None)
        elif self._task is not None:
            self._is_interrupted = True
            self._task.cancel("the manager of this block has ended")

    # --- in trio's thread --------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._context.run(self._thread.spawn, self._serve)

    async def _serve(self) -> None:
        end: Returned[None] | Raised | None = None
        try:
            end = await _end_of(self._scope, self._stay)
        finally:
            self._thread.tell(partial(self._note_end, end))

    async def _stay(self) -> None:
        async with self._make() as value:
            self._thread.tell(partial(self._note_entered, value))
            await self._leave.wait()
            if self._thrown is not None:
                raise self._thrown
