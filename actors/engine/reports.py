"""Reports of bodies: what a body says, notes and keeps while it runs.

Theory of operation. A body that lets another program work reports what the program says (`BodySpoke`: events of
messages that join no thread), what it does (`BodyNoted`: an event of a closed set), and what the next attempt has to
know (`BodySaved`: the memo, in the row of the call, in no event). Each report that has a number is answered when it is
durable, so a body reports no faster than the store writes. A message of which text was shown ends once: it is complete,
or it is discarded with the end of its body:

    BodySpoke(text="I look")      run.message.delta
    BodySpoke(whole="I look.")    run.message.completed, and the answer after the receipt
    BodySpoke(text="And")         run.message.delta
    CallReturned                  run.message.discarded: the result is the end of what the body says
"""

from __future__ import annotations

from typing import Final, assert_never

import msgspec

from ..contract import events as ev
from ..contract.calls import CallPosition
from ..contract.casing import camel
from ..contract.excerpt import LargeText, is_large
from ..contract.ids import body_message_id
from ..contract.rows import CallRow
from ..contract.work_events import NOTES
from .body_inputs import BodyNoted, BodyReport, BodySaved, BodySpoke
from .effects import AnswerBody
from .state import StepBuilder

GONE: Final = "The run does not wait for this call any more: nothing of it is reported."
OF_A_TASK: Final = (
    "A background task reports no messages and no notes, and keeps no memo: the run does not wait for it. Report from "
    "a tool that does not run in the background."
)
BODY_ENDED: Final = "the body of the call has ended"
"""Why a message of a body is discarded."""


def body_reported(builder: StepBuilder, report: BodyReport) -> None:
    """Handle a report of a call's newest body. Any other report is refused, if its body awaits an answer."""
    call = living_body(builder, report.call_id, report.attempt)
    if call is None:
        if report.ask:
            fault = OF_A_TASK if report.call_id in builder.tasks else GONE
            builder.do(AnswerBody(ask=report.ask, fault=fault, durable=False))
        return
    match report:
        case BodySpoke():
            _spoke(builder, call, report)
        case BodyNoted():
            _noted(builder, call, report)
        case BodySaved():
            builder.put(call, memo=report.memo)
        case _ as never:
            assert_never(never)
    if report.ask:
        builder.do(AnswerBody(ask=report.ask))


def living_body(builder: StepBuilder, call_id: str, attempt: int) -> CallRow | None:
    """Return the call whose body, of this attempt, runs; None if there is none, such as that of a child run."""
    call = builder.calls.get(call_id)
    if call is None or call.at is not CallPosition.BODY or call.attempts != attempt:
        return None
    return call if call.parent is None and call.child_run is None else None


def _spoke(builder: StepBuilder, call: CallRow, report: BodySpoke) -> None:
    name, call_id = body_message_id(builder.info.run_id, call.call_id, report.attempt, report.number), call.call_id
    if report.reasoning:
        thought = ev.ReasoningStreamed(
            message_id=name, index=report.reasoning_index, text=report.reasoning, call_id=call_id
        )
        builder.emit("run.reasoning.delta", thought)
    if report.text:
        delta = ev.MessageDelta(message_id=name, index=report.index, text=report.text, call_id=call_id)
        builder.emit("run.message.delta", delta)
    speaking = report.number if report.text else call.speaking
    if report.whole is not None:
        speaking, large = 0, is_large(report.whole)
        text = LargeText(report.whole) if large else report.whole
        done = ev.MessageCompleted(message_id=name, role="assistant", text=text, large=large, call_id=call_id)
        builder.emit("run.message.completed", done)
    if speaking != call.speaking:
        builder.put(call, speaking=speaking)


def _noted(builder: StepBuilder, call: CallRow, report: BodyNoted) -> None:
    kind = NOTES[report.type]
    facts = {"call_id": call.call_id, "approval_id": None if call.decision is None else call.decision.target}
    own = {camel(name): value for name, value in facts.items() if name in kind.__struct_fields__}
    builder.emit(report.type, msgspec.convert({**report.payload, **own}, kind))


def discard_spoken(builder: StepBuilder, call: CallRow, why: str = BODY_ENDED) -> CallRow:
    """Discard the message that a body leaves incomplete, if text of it was shown. Returns the call's row."""
    if not call.speaking:
        return call
    name = body_message_id(builder.info.run_id, call.call_id, call.attempts, call.speaking)
    builder.emit("run.message.discarded", ev.MessageDiscarded(message_id=name, reason=why, call_id=call.call_id))
    return builder.put(call, speaking=0)
