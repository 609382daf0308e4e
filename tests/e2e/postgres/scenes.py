"""What the scenes on a real server share: a client of a node's gateway, waiting without a fixed time, and SQL."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import trio

from greenroom.transport import Client, connect

from .judge import read_lines
from .nodes import PACE, TERMINAL, TOKEN
from .swarm import Process, Swarm

PATIENCE = 40.0
"""Seconds until a scene gives up: only a hanging one takes so long."""


async def eventually(ready: Callable[[], Any] | Callable[[], Awaitable[Any]], patience: float = PATIENCE) -> Any:
    """Return the first true value of `ready()`, asked again and again.

    Raises:
        AssertionError: there is none within `patience` seconds.
    """
    with trio.move_on_after(patience):
        while True:
            value = ready()
            if isinstance(value, Awaitable):
                value = await value
            if value:
                return value
            await trio.sleep(0.02)
    raise AssertionError(f"it did not happen within {patience:g} s: {ready}")


async def opened(swarm: Swarm, *processes: Process) -> None:
    """Wait until all of them have opened the store."""
    for process in processes:
        await eventually(lambda process=process: "open" in process.words or not process.alive)
        assert process.alive, swarm.errors()[-4000:]


@asynccontextmanager
async def client_of(gateway: Process) -> AsyncIterator[Client]:
    """A client of a gateway. An error of the block is raised bare, whatever the connection does."""
    failure: BaseException | None = None
    async with connected(gateway) as client:
        try:
            yield client
        except Exception as error:  # noqa: BLE001 - raised below
            failure = error
    if failure is not None:
        raise failure


def connected(gateway: Process) -> AbstractAsyncContextManager[Client]:
    """A connection to a gateway."""
    return connect(f"ws://127.0.0.1:{gateway.order['port']}", token=TOKEN, patient=True, pace=PACE)


async def asked(client: Client, run_id: str) -> Any:
    """The first open ticket of a run, once there is one."""

    async def look() -> Any:
        tickets = (await client.view(run_id)).tickets
        return tickets[0] if tickets else None

    return await eventually(look)


async def ended(client: Client, run_id: str) -> list[Any]:
    """All events of a run, once it has ended."""
    with trio.fail_after(PATIENCE):
        async with client.follow(run_id) as events:
            found = [event async for event in events]
    assert found[-1].type in TERMINAL
    return found


def marks(folder: Path, **like: Any) -> list[dict[str, Any]]:
    """The lines of bodies that are like this."""
    return [line for line in read_lines(folder / "effects.log") if like.items() <= line.items()]


def select(url: str, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """The rows of a statement; `greenroom.` names the tables."""
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(statement.encode(), values).fetchall()
