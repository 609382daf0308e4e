"""Questions about calls whose tool a release has removed: no approval can act, so they are withdrawn.

Theory of operation. The owner that takes a run up names the calls whose questions are lost in `Activate`, so that a
replay, which may have other tools, withdraws the same ones. A decision that is on its way acts first: a denial as ever,
and an approval is refused with the reason before the question is withdrawn. A question that a result can answer is not
lost: the result needs no tool.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ..contract import events as ev
from ..contract.calls import CallPosition, CallStatus
from ..contract.decisions import InboxItem, Ticket, asks_outcome
from ..contract.phases import TOOLS
from ..contract.rows import CallRow
from ..contract.spec import AgentSpec
from .denials import doubted
from .state import ENGINE, StepBuilder
from .tickets import close_call, withdraw

REMOVED: Final = "the tool is not there any more; no approval could act"
GONE: Final = "This call was withdrawn: the tool {tool} is not there any more."


def lost_questions(spec: AgentSpec, calls: Iterable[CallRow], inbox: Iterable[InboxItem]) -> tuple[str, ...]:
    """Return the ids of the calls with a lost question about which no decision is on its way.

    Args:
        spec: The spec of the active agent.
        calls: The calls of the step.
        inbox: the unread commands.
    """
    asking = [
        (call, call.ticket)
        for call in calls
        if call.at is CallPosition.PARKED
        and call.parent is None
        and call.offered is None  # a tool of a toolset is looked for when its body begins
        and call.tool not in spec.tools
    ]
    decisions = (item.command.decision for item in inbox) if asking else ()
    targets = {decision.target for decision in decisions if decision is not None}
    return tuple(
        call.call_id
        for call, ticket in asking
        if ticket is not None and _is_lost(ticket) and not targets & {call.call_id, ticket.ticket_id, ticket.replaces}
    )


def _is_lost(ticket: Ticket) -> bool:
    from_outside = ticket.resume_mode == "use_decision_as_tool_result" or asks_outcome(ticket.reason, ticket.action)
    return not from_outside


def withdraw_lost(builder: StepBuilder, call_ids: Iterable[str]) -> None:
    """Withdraw the lost questions of these calls, which end; the others stay."""
    for call in [builder.calls[call_id] for call_id in call_ids if call_id in builder.calls]:
        asks = call.at is CallPosition.PARKED and call.ticket is not None and _is_lost(call.ticket)
        if not asks or builder.row.position is not TOOLS:
            continue
        text = f"the tool {call.tool} of {call.call_id} is not there any more"
        builder.emit("run.degraded", ev.RunDegraded(reason="tool_changed", detail=text))
        row = withdraw(builder, call, by=ENGINE, reason=REMOVED)
        result_text = doubted(GONE.format(tool=call.tool), call.doubt)
        close_call(builder, row, CallStatus.CANCELLED, result=None, shown=result_text, code="unknown_tool")
