"""Requests and reports of bodies about background tasks: results, spawns, cancels, lists.

Theory of operation. Every request has a number and gets exactly one answer (`AnswerBody`), so no body waits without
bound. An answer that changes the run (a spawn, a cancel) is durable before the body receives it.
"""

from __future__ import annotations

from typing import Any

from ..contract import events as ev
from ..contract.calls import CallPosition
from ..contract.ids import task_id
from ..contract.rows import CallRow
from ..contract.spec import AgentSpec
from ..contract.tasks import TaskRow, shown_tasks
from .body_inputs import (
    CallPrinted,
    CallProgressed,
    CallRaised,
    CallReturned,
    CallSuspended,
    CancelAsked,
    FromBody,
    ResultRefused,
    SpawnAsked,
    TasksAsked,
    TaskStopped,
)
from .budgets import spend_all
from .denials import doubted
from .effects import AnswerBody, CancelTask
from .guardrails import refuse_task_result
from .state import StepBuilder
from .state_merge import task_wrote
from .tasks import STOPPED, cut_task, finish_task, no_room, put_task, start_task
from .termination import TOOL_ERROR, fail
from .tool_bodies import of_bug

SUSPENDED_TEXT = (
    "The tool {tool!r} asked for a decision, and a background task cannot wait for one. Let people decide before it "
    "starts (needs_approval=...), or ask in a tool that does not run in the background."
)


def task_said(
    builder: StepBuilder,
    task: TaskRow,
    message: FromBody,
) -> None:
    """Handle an input of a task's body; an input of an older attempt is ignored."""
    if task.attempts != message.attempt:
        return
    name, attempt = task.task_id, task.attempts
    if not isinstance(message, CallProgressed | CallPrinted):
        spend_all(builder, message.usage, task.call_id)
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
            text = task_wrote(builder, task, message)
            result: dict[str, Any] = {"result": message.result, "large": message.large, "parts": message.parts}
            finish_task(builder, task, "succeeded", shown=text, **result)
        case ResultRefused():
            refuse_task_result(builder, task, message)
        case CallRaised():
            bug = of_bug(builder, message)
            text = doubted(message.shown, "grace" if task.unknown_cause == "grace" else "")
            finish_task(builder, task, "failed", shown=text, code=message.code, error_id=bug)
            # the task was being cancelled: its failure must not end the run
            if message.fatal and task.status != "cancelling":
                fail(builder, message.run_code or TOOL_ERROR, f"{task.tool}: {message.shown}", error_id=bug)


def desk_asked(builder: StepBuilder, message: SpawnAsked | CancelAsked | TasksAsked | TaskStopped) -> None:
    """Handle a body's request, or the end of a cancelled task."""
    match message:
        case SpawnAsked():
            spawn_asked(builder, message)
        case CancelAsked():
            cancel_asked(builder, message)
        case TasksAsked():
            builder.do(AnswerBody(ask=message.ask, value=shown_tasks(builder.tasks.values()), durable=False))
        case TaskStopped():
            task_stopped(builder, message)


def task_stopped(builder: StepBuilder, message: TaskStopped) -> None:
    """End a cancelled task whose body has ended, or has overrun its grace."""
    task = builder.tasks.get(message.task_id)
    if task is not None and task.attempts == message.attempt and task.status == "cancelling":
        cut_task(builder, task, STOPPED)


def cancel_asked(builder: StepBuilder, message: CancelAsked) -> None:
    """Cancel a task for a body. The answer says whether the task is alive; its end has its own events."""
    task = builder.tasks.get(message.task_id)
    if task is not None and task.status == "running" and not builder.row.position.rule.leaving:
        task = put_task(builder, task, status="cancelling")
        builder.do(CancelTask(task_id=task.task_id, attempt=task.attempts))
    builder.do(AnswerBody(ask=message.ask, value=task is not None))


def spawn_asked(builder: StepBuilder, message: SpawnAsked) -> None:
    """Spawn a task for a body. The answer is the task's id once the task is durable, or why it is refused."""
    call, task = builder.calls.get(message.spawner), builder.tasks.get(message.spawner)
    spawner = task if call is None else call if call.at is CallPosition.BODY else None
    if spawner is None or spawner.attempts != message.attempt or builder.row.position.rule.leaving:
        fault = "The run does not wait for this call any more: no task can be started from here."
        builder.do(AnswerBody(ask=message.ask, fault=fault))
        return
    same = [number for number, mark in enumerate(spawner.spawned, 1) if mark == message.mark]
    if len(same) >= message.nth:
        builder.do(AnswerBody(ask=message.ask, value=task_id(message.spawner, same[message.nth - 1])))
        return
    name = task_id(message.spawner, len(spawner.spawned) + 1)
    # the tools of a task are those of the agent that started it, which may have handed the run over since
    agent = builder.row.agent if isinstance(spawner, CallRow) else spawner.agent
    unfit = _unfit(builder.spec_of(agent), message) or no_room(builder, spawner)
    if unfit is not None:
        builder.do(AnswerBody(ask=message.ask, fault=unfit))
        return
    task_marks: Any = (*spawner.spawned, message.mark)
    if isinstance(spawner, CallRow):
        builder.put(spawner, spawned=task_marks)
    else:
        put_task(builder, spawner, spawned=task_marks)
    new = TaskRow(
        task_id=name,
        call_id=spawner.call_id,
        tool=message.tool,
        arguments=message.arguments,
        started_at=builder.now,
        agent=agent,
    )
    start_task(builder, new)
    builder.do(AnswerBody(ask=message.ask, value=name))


def _unfit(spec: AgentSpec, message: SpawnAsked) -> str | None:
    """Return why a tool cannot be spawned with these arguments, or None.

    No gate is asked, so the tool must not have one.
    """
    tool = spec.tools.get(message.tool)
    if tool is None:
        return f"There is no tool named {message.tool!r} to spawn. The tools are: {', '.join(sorted(spec.tools))}."
    if tool.gate != "never":
        return (
            f"The tool {tool.name!r} has needs_approval, and a spawned task is not shown to anybody. Let the model "
            "call it, or spawn a tool without needs_approval."
        )
    if tool.guarded:
        return (
            f"The tool {tool.name!r} has input guardrails, which judge calls of the model. Spawn a tool without them."
        )
    if tool.concurrency != "shared":
        return f"The tool {tool.name!r} is {tool.concurrency}; a task runs beside everything else. Spawn a shared one."
    return tool.check(message.arguments)
