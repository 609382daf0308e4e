"""`MovedRuns`: publishes the changes of runs in other processes, for callers that follow a run or wait for it here.

Theory of operation. Each signal of a run without an owner here holds a watch of the store (`change_signals.py`), which
reports that the run has new events, or changed otherwise. One task reads for all: for a followed run a page of events,
once for the process regardless of the number of followers; for an awaited run its line, because a rest is not an
event. Several reports of one run that come meanwhile count as one. The task publishes the events and lines exactly as
if the run had its owner here.

Reports are hints, so the task also reads the lines of all these runs together every few seconds: neither an owner that
vanished nor a run that became a dead letter makes an event. The registry forgets why a run was degraded here as soon as
the run has new events, because another process wrote them.

Lists hear of other processes by a sweep every two seconds, for as long as a list is watched.
"""

from __future__ import annotations

from typing import Final

import trio

from greenroom.supervision import ActorContext

from ...errors import StoreDown, StoreError, StoreUnavailable
from ...services.change_signals import ChangeSignals
from ...services.follow import PAGE, PAGE_BYTES
from ...services.services import RETRY, Services
from ..run_registry import RunRegistry

MOVED: Final = ":moved"
"""Id of the child; no run id begins with a colon."""
NET: Final = 5.0
"""Seconds between two looks at all runs that are awaited here and owned elsewhere."""
SWEEP: Final = 2.0
"""Seconds between two sweeps of watched lists."""
AT_A_LOOK: Final = 500
"""Most runs, of those of which something is noted here, that one look reads."""
RECENT: Final = 64
"""Newest events of a run that the first report reads; followers further behind read separate pages."""


class MovedRuns:
    """Reads the runs that other processes moved, and publishes their new events."""

    def __init__(self, services: Services, registry: RunRegistry, signals: ChangeSignals) -> None:
        self._services, self._registry, self._signals = services, registry, signals
        self._to_read: dict[str, int] = {}
        self._looked_up_to = ""  # the notes about runs up to this id were compared with the store
        self._some = trio.Event()

    def __repr__(self) -> str:
        return f"<MovedRuns: {len(self._to_read)} to read>"

    def note(self, run_id: str, last: int) -> None:
        """Note that a run has events up to sequence `last`, or changed otherwise."""
        self._to_read[run_id] = max(last, self._to_read.get(run_id, 0))
        self._some.set()

    async def body(self, ctx: ActorContext[object]) -> None:
        """Read and publish until cancelled."""
        ctx.ready()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.look_again)
            nursery.start_soon(self.sweep)
            while True:
                await self._some.wait()
                self._some = trio.Event()
                while self._to_read:
                    await self._read_next()

    async def _read_next(self) -> None:
        """Read the news of one run. The store reports each move once: a read that fails is noted again."""
        run_id = next(iter(self._to_read))
        last, done = self._to_read.pop(run_id), False
        try:
            await self._read(run_id, last)
            done = True
        except StoreUnavailable:
            await trio.sleep(RETRY)
        except StoreDown:
            raise
        except StoreError:  # each follower meets the damaged rows itself
            done = True
            await trio.lowlevel.checkpoint()
        finally:
            if not done:
                self.note(run_id, last)

    async def _read(self, run_id: str, last: int) -> None:
        signal, signals = self._signals.find(run_id), self._signals
        if signal is None:
            signals.committed(run_id, 0, ())  # lists
            await trio.lowlevel.checkpoint()
            return
        tail = signal.tail
        if tail is not None:
            after = max(0, last - RECENT) if tail.head < 0 else tail.head
            while frames := await self._services.store.events(run_id, after=after, limit=PAGE, max_bytes=PAGE_BYTES):
                after += len(frames)
                if signal.tail is tail and tail.head < after:
                    signals.committed(run_id, after, frames)
                if after >= last:
                    break
        signals.committed(run_id, 0, ())
        signals.report(run_id)
        if signal.rest_awaited:
            await self._look([run_id])

    async def _look(self, run_ids: list[str]) -> None:
        """Publish the rests of runs, and that runs are dead letters."""
        for at in range(0, len(run_ids), PAGE):
            progress_by_run = await self._services.store.progress(run_ids[at : at + PAGE])
            for run_id, progress in progress_by_run.items():
                if self._registry.get(run_id) is not None:
                    continue
                self._registry.note_dead(run_id, progress.dead)
                if progress.dead is not None or not progress.owned or progress.waits or progress.done:
                    self._signals.committed(run_id, 0, ())
                    self._signals.rested(run_id)
                else:
                    self._signals.report(run_id)

    async def look_again(self) -> None:
        """Look every few seconds at runs that are awaited here and owned elsewhere, and at those with notes here."""
        while True:
            await trio.sleep(NET)
            try:
                await self._look(self._signals.elsewhere())
                await self.forget_moved()
            except StoreDown:
                raise
            except StoreError:
                await trio.lowlevel.checkpoint()

    async def forget_moved(self) -> None:
        """Forget the notes about runs that ended or went on in other processes; some runs at a time, in turns.

        Raises:
            StoreError: the runs cannot be read.
        """
        some = sorted(run_id for run_id in self._registry.noted() if run_id > self._looked_up_to)[:AT_A_LOOK]
        self._looked_up_to = some[-1] if len(some) == AT_A_LOOK else ""
        if not some:
            return
        progress_by_run = await self._services.store.progress(some)
        for run_id in some:
            if self._registry.get(run_id) is None:
                self._registry.forget_moved(run_id, progress_by_run.get(run_id))

    async def sweep(self) -> None:
        """Let lists be read again while one is watched: any run may have changed elsewhere."""
        while True:
            await trio.sleep(SWEEP)
            if self._signals.sweep_listeners:
                self._signals.pruned()
