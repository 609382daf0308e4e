"""A run as a stream of A2A: first the A2A task as it is, then what changes, from the log.

Theory of operation. `begin` creates the state of one stream, `step` folds one event and returns the items for the
client, `finish` returns the A2A task if the events end before the stream has begun. Events are always fed from sequence
1 on. The stream begins with the event `after`; after a request with commands it begins when these have woken the run,
so its first item does not show the question that the client has just answered. With `resumed` it goes on behind `after`
without a first item. It ends with the first state of rest: a terminal one, or INPUT_REQUIRED.

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

import attrs
from msgspec.structs import replace

from greenroom.actors.backends.a2a_values import A2AArtifact, A2AItem, A2APart, ArtifactUpdate, StatusUpdate, TaskState
from greenroom.actors.contract.envelope import Event

from .view import RunTask, fold, is_discarded, text_of

_TEXTS: Final = frozenset({"run.message.delta", "run.message.completed"})


@attrs.frozen(kw_only=True)
class A2AStream:
    """The state of a stream between two events. Created by `begin`; opaque to callers.

    Attributes:
        task: The fold of the events so far.
        after, waking, resumed, history: As passed to `begin`.
        started, ended: The client has the first item, or the last.
    """

    task: RunTask
    after: int
    waking: bool
    resumed: bool
    history: int | None
    started: bool = False
    ended: bool = False


def begin(
    run_id: str, thread_id: str, *, after: int, waking: bool = False, resumed: bool = False, history: int | None = None
) -> A2AStream:
    """Create the state of a stream before the first event.

    Args:
        run_id: The run.
        thread_id: Its thread.
        after: The sequence of the newest event; with `resumed` that of the last one that the client has.
        waking: The request has commands for the run. A stream does not begin while the run waits; its events end if
            the commands do not wake the run.
        resumed: The client has the A2A task, and everything up to `after`.
        history: As for `RunTask.task`.
    """
    task = RunTask(run=run_id, thread=thread_id)
    return A2AStream(task=task, after=after, waking=waking, resumed=resumed, history=history)


def step(state: A2AStream, event: Event) -> tuple[A2AStream, tuple[A2AItem, ...]]:
    """Fold the next event; return the state and the items for the client. No item follows a state of rest."""
    if state.ended:
        return state, ()
    before = state.task
    task = fold(before, event)
    state = attrs.evolve(state, task=task)
    if state.started:
        items = _items(before, task, event)
        rests = any(isinstance(item, StatusUpdate) and item.status.state.at_rest for item in items)
        return (attrs.evolve(state, ended=True) if rests else state), items
    if event.sequence < state.after or (state.waking and task.state is TaskState.INPUT_REQUIRED):
        return state, ()
    if state.resumed:
        return attrs.evolve(state, started=True, ended=task.state.terminal), ()
    return _started(state)


def finish(state: A2AStream) -> tuple[A2AStream, tuple[A2AItem, ...]]:
    """End the stream at the end of the events: a stream that has not begun is the A2A task as it is."""
    if state.started or state.resumed:
        return attrs.evolve(state, ended=True), ()
    state, items = _started(state)
    return attrs.evolve(state, ended=True), items


def _started(state: A2AStream) -> tuple[A2AStream, tuple[A2AItem, ...]]:
    task = state.task
    return attrs.evolve(state, started=True, ended=task.state.at_rest), (task.task(history=state.history),)


# --- what an event comes to ------------------------------------------------------------------------------------------


def _items(before: RunTask, task: RunTask, event: Event) -> tuple[A2AItem, ...]:
    items = list[A2AItem]()
    if task.artifacts is not before.artifacts or task.growing is not before.growing:
        items += _texts(before, task, event) if event.type in _TEXTS else _changed(before, task)
    asks = task.said is not before.said and event.type != "run.approval.resolved"
    if asks or task.state is not before.state or task.agent != before.agent:
        items.append(StatusUpdate(task_id=task.run, context_id=task.thread, status=task.status, metadata=task.metadata))
    return tuple(items)


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
