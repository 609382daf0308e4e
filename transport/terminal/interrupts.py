"""`Interrupts`: Ctrl-C and SIGTERM, the first one in order, the second one immediately."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from greenroom.supervision.nursery import open_collapsing_nursery

from .screen import Screen


class Interrupts:
    """A handler of interrupts: the first one ends a program in order, the second one immediately.

    Before `in_order` is called, while the store is being opened, the first one ends the block immediately.

    Attributes:
        gently, abruptly: The scopes of the two ends.
        interrupted: An interrupt has come.
        begun: `in_order` was called.
    """

    def __init__(self, note: str = "Stopping in order (again to stop at once) ...") -> None:
        self._note = note
        self.gently = trio.CancelScope()
        self.abruptly = trio.CancelScope()
        self.interrupted = False
        self.begun = False

    def __repr__(self) -> str:
        return f"<Interrupts: {'interrupted' if self.interrupted else 'none'}>"

    @asynccontextmanager
    async def listening(self, screen: Screen) -> AsyncIterator[None]:
        """Handle SIGINT and SIGTERM for the block."""
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async with open_collapsing_nursery() as nursery:
                nursery.start_soon(self._listen, signals, screen)
                with self.abruptly:
                    yield
                nursery.cancel_scope.cancel()

    def in_order(self) -> trio.CancelScope:
        """Return the scope that the first interrupt cancels from now on; the second one ends what follows the scope."""
        self.begun = True
        return self.gently

    async def _listen(self, signals: AsyncIterator[int], screen: Screen) -> None:
        async for _ in signals:
            if self.interrupted or not self.begun:
                self.interrupted = True
                self.abruptly.cancel()
                continue
            self.interrupted = True
            if self._note:
                screen.row()
                screen.row(self._note, "dim")
            self.gently.cancel()
