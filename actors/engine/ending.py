"""The way out of a run: one path for every reason.

    end() -> [CancelWork -> WorkStopped] -> settle() -> run_end hooks (if run_start began) -> terminal()

The first reason wins; what comes later on the way out is recorded and changes nothing. After `settle` each call of
the step has exactly one tool message, so that the history is valid for every provider.
"""

from __future__ import annotations

from typing import Any

from ..contract import events as ev
from ..contract.calls import CallStatus
from ..contract.failures import FAILURES
from ..contract.ids import error_id
from ..contract.lifecycle import TERMINATION_STAGE, Stage, Termination, TerminationKind
from ..contract.messages import Message, Producer
from ..contract.phases import LEAVING, CallAt, Cursor, Phase
from ..contract.rows import CallRow
from ..contract.tasks import Lost
from .denials import doubted
from .effects import CancelWork, Finish, RunPhase
from .holds import close_run_ticket
from .inputs import Stubborn
from .state import ENGINE, Draft
from .tasks import end_tasks, put_task
from .tickets import close_call, withdraw
from .writes import merge_held

CANCELLED_TEXT = "This call was cancelled before it finished."


def fail(d: Draft, code: str, detail: str, *, error_id: str | None = None) -> None:
    """End the run as failed with a code of the catalogue."""
    end(d, Termination(kind=TerminationKind.ERROR, code=code, detail=detail, error_id=error_id))


def end(d: Draft, termination: Termination) -> None:
    """Start the way out. Work in flight is cancelled first; nothing is settled before it has stopped.

    An input that others wait behind (`Draft.followed`) does not end the run itself: a store refuses the terminal commit
    while accepted commands wait, and taken back and taken again such an input would end it again, before them.
    """
    if d.cursor in LEAVING:
        return
    asks = d.followed or bool(d.stubborn)  # of what overran its grace, only the owner knows whether it still lives
    in_flight = asks or d.phase_open or d.cursor is Cursor.INFERENCE or bool(d.tasks)
    in_flight = in_flight or any(call.position.alive for call in d.calls.values())
    d.termination, d.changed = termination, True
    d.cursor = Cursor.STOPPING
    d.phase_open = False
    if in_flight:
        stop_work(d, termination)
    else:
        settle(d)


def stop_work(d: Draft, termination: Termination) -> None:
    """Cancel what is in flight; the run ends when it has stopped."""
    d.do(CancelWork(reason=termination.detail or termination.kind.value))


def overran(d: Draft, item: Stubborn) -> None:
    """Something did not end within its grace: told once. While there is such a thing, the end asks who still lives."""
    if item.call_id in d.stubborn:
        return
    d.stubborn += (item.call_id,)
    _lose(d, "grace", item.call_id)
    d.emit(
        "run.cleanup.overrun",
        ev.CleanupOverrun(call_id=item.call_id, tool=item.tool, grace_seconds=item.grace, stack=item.stack or None),
    )


def lose_bodies(d: Draft) -> None:
    """The process in which the bodies ran has ended, or nothing of it is to be taken up: their ends are not known."""
    for name in (*d.calls, *(task.task_id for task in d.tasks)):
        _lose(d, "process", name)


def _lose(d: Draft, how: Lost, name: str) -> None:
    """A body of the call or task came to an end that is not known, if one was at work."""
    call = d.calls.get(name)
    if call is not None and call.at is CallAt.BODY and not call.lost:
        d.put(call, lost=how)
    for task in d.tasks:
        if task.task_id == name and not task.lost:
            put_task(d, task, lost=how)


def work_stopped(d: Draft, stubborn: tuple[Stubborn, ...]) -> None:
    """Everything has ended but for what is named here; the terminal event names it, and nothing else."""
    if d.cursor is not Cursor.STOPPING:
        return
    for item in stubborn:
        overran(d, item)
    d.stubborn = tuple(item.call_id for item in stubborn)
    settle(d)


def settle(d: Draft) -> None:
    """Give every unfinished call and task its end, then run the run_end hooks (if run_start began)."""
    if d.inference is not None and d.draft is None:
        discard_inference(d, "the run ended")
    for call in tuple(d.calls.values()):
        if call.settled and call.at is not CallAt.SETTLED:  # its hooks will not answer any more
            d.put(call, at=CallAt.SETTLED)
    merge_held(d, again=False)
    by, why = _ended_by(d)
    for call in tuple(d.calls.values()):
        if not call.settled:
            _cut(d, withdraw(d, call, by=by, reason=why))
    end_tasks(d, "It was cancelled: the run ended.")
    for ticket in d.holds:
        close_run_ticket(d, ticket, "withdrawn", by=by, reason=why)
    append_step(d)
    d.cursor = Cursor.RUN_END
    run_end(d)


def _ended_by(d: Draft) -> tuple[str, str]:
    """Whose doing it is that open tickets are withdrawn, and why."""
    termination = d.termination
    if termination is None or termination.kind is not TerminationKind.CANCELLED:
        return ENGINE, "the run ended"
    return termination.by or ENGINE, "the run was cancelled"  # for what reason says another event, redacted


def _cut(d: Draft, call: CallRow) -> None:
    """End a call whose body has not said what it came to."""
    if call.doubt:
        d.unknown += (call.call_id,)
    shown = doubted(CANCELLED_TEXT, call.doubt)
    code = "outcome_unknown" if call.doubt else "cancelled"
    close_call(d, call, CallStatus.CANCELLED, result=None, shown=shown, code=code)


def run_end(d: Draft) -> None:
    """Run the run_end hooks if there are any, then write the terminal event."""
    if d.begun and Phase.RUN_END in d.spec.hooked:
        d.phase_open = True
        d.do(RunPhase(phase=Phase.RUN_END, step=d.step, state=d.snapshot, durable=True))
    else:
        terminal(d)


def discard_inference(d: Draft, reason: str) -> None:
    """The answer in flight will not be part of the history."""
    if d.inference is not None and (d.inference.text_index or d.inference.reasoning_index):
        d.emit("run.message.discarded", ev.MessageDiscarded(message_id=d.inference.message_id, reason=reason))
    d.inference = None


def append_step(d: Draft) -> None:
    """Append the step's messages to the thread: the assistant's, then one tool message per call in model order."""
    if d.draft is None:
        return
    d.messages.append(d.draft)
    producer = Producer(run_id=d.info.run_id, step=d.step)
    for call in d.calls.values():
        d.messages.append(
            Message(
                id=d.new_message_id(),
                role="tool",
                content=tool_text(call),
                call_id=call.call_id,
                producer=producer,
            )
        )
    d.draft = None
    d.inference = None
    d.changed = True


def tool_text(call: CallRow) -> str:
    """What the model is told a call came to."""
    shown = call.shown or ""
    if not call.edited:
        return shown
    ran = " before the call ran" if call.attempts > call.edited_at else ""
    return f"(The arguments were changed to {dict(call.arguments)!r}{ran}.)\n{shown}"


def append_input(d: Draft) -> None:
    """Append steering messages that wait to the thread."""
    if d.pending_input:
        d.messages.extend(d.pending_input)
        d.pending_input, d.sent, d.unheard = (), (), None
        d.changed = True


def terminal(d: Draft) -> None:
    """Write the one terminal event. Nothing of the run is alive when this is called."""
    termination = d.termination
    if termination is None:
        raise RuntimeError(f"run {d.info.run_id}: terminal without a termination")
    for call_id, decision in d.early.items():
        d.emit(
            "run.decision.refused",
            ev.DecisionRefused(
                command_id=decision.decision_id,
                target=call_id,
                code="unused",
                detail="the call never asked for a decision",
            ),
        )
    d.early = {}
    if d.pause is not None:
        refuse_pause(d, d.pause.command_id, "unused", "the run ended before another step could begin")
        d.pause = None
    _leave_input(d)
    target = TERMINATION_STAGE[termination.kind]
    source = d.finish(target)
    d.cursor, d.phase_open = Cursor.ENDED, False
    if target is not Stage.COMPLETED:
        d.output = None
    common: dict[str, Any] = {
        "source": source,
        "to": target,
        "by": termination.by or ENGINE,
        "termination": termination.kind,
        "usage": d.usage,
        "active_seconds": d.active_before / 1000,
        "steps": d.rounds,
        "stubborn": d.stubborn,
        "outcome_unknown": d.unknown,
        "last_sequence": d.state.row.last_sequence + len(d.events) + 1,
    }
    if target is Stage.COMPLETED:
        d.emit(
            "run.completed",
            ev.RunCompleted(
                output=d.output, code=termination.code, detail=termination.detail, finish=d.finish_reason, **common
            ),
        )
    elif target is Stage.CANCELLED:
        d.emit(
            "run.cancelled",
            ev.RunCancelled(code=termination.code, reason=termination.detail, **common),
        )
    else:
        code = termination.code or "internal_error"
        message = termination.detail or FAILURES[code].message
        d.emit("run.failed", ev.RunFailed(code=code, message=message, error_id=termination.error_id, **common))
    d.do(Finish())


def _leave_input(d: Draft) -> None:
    """No step will hear what waits. It stays in the thread, for the next run; whoever sent it is told by an event.

    A run that was never admitted does not have its thread: another one may be in the middle of a step. What the run was
    asked stays in its row, and the store appends that when its turn has come.
    """
    for one in d.sent:
        d.emit(
            "run.decision.refused",
            ev.DecisionRefused(
                command_id=one.command_id,
                target=d.info.run_id,
                code="unused",
                detail="the run ended before another step could begin; the text stays in the thread for the next run",
            ),
        )
    d.sent = ()
    if d.stage not in (Stage.CREATED, Stage.PLANNED):
        append_input(d)


def refuse_pause(d: Draft, command_id: str, code: str, detail: str) -> None:
    """Say that an accepted pause does not act, and why."""
    d.emit(
        "run.decision.refused",
        ev.DecisionRefused(command_id=command_id, target=d.info.run_id, code=code, detail=detail),
    )


def abandon(d: Draft, detail: str) -> None:
    """End as failed(internal_error), whatever the run was at; no hook is asked."""
    d.termination = Termination(
        kind=TerminationKind.ERROR, code="internal_error", detail=detail, error_id=error_id(d.info.run_id, "owner")
    )
    d.cursor, d.changed, d.phase_open = Cursor.STOPPING, True, False
    d.begun = False  # no run_end is owed any more
    lose_bodies(d)
    stop_work(d, d.termination)
