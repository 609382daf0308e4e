"""A run as a stream of A2A: first the A2A task as it is, then what changes, from the log.

Theory of operation. `begin` creates the state of one stream, `step` folds one event and returns the items for the
client, `finish` returns the last item where the run rests. Events are always fed from sequence 1 on. The stream begins
with the event `after`, or with `resumed` behind it and without a first item. It ends with a terminal state, or with
INPUT_REQUIRED where the run rests: a run that waits may have commands that have not acted yet, such as further
decisions of the same message, and a client that has just answered must not be shown the question again.

| event | items |
|---|---|
| a move to another state | statusUpdate |
| run.message.delta | artifactUpdate with the text; `append` if it is not the first |
| run.message.completed | artifactUpdate with the missing part of the text, or all of it if it differs; `lastChunk` |
| run.message.discarded | artifactUpdate with an empty text; `lastChunk` |
| run.handoff | statusUpdate: `metadata.agent` |
| run.tool.result with images or files, run.artifact.ready, run.preview.ready | artifactUpdate; `lastChunk` |
| run.completed | artifactUpdate with the output, if no message has it; statusUpdate |
| all others | nothing |

Whoever applies the items to the first one has the same artifacts and the same status as `RunTask.task` at any moment.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from greenroom.actors.backends.a2a_values import A2AArtifact, A2AItem, A2APart, ArtifactUpdate, StatusUpdate, TaskState
from greenroom.actors.contract.envelope import Event
from greenroom.actors.contract.row_forms import Value

from .view import RunTask, fold, is_discarded, text_of

_TEXTS: Final = frozenset({"run.message.delta", "run.message.completed"})


class A2AStream(Value, frozen=True, kw_only=True):
    """The state of a stream between two events. Created by `begin`; opaque to callers.

    Attributes:
        task: The fold of the events so far.
        sequence: That of the newest event.
        after, resumed, history: As passed to `begin`.
        started, ended: The client has the first item, or the last.
        asks: The client does not know yet that the run waits.
    """

    task: RunTask
    sequence: int = 0
    after: int
    resumed: bool
    history: int | None
    started: bool = False
    ended: bool = False
    asks: bool = False


def begin(run_id: str, thread_id: str, *, after: int, resumed: bool = False, history: int | None = None) -> A2AStream:
    """Create the state of a stream before the first event.

    Args:
        run_id: The run.
        thread_id: Its thread.
        after: The sequence of the newest event; with `resumed` that of the last one that the client has.
        resumed: The client has the A2A task, and everything up to `after`.
        history: As for `RunTask.task`.
    """
    task = RunTask(run=run_id, thread=thread_id)
    return A2AStream(task=task, after=after, resumed=resumed, history=history)


def step(state: A2AStream, event: Event) -> tuple[A2AStream, tuple[A2AItem, ...]]:
    """Fold the next event; return the state and the items for the client. No item follows a terminal state."""
    if state.ended:
        return state, ()
    before, task = state.task, fold(state.task, event)
    waits, started = task.state is TaskState.INPUT_REQUIRED, state.started
    items: tuple[A2AItem, ...] = ()
    if started:
        items = _items(before, task, event)
    elif event.sequence >= state.after:
        started = state.resumed or not waits
        items = (task.task(history=state.history),) if started and not state.resumed else ()
    asks = waits and (state.asks or any(isinstance(item, StatusUpdate) for item in items))
    if waits:
        items = tuple(item for item in items if not isinstance(item, StatusUpdate))
    return replace(
        state,
        task=task,
        sequence=event.sequence,
        started=started,
        ended=started and task.state.terminal,
        asks=asks,
    ), items


def finish(state: A2AStream) -> tuple[A2AStream, tuple[A2AItem, ...]]:
    """End the stream where the run rests; a stream that has not begun is the A2A task as it is."""
    items: tuple[A2AItem, ...] = ()
    if not state.ended and not state.started and not state.resumed:
        items = (state.task.task(history=state.history),)
    elif not state.ended and state.asks:
        items = (_status(state.task),)
    return replace(state, started=True, ended=True, asks=False), items


# --- what an event comes to ------------------------------------------------------------------------------------------


def _items(before: RunTask, task: RunTask, event: Event) -> tuple[A2AItem, ...]:
    items = list[A2AItem]()
    if task.artifacts is not before.artifacts or task.growing is not before.growing:
        items += _texts(before, task, event) if event.type in _TEXTS else _changed(before, task)
    asks = task.said is not before.said and event.type != "run.approval.resolved"
    if asks or task.state is not before.state or task.agent != before.agent:
        items.append(_status(task))
    return tuple(items)


def _status(task: RunTask) -> StatusUpdate:
    return StatusUpdate(task_id=task.run, context_id=task.thread, status=task.status, metadata=task.metadata)


def _texts(before: RunTask, task: RunTask, event: Event) -> list[A2AItem]:
    """Return the new part of a text, or the whole text if the client has another one."""
    name = event.payload["messageId"]
    shown, now = before.artifacts.get(name), task.artifacts.get(name)
    if now is None:
        return []
    grows = shown is not None and not is_discarded(shown)
    if event.type == "run.message.delta":
        part = A2APart(text=event.payload["text"])
        return [_update(task, replace(now, parts=(part,)), append=grows, last=False)]
    held = before.growing.get(name)
    shown_text = held.whole() if held is not None else "" if shown is None else text_of(shown)
    text = text_of(now)
    grows = grows and text.startswith(shown_text)
    part = A2APart(text=text[len(shown_text) :] if grows else text)
    return [_update(task, replace(now, parts=(part,)), append=grows)]


def _changed(before: RunTask, task: RunTask) -> list[A2AItem]:
    """Return the artifacts that are new, or that something has replaced."""
    return [_update(task, now) for name, now in task.artifacts.items() if before.artifacts.get(name) is not now]


def _update(task: RunTask, artifact: A2AArtifact, *, append: bool = False, last: bool = True) -> ArtifactUpdate:
    return ArtifactUpdate(task_id=task.run, context_id=task.thread, artifact=artifact, append=append, last_chunk=last)
