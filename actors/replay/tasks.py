"""Which inputs may have led to an event of a background task.

What a task came to is in its event and, in full, in the message that the model got; what runs is in the event that
says that it started. Of a cancel nothing is seen before the task has ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import msgspec

from ..contract.calls import CallStatus
from ..contract.envelope import Event
from ..contract.ids import message_id
from ..contract.phases import CallAt
from ..contract.rows import CallRow
from ..contract.spans import MASK
from ..contract.tasks import TaskRow
from ..engine.denials import undoubted
from ..engine.inputs import CallRaised, CallReturned, Input, SpawnAsked, TaskStopped
from ..engine.state import RunState
from ..engine.tasks import STOPPED, UNKNOWN_TEXT
from .record import Record
from .report import Unreplayable
from .writes import NOTHING, written


def find_task(state: RunState, name: Any) -> TaskRow | None:
    """The task that lives under this id."""
    return next((task for task in state.row.tasks if task.task_id == name), None)


def spawned(record: Record, state: RunState, event: Event) -> Iterator[Input | Unreplayable]:
    """A body has asked for the task. Its mark does not matter, but that it is a new one."""
    payload: Any = event.payload
    name = str(payload.get("task_id"))
    spawner = name.rpartition(".task")[0]
    body = _body(state, spawner)
    arguments = payload.get("arguments")
    if body is None or payload.get("attempt") != 1 or not isinstance(arguments, dict):
        return
    live = next((task for task in record.row.tasks if task.task_id == name), None)
    yield SpawnAsked(
        ask=0,
        spawner=spawner,
        attempt=body.attempts,
        tool=str(payload.get("tool")),
        arguments=arguments if live is None else live.arguments,
        mark=str(len(body.spawned)),
        nth=1,
    )
    if live is None and MASK in repr(arguments):
        text = f"the arguments of the task {name} are stored in the event only, and hold what was hidden there"
        yield Unreplayable(sequence=event.sequence, missing="call", text=text)


def _body(state: RunState, name: str) -> CallRow | TaskRow | None:
    call = state.calls.get(name)
    if call is not None:
        return call if call.at is CallAt.BODY and call.status is CallStatus.RUNNING else None
    return find_task(state, name)


def task_ended(record: Record, state: RunState, task: TaskRow, position: int) -> Iterator[Input | Unreplayable]:
    """What its body said, from the message that the model got; with what it wrote to state, if that comes first."""
    event = record.events[position]
    name = message_id(record.info.run_id, state.row.counters.messages + 1)
    message = record.messages.get(name)
    head = f"[Background task {task.task_id} ({task.tool}) "
    if message is None or not message.content.startswith(head):
        text = f"the message {name} about the task {task.task_id} is not stored"
        yield Unreplayable(sequence=event.sequence, missing="message", text=text)
        return
    how, _, shown = message.content.removeprefix(head).partition(".]\n")
    who: dict[str, Any] = {"call_id": task.task_id, "attempt": task.attempts}
    if how == "succeeded":
        found = NOTHING if event.type == "run.task.finished" else written(event)
        shown = found.without_note(shown)
        for result, large in _results(shown):
            yield CallReturned(**who, result=result, shown=shown, large=large, batch=found.batch)
    elif how == "cancelled" and shown.startswith(STOPPED):
        yield TaskStopped(task_id=task.task_id, attempt=task.attempts)
    elif how.startswith("failed") and shown != UNKNOWN_TEXT:
        code = how.removeprefix("failed (").removesuffix(")")
        shown = undoubted(shown)
        yield CallRaised(**who, code=code, shown=shown)
        if record.end()[0] == "tool_error":
            yield CallRaised(**who, code=code, shown=shown, fatal=True)


def _results(shown: str) -> Iterator[tuple[Any, bool]]:
    """What a result may have been of which the model got this text, and whether it was too large to be shown whole."""
    try:
        yield msgspec.json.decode(shown), False
    except msgspec.DecodeError:
        yield None, False
    yield shown, False
    yield shown, True  # the event has what the model got, with what was added to it


def stopping(state: RunState, task_ids: tuple[str, ...]) -> RunState:
    """The state with these tasks cancelled: a body has asked for it at some time, and no event says when."""
    tasks = tuple(
        attrs.evolve(task, status="cancelling") if task.task_id in task_ids else task for task in state.row.tasks
    )
    return msgspec.structs.replace(state, row=attrs.evolve(state.row, tasks=tasks))


def stopped_here(record: Record, state: RunState, position: int) -> tuple[str, ...]:
    """The tasks that whoever takes the run up here ends because they were being cancelled."""
    stops = record.index.stops
    if not (stops and state.row.tasks):
        return ()
    end = position
    while end < len(record.events) and record.events[end].type in _TAKING_UP:
        end += 1
    mine = (task.task_id for task in state.row.tasks)
    return tuple(name for name in mine if position <= stops.get(name, -1) < end)


_TAKING_UP = ("run.degraded", "run.task.started", "run.task.finished")
"""How the events begin of an owner that takes up a run with tasks."""
