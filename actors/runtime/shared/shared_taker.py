"""`SharedTaker`: claims ready runs of a shared store, and publishes the abilities of this process.

Theory of operation. Runs that are not at rest and have no owner belong to all processes. Each process claims at most as
many as it has room for: when the store reports work, when room becomes free and more runs may be ready, and once a
second, because reports are hints. A claimed run gets an actor immediately.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import trio

from greenroom.supervision import ActorContext

from ...processes import Ability
from ...services.agents import Agents
from ...services.services import Services, retry_until_available
from ..run_registry import RunRegistry
from ..work_taker import WorkTaker
from .agent_elsewhere import published

LOOK_AHEAD: Final = 5.0
"""Seconds, on average, after which the timers of runs without an owner in a shared store are looked up again."""


class SharedTaker(WorkTaker):
    """Gives owners to runs of all processes that are ready and have none."""

    def __init__(self, services: Services, registry: RunRegistry, agents: Agents) -> None:
        super().__init__(services, registry, agents)
        self._polls = True  # always: polls, because reports may be lost
        self._ahead = math.inf
        self._publication: tuple[Mapping[str, str], int | None] | None = None

    def ability(self) -> Ability:
        """Return the runs that this process can work on."""
        agents = self._agents
        places = frozenset(agents.places.values())
        return Ability(agents=frozenset(agents.by_key), places=places, deps=agents.has_deps, unserved=True)

    def noted(self) -> None:
        """Publish the room and the agents if they have changed, and look for work if there is room."""
        super().noted()
        agents_here, room = self._agents.by_key, self._registry.room
        agents, free = self._publication or ({}, -1)
        if free == room and agents.keys() == agents_here.keys():
            return
        self._publication = {key: published(agent) for key, agent in agents_here.items()}, room
        self._services.store.publish(self._publication[0], places=self._agents.places, room=room)

    async def recover(self) -> None:
        """Take up the runs that need an owner, as far as there is room."""
        self._services.clock.settle()
        signals = self._services.signals
        signals.watch = self._services.store.watch
        signals.owned = lambda run_id: self._registry.get(run_id) is not None
        self._registry.on_change = self.noted
        self.noted()
        await retry_until_available(self._claim)

    async def body(self, ctx: ActorContext[object]) -> None:
        """Claim until cancelled."""
        self._ahead = trio.current_time() + LOOK_AHEAD * self._services.jitter()
        await super().body(ctx)

    async def _claim(self) -> None:
        now = trio.current_time()
        if now >= self._ahead:  # also while reports come faster than polls
            self._ahead = now + LOOK_AHEAD * self._services.jitter()
            self._services.alarm.nudge()  # runs of processes that have ended have no timer in any memory
        await super()._claim()

    async def _look_ahead(self) -> None:
        """Do nothing: the store is polled."""
