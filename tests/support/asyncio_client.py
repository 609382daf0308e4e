"""The client on asyncio for tests on trio: its loop runs in a thread, and each of its methods is called there."""

import asyncio  # noqa: TID251 - the loop of the client
import inspect
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any

import trio

from greenroom import aio
from greenroom.transport.bridge.host import AsyncioHost
from greenroom.transport.bridge.post import CallbackPost


@contextmanager
def asyncio_thread() -> Iterator[AsyncioHost]:
    """A loop of asyncio in a thread, for calls from the present trio run."""
    loop = asyncio.new_event_loop()
    host = AsyncioHost(loop)
    host.to_trio = CallbackPost(trio.lowlevel.current_trio_token().run_sync_soon)
    thread = threading.Thread(target=loop.run_forever, name="asyncio")
    thread.start()
    try:
        yield host
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        tasks = asyncio.all_tasks(loop)
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
        assert tasks == set(), "tasks were left behind"


class OnAsyncio:
    """An object whose async methods, context managers and iterators are used in a loop of asyncio."""

    def __init__(self, host: AsyncioHost, inner: Any) -> None:
        self._host, self._inner = host, inner

    def __repr__(self) -> str:
        return repr(self._inner)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not callable(value):
            return value
        if inspect.iscoroutinefunction(value):

            async def call(*args: Any, **options: Any) -> Any:
                return await self._host.call(lambda: value(*args, **options))

            return call
        return lambda *args, **options: entered(self._host, value(*args, **options))

    def __aiter__(self) -> "OnAsyncio":
        return self

    async def __anext__(self) -> Any:
        return await self._host.call(self._inner.__anext__)


@asynccontextmanager
async def entered(host: AsyncioHost, manager: Any) -> AsyncIterator[OnAsyncio]:
    """Enter a context manager of asyncio."""
    value = await host.call(manager.__aenter__)
    try:
        yield OnAsyncio(host, value)
    finally:
        with trio.CancelScope(shield=True):
            await host.call(manager.__aexit__, None, None, None)


def connect_on_asyncio(host: AsyncioHost, url: str, **options: Any) -> AbstractAsyncContextManager[Any]:
    """`greenroom.aio.connect`."""
    return entered(host, aio.connect(url, **options))
