"""The event catalogue: the payload class of each type of event; the checked-in JSON Schemas are generated from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, get_type_hints

import msgspec

from . import events as ev
from . import work_events as work
from .lifecycle import Stage
from .payloads import FOREIGN_SCHEMA, FOREIGN_TEXT

CATALOGUE: Final[Mapping[str, type]] = {
    "run.created": ev.RunCreated,
    "run.planned": ev.RunMoved,
    "run.accepted": ev.RunMoved,
    "run.preparing": ev.RunMoved,
    "run.started": ev.RunMoved,
    "run.applying": ev.RunMoved,
    "run.resumed": ev.RunMoved,
    "run.waiting": ev.RunWaiting,
    "run.completed": ev.RunCompleted,
    "run.failed": ev.RunFailed,
    "run.cancelled": ev.RunCancelled,
    "run.degraded": ev.RunDegraded,
    "run.input.received": ev.InputReceived,
    "run.cancel.requested": ev.CancelRequested,
    "run.pause.requested": ev.PauseRequested,
    "run.decision.refused": ev.DecisionRefused,
    "run.cleanup.overrun": ev.CleanupOverrun,
    "run.step.started": ev.StepStarted,
    "run.step.finished": ev.StepFinished,
    "run.inference.started": ev.InferenceStarted,
    "run.inference.completed": ev.InferenceCompleted,
    "run.inference.retried": ev.InferenceRetried,
    "run.inference.cut": ev.InferenceCut,
    "run.context.trimmed": ev.ContextTrimmed,
    "run.usage.spent": ev.UsageSpent,
    "run.message.delta": ev.MessageDelta,
    "run.reasoning.delta": ev.ReasoningStreamed,
    "run.message.completed": ev.MessageCompleted,
    "run.message.discarded": ev.MessageDiscarded,
    "run.tool.call": ev.ToolCalled,
    "run.tool.started": ev.ToolStarted,
    "run.tool.suspended": ev.ToolSuspended,
    "run.tool.resumed": ev.ToolResumed,
    "run.tool.progress": ev.ToolProgress,
    "run.tool.output.delta": ev.ToolOutputDelta,
    "run.tool.result": ev.ToolResult,
    "run.tool.edited": ev.ToolEdited,
    "run.gate.allowed": ev.GateAllowed,
    "run.gate.overruled": ev.GateOverruled,
    "run.guardrail.tripped": ev.GuardrailTripped,
    "run.state.changed": ev.StateChanged,
    "run.state.conflict": ev.StateConflict,
    "run.task.started": ev.TaskStarted,
    "run.task.progress": ev.TaskProgress,
    "run.task.output.delta": ev.TaskOutputDelta,
    "run.task.finished": ev.TaskFinished,
    "run.handoff": ev.HandedOver,
    "run.child.started": ev.ChildStarted,
    "run.child.finished": ev.ChildFinished,
    "run.approval.requested": ev.ApprovalRequested,
    "run.approval.resolved": ev.ApprovalResolved,
    **work.NOTES,
    "run.artifact.ready": work.ArtifactReady,
    "run.preview.ready": work.PreviewReady,
}
"""Event type -> payload class."""


def _marked(cls: type, mark: msgspec.Meta) -> tuple[str, ...]:
    hints = get_type_hints(cls, include_extras=True)
    return tuple(name for name, hint in hints.items() if mark in getattr(hint, "__metadata__", ()))


FOREIGN: Final[Mapping[type, tuple[str, ...]]] = {cls: _marked(cls, FOREIGN_TEXT) for cls in set(CATALOGUE.values())}
"""Payload class -> the fields with text or values from outside, which the redactor reads."""

FOREIGN_SCHEMAS: Final[Mapping[type, tuple[str, ...]]] = {
    cls: names for cls in set(CATALOGUE.values()) if (names := _marked(cls, FOREIGN_SCHEMA))
}
"""Payload class -> the fields with a foreign JSON Schema."""

OURS: Final = frozenset(cls for cls, names in FOREIGN.items() if not names and cls not in FOREIGN_SCHEMAS)
"""The payload classes without a field from outside: the redactor need not see them."""

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
"""Stage -> the type that announces it (a return to running from applying or needs_approval is run.resumed)."""

TERMINAL_EVENTS: Final = frozenset({"run.completed", "run.failed", "run.cancelled"})
"""A run has exactly one of these, as its last event."""
