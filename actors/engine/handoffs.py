"""Handoffs: a call of an agent hands the run over to another agent.

Theory of operation. A handoff is a call like every other, with gates, tickets, a row and events; its body is the
handoff's callback, if there is one. It starts when all other calls of its step have settled, wherever the model named
it, so that nothing of the old agent works beside the new one. Of several handoffs the first that was not refused
starts, and the others end then (`handoff_ignored`). The outcome of a handoff is in the row (`RunRow.handoff`) until the
next step begins, with the other agent (`RunRow.agent`), and in a reserved state key, which forks read:

    transfer_to_b: allowed     the other calls work
    all others settled         the callback of transfer_to_b runs
    CallReturned               RunRow.handoff, greenroom.inherited, {"agent": "b"}, run.handoff; step_end of the old one
    next step                  RunRow.agent = "b"; from here on the spec is that of b within the run

The spec of the other agent is in `AgentSpec.graph`, joined with what stays with the first agent (`AgentSpec.within`).
"""

from __future__ import annotations

from typing import Final

from ..contract import events as ev
from ..contract.calls import CallPosition, CallStatus
from ..contract.excerpt import shown_value
from ..contract.phases import TOOLS
from ..contract.plain import JSONValue
from ..contract.rows import CallRow, Handover
from ..contract.spec import HANDOFF
from ..contract.state import INHERITED, LAST_AGENT
from .effects import ReleaseCall
from .state import ENGINE, StepBuilder
from .step_calls import StepCalls
from .tickets import close_call, withdraw

IGNORED: Final = "This handoff was ignored: the run is handed over by {!r}, and to one agent only."
"""Tells the model that another handoff of the same answer came first."""


def come_before(calls: StepCalls, call: CallRow) -> int:
    """Return the set of the calls that have their turn before another one: handoffs come last, in the model's order."""
    if not calls.handoffs:
        return calls.before(call)
    others = calls.all & ~calls.handoffs
    if call.effect == HANDOFF:
        return others | (calls.handoffs & calls.before(call))
    return others & calls.before(call)


def without_handoffs(calls: StepCalls) -> int:
    """Return the set of the calls without the handoffs that are not in turn.

    A handoff is in turn if all other calls and all handoffs before it have settled.
    """
    others = calls.all & ~calls.handoffs
    waiting = calls.open & calls.handoffs
    return others if calls.open & others else others | (waiting & -waiting)


def begin_handoff(builder: StepBuilder, call: CallRow) -> None:
    """End the other handoffs of the step: this one begins, and was not refused."""
    for other in builder.calls.each(builder.calls.handoffs & builder.calls.open):
        if other.settled or other.call_id == call.call_id:
            continue
        row = withdraw(builder, other, by=ENGINE, reason=f"the handoff {call.call_id} came first")
        # a call that waits for people, or whose verdict may still change, has no way to fail
        status = CallStatus.FAILED if other.at is CallPosition.ALLOWED else CallStatus.CANCELLED
        text = IGNORED.format(call.tool)
        close_call(builder, row, status, result=None, shown=text, code="handoff_ignored")


def carry_out(builder: StepBuilder, call: CallRow) -> None:
    """Carry out a handoff without a body: the call succeeds immediately."""
    call = builder.put(call, at=CallPosition.BODY, attempts=call.attempts + 1, started_at=builder.now)
    builder.emit("run.tool.started", ev.ToolStarted(call_id=call.call_id, status=call.status, attempt=call.attempts))
    if call.ticket is not None:
        builder.do(ReleaseCall(call_id=call.call_id))
    result = {"agent": builder.spec.tools[call.tool].handoff}
    hand_over(builder, call)
    close_call(builder, call, CallStatus.SUCCEEDED, result=result, shown=shown_value(result)[0])


def hand_over(builder: StepBuilder, call: CallRow, inherited_thread: tuple[JSONValue, ...] | None = None) -> None:
    """Note that a handoff was carried out; a run that is ending has no further step.

    Args:
        builder: The builder of the input.
        call: the handoff.
        inherited_thread: The messages that the input filter returned; None without a filter.
    """
    tool, draft = builder.spec.tools.get(call.tool), builder.row.draft
    if tool is None or tool.handoff is None or builder.row.position is not TOOLS:
        return
    builder.row.handoff = Handover(agent=tool.handoff, call_id=call.call_id)
    messages = None if inherited_thread is None else list(inherited_thread)
    after = "" if draft is None else draft.id
    builder.reserve(INHERITED, {"agent": tool.handoff, "after": after, "messages": messages}, call.call_id)


def announce_handoff(builder: StepBuilder, handoff: Handover) -> None:
    """Emit that the step has handed the run over."""
    row = builder.row
    event = ev.HandedOver(from_agent=builder.spec.key, to_agent=handoff.agent, call_id=handoff.call_id, step=row.step)
    builder.emit("run.handoff", event)


def take_over(builder: StepBuilder, handoff: Handover) -> None:
    """Make the other agent the active one: the next step begins. The attempts of its model are counted apart."""
    row, counters = builder.row, builder.counters
    attempts = {**(counters.others_attempts or {}), builder.spec.key: counters.model_attempts}
    counters.model_attempts = attempts.pop(handoff.agent, 0)
    counters.others_attempts = attempts
    row.agent, row.handoff = handoff.agent, None
    builder.spec = builder.spec.acting(handoff.agent)


def active_agent(builder: StepBuilder) -> str | None:
    """Return the key of the active agent for events: None if it is the agent with which the run was started."""
    key = builder.row.agent
    return None if key == builder.info.agent else key


def remember_agent(builder: StepBuilder) -> None:
    """Note in the thread with which agent a completed run ended, if a run of the thread was ever handed over."""
    row = builder.row
    key = row.handoff.agent if row.handoff is not None else row.agent
    cells = builder.snapshot.cells
    if key is None and (not cells or LAST_AGENT not in cells):
        return
    builder.reserve(LAST_AGENT, key or builder.info.agent)
