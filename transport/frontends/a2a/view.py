"""A run as an A2A task: a pure fold of the run's events, so every process shows the same one at any later time.

| the run | the A2A task |
|---|---|
| created to preparing; running, applying; needs_approval | SUBMITTED; WORKING; INPUT_REQUIRED |
| completed; failed; cancelled; failed before running | COMPLETED; FAILED; CANCELED; REJECTED |
| a message of the assistant | an artifact with the same id; a discarded one is empty, with `metadata.discarded` |
| an output that no message has | the artifact `RUN.output`: a text, or a data part |
| an image or a file in the result of a call, something published | an artifact that names it; see `files` |
| the input, further input | the history |
| open tickets, in needs_approval | the message of the status: a text for people, and a data part for each |

`metadata.agent` of the A2A task and of artifacts is the agent that works, another one after a handoff.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from greenroom.actors.backends.a2a_values import (
    A2AArtifact,
    A2AMessage,
    A2APart,
    A2AStatus,
    A2ATask,
    Role,
    TaskState,
)
from greenroom.actors.contract.casing import camel
from greenroom.actors.contract.catalogue import TERMINAL_EVENTS
from greenroom.actors.contract.envelope import Event, timestamp
from greenroom.actors.contract.ids import message_id
from greenroom.actors.contract.lifecycle import Stage
from greenroom.actors.contract.plain import JSONObject
from greenroom.actors.contract.row_forms import Value

from .files import named_part, parts_in
from .ids import message_of
from .questions import question

STATES: Final[Mapping[str, TaskState]] = {
    Stage.CREATED: TaskState.SUBMITTED,
    Stage.PLANNED: TaskState.SUBMITTED,
    Stage.ACCEPTED: TaskState.SUBMITTED,
    Stage.PREPARING: TaskState.SUBMITTED,
    Stage.RUNNING: TaskState.WORKING,
    Stage.APPLYING: TaskState.WORKING,
    Stage.NEEDS_APPROVAL: TaskState.INPUT_REQUIRED,
    Stage.COMPLETED: TaskState.COMPLETED,
    Stage.FAILED: TaskState.FAILED,
    Stage.CANCELLED: TaskState.CANCELED,
}
"""Stage -> the state of the A2A task; a run that failed before it was running is REJECTED."""
_SPOKEN: Final = frozenset({"run.message.delta", "run.message.completed", "run.message.discarded"})
_END: Final = ("termination", "code", "finish", "outcomeUnknown")
"""The fields of a terminal event in the metadata."""
_ASKING: Final = frozenset({"run.approval.requested", "run.approval.resolved"})

Payload = JSONObject


class Growing(Value, frozen=True):
    """A text that is incomplete: a new piece costs the same, however long the text is.

    Attributes:
        before: The text before the newest piece; None for the first one.
        piece: The newest piece.
    """

    before: Growing | None
    piece: str

    def whole(self) -> str:
        """Return the text."""
        pieces, text = list[str](), self
        while text.before is not None:
            pieces.append(text.piece)
            text = text.before
        return "".join((text.piece, *reversed(pieces)))


class RunTask(Value, frozen=True, kw_only=True):
    """The fold of the events so far.

    Attributes:
        run, thread, agent: The A2A task, its context, and the agent that works.
        state, since: The state, and the time of its beginning.
        said: The message of the status.
        artifacts: Id -> artifact, in the order of their beginnings; without the text if it is incomplete.
        growing: Id -> text, of incomplete ones.
        text: The text of the last answer; None after a call, whose result may be the output.
        history: What people have said, oldest first.
        tickets: Ticket id -> payload of run.approval.requested, of open tickets.
        facts: How the run ended: termination, code, reason, finish.
    """

    run: str = ""
    thread: str = ""
    agent: str = ""
    state: TaskState = TaskState.SUBMITTED
    since: str = ""
    said: A2AMessage | None = None
    artifacts: Mapping[str, A2AArtifact] = msgspec.field(default_factory=dict)
    growing: Mapping[str, Growing] = msgspec.field(default_factory=dict)
    text: str | None = None
    history: tuple[A2AMessage, ...] = ()
    tickets: Mapping[str, Payload] = msgspec.field(default_factory=dict)
    facts: Mapping[str, Any] = msgspec.field(default_factory=dict)

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of the A2A task and of its status."""
        return {"agent": self.agent, **self.facts}

    @property
    def status(self) -> A2AStatus:
        """The status."""
        return A2AStatus(state=self.state, message=self.said, timestamp=self.since)

    def task(self, *, history: int | None = None, artifacts: bool = True) -> A2ATask:
        """Return the A2A task.

        Args:
            history: Most messages of the history, the newest ones; None: all.
            artifacts: The A2A task has its artifacts.
        """
        return A2ATask(
            id=self.run,
            context_id=self.thread,
            status=self.status,
            artifacts=tuple(map(self._shown, self.artifacts.values())) if artifacts else (),
            history=self.history if history is None else self.history[max(0, len(self.history) - history) :],
            metadata=self.metadata,
        )

    def _shown(self, artifact: A2AArtifact) -> A2AArtifact:
        held = self.growing.get(artifact.artifact_id)
        return artifact if held is None else replace(artifact, parts=(A2APart(text=held.whole()),))


def fold(task: RunTask, event: Event) -> RunTask:
    """Return the A2A task with one more event."""
    take = _FOLDS.get(event.type)
    spoken = event.type in _SPOKEN and event.payload.get("callId") is not None  # by a body, of its work
    if take is not None and not spoken:
        task = take(task, event)
    if "to" in event.payload:
        return _moved(task, event)
    if event.type in _ASKING and task.state is TaskState.INPUT_REQUIRED:
        return replace(task, said=_message(task, event, question(task.tickets.values())))
    return task


def _moved(task: RunTask, event: Event) -> RunTask:
    payload = event.payload
    state = STATES[payload["to"]]
    if state is TaskState.FAILED and STATES[payload["from"]] is TaskState.SUBMITTED:
        state = TaskState.REJECTED
    said: A2AMessage | None = None
    if state is TaskState.INPUT_REQUIRED:
        said = _message(task, event, question(task.tickets.values()))
    elif event.type in TERMINAL_EVENTS:
        text = payload.get("message") or payload.get("reason") or payload.get("detail")
        said = _message(task, event, (A2APart(text=text),)) if text else None
        facts = {name: payload[name] for name in _END if payload.get(name)}
        task = replace(task, facts=facts)
    since = timestamp(event.timestamp) if state is not task.state or not task.since else task.since
    return replace(task, state=state, since=since, said=said)


def _message(task: RunTask, event: Event, parts: tuple[A2APart, ...]) -> A2AMessage:
    """Return a message of the agent, for the status."""
    name = f"{task.run}.s{event.sequence}"
    return A2AMessage(message_id=name, role=Role.AGENT, parts=parts, task_id=task.run, context_id=task.thread)


# --- what an event comes to ------------------------------------------------------------------------------------------


def _created(task: RunTask, event: Event) -> RunTask:
    payload = event.payload
    task = replace(task, run=event.run_id, thread=payload["threadId"], agent=payload["agent"])
    sent_id = message_of(payload["by"], payload["agent"], event.run_id, event.session_id)
    return _heard(task, sent_id or message_id(event.run_id, 1), payload["input"], payload)


def _input(task: RunTask, event: Event) -> RunTask:
    return _heard(task, event.payload["commandId"], event.payload["text"], event.payload)


def _heard(task: RunTask, name: str, text: str, payload: Payload) -> RunTask:
    """Add a message of people to the history."""
    parts = (A2APart(text=text), *map(named_part, payload.get("attachments", ())))
    said = A2AMessage(message_id=name, role=Role.USER, parts=parts, task_id=task.run, context_id=task.thread)
    return replace(task, history=(*task.history, said))


def _grown(task: RunTask, event: Event) -> RunTask:
    name = event.payload["messageId"]
    held, shown = task.growing.get(name), task.artifacts.get(name)
    if held is None and shown is not None and not is_discarded(shown):
        held = Growing(None, text_of(shown))
    elif held is None:
        task = _made(task, name, ())
    return replace(task, growing={**task.growing, name: Growing(held, event.payload["text"])})


def _completed(task: RunTask, event: Event) -> RunTask:
    name, text = event.payload["messageId"], event.payload["text"]
    held = task.growing.get(name)
    if held is not None and event.payload.get("large"):
        text = held.whole()  # `text` is an excerpt; the deltas have the full text
    if text or name in task.artifacts:
        task = _made(task, name, (A2APart(text=text),))
    return replace(task, growing=_without(task.growing, name), text=text)


def _discarded(task: RunTask, event: Event) -> RunTask:
    name = event.payload["messageId"]
    if name not in task.artifacts:
        return task
    metadata = {"agent": task.agent, "discarded": True}
    emptied = A2AArtifact(artifact_id=name, parts=(A2APart(text=""),), metadata=metadata)
    artifacts = {**task.artifacts, name: emptied}
    return replace(task, artifacts=artifacts, growing=_without(task.growing, name))


def is_discarded(artifact: A2AArtifact) -> bool:
    """Return True if an artifact was a text that is not part of the conversation."""
    return "discarded" in artifact.metadata


def text_of(artifact: A2AArtifact) -> str:
    """Return the text of an artifact."""
    return "".join(part.text or "" for part in artifact.parts)


def _without(growing: Mapping[str, Growing], name: str) -> Mapping[str, Growing]:
    return {other: text for other, text in growing.items() if other != name} if name in growing else growing


def _called(task: RunTask, _: Event) -> RunTask:
    return replace(task, text=None)


def _result(task: RunTask, event: Event) -> RunTask:
    parts = parts_in(event.payload.get("result"))
    return task if not parts else _made(task, f"{task.run}.{event.payload['callId']}", parts)


def _published(task: RunTask, event: Event) -> RunTask:
    name = event.payload["artifactId"]
    facts = {camel(field): event.payload[field] for field in _PUBLISHED if event.payload.get(field) not in (None, "")}
    return _made(task, name, (named_part(facts),))


_PUBLISHED: Final = ("artifactId", "kind", "name", "mediaType", "size", "sha256", "path", "url", "readAt")


def _made(task: RunTask, name: str, parts: Iterable[A2APart]) -> RunTask:
    """Add an artifact, or replace it."""
    made = A2AArtifact(artifact_id=name, parts=tuple(parts), metadata={"agent": task.agent})
    return replace(task, artifacts={**task.artifacts, name: made})


def _handed(task: RunTask, event: Event) -> RunTask:
    return replace(task, agent=event.payload["toAgent"])


def _requested(task: RunTask, event: Event) -> RunTask:
    return replace(task, tickets={**task.tickets, event.payload["ticketId"]: event.payload})


def _resolved(task: RunTask, event: Event) -> RunTask:
    open_ones = {name: ticket for name, ticket in task.tickets.items() if name != event.payload["ticketId"]}
    return replace(task, tickets=open_ones)


def _ended(task: RunTask, event: Event) -> RunTask:
    """Add the output, if the last answer does not have it."""
    output = event.payload.get("output")
    if output is None or (isinstance(output, str) and task.text is not None and task.text.endswith(output)):
        return task
    part = A2APart(text=output) if isinstance(output, str) else A2APart(data=output, media_type="application/json")
    return _made(task, f"{task.run}.output", (part,))


_FOLDS: Final[Mapping[str, Callable[[RunTask, Event], RunTask]]] = {
    "run.created": _created,
    "run.input.received": _input,
    "run.message.delta": _grown,
    "run.message.completed": _completed,
    "run.message.discarded": _discarded,
    "run.tool.call": _called,
    "run.tool.result": _result,
    "run.artifact.ready": _published,
    "run.preview.ready": _published,
    "run.handoff": _handed,
    "run.approval.requested": _requested,
    "run.approval.resolved": _resolved,
    "run.completed": _ended,
}
