"""The gateway behind servers of ASGI, each in place of `serve`: the same tests play on every road."""

import asyncio
import socket
from functools import partial
from typing import Any

import hypercorn.trio
import trio
import uvicorn
from hypercorn.config import Config

import greenroom as gr
from greenroom import aio
from greenroom.transport import Address, asgi_app
from greenroom.transport.bridge.host import AsyncioHost
from greenroom.transport.bridge.trio_thread import TrioThread

BACKLOG = 2048
GRACE = 2.0
"""Seconds after which a server that stops cancels what is left of its connections."""


def quiet(host: str, port: int) -> Config:
    """A configuration of hypercorn without a log."""
    config = Config()
    config.bind, config.backlog = [f"{host}:{port}"], BACKLOG
    config.accesslog = config.errorlog = None
    config.graceful_timeout = GRACE
    return config


async def by_hypercorn(
    runtime: gr.Runtime,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    task_status: trio.TaskStatus[Address] = trio.TASK_STATUS_IGNORED,
    **options: Any,
) -> None:
    """As `greenroom.transport.serve`, by hypercorn in this run of trio."""
    app, leave = asgi_app(runtime, **options), trio.Event()

    async def run(*, task_status: trio.TaskStatus[list[str]]) -> None:  # noqa: ASYNC128 - hypercorn calls it
        with trio.CancelScope(shield=True):  # ends by `leave`, as a server ends by a signal
            await hypercorn.trio.serve(
                app, quiet(host, port), shutdown_trigger=leave.wait, task_status=task_status, mode="asgi"
            )

    async with trio.open_nursery() as nursery:
        (bound,) = await nursery.start(run)
        try:
            task_status.started(address(host, int(bound.rpartition(":")[2]), options))
            await trio.sleep_forever()
        finally:
            leave.set()


async def by_uvicorn(
    runtime: gr.Runtime,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    task_status: trio.TaskStatus[Address] = trio.TASK_STATUS_IGNORED,
    **options: Any,
) -> None:
    """As `greenroom.transport.serve`, by uvicorn in another thread; the runtime stays in this run of trio."""
    listener = socket.create_server((host, port), backlog=BACKLOG)
    servers, started, ended = list[uvicorn.Server](), trio.Event(), trio.Event()
    token = trio.lowlevel.current_trio_token()

    async def main(nursery: trio.Nursery) -> None:
        """Serve, in asyncio."""
        loop = asyncio.get_running_loop()
        thread, ready = TrioThread(AsyncioHost(loop)), loop.create_future()

        async def life() -> None:
            with trio.CancelScope(shield=True):  # ends by `close`
                await thread.main(partial(ready.set_result, None))

        token.run_sync_soon(nursery.start_soon, life)
        await ready
        try:
            async with aio.asgi_app(aio.Runtime(runtime, thread), **options) as app:
                config = uvicorn.Config(app, lifespan="off", log_config=None, timeout_graceful_shutdown=int(GRACE))
                servers.append(uvicorn.Server(config))
                token.run_sync_soon(started.set)
                await servers[0].serve(sockets=[listener])
        finally:
            thread.close()

    async def run(nursery: trio.Nursery) -> None:
        try:
            with trio.CancelScope(shield=True):  # ends by `should_exit`, as a server ends by a signal
                await trio.to_thread.run_sync(partial(asyncio.run, main(nursery)))
        finally:
            ended.set()

    async with trio.open_nursery() as nursery, trio.open_nursery() as bridge:
        nursery.start_soon(run, bridge)  # noqa: ASYNC111 - `run` has ended before: `ended` says so
        await started.wait()
        try:
            task_status.started(address(host, listener.getsockname()[1], options))
            await trio.sleep_forever()
        finally:
            servers[0].should_exit = True
            with trio.CancelScope(shield=True):
                await ended.wait()


def address(host: str, port: int, options: Any) -> Address:
    """Where a server is."""
    return Address(host=host, port=port, token=options.get("token"))
