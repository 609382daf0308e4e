"""What bodies say and ask about background tasks: results, spawns, cancels, questions.

Every question has a number, and gets one answer (`AnswerBody`): a body is never left waiting.
"""

from __future__ import annotations

from typing import Any

from ..contract import events as ev
from ..contract.calls import CallPosition
from ..contract.ids import task_id
from ..contract.phases import LEAVING
from ..contract.rows import CallRow
from ..contract.tasks import MAX_SPAWNS, TaskRow, shown_tasks
from .denials import doubted
from .effects import AnswerBody, CancelTask
from .inputs import (
    CallPrinted,
    CallProgressed,
    CallRaised,
    CallReturned,
    CallSuspended,
    CancelAsked,
    SpawnAsked,
    TasksAsked,
    TaskStopped,
)
from .state import StepBuilder
from .state_merge import task_wrote
from .tasks import STOPPED, cut_task, finish_task, no_room, put_task, start_task, task_of
from .termination import fail
from .tool_bodies import of_bug

SUSPENDED_TEXT = (
    "The tool {tool!r} asked for a decision, and a background task can not wait for one. Let people decide before it "
    "starts (needs_approval=...), or ask in a tool that does not run in the background."
)


def task_said(
    builder: StepBuilder,
    task: TaskRow,
    message: CallSuspended | CallReturned | CallRaised | CallProgressed | CallPrinted,
) -> None:
    """A message from a task's body. Of an attempt that is not the present one, it is ignored."""
    if task.attempts != message.attempt:
        return
    name, attempt = task.task_id, task.attempts
    match message:
        case CallProgressed():
            builder.emit(
                "run.task.progress",
                ev.TaskProgress(task_id=name, attempt=attempt, fraction=message.fraction, text=message.text),
            )
        case CallPrinted():
            builder.emit(
                "run.task.output.delta",
                ev.TaskOutputDelta(task_id=name, attempt=attempt, index=message.index, text=message.text),
            )
        case CallSuspended():
            finish_task(builder, task, "failed", shown=SUSPENDED_TEXT.format(tool=task.tool), code="task_suspended")
        case CallReturned():
            shown = task_wrote(builder, task, message)
            finish_task(builder, task, "succeeded", result=message.result, shown=shown, large=message.large)
        case CallRaised():
            bug = of_bug(builder, message)
            shown = doubted(message.shown, "grace" if task.lost == "grace" else "")
            finish_task(builder, task, "failed", shown=shown, code=message.code, error_id=bug)
            if message.fatal and task.status != "cancelling":  # it was to end: how it takes that ends nothing else
                fail(builder, "tool_error", f"{task.tool}: {message.shown}", error_id=bug)


def desk_asked(builder: StepBuilder, message: SpawnAsked | CancelAsked | TasksAsked | TaskStopped) -> None:
    """A question of a body, or the end of a task that a body wanted to end."""
    match message:
        case SpawnAsked():
            spawn_asked(builder, message)
        case CancelAsked():
            cancel_asked(builder, message)
        case TasksAsked():
            builder.do(AnswerBody(ask=message.ask, value=shown_tasks(builder.row.tasks), durable=False))
        case TaskStopped():
            task_stopped(builder, message)


def task_stopped(builder: StepBuilder, message: TaskStopped) -> None:
    """The body of a cancelled task has ended, or has overrun its grace."""
    task = task_of(builder, message.task_id)
    if task is not None and task.attempts == message.attempt and task.status == "cancelling":
        cut_task(builder, task, STOPPED)


def cancel_asked(builder: StepBuilder, message: CancelAsked) -> None:
    """A body wants a task to end. The answer says whether there is such a task; its end is told by its own events."""
    task = task_of(builder, message.task_id)
    if task is not None and task.status == "running" and builder.row.cursor not in LEAVING:
        task = put_task(builder, task, status="cancelling")
        builder.do(CancelTask(task_id=task.task_id, attempt=task.attempts))
    builder.do(AnswerBody(ask=message.ask, value=task is not None))


def spawn_asked(builder: StepBuilder, message: SpawnAsked) -> None:
    """A body wants a task. The answer is its id, once it is stored that it runs; or why it can not be."""
    spawner = _spawner(builder, message)
    if spawner is None or builder.row.cursor in LEAVING:
        _refuse(builder, message, "The run does not wait for this call any more: no task can be started from here.")
        return
    same = [number for number, mark in enumerate(spawner.spawned, 1) if mark == message.mark]
    if len(same) >= message.nth:
        builder.do(AnswerBody(ask=message.ask, value=task_id(message.spawner, same[message.nth - 1])))
        return
    name = task_id(message.spawner, len(spawner.spawned) + 1)
    fault = _unfit(builder, message) or _too_many(spawner) or no_room(builder)
    if fault is not None:
        _refuse(builder, message, fault)
        return
    _note(builder, spawner, message.mark)
    task = TaskRow(
        task_id=name, call_id=spawner.call_id, tool=message.tool, arguments=message.arguments, started_at=builder.now
    )
    start_task(builder, task)
    builder.do(AnswerBody(ask=message.ask, value=name))


def _spawner(builder: StepBuilder, message: SpawnAsked) -> CallRow | TaskRow | None:
    """Whose body asks, if that is the attempt that the run waits for."""
    call = builder.calls.get(message.spawner)
    if call is not None:
        return call if call.at is CallPosition.BODY and call.attempts == message.attempt else None
    task = task_of(builder, message.spawner)
    return task if task is not None and task.attempts == message.attempt else None


def _note(builder: StepBuilder, spawner: CallRow | TaskRow, mark: str) -> None:
    spawned: Any = (*spawner.spawned, mark)
    if isinstance(spawner, CallRow):
        builder.put(spawner, spawned=spawned)
    else:
        put_task(builder, spawner, spawned=spawned)


def _unfit(builder: StepBuilder, message: SpawnAsked) -> str | None:
    """Why a tool can not be spawned with these arguments. Nobody would ask its gate, so it must not have one."""
    tool = builder.spec.tools.get(message.tool)
    if tool is None:
        return (
            f"There is no tool named {message.tool!r} to spawn. The tools are: {', '.join(sorted(builder.spec.tools))}."
        )
    if tool.gate != "never":
        return (
            f"The tool {tool.name!r} has needs_approval, and a spawned task is not shown to anybody. Let the model "
            "call it, or spawn a tool without needs_approval."
        )
    if tool.concurrency != "shared":
        return f"The tool {tool.name!r} is {tool.concurrency}; a task runs beside everything else. Spawn a shared one."
    return tool.check(message.arguments)


def _too_many(spawner: CallRow | TaskRow) -> str | None:
    if len(spawner.spawned) < MAX_SPAWNS:
        return None
    return f"One body may spawn {MAX_SPAWNS} tasks, and this one has. Spawn the rest from another call."


def _refuse(builder: StepBuilder, message: SpawnAsked, fault: str) -> None:
    builder.do(AnswerBody(ask=message.ask, fault=fault))
