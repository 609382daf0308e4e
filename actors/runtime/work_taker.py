"""`WorkTaker`: claims runs that are ready, when there is room for them here.

Theory of operation. Every run has its owner here from the start, except those that `start` has put into a queue. While
a run that is ready is left, the taker looks once a second; while one is left that will be ready later, it sleeps until
then; else it waits, and costs nothing. In a shared store `SharedTaker` looks for the runs of all processes.

The taker keeps a claimed run until the run has an owner, because no other part knows of the claim: a crash of the
taker in between would strand the run.
"""

from __future__ import annotations

import math
import sys
from collections import deque
from contextlib import nullcontext
from datetime import datetime
from typing import Final

import trio

from greenroom.supervision import ActorContext

from ..errors import StoreUnavailable
from ..processes import Ability, ReadyRun
from ..services.agents import Agents
from ..services.services import Services, retry_until_available
from .run_registry import RunRegistry

WORK: Final = ":taker"
"""Id of the child; no run id begins with a colon."""
POLL: Final = 1.0
"""Seconds between two looks, on average."""
GAP: Final = 0.02
"""Seconds between two claims at least: reports that come meanwhile are one report."""
AT_ONCE: Final = 100
"""Most runs of one claim: other processes get some, too."""


class WorkTaker:
    """Gives owners to ready runs without one, and publishes the abilities of this process."""

    def __init__(self, services: Services, registry: RunRegistry, agents: Agents) -> None:
        self._services, self._registry, self._agents = services, registry, agents
        self._some = trio.Event()
        self._more = False  # runs may be left that were ready and found no room
        self._polls = False  # runs may be without an owner: poll
        self._at: datetime | None = None  # when the next run becomes ready
        self._ready_runs: deque[ReadyRun] = deque()

    def __repr__(self) -> str:
        return f"<WorkTaker, room for {'any number' if self._registry.room is None else self._registry.room}>"

    def ability(self) -> Ability:
        """Return the runs that this process can work on."""
        return Ability()

    def nudge(self) -> None:
        """Look for work soon: there may be some."""
        self._polls = self._more = True
        self._registry.on_change = self.noted
        self._some.set()

    def noted(self) -> None:
        """Note that the room or the agents may have changed."""
        if self._more and self._registry.room != 0:
            self._some.set()

    async def recover(self) -> None:
        """Take up the runs that need an owner."""
        store, now = self._services.store, self._services.clock.now()
        self._ready_runs.extend(await retry_until_available(store.claim_ready, sys.maxsize, self.ability(), now))
        self._take()
        await retry_until_available(self._look_ahead)
        if self._polls or self._at is not None:
            self._some.set()  # the body waits already

    async def body(self, ctx: ActorContext[object]) -> None:
        """Claim until cancelled."""
        ctx.ready()
        self._take()
        claimed_at = -math.inf
        while True:
            until = trio.current_time() + POLL * self._services.jitter() if self._polls else math.inf
            if self._at is not None:
                until = min(until, self._services.clock.trio_time(self._at))
            clock_watch = nullcontext() if self._at is None else self._services.clock_watch.waiting(self)
            with clock_watch, trio.move_on_at(until):
                await self._some.wait()
            if trio.current_time() < claimed_at + GAP:  # a run that was given back may be reported immediately
                await trio.sleep_until(claimed_at + GAP)
            claimed_at = trio.current_time()
            self._some = trio.Event()
            self.noted()
            try:
                await self._claim()
            except StoreUnavailable:
                self._polls = True

    async def _claim(self) -> None:
        """Claim ready runs, as many as there is room for."""
        registry, services = self._registry, self._services
        while True:
            room = registry.room
            if room == 0:
                self._more = True
                return
            most = AT_ONCE if room is None else min(room, AT_ONCE)
            self._ready_runs.extend(await services.store.claim_ready(most, self.ability(), services.clock.now()))
            if registry.closing:  # the store gives back the claims that no actor has
                return
            if self._take() < most:
                break
        self._more = False
        await self._look_ahead()

    def _take(self) -> int:
        """Give owners to the claimed runs; returns how many there were."""
        count = len(self._ready_runs)
        while self._ready_runs:
            self._registry.take(self._ready_runs.popleft())
        return count

    async def _look_ahead(self) -> None:
        """Find out whether runs are left in queues that are paused or at their limit, or that are ready later."""
        queues = await self._services.store.queues()
        self._polls = any(queue.ready for queue in queues)
        self._at = min((queue.later for queue in queues if queue.later is not None), default=None)
        self._registry.on_change = self.noted if self._polls else None
