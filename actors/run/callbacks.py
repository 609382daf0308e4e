"""Callbacks of the store (`StoreHooks`) and of the run actors (`Directory`).

Both objects exist before the registry and the commands that they forward to, which are set afterwards.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import attrs

from ..abc import Model
from ..agent import Agent
from ..contract.codec import failure_text
from ..contract.decisions import Command, CommandResult, InboxItem
from ..contract.rows import RunInfo
from .agents import Agents
from .change_signals import ChangeSignals
from .commands import RunCommands
from .error_log import RUN, ErrorLog
from .run_registry import RunRegistry


@attrs.define(eq=False)
class StoreReports:
    """Receives the store's reports of durable changes and of outages (`StoreHooks`).

    Attributes:
        outage: why the store is unavailable; None if it answers.
    """

    _board: ChangeSignals
    _journal: ErrorLog
    _roster: RunRegistry
    outage: Exception | None = attrs.field(init=False, default=None)

    def posted(self, run_id: str, item: InboxItem) -> None:
        """Hint a durable command to the run's actor."""
        self._roster.posted(run_id, item)
        self._board.posted(run_id)

    def committed(self, run_id: str, last: int, frames: Sequence[bytes]) -> None:
        """Wake the followers of a run whose new events are durable."""
        self._board.committed(run_id, last, frames)

    def pruned(self) -> None:
        """Wake the readers of lists after runs were pruned."""
        self._board.pruned()

    def unavailable(self, error: Exception | None) -> None:
        """Record that the store stopped answering, or answers again (None); logged in `greenroom.run`.

        Meanwhile runs wait for their receipts, and commands are rejected with store_unavailable.
        """
        self.outage = error
        if error is None:
            self._journal.note(RUN, logging.WARNING, "the store answers again")
        else:
            text = f"the store does not answer ({failure_text(error)}); it is tried again for its patience"
            self._journal.note(RUN, logging.WARNING, text)


@attrs.define(eq=False)
class LocalDirectory:
    """The runtime as run actors see it (`Directory`).

    Attributes:
        roster, commands: set before the first run exists.
    """

    _agents: Agents
    roster: RunRegistry = attrs.field(init=False)
    commands: RunCommands = attrs.field(init=False)

    async def agent_for(self, info: RunInfo) -> Agent[object]:
        """See `Agents.agent_for`."""
        return self._agents.agent_for(info)

    async def deps_for(self, info: RunInfo) -> Any:
        """See `Agents.deps_for`."""
        return await self._agents.deps_for(info)

    def model_for(self, agent: Agent[object]) -> Model:
        """See `Agents.model_for`."""
        return self._agents.model_for(agent)

    def can_revive(self, info: RunInfo) -> bool:
        """See `Agents.can_revive`."""
        return self._agents.can_revive(info)

    async def post(self, run_id: str, command: Command) -> CommandResult:
        """See `RunCommands.post`."""
        return await self.commands.post(run_id, command)

    def thread_freed(self, run_id: str) -> None:
        """Report that the run's thread is free."""
        self.roster.thread_freed(run_id)

    def resting(self, run_id: str, resting: bool) -> None:
        """Report that the run came to rest, or works again."""
        self.roster.resting(run_id, resting)

    def wake(self, run_id: str, degraded: bool) -> bool:
        """Give a run that is not in memory an owner, because one of its timers fired (`WakeupTimer`)."""
        return self.roster.wake(run_id, degraded=degraded)
