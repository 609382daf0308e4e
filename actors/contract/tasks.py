"""Background tasks: tool calls that run beside the steps of their run. The stored row and the public view."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from operator import attrgetter
from typing import Final, Literal

import attrs

from .plain import JSONObject
from .row_forms import Value

TaskStatus = Literal["running", "cancelling"]
UnknownCause = Literal["", "process", "grace"]
"""Why the outcome of a body is unknown: its process ended, or it overran its grace."""

MAX_SPAWNS: Final = 1_000
"""Tasks that one body may spawn in all its attempts; each is stored while the body may run again."""
_TASK_ID: Final = attrgetter("task_id")


class TaskRow(Value, frozen=True, kw_only=True):
    """A live task; an ended task is in the events and in the thread.

    Attributes:
        task_id: unique among the run's tasks and calls.
        call_id: the call that the task comes from.
        tool, arguments: what runs.
        attempts: bodies started. An input of another attempt is ignored.
        status: "cancelling" if cancelled while the body has not ended.
        spawned: marks of the tasks that this task has spawned, in order.
        started_at: when the newest body started, UTC.
        unknown_cause: why the outcome of an attempt is unknown; "" if it is not.
        agent: key of the agent whose tool it is, if the run was handed over before; None: the run's first agent.
    """

    task_id: str
    call_id: str
    tool: str
    arguments: JSONObject
    started_at: datetime
    attempts: int = 1
    status: TaskStatus = "running"
    spawned: tuple[str, ...] = ()
    unknown_cause: UnknownCause = ""
    agent: str | None = None


@attrs.frozen(kw_only=True)
class TaskView:
    """A live task as tools and people see it."""

    task_id: str
    tool: str
    status: TaskStatus


def by_id(tasks: tuple[TaskRow, ...]) -> dict[str, TaskRow]:
    """Return task id -> task, in their order: one call of C, because a run may have a thousand."""
    return dict(zip(map(_TASK_ID, tasks), tasks, strict=True))


def shown_tasks(rows: Iterable[TaskRow]) -> tuple[TaskView, ...]:
    """Return the public views of tasks."""
    return tuple(TaskView(task_id=row.task_id, tool=row.tool, status=row.status) for row in rows)
