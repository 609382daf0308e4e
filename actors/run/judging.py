"""The rules that judge commands, with the tools of the agents in this runtime: the run's own, and those of child runs.

Theory of operation. The store's facts name the run's agent and its active agent, so the tools are chosen while the
command is judged, and no row is read before. A decision about a mirror is judged by the tools of the agent whose run
asks, which is one of the agents below the run's own. The fingerprint of the action names its agent and the definition
of its tool, so no row of the child run is read.

A process without the agent checks arguments by what the processes that have it publish. That is read only when a judge
has refused for want of it (`asked`), which leaves no trace; then the command is judged again.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

import attrs

from ..agent import Agent
from ..contract.decisions import Command, CommandResult, Ticket
from ..contract.ids import fingerprint
from ..contract.plain import JSONObject
from ..contract.rows import CommandContext
from ..engine.command_rules import CommandRules, MirroredTool
from ..errors import UnknownAgent
from .agent_elsewhere import AgentsElsewhere, PublishedTool, tools_of_mirror
from .agents import Agents


@attrs.define
class RuntimeJudge:
    """Judges a command with the tools of the run's active agent, here or as other processes publish it.

    Called in the thread in which the store writes.

    Attributes:
        agents: of this runtime.
        now: UTC.
        own: the run's agent, if the run has an owner here; else the agent is looked up by the key in the facts.
        definitions: reject decisions about a tool whose definition has changed.
        elsewhere: the agents that other processes publish; None: they were not read.
        asked: set if the newest result depends on `elsewhere`.
    """

    agents: Agents
    now: datetime
    own: Agent[object] | None = None
    definitions: bool = True
    elsewhere: AgentsElsewhere | None = None
    asked: bool = attrs.field(init=False, default=False)

    def __call__(self, facts: CommandContext, command: Command) -> CommandResult:
        """Return the result for `command`; see `CommandRules`."""
        self.asked = False
        agent = self._active(facts) if command.kind == "decide" else None
        return self._by_published(facts, command) if agent is None else self._by(agent)(facts, command)

    def _active(self, facts: CommandContext) -> Agent[object] | None:
        """Return the active agent, whose tools the run's tickets are about; None if it is not here."""
        agent = self.own or self.agents.get(facts.agent)
        try:
            return None if agent is None else self.agents.acting(agent, facts.active_agent)
        except UnknownAgent:
            return None

    # --- an agent of this process ------------------------------------------------------------------------------------

    def _by(self, agent: Agent[object]) -> CommandRules:
        def check(name: str, arguments: JSONObject) -> str | None:
            tool = agent.tool(name)
            if tool is None:
                return f"the tool {name!r} is not here, so its arguments cannot be checked"
            return tool.check(arguments)

        def definition(name: str) -> str:
            return agent.spec.definition(name, "") if self.definitions else ""

        return CommandRules(self.now, check, definition, lambda ticket: self._mirrored(agent, ticket))

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

    # --- an agent of other processes ---------------------------------------------------------------------------------

    def _by_published(self, facts: CommandContext, command: Command) -> CommandResult:
        """Judge without the agent. Whether its tool has changed is left to the run's owner, which can ask again."""
        key, lacking = facts.active_agent or facts.agent, False

        def checked(tools: Collection[PublishedTool], name: str, arguments: JSONObject) -> str | None:
            nonlocal lacking
            self.asked, lacking = True, not tools
            if lacking:
                return (
                    f"no live process has the agent {key!r} with the tool {name!r}, so the arguments cannot be checked:"
                    " decide again when one has, or deny"
                )
            faults = [tool.check(arguments) for tool in tools]
            return None if None in faults else faults[0]

        def check(name: str, arguments: JSONObject) -> str | None:
            acting = (self.elsewhere or {}).get(key, ())
            return checked([agent.tools[name] for agent in acting if name in agent.tools], name, arguments)

        def mirrored(ticket: Ticket) -> MirroredTool:
            return MirroredTool(
                fingerprint=ticket.fingerprint,
                check=lambda arguments: checked(tools_of_mirror(self.elsewhere or {}, ticket), ticket.tool, arguments),
            )

        result = CommandRules(self.now, check, mirrored=mirrored)(facts, command)
        return attrs.evolve(result, code="unknown_agent") if lacking else result
