"""Apply the verdicts of guardrails.

Theory of operation. A guardrail that does not allow leaves one event. A trip ends the run: what runs beside the
guardrail is cancelled and cleans up first, as at every end (`termination.py`). A reject of a tool's guardrail ends the
call with the guardrail's text: as failed if the arguments were judged, because no body has run; as succeeded with the
text as result if the result was judged, because the effect of the body has happened.
"""

from __future__ import annotations

from ..contract import events as ev
from ..contract.calls import CallPosition, CallStatus
from ..contract.excerpt import shown_value
from ..contract.guardrails import REJECTED, TRIPPED, GuardrailKind, Tripped
from ..contract.ids import body_error_id
from ..contract.rows import CallRow
from ..contract.tasks import TaskRow
from .body_inputs import ResultRefused
from .denials import doubted
from .state import StepBuilder
from .tasks import finish_task
from .termination import fail
from .tickets import close_call

WITHHELD = "The call ran, and its result is withheld: a guardrail of the tool gave no verdict about it."
"""Tells the model that the effect has happened, and the result is not to be had."""
STOPPED = "The call ran, and its result is withheld: the guardrail {} ended the run."
"""Tells the model of a later run of the thread the same; the finding may quote the result, and stays out of it."""


def say_tripped(builder: StepBuilder, kind: GuardrailKind, trip: Tripped, call_id: str | None = None) -> None:
    """Emit the event of a guardrail that did not allow."""
    builder.emit(
        "run.guardrail.tripped",
        ev.GuardrailTripped(
            kind=kind,
            guardrail=trip.guardrail,
            verdict=trip.verdict,
            step=builder.row.step,
            call_id=call_id,
            info=trip.info,
        ),
    )


def refuse_call(builder: StepBuilder, call: CallRow, trip: Tripped) -> None:
    """Apply the verdict about the arguments of a call, at its gate. It is never provisional."""
    say_tripped(builder, "tool_input", trip, call.call_id)
    if trip.verdict == "reject":
        text = doubted(trip.text, call.doubt)
        close_call(builder, call, CallStatus.FAILED, result=None, shown=text, code=REJECTED)
    else:
        builder.put(call, at=CallPosition.NEW)  # none of the call's code is in flight now
        fail(builder, TRIPPED, trip.text)


def refuse_result(builder: StepBuilder, call: CallRow, message: ResultRefused) -> None:
    """Apply the verdict about the result of a body."""
    trip, failure = message.tripped, message.failure
    if trip is None:
        name = body_error_id(builder.info.run_id, message.call_id, message.attempt)
        if builder.row.position.rule.leaving:  # the guardrail was cancelled with the run
            close_call(builder, call, CallStatus.CANCELLED, result=None, shown=WITHHELD, code="cancelled")
            return
        close_call(builder, call, CallStatus.FAILED, result=None, shown=WITHHELD, code="plugin_error", error_id=name)
        fail(builder, "plugin_error", failure or "", error_id=name)
        return
    say_tripped(builder, "tool_output", trip, call.call_id)
    if trip.verdict == "reject":
        text, large = shown_value(trip.text)
        close_call(builder, call, CallStatus.SUCCEEDED, result=trip.text, shown=text, large=large)
    else:
        close_call(builder, call, CallStatus.FAILED, result=None, shown=STOPPED.format(trip.guardrail), code=TRIPPED)
        fail(builder, TRIPPED, trip.text)


def refuse_task_result(builder: StepBuilder, task: TaskRow, message: ResultRefused) -> None:
    """Apply the verdict about the result of a background task's body, as about that of a call."""
    trip, name = message.tripped, body_error_id(builder.info.run_id, message.call_id, message.attempt)
    stays = not builder.row.position.rule.leaving and task.status != "cancelling"
    if trip is None:
        if stays:
            finish_task(builder, task, "failed", shown=WITHHELD, code="plugin_error", error_id=name)
            fail(builder, "plugin_error", message.failure or "", error_id=name)
        else:
            finish_task(builder, task, "cancelled", shown=WITHHELD, code="cancelled")
        return
    say_tripped(builder, "tool_output", trip, task.call_id)
    if trip.verdict == "reject":
        text, large = shown_value(trip.text)
        finish_task(builder, task, "succeeded", result=trip.text, shown=text, large=large)
    else:
        finish_task(builder, task, "failed", shown=STOPPED.format(trip.guardrail), code=TRIPPED)
        fail(builder, TRIPPED, trip.text)
