"""What the store and the run actors call: the store's hooks and the actors' directory.

Both are made before the roster and the commands that they pass calls on to, and are given these once they are there.
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
    """What has become durable, and whether the store answers (`StoreHooks`).

    Attributes:
        outage: why the store does not answer now; None if it does.
    """

    _board: ChangeSignals
    _journal: ErrorLog
    _roster: RunRegistry
    outage: Exception | None = attrs.field(init=False, default=None)

    def posted(self, run_id: str, item: InboxItem) -> None:
        """A command is durable: hint it to the run's actor."""
        self._roster.posted(run_id, item)
        self._board.posted(run_id)

    def committed(self, run_id: str, last: int, frames: Sequence[bytes]) -> None:
        """Events of a run are durable: wake the followers of the run."""
        self._board.committed(run_id, last, frames)

    def pruned(self) -> None:
        """Done runs have been deleted: wake the readers of lists."""
        self._board.pruned()

    def unavailable(self, error: Exception | None) -> None:
        """The store has stopped answering, or answers again: the log `greenroom.run` says so.

        Runs stand at their receipts meanwhile, and commands are answered store_unavailable.
        """
        self.outage = error
        if error is None:
            self._journal.note(RUN, logging.WARNING, "the store answers again")
        else:
            text = f"the store does not answer ({failure_text(error)}); it is tried again for its patience"
            self._journal.note(RUN, logging.WARNING, text)


@attrs.define(eq=False)
class LocalDirectory:
    """What a run actor asks its runtime for (`Directory`).

    Attributes:
        roster, commands: set once they are made, before the first run is.
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

    def released(self, run_id: str) -> None:
        """The run's thread is free."""
        self.roster.released(run_id)

    def resting(self, run_id: str, resting: bool) -> None:
        """The run came to rest, or works again."""
        self.roster.resting(run_id, resting)

    def wake(self, run_id: str, degraded: bool) -> bool:
        """A timer of a run that is not in memory has fired (`WakeupTimer`)."""
        return self.roster.wake(run_id, degraded=degraded)
