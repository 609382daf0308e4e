"""A check that nothing remains: no task and no connection."""

from __future__ import annotations

import gc
import socket
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Final

import trio
import trio.testing

from greenroom.supervision.chaos import program_tasks, site_of

_SETTLE: Final = 1.0
"""Seconds of trio's clock in which tasks may end that are about to."""


@asynccontextmanager
async def leak_check() -> AsyncIterator[None]:
    """Check that a block leaves no task and no connection behind.

    Tasks count, of the whole program except trio's own, and open sockets with a peer or a listener. Those that were
    there before the block does not count, and neither does a task that ends by itself as soon as the others wait. After
    a block that raises nothing is checked. Use it around `open_runtime`, in real or virtual time:

        async with leak_check(), gr.open_runtime(agents=[agent]) as runtime:
            ...

    Raises:
        AssertionError: names each task with the place at which it waits, and each connection.
    """
    tasks, sockets = weakref.WeakSet(program_tasks()), weakref.WeakSet(_sockets())
    yield
    with trio.move_on_after(_SETTLE):
        await trio.testing.wait_all_tasks_blocked()
    leaks = [f"task {task.name!r}, at {site_of(task)}" for task in program_tasks() if task not in tasks]
    leaks += [f"connection {_shown(one)}" for one in _sockets() if one not in sockets]
    if leaks:
        raise AssertionError("\n".join(["the block has left behind:", *leaks]))


def _sockets() -> Iterator[socket.socket]:
    """Yield the open sockets that listen or have a peer, except pairs within the process."""
    for item in gc.get_objects():
        if issubclass(type(item), socket.socket) and item.fileno() >= 0 and item.family != socket.AF_UNIX:
            yield item


def _shown(one: socket.socket) -> str:
    with suppress(OSError):
        return f"{one.getsockname()} to {one.getpeername()}"
    return f"{one.getsockname()}"
