"""The event catalogue: what a run tells the world, one payload class per type.

An event is evidence, not state: rows are the truth. Every event has an envelope (`envelope.py`) and one payload of a class
below. `CATALOGUE` maps type -> class; the JSON Schemas are generated from it and checked in.

Payload fields are snake_case; free text and foreign values pass the redactor before they are encoded (`foreign` in the field's
metadata marks them). A field that is None is null on the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeVar

import attrs

from .calls import CallStatus
from .decisions import ResumeMode, TicketReason
from .lifecycle import Stage, TerminationKind
from .messages import Usage

_T = TypeVar("_T", bound=type)
CATALOGUE: Final[dict[str, type]] = {}
"""Event type -> payload class."""


def _event(*names: str) -> Callable[[_T], _T]:
    def register(cls: _T) -> _T:
        for name in names:
            CATALOGUE[name] = cls
        return cls

    return register


def _foreign(default: Any = attrs.NOTHING) -> Any:
    return attrs.field(default=default, metadata={"foreign": True})


# --- lifecycle -------------------------------------------------------------------------------------------------------


@_event("run.created")
@attrs.frozen(kw_only=True)
class RunCreated:
    """The run is persisted. `input` is what was asked; `by` who asked."""

    to: Stage
    agent: str
    thread_id: str
    input: str = _foreign()
    by: str
    workspace: str | None = None
    deadline: str | None = None
    parent: str | None = None
    forked_from: str | None = None


@_event("run.planned", "run.accepted", "run.preparing", "run.started", "run.applying", "run.resumed")
@attrs.frozen(kw_only=True)
class RunMoved:
    """The run went from one stage to another; `by` names the principal or component."""

    source: Stage
    to: Stage
    by: str
    detail: Mapping[str, Any] | None = _foreign(None)


@_event("run.waiting")
@attrs.frozen(kw_only=True)
class RunWaiting:
    """Nothing executes; these tickets are open."""

    source: Stage
    to: Stage
    by: str
    tickets: tuple[str, ...]


@_event("run.completed")
@attrs.frozen(kw_only=True)
class RunCompleted:
    """The terminal event of a run that ended well, or that a stop condition ended (`termination` = stopped)."""

    source: Stage
    to: Stage
    by: str
    termination: TerminationKind
    code: str | None = None
    detail: str | None = _foreign(None)
    output: Any = _foreign(None)
    usage: Usage
    active_seconds: float
    steps: int
    last_sequence: int


@_event("run.failed")
@attrs.frozen(kw_only=True)
class RunFailed:
    """The terminal event of a failed run. `code` is one of the failure catalogue."""

    source: Stage
    to: Stage
    by: str
    termination: TerminationKind
    code: str
    message: str = _foreign()
    usage: Usage
    active_seconds: float
    steps: int
    last_sequence: int
    stubborn: tuple[str, ...] = ()


@_event("run.cancelled")
@attrs.frozen(kw_only=True)
class RunCancelled:
    """The terminal event of a cancelled run. `stubborn` names calls whose thread ignored its grace."""

    source: Stage
    to: Stage
    by: str
    termination: TerminationKind
    code: str | None = None
    reason: str | None = _foreign(None)
    usage: Usage
    active_seconds: float
    steps: int
    last_sequence: int
    stubborn: tuple[str, ...] = ()


@_event("run.degraded")
@attrs.frozen(kw_only=True)
class RunDegraded:
    """The run goes on with less than it asked for (agent_changed: the agent's spec has another digest than at start)."""

    reason: str
    detail: str | None = _foreign(None)


@_event("run.input.received")
@attrs.frozen(kw_only=True)
class InputReceived:
    """A steering message was accepted; it is drained at the next step."""

    command_id: str
    message_id: str
    text: str = _foreign()
    by: str | None = None


@_event("run.cancel.requested")
@attrs.frozen(kw_only=True)
class CancelRequested:
    """Somebody asked the run to end."""

    command_id: str
    mode: Literal["now", "after_step"]
    by: str | None = None
    reason: str | None = _foreign(None)


@_event("run.decision.refused")
@attrs.frozen(kw_only=True)
class DecisionRefused:
    """An accepted decision did not act: an early one that does not fit its ticket, or was never used."""

    command_id: str
    target: str
    code: str
    detail: str | None = _foreign(None)


@_event("run.cleanup.overrun")
@attrs.frozen(kw_only=True)
class CleanupOverrun:
    """Something did not end within its grace. Its late result is dropped."""

    call_id: str | None
    tool: str | None
    grace_seconds: float
    stack: str | None = _foreign(None)


# --- step ------------------------------------------------------------------------------------------------------------


@_event("run.step.started")
@attrs.frozen(kw_only=True)
class StepStarted:
    """A step (one inference and its tools) begins."""

    step: int


@_event("run.step.finished")
@attrs.frozen(kw_only=True)
class StepFinished:
    """A step is over; all its rows are durable with this commit: the checkpoint that recovery and fork use."""

    step: int
    usage: Usage


@_event("run.inference.started")
@attrs.frozen(kw_only=True)
class InferenceStarted:
    """The model is asked. Its answer will be message `message_id`."""

    step: int
    message_id: str
    attempt: int


@_event("run.inference.completed")
@attrs.frozen(kw_only=True)
class InferenceCompleted:
    """The model has answered."""

    step: int
    message_id: str
    model: str
    usage: Usage
    calls: int
    duration_ms: int


@_event("run.inference.retried")
@attrs.frozen(kw_only=True)
class InferenceRetried:
    """An inference failed or was interrupted and is asked again with a new message id."""

    step: int
    message_id: str
    code: str
    detail: str | None = _foreign(None)


# --- message ---------------------------------------------------------------------------------------------------------


@_event("run.message.delta")
@attrs.frozen(kw_only=True)
class MessageDelta:
    """More text of a message. `index` counts the deltas of this message from 0."""

    message_id: str
    index: int
    text: str = _foreign()


@_event("run.reasoning.delta")
@attrs.frozen(kw_only=True)
class ReasoningDelta:
    """More reasoning of a message. `index` counts the deltas of this message from 0."""

    message_id: str
    index: int
    text: str = _foreign()


@_event("run.message.completed")
@attrs.frozen(kw_only=True)
class MessageCompleted:
    """A message is whole. `text` is all of it, whatever deltas came before."""

    message_id: str
    role: str
    text: str = _foreign()


@_event("run.message.discarded")
@attrs.frozen(kw_only=True)
class MessageDiscarded:
    """Deltas of this message were seen, but it is not part of the history."""

    message_id: str
    reason: str


# --- tool ------------------------------------------------------------------------------------------------------------


@_event("run.tool.call")
@attrs.frozen(kw_only=True)
class ToolCalled:
    """The model asked for a call."""

    call_id: str
    tool: str
    status: CallStatus
    arguments: Mapping[str, Any] = _foreign()
    effect: str
    step: int


@_event("run.tool.started")
@attrs.frozen(kw_only=True)
class ToolStarted:
    """A body runs (attempt counts from 1). Durable before a body that is not replay-safe starts."""

    call_id: str
    status: CallStatus
    attempt: int


@_event("run.tool.suspended")
@attrs.frozen(kw_only=True)
class ToolSuspended:
    """The call waits for the decision of its ticket."""

    call_id: str
    status: CallStatus
    ticket_id: str


@_event("run.tool.resumed")
@attrs.frozen(kw_only=True)
class ToolResumed:
    """A decision acts on the call."""

    call_id: str
    status: CallStatus
    ticket_id: str
    mode: ResumeMode


@_event("run.tool.progress")
@attrs.frozen(kw_only=True)
class ToolProgress:
    """How far a body is: 0.0 to 1.0."""

    call_id: str
    fraction: float
    text: str = _foreign("")


@_event("run.tool.output.delta")
@attrs.frozen(kw_only=True)
class ToolOutputDelta:
    """Output that a body streams; merged when it comes faster than it can be written."""

    call_id: str
    index: int
    text: str = _foreign()


@_event("run.tool.result")
@attrs.frozen(kw_only=True)
class ToolResult:
    """The call has ended: succeeded, failed or cancelled."""

    call_id: str
    tool: str
    status: CallStatus
    result: Any = _foreign(None)
    code: str | None = None
    attempts: int
    duration_ms: int


# --- approval --------------------------------------------------------------------------------------------------------


@_event("run.approval.requested")
@attrs.frozen(kw_only=True)
class ApprovalRequested:
    """A ticket is open: exactly this would happen."""

    ticket_id: str
    call_id: str | None
    tool: str
    arguments: Mapping[str, Any] = _foreign()
    fingerprint: str
    reason: TicketReason
    action: str = _foreign("")
    message: str = _foreign("")
    parameters: Mapping[str, Any] | None = _foreign(None)
    response_schema: Mapping[str, Any] | None = None
    resume_mode: ResumeMode
    expires_at: str | None = None


@_event("run.approval.resolved")
@attrs.frozen(kw_only=True)
class ApprovalResolved:
    """A ticket is closed: how, by whom and why."""

    ticket_id: str
    call_id: str | None
    resolution: Literal["approved", "denied", "expired", "withdrawn"]
    by: str | None = None
    reason: str | None = _foreign(None)
    edited: bool = False


FOREIGN: Final[Mapping[type, tuple[str, ...]]] = {
    cls: tuple(field.name for field in attrs.fields(cls) if field.metadata.get("foreign"))
    for cls in set(CATALOGUE.values())
}
"""Payload class -> the fields that hold text or values from outside, which the redactor reads."""

LIFECYCLE_EVENT: Final[Mapping[Stage, str]] = {
    Stage.CREATED: "run.created",
    Stage.PLANNED: "run.planned",
    Stage.ACCEPTED: "run.accepted",
    Stage.PREPARING: "run.preparing",
    Stage.RUNNING: "run.started",
    Stage.APPLYING: "run.applying",
    Stage.NEEDS_APPROVAL: "run.waiting",
    Stage.COMPLETED: "run.completed",
    Stage.FAILED: "run.failed",
    Stage.CANCELLED: "run.cancelled",
}
"""Stage -> the type that announces it (going back to running from applying or needs_approval is run.resumed)."""

TERMINAL_EVENTS: Final = frozenset({"run.completed", "run.failed", "run.cancelled"})
"""A run has exactly one of these, as its last event."""
