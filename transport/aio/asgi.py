"""`asgi_app`: the gateway as an ASGI 3 application, for a server on asyncio such as uvicorn.

A connection has a task of the server, which sends, and tasks of the gateway in the thread of the runtime. The two share
an outbox: the chunks that came meanwhile go out as one message, and all connections that a turn of trio has given
something are woken by one call into asyncio.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Unpack

from typing_extensions import override

import greenroom as gr

from ..bridge.trio_thread import TrioThread
from ..gateway.asgi import AsgiStream
from ..gateway.outbox import Outbox, Receive, Send
from ..server.asgi_app import FAREWELL, AsgiApp, AsgiOptions, OpenGateway, gateway_opener
from .runtime import Runtime


class HostOutbox(Outbox):
    """The gateway's end is in the thread of the runtime, the server's end in a task of asyncio."""

    def __init__(self, thread: TrioThread) -> None:
        super().__init__()
        self._thread = thread
        self._task = asyncio.current_task()
        self._news: asyncio.Future[None] | None = None
        self._announced = self._abandoned = False
        self._stream: AsgiStream | None = None
        self._cancelled: asyncio.CancelledError | None = None

    async def serve(self, opened: OpenGateway, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve a connection until everything is sent; see `AsgiHost.serve`."""
        begin = partial(self._begin, opened, scope, partial(self._thread.host.call, receive))
        self._thread.send(partial(contextvars.copy_context().run, begin))
        try:
            await self.pump(send)
        except asyncio.CancelledError:  # noqa: ASYNC103 - `_cut` has cancelled the task; `_wait` keeps every other one
            if not self._abandoned or self._task is None:
                raise
            self._task.uncancel()
        finally:
            self._stop()
        if self._cancelled is not None:
            raise self._cancelled

    def _stop(self) -> None:
        with suppress(gr.RuntimeClosed):  # the end of the thread is the end of the connection
            self._thread.send(self._stop_stream)

    # --- in trio's thread --------------------------------------------------------------------------------------------

    def _begin(self, opened: OpenGateway, scope: Mapping[str, Any], receive: Receive) -> None:
        self._stream = opened.begin(scope, receive, self)

    def _stop_stream(self) -> None:
        if self._stream is not None:
            self._stream.stop()

    @override
    def _wake(self) -> None:
        if self._news is not None and not self._announced:
            self._announced = True
            self._thread.tell(self._look)

    @override
    def abandon(self) -> None:
        self._thread.tell(self._cut)

    # --- in the server's thread --------------------------------------------------------------------------------------

    def _look(self) -> None:
        self._announced = False  # first: what is added from now on announces itself
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def _cut(self) -> None:
        if self._task is not None and not self.broken:
            self._abandoned = True
            self._task.cancel()

    @override
    async def _wait(self) -> None:
        self._news = asyncio.get_running_loop().create_future()
        try:
            if not self._items and not self.ended:
                await self._news
        except asyncio.CancelledError as error:  # noqa: ASYNC103 - `serve` raises the cancellation at its end
            if self._cancelled is not None or self._abandoned or self._task is None:
                raise
            self._cancelled = error  # raised at the end of the stream, which comes soon, or at a second cancel
            self._stop()
            asyncio.get_running_loop().call_later(FAREWELL, self._task.cancel)
        finally:
            self._news = None

    @override
    def _tell(self, callback: Callable[[], None]) -> None:
        with suppress(gr.RuntimeClosed):  # as above
            self._thread.send(callback)


class HostedGateway:
    """A gateway in the thread of a runtime, for the connections of a server on asyncio; satisfies `AsgiHost`."""

    def __init__(self, opened: OpenGateway, thread: TrioThread) -> None:
        self._opened, self._thread = opened, thread

    def __repr__(self) -> str:
        return f"<HostedGateway {self._opened!r}>"

    @property
    def is_open(self) -> bool:
        """False once no connection can begin."""
        return self._opened.is_open

    async def serve(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve a connection until everything is sent.

        Cancellation: the stream or WebSocket ends well-formed, which takes at most `FAREWELL` seconds.
        """
        await HostOutbox(self._thread).serve(self._opened, scope, receive, send)


def asgi_app(runtime: Runtime, **options: Unpack[AsgiOptions]) -> AsgiApp:
    """Return the gateway as an ASGI 3 application for a server on asyncio, such as uvicorn.

        async with aio.open_runtime("runs.db", agents=[support]) as runtime:
            async with aio.asgi_app(runtime, token=...) as gateway:
                app.mount("/greenroom", gateway)

    See `greenroom.transport.asgi_app`, which describes what it serves, and its options.

    Raises:
        UsageError: An option is invalid. Keys of agents are checked when the application is entered.
    """
    opens = gateway_opener(**options)

    @asynccontextmanager
    async def entered() -> AsyncIterator[HostedGateway]:
        async with runtime.thread.enter(partial(opens, runtime.inner)) as server:
            yield HostedGateway(server, runtime.thread)

    return AsgiApp(entered)
