"""What bodies say and ask about background tasks: results, spawns, cancels, questions.

Every question has a number, and gets one answer (`AnswerBody`): a body is never left waiting.
"""

from __future__ import annotations

from typing import Any

from ..contract import events as ev
from ..contract.ids import task_id
from ..contract.phases import LEAVING, CallAt
from ..contract.rows import CallRow
from ..contract.tasks import MAX_SPAWNS, TaskRow, shown_tasks
from .bodies import of_bug
from .denials import doubted
from .effects import AnswerBody, CancelTask
from .ending import fail
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
from .state import Draft
from .tasks import STOPPED, cut_task, finish_task, no_room, put_task, start_task, task_of
from .writes import task_wrote

SUSPENDED_TEXT = (
    "The tool {tool!r} asked for a decision, and a background task can not wait for one. Let people decide before it "
    "starts (needs_approval=...), or ask in a tool that does not run in the background."
)


def task_said(
    d: Draft, task: TaskRow, message: CallSuspended | CallReturned | CallRaised | CallProgressed | CallPrinted
) -> None:
    """A message from a task's body. Of an attempt that is not the present one, it is ignored."""
    if task.attempts != message.attempt:
        return
    name, attempt = task.task_id, task.attempts
    match message:
        case CallProgressed():
            d.emit(
                "run.task.progress",
                ev.TaskProgress(task_id=name, attempt=attempt, fraction=message.fraction, text=message.text),
            )
        case CallPrinted():
            d.emit(
                "run.task.output.delta",
                ev.TaskOutputDelta(task_id=name, attempt=attempt, index=message.index, text=message.text),
            )
        case CallSuspended():
            finish_task(d, task, "failed", shown=SUSPENDED_TEXT.format(tool=task.tool), code="task_suspended")
        case CallReturned():
            shown = task_wrote(d, task, message)
            finish_task(d, task, "succeeded", result=message.result, shown=shown, large=message.large)
        case CallRaised():
            bug = of_bug(d, message)
            shown = doubted(message.shown, "grace" if task.lost == "grace" else "")
            finish_task(d, task, "failed", shown=shown, code=message.code, error_id=bug)
            if message.fatal and task.status != "cancelling":  # it was to end: how it takes that ends nothing else
                fail(d, "tool_error", f"{task.tool}: {message.shown}", error_id=bug)


def desk_asked(d: Draft, message: SpawnAsked | CancelAsked | TasksAsked | TaskStopped) -> None:
    """A question of a body, or the end of a task that a body wanted to end."""
    match message:
        case SpawnAsked():
            spawn_asked(d, message)
        case CancelAsked():
            cancel_asked(d, message)
        case TasksAsked():
            d.do(AnswerBody(ask=message.ask, value=shown_tasks(d.tasks), durable=False))
        case TaskStopped():
            task_stopped(d, message)


def task_stopped(d: Draft, message: TaskStopped) -> None:
    """The body of a cancelled task has ended, or has overrun its grace."""
    task = task_of(d, message.task_id)
    if task is not None and task.attempts == message.attempt and task.status == "cancelling":
        cut_task(d, task, STOPPED)


def cancel_asked(d: Draft, message: CancelAsked) -> None:
    """A body wants a task to end. The answer says whether there is such a task; its end is told by its own events."""
    task = task_of(d, message.task_id)
    if task is not None and task.status == "running" and d.cursor not in LEAVING:
        task = put_task(d, task, status="cancelling")
        d.do(CancelTask(task_id=task.task_id, attempt=task.attempts))
    d.do(AnswerBody(ask=message.ask, value=task is not None))


def spawn_asked(d: Draft, message: SpawnAsked) -> None:
    """A body wants a task. The answer is its id, once it is stored that it runs; or why it can not be."""
    spawner = _spawner(d, message)
    if spawner is None or d.cursor in LEAVING:
        _refuse(d, message, "The run does not wait for this call any more: no task can be started from here.")
        return
    same = [number for number, mark in enumerate(spawner.spawned, 1) if mark == message.mark]
    if len(same) >= message.nth:
        d.do(AnswerBody(ask=message.ask, value=task_id(message.spawner, same[message.nth - 1])))
        return
    name = task_id(message.spawner, len(spawner.spawned) + 1)
    fault = _unfit(d, message) or _too_many(spawner) or no_room(d)
    if fault is not None:
        _refuse(d, message, fault)
        return
    _note(d, spawner, message.mark)
    task = TaskRow(
        task_id=name, call_id=spawner.call_id, tool=message.tool, arguments=message.arguments, started_at=d.now
    )
    start_task(d, task)
    d.do(AnswerBody(ask=message.ask, value=name))


def _spawner(d: Draft, message: SpawnAsked) -> CallRow | TaskRow | None:
    """Whose body asks, if that is the attempt that the run waits for."""
    call = d.calls.get(message.spawner)
    if call is not None:
        return call if call.at is CallAt.BODY and call.attempts == message.attempt else None
    task = task_of(d, message.spawner)
    return task if task is not None and task.attempts == message.attempt else None


def _note(d: Draft, spawner: CallRow | TaskRow, mark: str) -> None:
    spawned: Any = (*spawner.spawned, mark)
    if isinstance(spawner, CallRow):
        d.put(spawner, spawned=spawned)
    else:
        put_task(d, spawner, spawned=spawned)


def _unfit(d: Draft, message: SpawnAsked) -> str | None:
    """Why a tool can not be spawned with these arguments. Nobody would ask its gate, so it must not have one."""
    tool = d.spec.tools.get(message.tool)
    if tool is None:
        return f"There is no tool named {message.tool!r} to spawn. The tools are: {', '.join(sorted(d.spec.tools))}."
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


def _refuse(d: Draft, message: SpawnAsked, fault: str) -> None:
    d.do(AnswerBody(ask=message.ask, fault=fault))
