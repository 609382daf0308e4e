"""Background tasks: a tool call that goes on beside the steps of its run. What a run keeps of one, and what is seen."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

import attrs

from .plain import JSONObject
from .row_forms import Value

TaskStatus = Literal["running", "cancelling"]
Lost = Literal["", "process", "grace"]
"""How the end of a body came to be unknown: its process ended meanwhile, or it went on beyond its grace."""

MAX_SPAWNS: Final = 1_000
"""Tasks that one body may spawn in all its attempts: each is remembered, for a body that runs again, while it lives."""


class TaskRow(Value, frozen=True, kw_only=True):
    """A task that lives; one that has ended is in the events and in the thread.

    Attributes:
        task_id: unique in the run, among its calls, too. call_id: of the call that it comes from.
        tool, arguments: what runs.
        attempts: bodies started. A message of another attempt is ignored.
        status: cancelling: it has been cancelled, and its body has not ended.
        spawned: marks of the tasks that it has spawned itself, in order.
        started_at: when the newest body started, UTC.
        lost: an attempt of its body came to an end that is not known.
    """

    task_id: str
    call_id: str
    tool: str
    arguments: JSONObject
    started_at: datetime
    attempts: int = 1
    status: TaskStatus = "running"
    spawned: tuple[str, ...] = ()
    lost: Lost = ""


@attrs.frozen(kw_only=True)
class TaskView:
    """A task that lives, as tools and people see it."""

    task_id: str
    tool: str
    status: TaskStatus


def shown_tasks(rows: tuple[TaskRow, ...]) -> tuple[TaskView, ...]:
    """What is seen of tasks."""
    return tuple(TaskView(task_id=row.task_id, tool=row.tool, status=row.status) for row in rows)
