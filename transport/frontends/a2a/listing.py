"""ListTasks: the list of runs of one agent that a principal may see, newest first, with the landed cursors.

A page has the state of each A2A task and, unless `historyLength` is 0, the message that began it. Artifacts need the
whole log of each run, so a page that includes them is shorter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from greenroom.actors.backends.a2a_values import (
    A2AInvalid,
    A2AStatus,
    A2ATask,
    ListParams,
    TaskPage,
    TaskState,
)
from greenroom.actors.contract.envelope import decode_event, timestamp
from greenroom.actors.contract.lifecycle import RunStatus, Stage
from greenroom.actors.contract.run_lists import RunSummary

from ...gateway.access import Principal
from .response import folded
from .view import STATES, RunTask, fold

if TYPE_CHECKING:
    from ...gateway.gateway import Gateway

PAGE: Final = 50
"""A2A tasks of a page, unless the client says how many."""
MOST: Final = 100
"""Most A2A tasks of a page."""
MOST_WHOLE: Final = 10
"""Most A2A tasks of a page with artifacts."""

_LISTED: Final = {
    TaskState.SUBMITTED: RunStatus.CREATED,
    TaskState.WORKING: RunStatus.RUNNING,
    TaskState.INPUT_REQUIRED: RunStatus.WAITING,
    TaskState.COMPLETED: Stage.COMPLETED,
    TaskState.FAILED: Stage.FAILED,
    TaskState.REJECTED: Stage.FAILED,
    TaskState.CANCELED: Stage.CANCELLED,
}
"""State -> the limit of a list of runs. A failed run's last event says whether it is FAILED or REJECTED."""


async def list_tasks(gateway: Gateway, who: Principal, agent: str, params: ListParams) -> TaskPage:
    """Return a page.

    Raises:
        A2AInvalid: a number is out of range, or a filter is not available.
        Refused: not_allowed; unprocessable: the cursor is of another list.
    """
    size = PAGE if params.page_size is None else params.page_size
    if not 1 <= size <= MOST:
        raise A2AInvalid(f"pageSize={size}: give 1 to {MOST}, or leave it out for {PAGE}")
    if params.history_length is not None and params.history_length < 0:
        raise A2AInvalid(f"historyLength={params.history_length}: give 0 or more")
    if params.status_timestamp_after:
        raise A2AInvalid("statusTimestampAfter is not available here; leave it out, and follow the pages")
    if params.status is not None and params.status not in _LISTED:
        return TaskPage(page_size=size)
    if params.include_artifacts:
        size = min(size, MOST_WHOLE)
    fields = {"agent": agent, "thread": params.context_id or None, "limit": size}
    fields |= {"cursor": params.page_token or None, "status": _LISTED[params.status] if params.status else None}
    page = await gateway.api.runs(who, gateway.api.query(who, fields))
    tasks = [await _line(gateway, line, params) for line in page.lines]
    if params.status is not None:  # the two states of a failed run
        tasks = [task for task in tasks if task.status.state is params.status]
    is_all = not params.page_token and page.cursor is None
    return TaskPage(
        tasks=tuple(tasks),
        next_page_token=page.cursor or "",
        page_size=size,
        total_size=len(tasks) if is_all else 0,
    )


async def _line(gateway: Gateway, line: RunSummary, params: ListParams) -> A2ATask:
    info, stage = line.info, line.row.stage
    if params.include_artifacts:
        return (await folded(gateway, info.run_id, info.thread_id)).task(history=params.history_length)
    reader, run_id = gateway.runtime.reader, info.run_id
    task = RunTask(run=run_id, thread=info.thread_id, agent=info.agent)
    if params.history_length != 0:
        for frame in await reader.events(run_id, limit=1):
            task = fold(task, decode_event(frame))
    since = line.ended_at or line.waiting_since or info.created_at
    state = STATES[stage]
    if state is TaskState.FAILED:
        for frame in await reader.events(run_id, after=line.row.last_sequence - 1, limit=1):
            state = fold(task, decode_event(frame)).state
    status = A2AStatus(state=state, timestamp=timestamp(since))
    return A2ATask(
        id=run_id,
        context_id=info.thread_id,
        status=status,
        history=task.history,
        metadata={"agent": line.row.agent or info.agent},
    )
