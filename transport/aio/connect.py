"""`connect`: the client of a gateway for programs on asyncio."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from greenroom.actors.entry import checks_options

from ..bridge.waiting import wait_through
from ..client import Client, ConnectionState, ConnectionTiming
from ..client.endpoint import read_target
from .client_connection import AsyncioConnection
from .client_streams import ASYNCIO


@checks_options
@asynccontextmanager
async def connect(
    url: str,
    *,
    token: str | None = None,
    patient: bool = False,
    pace: ConnectionTiming | None = None,
    ssl_context: ssl.SSLContext | None = None,
    on_change: Callable[[ConnectionState], None] | None = None,
) -> AsyncIterator[Client]:
    """Connect to a gateway for the block, in a program on asyncio; a lost connection is reopened until the block ends.

    No trio runs: the client uses streams of asyncio. Arguments, guarantees and errors are those of
    `greenroom.transport.connect`, and so is the class of the client: events come exactly once and in order, across
    lost connections and restarts.

    Raises:
        UsageError, NotReachable, NotAuthenticated, Forbidden, NotAGateway: As `greenroom.transport.connect`.
        BaseException: The block's own exception, bare.
    """
    address, secret = read_target(url, token)
    pace = pace or ConnectionTiming()
    connection = AsyncioConnection(address, token=secret, pace=pace, context=ssl_context, on_change=on_change)
    link = connection.link
    running = asyncio.create_task(connection.run(patient=patient), name=f"greenroom client of {address.url}")

    def ended(task: asyncio.Task[None]) -> None:
        link.end()
        if not task.cancelled():
            task.exception()  # the block may raise its own in place of this one

    running.add_done_callback(ended)
    greeting = asyncio.create_task(connection.welcomed.wait())
    cancellation: asyncio.CancelledError | None = None
    try:
        await asyncio.wait((running, greeting), return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            yield Client(link, ASYNCIO, ssl_context)
            await connection.close()
    finally:
        link.end()
        greeting.cancel()
        if not running.done():
            running.cancel()
            cancellation = await wait_through(running)  # noqa: ASYNC102 - its sockets close without waiting
    if not running.cancelled():
        running.result()  # raises why there is no connection
    if cancellation is not None:
        raise cancellation
