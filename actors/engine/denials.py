"""The text that the model receives for a denied call, and the sentences about unknown outcomes.

Theory of operation. The first source that has a text wins: the decision (`Decision.result`, a str), then the agent's
`denial` function, then a default with the decision's reason. The function is user code: its failure is reported by an
event and a log line, and the default is used. If the call's body was cut off before the denial, a sentence says that
the effect may have happened, because a denial only prevents what has not begun:

    The reviewer denied this call: too expensive
    It ran when its process ended: it may or may not have taken effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from greenroom.supervision.border import Raised, Returned, capture

from ..contract import events as ev
from ..contract.codec import failure_text, normalise
from ..contract.decisions import Decision
from ..contract.ids import error_id
from ..contract.rows import CallRow
from ..contract.tasks import UnknownCause
from ..state.values import copied_decision, copied_ticket
from .effects import ComparableError, ReportFailure
from .state import StepBuilder

PERHAPS: Final = "It ran when its process ended: it may or may not have taken effect."
"""Tells the model that a body ended with its process."""
OVERRAN: Final = "It had not ended when its time to clean up was over: it may or may not have taken effect."
"""Tells the model that a body overran its grace; its late result is dropped."""
_DOUBT: Final[Mapping[UnknownCause, str]] = {"process": PERHAPS, "grace": OVERRAN}


def doubted(text: str, doubt: UnknownCause) -> str:
    """Return the text with a sentence that the effect is unknown, if the body of the call or task was cut off."""
    return f"{text}\n{_DOUBT[doubt]}" if doubt else text


def denial_text(builder: StepBuilder, call: CallRow, decision: Decision) -> str:
    """Return the text for a denied call.

    A `denial` function that fails leaves an event and a log line, and the default text is used.
    """
    ticket = call.ticket
    if isinstance(decision.result, str):
        return decision.result
    formatter = builder.spec.denial
    if formatter is not None and ticket is not None:
        answer = capture(formatter, copied_ticket(ticket), copied_decision(decision))
        if isinstance(answer, Returned) and isinstance(answer.value, str):
            text: str = normalise(answer.value)[0]
            return text
        if isinstance(answer, Raised):
            fault, failure = f"it raised {failure_text(answer.error)}", answer.error
        else:
            fault, failure = "it returned no str", TypeError(f"it returned {type(answer.value).__name__}, not str")
        detail: str = normalise(f"Agent(denial=...) gave no text for {ticket.ticket_id}: {fault}")[0]
        name = error_id(builder.info.run_id, ticket.ticket_id)
        builder.emit("run.degraded", ev.RunDegraded(reason="denial_failed", detail=detail, error_id=name))
        what, cause = f"Agent(denial=...) gave no text in run {builder.info.run_id}", ComparableError(failure)
        builder.do(ReportFailure(what=what, raised=cause, code="denial_failed", error_id=name, call_id=call.call_id))
    why = f": {decision.reason}" if decision.reason else "."
    return doubted(f"The reviewer denied this call{why}", call.doubt)
