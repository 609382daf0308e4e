"""`RunContext`: the agents, the thread and the log with which the effects of one run work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from ..abc import ValueStore
from ..agents.agent import Agent
from ..contract.commits import Commit
from ..contract.messages import Message
from ..contract.parts import Part
from ..contract.rows import RunInfo, RunRow
from ..contract.state import INHERITED
from ..engine.state import RunState
from ..plugins.history import inherited_history, repaired
from ..services.children import Children
from ..services.error_log import ErrorLog
from ..services.part_bytes import PartBytes
from ..services.services import Services, retry_until_available
from ..state.snapshot import StateSnapshot
from ..state.values import copied_message, own_message
from ..stored_values import StoredValue
from ..tools.definition import Tool
from ..user_code.hook_models import HookModels
from ..user_code.toolsets import StepTools


@attrs.define(eq=False)
class RunContext:
    """One run, as its owner knows the run.

    Attributes:
        agent: The agent with which the run was started; None for an agent that is unknown here (enough for a cancel).
        deps: The dependencies of the run.
        children: The tasks of the run.
        part_bytes: The bytes of the thread's images and files.
        history: The messages of the thread, copies for models; None until they are read.
        step_tools: The tools of toolsets in the newest step that this owner has asked for; None: it has not asked.
        toolset_faults: the failures of toolsets that this owner has logged.
    """

    services: Services
    info: RunInfo
    agent: Agent[object] | None
    deps: Any
    children: Children
    part_bytes: PartBytes
    history: list[Message] | None
    step_tools: StepTools | None = None
    toolset_faults: frozenset[tuple[str, str]] = frozenset()

    def __repr__(self) -> str:
        return f"<RunContext of {self.info.run_id}>"

    @property
    def log(self) -> ErrorLog:
        """The log of the runtime, with the fields of every line about this run; made when needed, which is rare."""
        return self.services.log.bind(run_id=self.info.run_id, thread_id=self.info.thread_id, agent=self.info.agent)

    # --- agents ------------------------------------------------------------------------------------------------------

    def acting(self, state: RunState) -> Agent[object]:
        """Return the active agent."""
        key, agent = state.row.agent, self.agent
        return agent if key is None and agent is not None else self.agent_of(key)

    def agent_of(self, key: str | None) -> Agent[object]:
        """Return an agent of the run by its key; None: the run's first agent."""
        agent = self.need_agent()
        return agent if key is None else self.services.agents.acting(agent, key)

    def need_agent(self) -> Agent[object]:
        """Return the run's first agent.

        Raises:
            RuntimeError: the agent is not known here.
        """
        if self.agent is None:
            raise RuntimeError(f"run {self.info.run_id}: only a cancel can be worked on without the agent")
        return self.agent

    # --- workspace ---------------------------------------------------------------------------------------------------

    @property
    def workspace(self) -> object:
        """What the run works in; None for a run without a workspace."""
        surroundings = self.services.agents.surroundings
        return None if surroundings is None or self.info.place is None else surroundings.of(self.info)

    async def keep_step(self, step: int) -> None:
        """Keep what the workspace has now, for forks of the run at the end of `step`."""
        surroundings = self.services.agents.surroundings
        if surroundings is not None and self.info.place is not None:
            await surroundings.keep_step(self.info, step)

    def tool(self, agent: Agent[object], name: str) -> Tool[..., object] | None:
        """Return a tool of an agent, or of its toolsets in the newest step; None if it is not here."""
        tool, newest = agent.tool(name), self.step_tools
        if tool is None and newest is not None and newest.agent == agent.key:
            return newest.tools.get(name)
        return tool

    def models_for(self, agent: Agent[object]) -> HookModels:
        """Return the models that the hooks of an agent may ask."""
        return HookModels(self.services, agent, self.info.run_id, self.part_bytes)

    # --- stored values -----------------------------------------------------------------------------------------------

    async def stored_values(self, space: str, *, after: str = "", limit: int = 100) -> Sequence[StoredValue]:
        """Return a page of the values beside the runs; empty for a store that keeps none."""
        store = self.services.store
        if not isinstance(store, ValueStore):
            return ()
        return await retry_until_available(store.values, space, after=after, limit=limit)

    # --- thread ------------------------------------------------------------------------------------------------------

    async def thread(self) -> list[Message]:
        """Return the thread's messages, copies for models; the first call reads them from the store."""
        if self.history is None:
            messages = await retry_until_available(self.services.store.messages, self.info.thread_id)
            self.part_bytes.note(messages)
            self.history = [*map(own_message, messages)]
        return self.history

    async def history_for(self, state: RunState) -> list[Message]:
        """Return the messages that the active agent reads: the thread, or the result of a handoff's filter."""
        if self.history is not None and state.row.agent is None:  # the usual case
            return self.history
        return await self._history_of(state.row, state.snapshot)

    async def _history_of(self, row: RunRow, snapshot: StateSnapshot) -> list[Message]:
        thread = await self.thread()
        if row.agent is None:
            return thread
        return [*repaired(inherited_history(thread, snapshot.cells.get(INHERITED)))]

    async def messages(self, row: RunRow, snapshot: StateSnapshot) -> tuple[Message, ...]:
        """Return copies of the messages that the step's request had, with the bytes of images and files."""
        history: Sequence[Message] = await self._history_of(row, snapshot)
        if self.part_bytes.needed:
            history = await self.part_bytes.filled(history)
        return tuple(map(copied_message, history))

    def keep(self, commit: Commit) -> None:
        """Take the messages and the bytes of a commit, which joins the thread once it is durable."""
        if self.history is not None:
            self.history.extend(map(own_message, commit.messages))
        if commit.parts:  # no model reads an artifact
            self.part_bytes.keep([part for part in commit.parts if isinstance(part, Part)])
