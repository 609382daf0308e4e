"""`AsyncioHost`: the asyncio loop of the host, as trio sees it."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import trio

from greenroom.actors.errors import RuntimeClosed
from greenroom.actors.host_loop import IN_HOST
from greenroom.supervision import Raised, Returned
from greenroom.supervision.border import failure_of_call

from .calls import CallingThread, TrioCall, closed, value_of
from .post import CallbackPost


class HostTaskCancelled(Exception):
    """The asyncio task of a call was cancelled, but not by the caller: the host did, or the code itself."""


class AsyncioHost:
    """Calls coroutine functions in a host's loop, from trio; satisfies `greenroom.actors.host_loop.HostLoop`.

    Attributes:
        loop: The loop.
        to_trio: Carries the ends of calls to trio.
        thread: The thread of trio that uses this host.
        tasks: The tasks of calls; the loop itself refers to tasks only weakly.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.to_trio: CallbackPost | None = None
        self.thread: CallingThread | None = None
        self._post = CallbackPost(loop.call_soon_threadsafe)
        self.tasks: set[asyncio.Task[Any]] = set()

    def __repr__(self) -> str:
        return f"<AsyncioHost with {len(self.tasks)} tasks>"

    def send(self, callback: Callable[[], object]) -> None:
        """Call a function in the host's thread, soon. The function must not raise.

        Raises:
            RuntimeClosed: The loop has been closed.
        """
        try:
            self._post.send(callback)
        except RuntimeError as error:
            raise RuntimeClosed(f"the asyncio loop that opened the runtime has ended ({error})") from error

    async def back(self, function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        """Call an async function of trio; see `HostLoop.back`."""
        if self.thread is None:
            raise closed()
        return await TrioCall(self.thread, partial(function, *args)).result()

    async def call(self, function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        """Call a coroutine function in a task of the host's loop; see `HostLoop.call`."""
        return await _HostCall(self, function, args).result()


class _HostCall:
    """One call: a trio task that waits, and the asyncio task that it waits for."""

    def __init__(self, host: AsyncioHost, function: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> None:
        self._host, self._function, self._args = host, function, args
        self._waiter = trio.lowlevel.current_task()
        self._context = contextvars.copy_context()
        self._context.run(IN_HOST.set, host)
        self._task: asyncio.Task[Returned[Any] | Raised] | None = None
        self._end: Returned[Any] | Raised | None = None

    def __repr__(self) -> str:
        return f"<HostCall of {self._function!r}>"

    async def result(self) -> Any:
        await trio.lowlevel.checkpoint_if_cancelled()
        self._host.send(self._begin)
        await trio.lowlevel.wait_task_rescheduled(self._abort)
        if isinstance(self._end, Raised) and isinstance(self._end.error, asyncio.CancelledError):
            # The scope that cancelled this call is cancelled still, so the cancellation is raised here.
            await trio.lowlevel.checkpoint_if_cancelled()
            raise HostTaskCancelled("its asyncio task was cancelled, and not by the run")
        return value_of(self._end)

    def _abort(self, _: object) -> trio.lowlevel.Abort:
        try:
            self._host.send(self._cancel)
        except RuntimeClosed:  # the loop has ended, and the task with it
            return trio.lowlevel.Abort.SUCCEEDED
        return trio.lowlevel.Abort.FAILED  # the task decides when the call ends

    # --- in the host's thread ----------------------------------------------------------------------------------------

    def _begin(self) -> None:
        task = self._host.loop.create_task(self._run(), context=self._context)
        self._task = task
        self._host.tasks.add(task)
        task.add_done_callback(self._ended)

    async def _run(self) -> Returned[Any] | Raised:
        # The loop would end with a SystemExit of a task; here the exception is the caller's.
        try:
            return Returned(await self._function(*self._args))
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001, ASYNC103 - the caller gets it
            return Raised(failure_of_call(error))  # noqa: ASYNC104 - it has raised a real Ctrl-C

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _ended(self, task: asyncio.Task[Returned[Any] | Raised]) -> None:
        self._host.tasks.discard(task)
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        self._end = task.result() if error is None else Raised(error)
        if self._host.to_trio is not None:
            self._host.to_trio.send(self._wake)

    # --- in trio's thread --------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        trio.lowlevel.reschedule(self._waiter)
