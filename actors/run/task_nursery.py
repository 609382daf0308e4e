"""Where the tasks of all runs live: one nursery, a static child of the runtime's supervisor.

A run's children are not tasks of the run actor's own nursery, because an actor could then not end (or begin again after
a crash) before the last of them has: trio can not kill, and a tool may hide behind a shield. Instead the run actor
cancels its children when it goes and waits for them within their grace; one that overruns it stays here, named
stubborn, its late result dropped, until it ends at last. The supervisor stops this child after all runs and before the
store.
"""

from __future__ import annotations

from typing import Final

import trio

from greenroom.supervision import ActorContext, open_collapsing_nursery

WORKPLACE: Final = ":work"
"""Id of the child; no run id begins with a colon."""


class TaskNursery:
    """Holds the nursery of the present incarnation."""

    def __init__(self) -> None:
        self._nursery: trio.Nursery | None = None

    @property
    def nursery(self) -> trio.Nursery:
        """Where to start tasks.

        Raises:
            RuntimeError: it is not open (it is between two incarnations, or the runtime is closed).
        """
        if self._nursery is None:
            raise RuntimeError("the workplace is not open")
        return self._nursery

    async def body(self, ctx: ActorContext[object]) -> None:
        """Keep a nursery open until cancelled."""
        try:
            async with open_collapsing_nursery() as nursery:
                self._nursery = nursery
                ctx.ready()
                await trio.sleep_forever()
        finally:
            self._nursery = None
