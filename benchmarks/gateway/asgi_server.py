"""The measured gateway behind a server of ASGI, in a process of its own. Orders, course and report: `server.py`."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import hypercorn.trio
import trio
import uvicorn
from hypercorn.config import Config

import greenroom as gr
from greenroom import aio
from greenroom.transport import asgi_app

from .load import TOKEN
from .peers.course import RUN, arguments, say
from .server import Author, measure

HOST = "127.0.0.1"


async def course(runtime: gr.Runtime, port: int, options: Mapping[str, Any]) -> None:
    """Obey, and report."""
    author = await Author.create(runtime)
    gc.collect()
    say({"port": port, "run": RUN, "last": author.row.last_sequence})
    say(await measure(author, options))


async def on_trio(options: Mapping[str, Any]) -> None:
    """hypercorn's trio worker, in the same run of trio."""
    config, done = Config(), trio.Event()
    config.bind, config.backlog = [f"{HOST}:0"], 2048
    config.accesslog = config.errorlog = None
    config.graceful_timeout = 0.1
    async with gr.open_runtime(None, drain=0) as runtime, trio.open_nursery() as nursery:

        async def host(*, task_status: trio.TaskStatus[list[str]]) -> None:  # noqa: ASYNC128 - hypercorn calls it
            app: Any = asgi_app(runtime, token=TOKEN)
            await hypercorn.trio.serve(app, config, shutdown_trigger=done.wait, task_status=task_status, mode="asgi")

        (bound,) = await nursery.start(host)
        await course(runtime, int(bound.rpartition(":")[2]), options)
        done.set()


async def on_asyncio(options: Mapping[str, Any]) -> None:
    """uvicorn, in asyncio; the runtime is in its thread."""
    async with aio.open_runtime(None, drain=0) as runtime, aio.asgi_app(runtime, token=TOKEN) as app:
        listener = socket.create_server((HOST, 0), backlog=2048)
        server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_level="error", access_log=False))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        port = listener.getsockname()[1]
        await runtime.thread.run(course, runtime.inner, port, options)
        server.should_exit = server.force_exit = True
        await serving


def main(options: Mapping[str, Any]) -> None:
    """Serve on the host that is asked for."""
    hosts: dict[str, Callable[[], object]] = {
        "hypercorn": lambda: trio.run(on_trio, options),
        "uvicorn": lambda: _with_uvloop(on_asyncio(options)),
        "uvicorn, asyncio's own loop": lambda: asyncio.run(_as_coroutine(on_asyncio(options))),
    }
    hosts[options["host"]]()


def _with_uvloop(work: Awaitable[None]) -> None:
    import uvloop  # noqa: PLC0415 - where it is there, uvicorn takes it

    uvloop.run(_as_coroutine(work))


async def _as_coroutine(work: Awaitable[None]) -> None:
    await work


if __name__ == "__main__":
    main(arguments())
