"""The nursery for the tasks of all runs: a static child of the runtime's supervisor.

Theory of operation. A run's children are not in a nursery of the run actor, because the actor could not end (or restart
after a crash) before the last child ends: trio cannot kill a task, and a tool may ignore its cancel behind a shield.
Instead the run actor cancels its children when it ends and waits for them within their grace. A child that overruns its
grace stays here, named as unresponsive, its late result dropped. The supervisor stops this nursery after all runs and
before the store.
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
        """The nursery to start tasks in.

        Raises:
            RuntimeError: the nursery is not open (between two incarnations, or the runtime is closed).
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
