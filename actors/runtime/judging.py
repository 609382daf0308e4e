"""The rules that judge commands, with the tools of the agents in this runtime: the run's own, and those of child runs.

Theory of operation. The store's facts name the run's agent and its active agent, so the tools are chosen while the
command is judged, and no row is read before. A decision about a mirror is judged by the tool of the agent that asks:
the active agent of the child run, or of a run below it. The fingerprint of the action names that agent and the
definition of its tool, so no row of the child run is read: the agent is the one whose tool has this fingerprint.

A process without the agent judges by what the processes that have it publish: an approval can act if the definition
that it shows is that of one of them. A refusal by definitions that are not read, or were read a moment ago
(`asks_elsewhere`), leaves no trace: the process reads the published definitions and judges the command again.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

import attrs

from ..agents.agent import Agent
from ..contract.decisions import Command, CommandResult, Ticket
from ..contract.plain import JSONObject
from ..contract.rows import CommandContext
from ..engine.command_rules import CommandRules, MirroredTool, ToolState
from ..errors import UnknownAgent
from ..services.agents import Agents
from .shared.agent_elsewhere import Published, PublishedTool, is_action, tools_of_mirror


@attrs.define
class RuntimeJudge:
    """Judges a command with the tools of the run's active agent, here or as other processes publish it.

    Called in the thread in which the store writes.

    Attributes:
        agents: The agents of this runtime.
        now: UTC.
        own: the run's agent, if the run has an owner here; else the agent is looked up by the key in the facts.
        definitions: reject decisions about a tool whose definition has changed.
        elsewhere: the agents that other processes publish; None: they were not read.
        asks_elsewhere: The newest result depends on `elsewhere`.
        absent: The newest result was found without the run's agent.
    """

    agents: Agents
    now: datetime
    own: Agent[object] | None = None
    definitions: bool = True
    elsewhere: Published | None = None
    asks_elsewhere: bool = attrs.field(init=False, default=False)
    absent: bool = attrs.field(init=False, default=False)

    def __call__(self, facts: CommandContext, command: Command) -> CommandResult:
        """Return the result for `command`; see `CommandRules`."""
        self.asks_elsewhere = False
        agent = self._active(facts) if command.kind == "decide" else None
        self.absent = agent is None
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

        def definition(name: str, definition_shown: str) -> ToolState:
            tool = agent.spec.tools.get(name)
            return self._state([] if tool is None else [tool.definition], definition_shown)

        return CommandRules(self.now, check, definition, self._mirrored)

    def _state(self, present: Collection[str], definition: str) -> ToolState:
        """Return the state of a tool. `present`: the digests of its present definitions; "" is an unknown one."""
        if not self.definitions:
            return "same"
        if not present:
            return "gone"
        return "same" if not definition or "" in present or definition in present else "changed"

    def _mirrored(self, ticket: Ticket) -> MirroredTool | None:
        """Return the tool of a mirror: of an agent here, else of other processes, where the child run may work."""
        if not ticket.tool:  # it holds the child run itself
            return None
        here = [agent for agent in self.agents.by_key.values() if ticket.tool in agent.spec.tools]
        for agent in here:
            tool = agent.spec.tools[ticket.tool]
            if is_action(ticket, agent.key, tool.definition):
                return MirroredTool(state="same", check=tool.check)
        same, same_name = tools_of_mirror(self.elsewhere or {}, ticket)
        if same:
            return MirroredTool(state="same", check=lambda arguments: self._checked(same, arguments))
        self.asks_elsewhere = True
        if self._offers():
            return MirroredTool(state="same", check=lambda _: None)
        state = self._state([ticket.tool] if here or same_name else [], "another")
        return MirroredTool(state=state, check=lambda arguments: self._checked(same_name, arguments))

    def _offers(self) -> bool:
        """Return True if an agent has toolsets: a mirror may show a tool of theirs. The child run judges then."""
        elsewhere = (agent for releases in (self.elsewhere or {}).values() for agent in releases)
        return any(agent.toolsets for agent in self.agents.by_key.values()) or any(agent.offers for agent in elsewhere)

    # --- an agent of other processes ---------------------------------------------------------------------------------

    def _by_published(self, facts: CommandContext, command: Command) -> CommandResult:
        """Judge without the agent. If no live process has it, an approval is accepted: its tool is not known."""
        key, lacking = facts.active_agent or facts.agent, False
        acting = (self.elsewhere or {}).get(key, ())
        unknown = self.elsewhere is not None and not acting

        def check(name: str, arguments: JSONObject) -> str | None:
            nonlocal lacking
            tools = [agent.tools[name] for agent in acting if name in agent.tools]
            self.asks_elsewhere, lacking = True, not tools
            if tools:
                return self._checked(tools, arguments)
            return (
                f"no live process has the agent {key!r} with the tool {name!r}, so the arguments cannot be checked:"
                " decide again when one has, or deny"
            )

        def definition(name: str, definition_shown: str) -> ToolState:
            present = [agent.tools[name].definition for agent in acting if name in agent.tools]
            state: ToolState = "same" if unknown else self._state(present, definition_shown)
            self.asks_elsewhere = self.asks_elsewhere or state != "same"
            return state

        def mirrored(ticket: Ticket) -> MirroredTool | None:
            tool = self._mirrored(ticket)
            if tool is None or tool.state == "same" or not unknown:
                return tool
            return MirroredTool(state="same", check=lambda values: check(ticket.tool, values))

        result = CommandRules(self.now, check, definition, mirrored)(facts, command)
        return attrs.evolve(result, code="unknown_agent") if lacking else result

    def _checked(self, tools: Collection[PublishedTool], arguments: JSONObject) -> str | None:
        """Return None if one of several tools takes the arguments, else the complaint of the first tool."""
        self.asks_elsewhere = True
        faults = [tool.check(arguments) for tool in tools]
        return None if not faults or None in faults else faults[0]
