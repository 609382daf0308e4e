"""The rules that judge commands, with the tools of the agents in this runtime: the run's own, and those of child runs.

Theory of operation. A decision about a mirror is judged by the tools of the agent whose run asks, which is one of the
agents below the run's own. The fingerprint of the action names its agent and the definition of its tool, so no row of
the child run is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from ..agent import Agent
from ..contract.decisions import Ticket
from ..contract.ids import fingerprint
from ..contract.plain import JSONObject
from ..engine.command_rules import CommandRules, MirroredTool


def rules_for(
    agent: Agent[object] | None,
    now: datetime,
    *,
    below: Callable[[Agent[object]], Iterable[Agent[object]]],
    definitions: bool = True,
) -> CommandRules:
    """Return the rules for commands to a run of this agent; without the agent edited arguments are refused.

    Args:
        agent: the active one; None if it is not here.
        now: UTC.
        below: returns the agents whose runs may be child runs of runs of an agent.
        definitions: reject decisions about a tool whose definition has changed.
    """

    def check(name: str, arguments: JSONObject) -> str | None:
        tool = None if agent is None else agent.tool(name)
        if tool is None:
            return f"the tool {name!r} is not here, so its arguments cannot be checked"
        return tool.check(arguments)

    def definition(name: str) -> str:
        return "" if agent is None or not definitions else agent.spec.definition(name, "")

    def mirrored(ticket: Ticket) -> MirroredTool | None:
        found: MirroredTool | None = None
        for other in () if agent is None else below(agent):
            tool = other.tool(ticket.tool)
            if tool is None:
                continue
            mark = fingerprint(other.key, ticket.tool, ticket.arguments, other.spec.definition(ticket.tool, ""))
            found = MirroredTool(fingerprint=mark if definitions else ticket.fingerprint, check=tool.check)
            if mark == ticket.fingerprint:  # several agents may have a tool of this name
                break
        return found

    return CommandRules(now, check, definition, mirrored)
