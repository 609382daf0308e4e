"""The gateway behind a server of ASGI, in place of `serve`: the same tests play on both roads."""

from typing import Any

import hypercorn.trio
import trio
from hypercorn.config import Config

import greenroom as gr
from greenroom.transport import Address, asgi_app


def quiet(host: str, port: int) -> Config:
    """A configuration of hypercorn without a log, whose limits are wider than the gateway's."""
    config = Config()
    config.bind = [f"{host}:{port}"]
    config.accesslog = config.errorlog = None
    config.graceful_timeout = 5.0
    config.backlog = 2048
    config.h11_max_incomplete_size = 1 << 20
    return config


async def serve(
    runtime: gr.Runtime,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    task_status: trio.TaskStatus[Address] = trio.TASK_STATUS_IGNORED,
    **options: Any,
) -> None:
    """As `greenroom.transport.serve`, by hypercorn on trio in this run."""
    app, leave = asgi_app(runtime, **options), trio.Event()

    async def host_app(*, task_status: trio.TaskStatus[list[str]]) -> None:
        with trio.CancelScope(shield=True):  # ends by `leave`, as a server ends by a signal
            await hypercorn.trio.serve(
                app, quiet(host, port), shutdown_trigger=leave.wait, task_status=task_status, mode="asgi"
            )

    async with trio.open_nursery() as nursery:
        binds = await nursery.start(host_app)
        try:
            bound = int(binds[0].rpartition(":")[2])
            task_status.started(Address(host=host, port=bound, token=options.get("token")))
            await trio.sleep_forever()
        finally:
            leave.set()
