"""`WakeupTimer`: wake runs that are not in memory when one of their timers fires (ticket expiry, deadline, retry).

Theory of operation. One task serves all runs. A run in memory has its own timers; when it leaves memory it reports its
next moment here (`by`). Runs that were waiting before the process began are found in the store (`claim_due`,
`next_due`), so the timer holds only the earliest moment, not one entry per run. Degraded runs are the exception: their
deadlines and retries are kept here, because the store would report them again and again.

In a shared store every process has the same timers; the first that claims a run has it. A little chance in the moment
keeps them from asking all together.
"""

from __future__ import annotations

import math
import random
from collections import deque
from contextlib import suppress
from datetime import datetime
from typing import Final, Protocol

import trio

from greenroom.supervision import ActorContext

from ..abc import Store
from ..errors import StoreUnavailable
from ..processes import Ability, ReadyRun
from .clock import Clock, ClockWatch

ALARM: Final = ":alarm"
"""Id of the child; no run id begins with a colon."""
BATCH: Final = 100
"""Runs woken together; the next batch follows when these were started."""
SPREAD: Final = 0.25
"""Most seconds by which a process that shares its store looks later than the moment."""
PAUSE: Final = 1.0
"""Seconds until the store is read again if it is unavailable, or if all due runs already have owners."""


class TimedRuns(Protocol):
    """The runs of a runtime, as the timer sees them."""

    def ability(self) -> Ability:
        """Return the runs that this process can work on."""

    def retry(self, run_id: str) -> bool:
        """Give a run that is degraded here an owner, to try again. False if it has one."""

    def take(self, ready: ReadyRun) -> bool:
        """Give a claimed run an owner. False if it has one, or is degraded here."""


class WakeupTimer:
    """The earliest timer of the runs that are not in memory, and the timers of degraded runs."""

    def __init__(
        self, store: Store, clock: Clock, watch: ClockWatch, owners: TimedRuns, *, spread: float = 0.0
    ) -> None:
        """Make the timer of a store.

        Args:
            store: The store of the runtime.
            clock: The clock of the runtime.
            watch: The watch of the clock.
            owners: get the runs whose timers fired.
            spread: most seconds by which it looks later than the moment, drawn each time.
        """
        self._store, self._clock, self._watch, self._owners, self._spread = store, clock, watch, owners, spread
        self._clock_jumped = False
        self._at: float = math.inf
        self._set = trio.Event()
        self._refusals = 0
        self._deadlines: dict[str, datetime] = {}
        self._again: dict[str, float] = {}
        self._due: deque[ReadyRun] = deque()  # claimed, and without an owner yet: no other part knows of the claim

    def __repr__(self) -> str:
        return "<WakeupTimer>"

    def nudge(self) -> None:
        """Compute the due runs again after a clock jump."""
        self._clock_jumped = True
        self._set.set()

    def by(self, moment: datetime | None) -> None:
        """Note that a run leaves memory and must be woken at this moment."""
        at = math.inf if moment is None else self._clock.trio_time(moment)
        if at < self._at:
            self._at = at
            self._set.set()

    def at_deadline(self, run_id: str, deadline: datetime | None) -> None:
        """Note the deadline of a degraded run, which ends the run although it is degraded."""
        if deadline is not None:
            self._deadlines[run_id] = deadline
            self.by(deadline)

    def after(self, run_id: str, seconds: float) -> None:
        """Note that a degraded run is tried again after this many seconds (or up to one second more)."""
        # whole seconds, so that many runs share one wakeup
        at = self._again[run_id] = math.ceil(trio.current_time() + seconds)
        if at < self._at:
            self._at = at
            self._set.set()

    def forget(self, run_id: str) -> None:
        """Drop the entries of a run that has an owner again, which keeps its own timers."""
        self._deadlines.pop(run_id, None)
        self._again.pop(run_id, None)

    @property
    def noted(self) -> set[str]:
        """The degraded runs that have an entry here."""
        return {*self._deadlines, *self._again}

    async def body(self, ctx: ActorContext[object]) -> None:
        """Wake due runs until cancelled."""
        self._take()
        await self._look_ahead()
        ctx.ready()
        while True:
            if self._at == math.inf:
                await self._set.wait()
            else:
                with self._watch.waiting(self), trio.move_on_at(self._at):
                    await self._set.wait()
            self._set = trio.Event()
            if self._clock_jumped:
                self._clock_jumped = False
                await self._look_ahead()
            if trio.current_time() >= self._at:
                if self._spread:
                    await trio.sleep(random.uniform(0.0, self._spread))  # noqa: S311 - no secret
                await self._strike()

    async def _strike(self) -> None:
        now = self._clock.now()
        run_ids = {run_id for run_id, at in self._again.items() if at <= trio.current_time()}
        run_ids.update(run_id for run_id, deadline in self._deadlines.items() if deadline <= now)
        for run_id in run_ids:
            self.forget(run_id)
            self._owners.retry(run_id)
        with suppress(StoreUnavailable):
            self._due.extend(await self._store.claim_due(now, self._owners.ability(), limit=BATCH + self._refusals))
        due = len(self._due)
        count = self._take()
        # refused runs stay due: a longer page keeps them from hiding the runs behind them
        self._refusals = due - count
        if count or (run_ids and not due):  # more may be due already, so the next look follows without a pause
            await trio.lowlevel.checkpoint()
        else:
            await trio.sleep(PAUSE)
        await self._look_ahead()

    def _take(self) -> int:
        """Give owners to the runs that were claimed; returns how many took one."""
        count = 0
        while self._due:
            count += self._owners.take(self._due.popleft())
        return count

    async def _look_ahead(self) -> None:
        self._at = min(self._again.values(), default=math.inf)
        self.by(min(self._deadlines.values(), default=None))
        try:
            self.by(await self._store.next_due())
        except StoreUnavailable:
            self._at = min(self._at, trio.current_time() + PAUSE)
