"""What the families share: the dice, what must hold, and how a scene is played."""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final

import trio
from trio.testing import MockClock

Dice = random.Random
LONG: Final = 100_000.0
"""Virtual seconds after which what should end counts as never ending."""
REAL: Final = 60.0
"""The same, where sockets or threads need real time."""


class Violation(Exception):
    """Something that must hold did not."""


def must(holds: object, fault: object) -> None:
    """Continue if a promise holds.

    Raises:
        Violation: it does not.
    """
    if not holds:
        raise Violation(str(fault)[:3_000])


def virtual(scene: Callable[[], Awaitable[None]]) -> None:
    """Play a scene in virtual time."""

    async def play() -> None:
        with trio.fail_after(LONG):
            await scene()

    trio.run(play, clock=MockClock(autojump_threshold=0))


def real(scene: Callable[[], Awaitable[None]]) -> None:
    """Play a scene in real time: threads or sockets work in it."""

    async def play() -> None:
        with trio.fail_after(REAL):
            await scene()

    trio.run(play)


class Heard(logging.Handler):
    """All that is logged, with tracebacks."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record."""
        self.texts.append(logging.Formatter().format(record))
