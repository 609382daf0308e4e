"""The end of a run: one path for every reason.

    end() -> [CancelWork -> WorkStopped] -> settle() -> run_end hooks (if run_start began) -> terminal()

Theory of operation. The first reason wins; later ones are recorded and change nothing. Work is cancelled before
anything is settled, so no effect can follow its call's end. After `settle` each call of the step has exactly one tool
message, so that the history is valid for every provider. `terminal` is reached once and emits the one terminal event.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from ..contract import events as ev
from ..contract.calls import CallPosition, CallStatus, marks_where
from ..contract.commits import EventDraft
from ..contract.failures import FAILURES
from ..contract.ids import error_id
from ..contract.lifecycle import COMPLETED, TERMINATION_STAGE, Stage, Termination, TerminationKind
from ..contract.messages import Message, Producer
from ..contract.phases import ENDED, INFERENCE, Phase, RunPosition
from ..contract.rows import CallRow
from ..contract.tasks import TaskRow, UnknownCause
from .denials import doubted
from .effects import CancelChild, CancelWork, ComparableError, FinishRun, ReportFailure, RunPhase
from .handoffs import remember_agent
from .inputs import Unfinished
from .judging import judge_output, must_judge
from .mirrors import adopt_mirrors, withdraw_mirrors
from .nested import OWNER_LOST, end_nested
from .reports import discard_spoken
from .run_tickets import close_run_ticket
from .state import ENGINE, StepBuilder
from .state_merge import merge_pending
from .tasks import end_tasks, put_task
from .tickets import close_call, withdraw

PARENT_ENDED = "its parent run ends"
"""Why a child run is cancelled; the parent's own reason is in the parent's log."""
TOOL_ERROR: Final = "tool_error"
"""Code of a run that a failed call ends, unless the failure names another one."""
CANCELLED_TEXT = "This call was cancelled before it finished."
LATE = Termination(kind=TerminationKind.ERROR, code="run_timeout", detail="the run's deadline passed")
"""The end of a run whose deadline has passed."""
_ALIVE: Final = marks_where(lambda rule: rule.alive)


def fail(builder: StepBuilder, code: str, detail: str, *, error_id: str | None = None) -> None:
    """End the run as failed with a code of `FAILURES`."""
    end(builder, Termination(kind=TerminationKind.ERROR, code=code, detail=detail, error_id=error_id))


def fail_by_call(
    builder: StepBuilder, call: CallRow, text: str, *, code: str | None = None, error_id: str | None = None
) -> None:
    """End the run because a call failed. Of several such failures the first in the model's order is the reason.

    The others are found while the work stops: siblings are cancelled by the first failure in time, and one of them may
    fail for another reason until it has ended. `code`: a code of `FAILURES`; None: tool_error.
    """
    detail, ending = f"{call.tool}: {text}", builder.row.termination
    if builder.row.position is RunPosition.STOPPING and ending is not None and ending.call_id is not None:
        first_call = builder.calls.get(ending.call_id)
        if first_call is None or first_call.index <= call.index:
            return
        reason = replace(ending, code=code or TOOL_ERROR, detail=detail, error_id=error_id, call_id=call.call_id)
        builder.row.termination = reason
        builder.changed = True
        return
    reason = Termination(
        kind=TerminationKind.ERROR,
        code=code or TOOL_ERROR,
        detail=detail,
        error_id=error_id,
        call_id=call.call_id,
    )
    end(builder, reason)


def fail_by_tool_use(builder: StepBuilder, error: BaseException, why: str) -> None:
    """End the run because the agent's `tool_use` function failed."""
    run_id = builder.info.run_id
    name, what = error_id(run_id, f"tool_use:{builder.row.step}"), f"Agent(tool_use=...) failed in run {run_id}"
    builder.do(ReportFailure(what=what, raised=ComparableError(error), code="plugin_error", error_id=name))
    fail(builder, "plugin_error", f"Agent(tool_use=...): {why}", error_id=name)


def end(builder: StepBuilder, termination: Termination) -> None:
    """Begin the end of the run. Work in flight is cancelled first; nothing is settled before it has stopped.

    An input that others wait behind (`StepBuilder.followed`) does not end the run by itself: a store refuses a terminal
    commit while accepted commands are unread; the input would be undone, taken again, and end the run again before
    them.
    """
    if builder.row.position.rule.leaving:
        return
    row, request = builder.row, builder.row.inference if builder.row.position is INFERENCE else None
    unjudged, alive = row.open_guardrails is not None, builder.calls.present & _ALIVE
    in_flight = unjudged or request is not None or builder.phase_open or builder.tasks or alive
    unheard = builder.followed or row.stubborn  # only the owner knows whether an overrun body is still alive
    if request is not None:  # its owner reports what has arrived
        row.inference = replace(request, stopped=True, unsure=unjudged)
    row.termination, row.open_guardrails, builder.changed = termination, None, True
    builder.enter(RunPosition.STOPPING)
    if in_flight or unheard:
        stop_work(builder, termination)
    else:
        settle(builder)


def stop_work(builder: StepBuilder, termination: Termination) -> None:
    """Cancel the work in flight; the run ends when it has stopped."""
    reason = termination.detail or termination.kind.value
    builder.do(CancelWork(reason=reason))
    for call in builder.calls.each(builder.calls.open):
        if call.child_run is not None and not call.settled:
            builder.do(
                CancelChild(
                    call_id=call.call_id,
                    child_run=call.child_run,
                    tool=call.tool,
                    reason=PARENT_ENDED,
                    by=termination.by,
                )
            )


def end_unowned(builder: StepBuilder, termination: Termination) -> None:
    """End a run without its agent, or complete an end that has begun; no hook and no guardrail is asked.

    An output that an earlier owner had not concluded may be unjudged, so the run ends for this termination then.
    """
    lose_bodies(builder)
    match builder.row.position:
        case RunPosition.RUN_END:
            terminal(builder)
        case RunPosition.STOPPING if builder.row.termination is not None:
            if builder.row.output is not None:
                builder.row.termination = termination
            stop_work(builder, builder.row.termination)
        case _:
            end(builder, termination)


def overran(builder: StepBuilder, item: Unfinished) -> None:
    """Report, once, a body that did not end within its grace.

    While there is one, the end asks the owner which still live.
    """
    if item.call_id in builder.row.stubborn:
        return
    builder.row.stubborn += (item.call_id,)
    call, task = builder.calls.get(item.call_id), builder.tasks.get(item.call_id)
    if call is not None:
        _lose_call(builder, "grace", call)
    if task is not None:
        _lose_task(builder, "grace", task)
    builder.emit(
        "run.cleanup.overrun",
        ev.CleanupOverrun(call_id=item.call_id, tool=item.tool, grace_seconds=item.grace, stack=item.stack or None),
    )


def lose_bodies(builder: StepBuilder) -> None:
    """Mark the bodies of a process that has ended, or that is not taken up: their outcomes are unknown."""
    adopt_mirrors(builder)
    end_nested(builder, None, f"{OWNER_LOST}: the process of the call that made it has ended", code=OWNER_LOST)
    for call in builder.calls.each(builder.calls.marked(CallPosition.BODY.mark)):
        _lose_call(builder, "process", discard_spoken(builder, call, "the process of its body has ended"))
    for task in tuple(builder.tasks.values()):
        _lose_task(builder, "process", task)


def _lose_call(builder: StepBuilder, how: UnknownCause, call: CallRow) -> None:
    # the outcome of a child run is in its rows, whatever becomes of the process that watches
    if call.at is CallPosition.BODY and not call.unknown_cause and call.child_run is None:
        builder.put(call, unknown_cause=how)


def _lose_task(builder: StepBuilder, how: UnknownCause, task: TaskRow) -> None:
    if not task.unknown_cause:
        put_task(builder, task, unknown_cause=how)


def work_stopped(builder: StepBuilder, stubborn: tuple[Unfinished, ...]) -> None:
    """Settle the run: all work has ended except the bodies named here, which the terminal event names."""
    if builder.row.position is not RunPosition.STOPPING:
        return
    for item in stubborn:
        overran(builder, item)
    builder.row.stubborn = tuple(item.call_id for item in stubborn)
    settle(builder)


def settle(builder: StepBuilder) -> None:
    """End every unfinished call and task, then run the run_end hooks (if run_start began)."""
    if builder.row.inference is not None and builder.row.draft is None:
        discard_inference(builder, "the run ended")
    for call in builder.calls.each(builder.calls.open) if builder.calls.open else ():
        if call.settled:  # the call's after hooks will not answer any more
            builder.put(call, at=CallPosition.SETTLED)
    merge_pending(builder, again=False)  # no body starts any more, so a conflict drops its batch and repeats no call
    by, why = ENGINE, "the run ended"
    termination = builder.row.termination
    if termination is not None and termination.kind is TerminationKind.CANCELLED:
        by, why = termination.by or ENGINE, "the run was cancelled"  # the reason is in another event, redacted
    withdraw_mirrors(builder, None, by=by, reason=why)
    for call in builder.calls.each(builder.calls.nested & builder.calls.open):
        builder.row.unknown += (call.call_id,) if call.attempts and not call.settled else ()
    end_nested(builder, None, why)
    for call in builder.calls.each(builder.calls.open) if builder.calls.open else ():
        if call.doubt:  # its body has not reported an outcome
            builder.row.unknown += (call.call_id,)
        code = "outcome_unknown" if call.doubt else "cancelled"
        row = discard_spoken(builder, withdraw(builder, call, by=by, reason=why), why)
        text = doubted(CANCELLED_TEXT, call.doubt)
        close_call(builder, row, CallStatus.CANCELLED, result=None, shown=text, code=code)
    end_tasks(builder, "It was cancelled: the run ended.")
    for ticket in builder.row.run_tickets:
        close_run_ticket(builder, ticket, "withdrawn", by=by, reason=why)
    if must_judge(builder):
        judge_output(builder, termination)
    else:
        conclude(builder)


def conclude(builder: StepBuilder) -> None:
    """Let the step's messages join the thread, and run the run_end hooks."""
    append_step(builder)
    builder.enter(RunPosition.RUN_END)
    run_end(builder)


def run_end(builder: StepBuilder) -> None:
    """Run the run_end hooks if there are any, then write the terminal event."""
    if builder.row.hooks_started and Phase.RUN_END in builder.spec.hooked:
        builder.phase_open = True
        builder.do(RunPhase(phase=Phase.RUN_END, step=builder.row.step, state=builder.snapshot, durable=True))
    else:
        terminal(builder)


def discard_inference(builder: StepBuilder, reason: str) -> None:
    """Discard the streamed part of an answer that will not join the history."""
    if builder.row.inference is not None and (
        builder.row.inference.text_index or builder.row.inference.reasoning_index
    ):
        builder.emit(
            "run.message.discarded", ev.MessageDiscarded(message_id=builder.row.inference.message_id, reason=reason)
        )
    builder.row.inference = None


def append_step(builder: StepBuilder, *, withheld: str | None = None) -> None:
    """Append the step's messages to the thread: the assistant's, then one tool message per call in model order.

    A message that guardrails have not let pass when the run ends is discarded, with its calls. `withheld` replaces the
    texts of all messages.
    """
    draft, flight = builder.row.draft, builder.row.inference
    if draft is None:
        return
    if flight is not None and flight.unsure:
        builder.row.draft, builder.changed = None, True
        discard_inference(builder, "the run ended")
        return
    if withheld is not None:
        draft = replace(draft, content=withheld if draft.content else "", final_at=0, provider="", items=())
    builder.messages.append(draft)
    producer = Producer(run_id=builder.info.run_id, step=builder.row.step)
    for call in builder.calls.of_model():
        builder.messages.append(
            Message(
                id=builder.new_message_id(),
                role="tool",
                content=tool_text(call) if withheld is None else withheld,
                call_id=call.call_id,
                producer=producer,
                kind="text" if call.task_id is None else "task_started",
                task_id=call.task_id,
                parts=call.parts if withheld is None and call.outcome is CallStatus.SUCCEEDED else (),
            )
        )
    builder.row.draft = None
    builder.row.inference = None
    _note_place(builder)


def tool_text(call: CallRow) -> str:
    """Return the model's text about a call's outcome."""
    text = call.shown or ""
    if not call.edited:
        return text
    ran = " before the call ran" if call.attempts > call.edited_at else ""
    return f"(The arguments were changed to {dict(call.arguments)!r}{ran}.)\n{text}"


def append_input(builder: StepBuilder) -> None:
    """Append the pending input to the thread."""
    if builder.row.pending_input:
        builder.messages.extend(builder.row.pending_input)
        builder.row.pending_input, builder.row.sent, builder.row.unread_input_by = (), (), None
        _note_place(builder)


def _note_place(builder: StepBuilder) -> None:
    """Note after which event messages have joined the thread, for readers that follow the run from there."""
    builder.row.placed = builder.row.last_sequence + len(builder.events)
    builder.changed = True


def terminal(builder: StepBuilder) -> None:
    """Write the one terminal event. Nothing of the run is alive at this point.

    Raises:
        RuntimeError: the run has no termination; a bug.
    """
    termination = builder.row.termination
    if termination is None:
        raise RuntimeError(f"run {builder.info.run_id}: terminal without a termination")
    for call_id, decision in builder.row.early.items():
        builder.emit(
            "run.decision.refused",
            ev.DecisionRefused(
                command_id=decision.decision_id,
                target=call_id,
                code="unused",
                detail="the call never asked for a decision",
            ),
        )
    builder.row.early = {}
    if builder.row.pause is not None:
        refuse_command(builder, builder.row.pause.command_id, "unused", "the run ended before another step could begin")
        builder.row.pause = None
    for text in builder.row.sent:
        unread = "the run ended before another step could begin; the text stays in the thread for the next run"
        refuse_command(builder, text.command_id, "unused", unread)
    builder.row.sent = ()
    # A run that was never admitted does not own its thread: another run may be in the middle of a step. Its input stays
    # in its row, and the store appends the input in the run's turn.
    if builder.row.stage not in (Stage.CREATED, Stage.PLANNED):
        append_input(builder)
    target = TERMINATION_STAGE[termination.kind]
    if target is Stage.COMPLETED:
        remember_agent(builder)
    source = builder.to_stage(target)
    builder.enter(ENDED)
    if target is not COMPLETED:
        builder.row.output = None
    common: dict[str, Any] = {
        "source": source,
        "to": target,
        "by": termination.by or ENGINE,
        "termination": termination.kind,
        "usage": builder.row.usage,
        "active_seconds": builder.counters.active_ms / 1000,
        "steps": builder.counters.rounds,
        "stubborn": builder.row.stubborn,
        "outcome_unknown": builder.row.unknown,
        "last_sequence": builder.state.row.last_sequence + len(builder.events) + 1,
    }
    if target is COMPLETED:
        event = ev.RunCompleted(
            output=builder.row.output,
            code=termination.code,
            detail=termination.detail,
            finish=builder.row.finish,
            **common,
        )
        builder.emit("run.completed", event)
    else:
        builder.events.append(ending_event(termination, common))
    builder.do(FinishRun())


def ending_event(termination: Termination, common: Mapping[str, Any]) -> EventDraft:
    """Return the terminal event of a run that was cancelled or failed. `common`: the fields of all terminal events."""
    if termination.kind is TerminationKind.CANCELLED:
        event = ev.RunCancelled(code=termination.code, reason=termination.detail, **common)
        return EventDraft("run.cancelled", event)
    code = termination.code or "internal_error"
    message = termination.detail or FAILURES[code].message
    return EventDraft("run.failed", ev.RunFailed(code=code, message=message, error_id=termination.error_id, **common))


def refuse_command(builder: StepBuilder, command_id: str, code: str, detail: str) -> None:
    """Emit that an accepted command about the run itself does not act, and why."""
    builder.emit(
        "run.decision.refused",
        ev.DecisionRefused(command_id=command_id, target=builder.info.run_id, code=code, detail=detail),
    )


def abandon(builder: StepBuilder, detail: str) -> None:
    """End as failed(internal_error), whatever the run's position; no hook runs."""
    builder.row.termination = Termination(
        kind=TerminationKind.ERROR,
        code="internal_error",
        detail=detail,
        error_id=error_id(builder.info.run_id, "owner"),
    )
    builder.enter(RunPosition.STOPPING)
    builder.changed, builder.row.hooks_started = True, False  # no run_end hooks run
    lose_bodies(builder)
    stop_work(builder, builder.row.termination)
