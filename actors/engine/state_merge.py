"""Merge the state writes of calls, in the model's order, or drop them with an event and a note for the model.

Theory of operation. A body's batch is journaled with its result, so that a crash loses neither. A mode that merges at
once merges the batch when the body returns. In the other modes the batch waits until nothing of the step executes (or
until a provisional gate behind it is asked again), so that parallel calls read the same state. A call whose tool
retries on a conflict does not end before its batch is merged (`CallPosition.MERGING`).
"""

from __future__ import annotations

from typing import Any, Final

from ..contract import events as ev
from ..contract.calls import CallPosition, CallStatus, marks_where
from ..contract.phases import TOOLS
from ..contract.rows import CallRow
from ..contract.spec import HANDOFF
from ..contract.state import Batch
from ..contract.tasks import TaskRow
from ..state.snapshot import WriteConflict
from .body_inputs import CallReturned
from .handoffs import hand_over
from .state import StepBuilder
from .step_calls import BATCH
from .tickets import close_call

_MERGES: Final = marks_where(lambda rule: rule.merges)


def returned(builder: StepBuilder, call: CallRow, message: CallReturned) -> None:
    """Handle a returned body, possibly with a batch."""
    if call.effect == HANDOFF:
        hand_over(builder, call, message.inherited)
    if message.keys:
        builder.remember_reducers(message.keys)
    if message.parts:
        call = builder.put(call, parts=builder.bring(message.parts))
    batch = message.batch
    if batch is None:
        close_call(builder, call, CallStatus.SUCCEEDED, result=message.result, shown=message.shown, large=message.large)
        return
    call = builder.put(call, batch=batch, result=message.result, shown=message.shown, large=message.large)
    if builder.row.position is TOOLS and (builder.mode.merges == "at_once" or call.alone):
        _merge(builder, call, batch, again=_may_retry(builder, call))
    elif _may_retry(builder, call):
        builder.put(call, at=CallPosition.MERGING)
    else:
        _close(builder, call, batch)


def merge_pending(builder: StepBuilder, *, again: bool = True, before: CallRow | None = None) -> bool:
    """Merge the pending batches, in the model's order. Returns True if a call moved, which others may have waited for.

    `again`: a tool that retries on a conflict may run again. `before`: merge only the batches of calls before this one.
    """
    any_merged, calls = False, builder.calls
    if not calls.present & BATCH:
        return False
    pending = calls.marked(BATCH) & calls.marked(_MERGES)
    for call in calls.each(pending if before is None else pending & calls.before(before)):
        if call.batch is not None:
            any_merged = any_merged or call.at is CallPosition.MERGING
            _merge(builder, call, call.batch, again=again and _may_retry(builder, call))
    return any_merged


def task_wrote(builder: StepBuilder, task: TaskRow, message: CallReturned) -> str:
    """Merge the writes of a background task; returns the text of its result for the model."""
    builder.remember_reducers(message.keys)
    clash = None if message.batch is None else builder.merge(message.batch, task.task_id)
    if clash is None:
        return message.shown
    builder.emit(
        "run.state.conflict",
        ev.StateConflict(key=str(clash.key), writer=task.task_id, other=clash.by or None, detail=clash.detail),
    )
    return f"{message.shown}\n{conflict_note(clash)}"


def _may_retry(builder: StepBuilder, call: CallRow) -> bool:
    tool = builder.spec.tools.get(call.tool)
    return (
        builder.row.position is TOOLS
        and tool is not None
        and tool.on_conflict == "retry"
        and not call.alone
        and not call.settled
    )


def _merge(builder: StepBuilder, call: CallRow, batch: Batch, *, again: bool) -> None:
    clash = builder.merge(batch, call.call_id)
    if clash is not None:
        builder.emit(
            "run.state.conflict",
            ev.StateConflict(
                key=str(clash.key), writer=call.call_id, other=clash.by or None, detail=clash.detail, retried=again
            ),
        )
        if again:
            nothing: dict[str, Any] = {"batch": None, "result": None, "shown": None, "large": False, "parts": ()}
            builder.put(call, at=CallPosition.ALLOWED, alone=True, **nothing)
            return
        call = builder.put(call, shown=f"{call.shown}\n{conflict_note(clash)}")
    if call.settled:
        builder.put(call, batch=None)
    else:
        _close(builder, call, None)


def _close(builder: StepBuilder, call: CallRow, batch: Batch | None) -> None:
    call = builder.put(call, batch=batch)
    close_call(builder, call, CallStatus.SUCCEEDED, result=call.result, shown=call.shown or "", large=call.large)


def conflict_note(clash: WriteConflict) -> str:
    """Return the model's note about a dropped batch."""
    return f"(state_conflict: {clash.detail}. What this call wrote to state was dropped; its result is kept.)"
