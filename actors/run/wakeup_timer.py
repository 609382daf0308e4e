"""`WakeupTimer`: wakes runs that have left memory when a timer of theirs fires (a ticket expires, a deadline passes).

One task for all of them. A run that is in memory has its own timers; when it leaves it says here when it has to come
back. What was waiting before the process began is looked up in the store.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from typing import Final

import trio

from greenroom.supervision import ActorContext

from ..abc import Store
from ..errors import StoreUnavailable
from .clock import Clock, ClockWatch

ALARM: Final = ":alarm"
"""Id of the child; no run id begins with a colon."""
BATCH: Final = 100
"""Runs that are woken at once; the next ones follow when these have been started."""
PAUSE: Final = 1.0
"""Seconds until the store is asked again if it does not answer, or if what it named is being worked on already."""


class WakeupTimer:
    """The earliest timer of the runs that are not in memory, and those of the runs that nobody can work on."""

    def __init__(self, store: Store, clock: Clock, watch: ClockWatch, wake: Callable[[str, bool], bool]) -> None:
        """`wake(run_id, degraded)` gives a run an owner; False if it has one, or nobody can own it here.

        `degraded`: it is one that nobody could own, to be tried all the same.
        """
        self._store, self._clock, self._watch, self._wake = store, clock, watch, wake
        self._jumped = False
        self._at: float = math.inf
        self._set = trio.Event()
        self._refused = 0
        self._deadlines: dict[str, datetime] = {}
        self._again: dict[str, float] = {}

    def __repr__(self) -> str:
        return "<Alarm>"

    def nudge(self) -> None:
        """The clock has jumped: what is due is another moment of trio's time now."""
        self._jumped = True
        self._set.set()

    def by(self, moment: datetime | None) -> None:
        """A run leaves memory and has to be back at this moment."""
        at = math.inf if moment is None else self._clock.trio_time(moment)
        if at < self._at:
            self._at = at
            self._set.set()

    def at_deadline(self, run_id: str, deadline: datetime | None) -> None:
        """Nobody can work on a run here; its deadline ends it all the same."""
        if deadline is not None:
            self._deadlines[run_id] = deadline
            self.by(deadline)

    def after(self, run_id: str, seconds: float) -> None:
        """Nobody can work on a run here; that is tried again when so many seconds have passed (or up to one more)."""
        at = self._again[run_id] = math.ceil(trio.current_time() + seconds)  # whole ones: many runs, one look at them
        if at < self._at:
            self._at = at
            self._set.set()

    def forget(self, run_id: str) -> None:
        """It has an owner again, who sees to its timers."""
        self._deadlines.pop(run_id, None)
        self._again.pop(run_id, None)

    async def body(self, ctx: ActorContext[object]) -> None:
        """Wake what is due, for ever."""
        await self._look_ahead()
        ctx.ready()
        while True:
            await self._sleep()
            self._set = trio.Event()
            if self._jumped:
                self._jumped = False
                await self._look_ahead()
            if trio.current_time() >= self._at:
                await self._strike()

    async def _sleep(self) -> None:
        if self._at == math.inf:
            await self._set.wait()
            return
        with self._watch.waiting(self), trio.move_on_at(self._at):
            await self._set.wait()

    async def _strike(self) -> None:
        now = self._clock.now()
        tried = {run_id for run_id, at in self._again.items() if at <= trio.current_time()}
        tried.update(run_id for run_id, deadline in self._deadlines.items() if deadline <= now)
        for run_id in tried:
            self.forget(run_id)
            self._wake(run_id, True)
        try:
            due = await self._store.due(now, limit=BATCH + self._refused)
        except StoreUnavailable:
            due = ()
        woken = [run_id for run_id in due if self._wake(run_id, False)]
        self._refused = len(due) - len(woken)  # they stay due: they must not hide those behind them
        if woken or (tried and not due):
            await trio.lowlevel.checkpoint()
        else:
            await trio.sleep(PAUSE)
        await self._look_ahead()

    async def _look_ahead(self) -> None:
        self._at = min(self._again.values(), default=math.inf)
        self.by(min(self._deadlines.values(), default=None))
        try:
            self.by(await self._store.next_due())
        except StoreUnavailable:
            self._at = min(self._at, trio.current_time() + PAUSE)
