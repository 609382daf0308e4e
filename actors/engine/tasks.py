"""Background tasks: bodies that run beside the steps of their run and report by a message.

Theory of operation. A task begins with the call of a background tool (which ends immediately), or when a body spawns
one. Its row is in the run's row while it is alive. It ends exactly once: with a `run.task.finished` and one message for
the next step, in one commit. A run whose model has finished stays at `RunPosition.TASKS` until that message, new input,
a cancel or the deadline; a run that ends for another reason ends its tasks, too.

A body that runs again spawns again. A spawn is identified by its mark (digest of tool and arguments) and its number
among equal marks in its attempt: the spawner's row keeps the marks of all its tasks in order, so that the same spawn is
the same task, alive or ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

from msgspec.structs import replace

from ..contract import events as ev
from ..contract.calls import CallPosition, CallStatus
from ..contract.excerpt import Large, shown_value
from ..contract.ids import message_id, task_id
from ..contract.messages import Message, Producer
from ..contract.parts import Part
from ..contract.rows import CallRow
from ..contract.tasks import MAX_SPAWNS, TaskRow
from .denials import doubted
from .effects import ReleaseCall, StartTask
from .state import StepBuilder, milliseconds
from .tickets import close_call

Ended = Literal["succeeded", "failed", "cancelled"]

STOPPED: Final = "It was cancelled."
"""First sentence of the text for a task that was cancelled alone, not with its run."""
UNKNOWN_TEXT: Final = (
    "The process ended while it ran. It may or may not have taken effect, and it is not run again: look before you "
    "start it once more."
)
LEFT_TEXT: Final = "stays with the run that this one was forked from; nothing of it comes here."


def put_task(builder: StepBuilder, task: TaskRow, **changes: Any) -> TaskRow:
    """Change a task's row and return the new one."""
    new = replace(task, **changes)
    builder.tasks[task.task_id] = new
    builder.changed = True
    return new


def no_room(builder: StepBuilder, spawner: CallRow | TaskRow | None = None) -> str | None:
    """Return why no task can start now (from the body of `spawner`, if given), and what to do; None if one can."""
    if spawner is not None and len(spawner.spawned) >= MAX_SPAWNS:
        return f"One body may spawn {MAX_SPAWNS} tasks, and this one has. Spawn the rest from another call."
    limit = builder.spec.max_tasks
    if len(builder.tasks) >= limit:
        live = ", ".join(builder.tasks)
        return (
            f"This run has {len(builder.tasks)} background tasks already, and may have {limit} "
            f"(Agent(max_tasks={limit})): {live}. Wait until one of them has finished, or cancel one."
        )
    return None


def call_in_background(builder: StepBuilder, call: CallRow) -> None:
    """Start a background tool: its body runs as a task, and the call ends immediately."""
    fault = no_room(builder)
    if fault is not None:  # no body has begun: the call fails without an effect
        close_call(builder, call, CallStatus.FAILED, result=None, shown=fault, code="too_many_tasks")
        return
    name = task_id(call.call_id, 1)
    call = builder.put(call, at=CallPosition.BODY, attempts=call.attempts + 1, started_at=builder.now, task_id=name)
    builder.emit("run.tool.started", ev.ToolStarted(call_id=call.call_id, status=call.status, attempt=call.attempts))
    if call.ticket is not None:
        builder.do(ReleaseCall(call_id=call.call_id))
    task = TaskRow(
        task_id=name,
        call_id=call.call_id,
        tool=call.tool,
        arguments=call.arguments,
        started_at=builder.now,
        agent=builder.row.agent,
    )
    start_task(builder, task)
    result = {"task": name, "status": "running"}
    close_call(builder, call, CallStatus.SUCCEEDED, result=result, shown=shown_value(result)[0])


def start_task(builder: StepBuilder, task: TaskRow) -> None:
    """Add a task and start its body."""
    builder.tasks[task.task_id] = task
    builder.changed = True
    run_task(builder, task)


def run_task(builder: StepBuilder, task: TaskRow) -> None:
    """Start the body of a task."""
    tool = builder.spec_of(task.agent).tools.get(task.tool)
    builder.emit(
        "run.task.started",
        ev.TaskStarted(
            task_id=task.task_id,
            call_id=task.call_id,
            tool=task.tool,
            arguments=task.arguments,
            attempt=task.attempts,
        ),
    )
    builder.do(
        StartTask(
            task_id=task.task_id,
            call_id=task.call_id,
            attempt=task.attempts,
            tool=task.tool,
            arguments=task.arguments,
            agent=task.agent,
            state=builder.snapshot,
            durable=tool is None or not tool.replay_safe,
        )
    )


def finish_task(
    builder: StepBuilder,
    task: TaskRow,
    status: Ended,
    *,
    shown: str,
    result: object = None,
    code: str | None = None,
    large: bool = False,
    error_id: str | None = None,
    parts: tuple[Part, ...] = (),
) -> None:
    """End a task: remove its row, emit its event, and queue its message for the next step."""
    builder.tasks.pop(task.task_id, None)
    builder.changed = True
    builder.emit(
        "run.task.finished",
        ev.TaskFinished(
            task_id=task.task_id,
            call_id=task.call_id,
            tool=task.tool,
            status=status,
            result=Large(result) if large else shown if status != "succeeded" else result,
            code=code,
            attempts=task.attempts,
            duration_ms=milliseconds(task.started_at, builder.now),
            error_id=error_id,
        ),
    )
    message = Message(
        id=builder.new_message_id(),
        role="user",
        content=task_text(task, status, code, shown),
        producer=Producer(run_id=builder.info.run_id, step=builder.row.step),
        kind="task_finished",
        task_id=task.task_id,
        parts=builder.bring(parts) if parts else (),
    )
    builder.row.pending_input += (message,)


def task_text(task: TaskRow, status: Ended, code: str | None, result: str) -> str:
    """Return the model's text about an ended task."""
    how = f"{status} ({code})" if status == "failed" and code else status
    return f"{_task_head(task.task_id, task.tool)} {how}.]\n{result}"


def _task_head(name: str, tool: str) -> str:
    return f"[Background task {name} ({tool})"


def note_left_behind(history: Sequence[Message], run_id: str) -> tuple[Message, ...]:
    """Return a fork's notes about background tasks that were alive at the end of its history and stay with the parent.

    A task is alive if its call has a message and its end has none. A history stored before messages had kinds names no
    tasks, so its forks get no notes.
    """
    tools = {call.call_id: call.tool for message in history for call in message.calls}
    live: dict[str, str] = {}
    for message in history:
        if message.task_id is None:
            continue
        if message.kind == "task_started":
            live[message.task_id] = tools.get(message.call_id or "", "")
        else:
            live.pop(message.task_id, None)
    return tuple(
        Message(
            id=message_id(run_id, n),
            role="user",
            content=f"{_task_head(name, tool)} {LEFT_TEXT}]",
            producer=Producer(run_id=run_id, step=0),
            kind="task_left",
            task_id=name,
        )
        for n, (name, tool) in enumerate(live.items(), 1)
    )


def newest_input(history: Sequence[Message]) -> tuple[str, tuple[Part, ...]]:
    """Return the input of the newest run in a history, text and parts; "" if there is none.

    A fork's notes about tasks are not input.
    """
    inputs = (m for m in reversed(history) if m.producer is not None and m.producer.step == 0)
    return next(((m.content, m.parts) for m in inputs if m.kind == "text"), ("", ()))


def end_tasks(builder: StepBuilder, why: str) -> None:
    """End the tasks left when the run ends: each was cancelled with the run."""
    for task in tuple(builder.tasks.values()):
        if task.unknown_cause:
            builder.row.unknown += (task.task_id,)
        cut_task(builder, task, why)


def cut_task(builder: StepBuilder, task: TaskRow, why: str) -> None:
    """End a cancelled task whose body has not reported an outcome."""
    code = "outcome_unknown" if task.unknown_cause else "cancelled"
    finish_task(builder, task, "cancelled", shown=doubted(why, task.unknown_cause), code=code)


def recover_tasks(builder: StepBuilder) -> None:
    """Recover tasks after a restart: replay-safe ones run again, all others end as outcome_unknown."""
    for task in tuple(builder.tasks.values()):
        tool = builder.spec_of(task.agent).tools.get(task.tool)
        if task.status == "cancelling":
            cut_task(builder, task, STOPPED)
        elif tool is not None and tool.replay_safe:
            run_task(builder, put_task(builder, task, attempts=task.attempts + 1, started_at=builder.now))
        else:
            finish_task(builder, task, "failed", shown=UNKNOWN_TEXT, code="outcome_unknown")
