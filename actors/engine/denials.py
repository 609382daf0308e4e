"""What the model is told of a call that was denied: the decision's own text, else the agent's, else a sentence."""

from __future__ import annotations

from typing import Final

from ..contract import events as ev
from ..contract.codec import failure_text, normalise
from ..contract.decisions import Decision, Ticket
from ..state.values import copied_decision, copied_ticket
from .state import Draft

PERHAPS: Final = "It ran when its process ended: it may or may not have taken effect."
"""What the model has to know of a call that nobody answers for."""


def denial_text(d: Draft, ticket: Ticket | None, decision: Decision) -> str:
    """The text of a denied call.

    A formatter that fails leaves an event, and the sentence stands in for its text.
    """
    if isinstance(decision.result, str):
        return decision.result
    formatter = d.spec.denial
    if formatter is not None and ticket is not None:
        fault = "it returned no str"
        try:
            text = formatter(copied_ticket(ticket), copied_decision(decision))
        except Exception as error:  # noqa: BLE001 - the agent's own code: it must not end the run
            text, fault = None, f"it raised {failure_text(error)}"
        if isinstance(text, str):
            cleaned: str = normalise(text)[0]
            return cleaned
        detail: str = normalise(f"Agent(denial=...) gave no text for {ticket.ticket_id}: {fault}")[0]
        d.emit("run.degraded", ev.RunDegraded(reason="denial_failed", detail=detail))
    why = f": {decision.reason}" if decision.reason else "."
    lost = ticket is not None and ticket.reason == "outcome_unknown"
    return f"The reviewer denied this call{why}" + (f"\n{PERHAPS}" if lost else "")
