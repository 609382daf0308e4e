"""The rules that judge commands, with the tools of the agents in this runtime: the run's own, and those of child runs.

Theory of operation. The store's facts name the run's agent and its active agent, so the tools are chosen while the
command is judged, and no row is read before. A decision about a mirror is judged by the tools of the agent whose run
asks, which is one of the agents below the run's own. The fingerprint of the action names its agent and the definition
of its tool, so no row of the child run is read.
"""

from __future__ import annotations

from datetime import datetime

import attrs

from ..agent import Agent
from ..contract.decisions import Command, CommandResult, Ticket
from ..contract.ids import fingerprint
from ..contract.plain import JSONObject
from ..contract.rows import CommandContext
from ..engine.command_rules import CommandRules, MirroredTool
from ..errors import UnknownAgent
from .agents import Agents


@attrs.frozen
class RuntimeJudge:
    """Judges a command with the tools of the run's active agent; without that agent edited arguments are refused.

    Called in the thread in which the store writes.

    Attributes:
        agents: of this runtime.
        now: UTC.
        own: the run's agent, if the run has an owner here; else the agent is looked up by the key in the facts.
        definitions: reject decisions about a tool whose definition has changed.
    """

    agents: Agents
    now: datetime
    own: Agent[object] | None = None
    definitions: bool = True

    def __call__(self, facts: CommandContext, command: Command) -> CommandResult:
        """Return the result for `command`; see `CommandRules`."""
        agent = self._active(facts) if command.kind == "decide" else None

        def check(name: str, arguments: JSONObject) -> str | None:
            tool = None if agent is None else agent.tool(name)
            if tool is None:
                return f"the tool {name!r} is not here, so its arguments cannot be checked"
            return tool.check(arguments)

        def definition(name: str) -> str:
            return "" if agent is None or not self.definitions else agent.spec.definition(name, "")

        def mirrored(ticket: Ticket) -> MirroredTool | None:
            return None if agent is None else self._mirrored(agent, ticket)

        return CommandRules(self.now, check, definition, mirrored)(facts, command)

    def _active(self, facts: CommandContext) -> Agent[object] | None:
        """Return the active agent, whose tools the run's tickets are about; None if it is not here."""
        agent = self.own or self.agents.get(facts.agent)
        try:
            return None if agent is None else self.agents.acting(agent, facts.active_agent)
        except UnknownAgent:
            return None

    def _mirrored(self, agent: Agent[object], ticket: Ticket) -> MirroredTool | None:
        found: MirroredTool | None = None
        for other in self.agents.below(agent):
            tool = other.tool(ticket.tool)
            if tool is None:
                continue
            mark = fingerprint(other.key, ticket.tool, ticket.arguments, other.spec.definition(ticket.tool, ""))
            found = MirroredTool(fingerprint=mark if self.definitions else ticket.fingerprint, check=tool.check)
            if mark == ticket.fingerprint:  # several agents may have a tool of this name
                break
        return found
