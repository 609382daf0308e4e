"""`TrioThread`: trio in a thread of an asyncio program, and calls from asyncio into it.

    async with open_trio_thread() as thread:
        answer = await thread.run(trio_function, 1)
        async with thread.enter(open_something) as something:      # an async context manager of trio
            async with thread.iterate(something.follow) as items:  # an async iterable of trio
                async for item in items: ...

Theory of operation. A trio task in the thread executes each call, under a cancel scope, and the asyncio caller waits
for a future. A cancel of the caller cancels the scope, and the caller waits on until the trio task has ended: no call
leaves work behind. Trio could also run inside the host's loop, as a guest (`trio.lowlevel.start_guest_run`); the
figures and reasons against that are in docs/decisions.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar, TypeVarTuple

import trio

from greenroom.actors.errors import RuntimeClosed, UsageError
from greenroom.actors.host_loop import HOST_LOOP
from greenroom.supervision import capture

from .calls import TrioCall, Visit, closed, value_of
from .host import AsyncioHost
from .post import CallbackPost
from .stream import HostIterator, pumped
from .waiting import wait_through

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class TrioThread:
    """A trio run in a thread, returned by `open_trio_thread`. Its methods are for the host's asyncio tasks.

    Attributes:
        host: The host's loop, for trio code that calls coroutine functions of asyncio.
    """

    def __init__(self, host: AsyncioHost) -> None:
        self.host = host
        host.thread = self
        self._open: set[asyncio.Future[Any]] = set()
        self._inbox: CallbackPost | None = None
        self._nursery: trio.Nursery | None = None
        self._closing: trio.Event | None = None

    def __repr__(self) -> str:
        return f"<TrioThread {'closed' if self._inbox is None else 'open'}>"

    async def run(self, function: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
        """Call an async function of trio, and return its result. Its task sees the context variables of the caller.

        Raises:
            BaseException: The function's own error.
            RuntimeClosed: The thread has ended, or ends before the function has.
            asyncio.CancelledError: The caller was cancelled, and the function has ended. If it has ended with an error
                nevertheless, that error is raised.

        Cancellation: the function is cancelled as trio cancels, and the call waits for its end. A result that arrives
        nevertheless is dropped.
        """
        return await TrioCall(self, partial(function, *args)).result()

    def enter(self, make: Callable[[], AbstractAsyncContextManager[T]]) -> AbstractAsyncContextManager[T]:
        """Enter an async context manager of trio for the block. One trio task enters and leaves it.

        An exception of the block is raised inside the context manager, and leaves as the manager lets it. If the block
        is cancelled, the manager is cancelled, as a trio block would be. If the manager ends before the block, the
        block's task is cancelled, and the manager's error is raised in place of that cancellation.

        Raises:
            BaseException: The manager's error, or the block's own.
            RuntimeClosed: The thread has ended.
        """
        return Visit(self, make)

    @asynccontextmanager
    async def iterate(
        self, make: Callable[[], AbstractAsyncContextManager[AsyncIterator[T]]]
    ) -> AsyncIterator[AsyncIterator[T]]:
        """Iterate over an async iterator of trio that a context manager opens, as `Run.events` does.

        Items come once and in order. Trio reads ahead by at most `stream.MOST` items, so a slow reader slows the
        iteration there, too. A cancelled read loses no item.

        Raises:
            BaseException: The error of the context manager; that of the iterator is raised by the iteration.
            RuntimeClosed: The thread has ended.
        """
        async with self.enter(partial(pumped, make, self.host)) as buffer:
            yield HostIterator(buffer, self.send)

    def send(self, callback: Callable[[], object]) -> None:
        """Call a function in the thread, soon. The function must not raise.

        Raises:
            RuntimeClosed: The thread has ended.
        """
        inbox = self._inbox
        if inbox is None:
            raise closed()
        try:
            inbox.send(callback)
        except trio.RunFinishedError as error:
            raise closed() from error

    # --- for calls ---------------------------------------------------------------------------------------------------

    def new_future(self) -> asyncio.Future[Any]:
        """Return a future that ends with the thread at the latest."""
        future = self.host.loop.create_future()
        self._open.add(future)
        future.add_done_callback(self._open.discard)
        return future

    def spawn(self, function: Callable[[], Awaitable[object]]) -> None:
        """Start a task; in trio's thread only. After the end of the thread, `ended` answers in its place."""
        if self._nursery is not None:
            self._nursery.start_soon(function)

    def tell(self, callback: Callable[[], object]) -> None:
        """Call a function in the host's thread; a host whose loop has ended needs nothing more."""
        with suppress(RuntimeClosed):
            self.host.send(callback)

    # --- the thread --------------------------------------------------------------------------------------------------

    async def main(self, started: Callable[[], object]) -> None:
        """Run in the thread until `close`."""
        self._inbox = self.host.to_trio = CallbackPost(trio.lowlevel.current_trio_token().run_sync_soon)
        self._closing = trio.Event()
        HOST_LOOP.set(self.host)
        try:
            async with trio.open_nursery() as self._nursery:
                self.host.send(started)
                await self._closing.wait()
                self._nursery.cancel_scope.cancel()
        finally:
            self._nursery = None

    def close(self) -> None:
        """End the thread; in the host's thread only. Its calls are cancelled."""
        if self._closing is not None and self._inbox is not None:
            with suppress(trio.RunFinishedError):
                self._inbox.send(self._closing.set)

    def ended(self) -> None:
        """Note that the thread has ended; in the host's thread only. Calls that are open then raise RuntimeClosed."""
        self._inbox = None
        for future in tuple(self._open):
            if not future.done():
                future.set_result(None)


@asynccontextmanager
async def open_trio_thread(name: str = "greenroom") -> AsyncIterator[TrioThread]:
    """Run trio in a thread for the block.

    Leaving the block cancels the calls that are open, and waits for the end of the thread, however often the caller is
    cancelled. Trio tasks see the context variables of the caller.

    Args:
        name: The name of the thread.

    Raises:
        UsageError: The caller is not a task of asyncio.
        BaseException: The block's own exception, bare.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        way = "write asyncio.run(main), or open the runtime with greenroom.open_runtime(...) in a program on trio"
        raise UsageError(f"greenroom.aio is for programs on asyncio, and this is called in none; {way}") from None
    thread = TrioThread(AsyncioHost(loop))
    start, end = loop.create_future(), loop.create_future()

    def run() -> None:
        outcome = capture(trio.run, thread.main, partial(_settle, start, None))
        thread.tell(partial(_settle, start, None))  # if trio has not begun
        thread.tell(partial(_settle, end, outcome))

    worker = threading.Thread(target=contextvars.copy_context().run, args=(run,), name=name, daemon=True)
    worker.start()
    try:
        cancellation = await wait_through(start)
        if cancellation is not None:
            raise cancellation
        yield thread
    finally:
        thread.close()
        cancellation = await wait_through(end)  # noqa: ASYNC102 - the thread ends soon
        worker.join()  # the thread has nothing left to do
        thread.ended()
    value_of(end.result())
    if cancellation is not None:
        raise cancellation


def _settle(future: asyncio.Future[Any], value: object) -> None:
    if not future.done():
        future.set_result(value)
