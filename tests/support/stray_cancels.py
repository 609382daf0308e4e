"""Cancellations of other scopes: what who shares work with one that was cancelled may hand on."""

import asyncio  # noqa: TID251 - its CancelledError leaks out of libraries that bridge to it
import signal
from collections.abc import Awaitable, Callable
from typing import Final

import trio


async def foreign_cancellation() -> trio.Cancelled:
    """One that a scope has sent which is no more."""
    kept: list[trio.Cancelled] = []
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as error:
            kept.append(error)
            raise
    return kept[0]


async def to_its_end(scene: Callable[[], Awaitable[None]]) -> None:
    """Play a scene that must not be cancelled: a test that lets such a cancellation out would count as passed."""
    ended = []

    async def play() -> None:
        await scene()
        ended.append(True)

    async with trio.open_nursery() as nursery:  # noqa: ASYNC112 - which takes such a cancellation for its own
        nursery.start_soon(play)
    assert ended, "the scene has been cancelled"


class Unheard(BaseException):
    """A base exception of a program's own."""


def ctrl_c() -> None:
    """A real one: the process gets a SIGINT, which interrupts the caller."""
    signal.raise_signal(signal.SIGINT)
    for _ in range(10):  # Python looks for signals between two instructions
        pass


ESCAPES: Final[tuple[type[BaseException], ...]] = (
    SystemExit,
    GeneratorExit,
    KeyboardInterrupt,
    asyncio.CancelledError,
    Unheard,
)
"""What user code may raise that is no `Exception`: no other than the code that raised it may suffer for it."""
