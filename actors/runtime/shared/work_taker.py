"""`WorkTaker`: claims runs that are ready, when there is room for them here.

Theory of operation. In a shared store, runs that are not at rest and have no owner belong to all processes. Each
process claims at most as many as it has room for: when the store reports work, when room becomes free and more runs may
be ready, and once a second, because reports are hints. What was claimed gets an actor at once.

In a store that is not shared, every run has its owner here from the start, except those that `start` has put into a
queue. While a run that is ready is left, the taker looks once a second; while one is left that will be ready later, it
sleeps until then; else it waits, and costs nothing.

What was claimed is kept until it has an owner, because no other part knows of the claim: a crash of the taker in
between would strand the runs.
"""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Mapping
from contextlib import nullcontext
from datetime import datetime
from typing import Final

import trio

from greenroom.supervision import ActorContext

from ...errors import StoreUnavailable
from ...processes import Ability, ReadyRun
from ...services.agents import Agents
from ...services.services import Services, retry_until_available
from ..run_registry import RunRegistry
from .agent_elsewhere import published

WORK: Final = ":taker"
"""Id of the child; no run id begins with a colon."""
POLL: Final = 1.0
"""Seconds between two looks, on average."""
LOOK_AHEAD: Final = 5.0
"""Seconds, on average, after which the timers of runs without an owner in a shared store are looked up again."""
GAP: Final = 0.02
"""Seconds between two claims at least: reports that come meanwhile are one report."""
AT_ONCE: Final = 100
"""Most runs of one claim: other processes get some, too."""


class WorkTaker:
    """Gives owners to runs that are ready and have none; tells other processes what this one can do."""

    def __init__(self, services: Services, registry: RunRegistry, agents: Agents) -> None:
        self._services, self._registry, self._agents = services, registry, agents
        self._shared = services.shared
        self._some = trio.Event()
        self._more = False  # runs may be left that were ready and found no room
        self._left = self._shared  # runs may be without an owner: poll
        self._at: datetime | None = None  # when the next run becomes ready; unused in a shared store, which is polled
        self._published: tuple[Mapping[str, str], int | None] | None = None
        self._claimed: deque[ReadyRun] = deque()

    def __repr__(self) -> str:
        return f"<WorkTaker, room for {'any number' if self._registry.room is None else self._registry.room}>"

    def ability(self) -> Ability:
        """Return the runs that this process can work on."""
        if not self._shared:
            return Ability()
        return Ability(agents=frozenset(self._agents.by_key), deps=self._agents.has_deps, unserved=True)

    def nudge(self) -> None:
        """Look for work soon: there may be some."""
        self._left = self._more = True
        if not self._shared:
            self._registry.changed = self.noted
        self._some.set()

    def noted(self) -> None:
        """Note that the room or the agents may have changed."""
        room = self._registry.room
        if self._more and room != 0:
            self._some.set()
        known = self._agents.by_key
        agents, free = self._published or ({}, -1)
        if not self._shared or (free == room and agents.keys() == known.keys()):
            return
        self._published = {key: published(agent) for key, agent in known.items()}, room
        self._services.store.publish(self._published[0], room=room)

    async def recover(self) -> None:
        """Take up the runs that need an owner: in a shared store those for which there is room, else all of them."""
        store, now = self._services.store, self._services.clock.now()
        if self._shared:
            self._services.clock.settle()
            signals = self._services.signals
            signals.watch, signals.owned = store.watch, lambda run_id: self._registry.get(run_id) is not None
            self._registry.changed = self.noted
            self.noted()
            await retry_until_available(self._claim)
            return
        self._claimed.extend(await retry_until_available(store.claim_ready, sys.maxsize, self.ability(), now))
        self._take()
        await retry_until_available(self._look_ahead)
        if self._left or self._at is not None:
            self._some.set()  # the body waits already

    async def body(self, ctx: ActorContext[object]) -> None:
        """Claim until cancelled."""
        ctx.ready()
        self._take()
        claimed, ahead = -math.inf, trio.current_time() + LOOK_AHEAD * self._services.jitter()
        while True:
            until = trio.current_time() + POLL * self._services.jitter() if self._left else math.inf
            if self._at is not None:
                until = min(until, self._services.clock.trio_time(self._at))
            watched = nullcontext() if self._at is None else self._services.clock_watch.waiting(self)
            with watched, trio.move_on_at(until):
                await self._some.wait()
            if trio.current_time() < claimed + GAP:  # what was claimed may have been given back, and reported at once
                await trio.sleep_until(claimed + GAP)
            claimed = trio.current_time()
            self._some = trio.Event()
            if self._shared and claimed >= ahead:  # also while reports come faster than polls
                ahead = claimed + LOOK_AHEAD * self._services.jitter()
                self._services.alarm.nudge()  # runs of processes that have ended have no timer in any memory
            self.noted()
            try:
                await self._claim()
            except StoreUnavailable:
                self._left = True

    async def _claim(self) -> None:
        """Claim what is ready, as far as there is room."""
        registry, services = self._registry, self._services
        while True:
            room = registry.room
            if room == 0:
                self._more = True
                return
            most = AT_ONCE if room is None else min(room, AT_ONCE)
            self._claimed.extend(await services.store.claim_ready(most, self.ability(), services.clock.now()))
            if registry.closing:  # the store gives back what no actor has
                return
            if self._take() < most:
                break
        self._more = False
        if not self._shared:
            await self._look_ahead()

    def _take(self) -> int:
        """Give owners to the claimed runs; returns how many there were."""
        count = len(self._claimed)
        while self._claimed:
            self._registry.take(self._claimed.popleft())
        return count

    async def _look_ahead(self) -> None:
        """Find out whether runs are left in queues that are paused or at their limit, or that are ready later."""
        queues = await self._services.store.queues()
        self._left = any(queue.ready for queue in queues)
        self._at = min((queue.later for queue in queues if queue.later is not None), default=None)
        self._registry.changed = self.noted if self._left else None
