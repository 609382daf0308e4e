"""Nested calls: calls that the body of a call makes, while it lives.

Theory of operation. A body that lets another program work asks before the program acts: its request (`NestedCalled`)
becomes a call of the step with a `parent`, which passes the gates of plugins and may wait for a decision, by the table
of every call. There is no tool behind it: once it is allowed and its start is durable, the body is told so
(`AnswerBody`), does the work, and reports the end (`NestedEnded`). Every end before the work answers the body, too, so
no body waits without bound. A nested call joins no message of the thread, and ends before its parent, whatever ends
that:

    a: body                    asks: NestedCalled
    a.1: new, parked           the run rests, though the body of `a` lives
    a.1: decided, body         AnswerBody: `a` does the work
    a: its process ends        a.1 has failed, its outcome is unknown; then `a` becomes a question to people

A question of a body to people (`ctx.ask`) is a nested call that is parked immediately, and ends with the decision.
"""

from __future__ import annotations

from typing import Final, assert_never

import attrs
from msgspec.structs import replace

from ..contract import events as ev
from ..contract.calls import CallPosition, CallStatus, marks_where
from ..contract.decisions import Suspend, Verdict
from ..contract.facts import NestedAnswer
from ..contract.ids import fingerprint, is_reserved, nested_id
from ..contract.messages import CallRequest
from ..contract.phases import TOOLS
from ..contract.rows import CallRow
from .body_inputs import CallPrinted, CallProgressed, FromBody, NestedCalled, NestedDropped, NestedEnded
from .effects import AnswerBody
from .reports import living_body
from .state import ENGINE, StepBuilder
from .step_calls import StepCalls
from .tickets import close_call, open_ticket, withdraw

MAX_OPEN: Final = 128
"""Most nested calls of a run that may be open."""
MAX_NESTED: Final = 10_000
"""Most nested calls of one step."""
MAX_NAMES: Final = 64
"""Most tools whose unasked work is reported for one run."""
GONE: Final = "The run does not wait for this call any more: it can make no other."
OF_A_TASK: Final = (
    "A background task cannot make a nested call or ask people: the run does not wait for it. Let people decide before "
    "it starts (needs_approval=...), or ask in a tool that does not run in the background."
)
PARENT_ENDED: Final = "the call that made it has ended"
"""Why the nested calls of a call end with it."""
OWNER_LOST: Final = "owner_lost"
"""Code of a nested call that was open when the process of its parent ended, and the reason of its ticket's end."""
NO_END: Final = "This call has not reported its end ({}): it may or may not have taken effect."
NOT_RUN: Final = "This call did not run: {}."
DROPPED: Final = "the call that made it does not wait for it any more"
_BODY: Final = CallPosition.BODY
_SUSPENDED: Final = marks_where(lambda rule: rule.status is CallStatus.SUSPENDED)


def nested_said(builder: StepBuilder, message: NestedCalled | NestedDropped | NestedEnded) -> None:
    """Handle what a body says about a nested call."""
    match message:
        case NestedCalled():
            nested_called(builder, message)
        case NestedDropped():
            nested_dropped(builder, message)
        case NestedEnded():
            nested_ended(builder, message)
        case _ as never:
            assert_never(never)


def nested_called(builder: StepBuilder, message: NestedCalled) -> None:
    """Add a nested call to the step, or refuse it. Its gates are asked with the others of the step."""
    parent = living_body(builder, message.parent, message.attempt)
    fault = _unfit(builder, parent, message)
    if parent is None or fault is not None:
        builder.do(AnswerBody(ask=message.ask, fault=fault or GONE, durable=False))
        return
    index = len(builder.calls)
    name, number = nested_id(parent.call_id, index), 2
    while name in builder.call_ids or is_reserved(builder.info.run_id, name):
        name, number = f"{nested_id(parent.call_id, index)}#{number}", number + 1
    builder.call_ids = builder.call_ids.union((name,))
    asks = message.suspend is not None
    tool, arguments = (parent.tool, parent.arguments) if asks else (message.tool, message.arguments)
    call = CallRow(
        call_id=name,
        index=index,
        step=builder.row.step,
        tool=tool,
        arguments=arguments,
        fingerprint=fingerprint(builder.spec.key, tool, arguments),
        requested=CallRequest(call_id=name, tool=tool, arguments=arguments),
        effect="read" if asks else message.effect,
        parent=parent.call_id,
        ask=message.ask,
        editable=message.editable,
        seen=message.seen,
        body_question=asks,
    )
    builder.put(call)
    event = ev.ToolCalled(
        call_id=name,
        tool=tool,
        status=call.status,
        arguments=arguments,
        effect=call.effect,
        step=call.step,
        parent_call_id=parent.call_id,
    )
    builder.emit("run.tool.call", event)
    if message.suspend is not None:
        open_ticket(builder, call, message.suspend)


def _unfit(builder: StepBuilder, parent: CallRow | None, message: NestedCalled) -> str | None:
    """Return why a body cannot make a nested call, or None."""
    if message.parent in builder.tasks:
        return OF_A_TASK
    if parent is None or builder.row.position is not TOOLS:
        return GONE
    nested_calls = builder.calls.nested
    if (nested_calls & builder.calls.open).bit_count() >= MAX_OPEN:
        return f"This run has {MAX_OPEN} open nested calls, and may have no more: wait until one has ended."
    if nested_calls.bit_count() >= MAX_NESTED:
        return f"One step may have {MAX_NESTED:,} nested calls, and this one has: end this call, and begin another one."
    return None


def nested_ended(builder: StepBuilder, message: NestedEnded) -> None:
    """End a nested call whose work is done. A report about a call that has ended is ignored."""
    call = builder.calls.get(message.call_id)
    if call is None or call.parent is None or call.at is not _BODY:
        return
    status = CallStatus.SUCCEEDED if message.code is None else CallStatus.FAILED
    close_call(
        builder, call, status, result=message.result, shown=message.shown, code=message.code, large=message.large
    )


def nested_dropped(builder: StepBuilder, message: NestedDropped) -> None:
    """End a nested call whose answer the body does not await any more: the body does no work for it."""
    calls = builder.calls
    for call in calls.each(calls.nested & calls.open):
        if (call.ask, call.parent) == (message.ask, message.parent) and not call.settled:
            row = withdraw(builder, replace(call, ask=0), by=ENGINE, reason=DROPPED)
            text = NOT_RUN.format(DROPPED)
            close_call(builder, row, CallStatus.CANCELLED, result=None, shown=text, code="cancelled", hooks=False)


def begin_nested(builder: StepBuilder, call: CallRow) -> None:
    """Let the parent's body do the work of an allowed call, as soon as its start is durable."""
    call = builder.put(call, at=_BODY, attempts=call.attempts + 1, started_at=builder.now)
    builder.emit("run.tool.started", ev.ToolStarted(call_id=call.call_id, status=call.status, attempt=call.attempts))
    answer = NestedAnswer(call_id=call.call_id, arguments=call.arguments, decision=call.decision)
    builder.do(AnswerBody(ask=call.ask, value=answer))


def parent_said(builder: StepBuilder, message: FromBody) -> None:
    """End the nested calls of a body that has ended."""
    if builder.calls.nested and not isinstance(message, CallProgressed | CallPrinted):
        end_nested(builder, message.call_id, PARENT_ENDED)


def end_nested(builder: StepBuilder, parent: str | None, why: str, *, code: str = "cancelled") -> None:
    """End the open nested calls of a call that ends, or of all calls. One in its body has an unknown outcome.

    Hooks that run for such a call are not waited for, and their answer is ignored.

    Args:
        builder: The builder of the input.
        parent: the call; None: all.
        why: for people; the reason of a withdrawn ticket.
        code: The code of a call whose work had not begun.
    """
    calls = builder.calls
    for call in calls.each(calls.nested & calls.open) if calls.nested & calls.open else ():
        if call.settled or parent not in (None, call.parent):
            continue
        began = bool(call.attempts)
        row = withdraw(builder, replace(call, ask=0), by=ENGINE, reason=why)
        text = NO_END.format(why) if began else NOT_RUN.format(why)
        status = CallStatus.FAILED if began else CallStatus.CANCELLED
        code_of_end = "outcome_unknown" if began else code
        close_call(builder, row, status, result=None, shown=text, code=code_of_end, hooks=False)


def answerable(call: CallRow, suspend: Suspend) -> Suspend:
    """Return the question of a gate: a nested call that takes no other arguments takes no result as its arguments."""
    takes_others = call.parent is None or call.editable
    fits = takes_others or suspend.resume_mode != "pass_decision_to_tool"
    return suspend if fits else attrs.evolve(suspend, resume_mode="replay_tool_call")


def report_not_asked(builder: StepBuilder, call: CallRow, verdict: Verdict) -> None:
    """Report, once per run and tool, work that its gates did not allow, and that was not asked for."""
    if call.tool in builder.row.not_asked or len(builder.row.not_asked) >= MAX_NAMES:
        return
    builder.row.not_asked += (call.tool,)
    word = type(verdict).__name__
    detail = f"{call.tool} ({call.call_id}) ran without a question; its gates did not allow it, but gave {word}"
    builder.emit("run.degraded", ev.RunDegraded(reason="not_asked", detail=detail))


def waiting_parents(calls: StepCalls) -> int:
    """Return the set of the calls whose bodies wait for a decision about a nested call."""
    questions = calls.nested and calls.marked(_SUSPENDED) & calls.nested
    return calls.parents(questions) if questions else 0
