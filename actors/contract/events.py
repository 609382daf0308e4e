"""Events: what a run tells the world, one payload class per type; `catalogue.py` has the types.

An event is evidence, not state: rows are the truth. Every event has an envelope (`envelope.py`) and one payload of a
class below.
"""

from __future__ import annotations

from typing import Annotated, Literal

from .calls import CallStatus
from .decisions import ResumeMode, TicketReason
from .guardrails import GuardrailKind
from .lifecycle import Stage, TerminationKind
from .messages import FinishReason, Usage
from .payloads import FOREIGN_SCHEMA, FOREIGN_TEXT, Payload
from .plain import JSONObject, JSONValue

# --- lifecycle -------------------------------------------------------------------------------------------------------


class RunCreated(Payload, frozen=True, kw_only=True):
    """The run is stored. `input` is its input, `by` the principal, `title` one line for lists of runs.

    `workspace` is the name of the run's directory, without the path. `attachments` are the images and files of the
    input: type, mediaType, size and sha256 of each, an address in place of the last two, and a file's name.
    """

    to: Stage
    agent: str
    thread_id: str
    input: Annotated[str, FOREIGN_TEXT]
    by: str
    workspace: Annotated[str | None, FOREIGN_TEXT] = None
    deadline: str | None = None
    parent: str | None = None
    forked_from: str | None = None
    title: Annotated[str, FOREIGN_TEXT] = ""
    attachments: Annotated[tuple[JSONObject, ...], FOREIGN_TEXT] = ()


class RunMoved(Payload, frozen=True, kw_only=True):
    """The run moved from one stage to another; `by` names the principal or component."""

    source: Stage
    to: Stage
    by: str
    detail: Annotated[JSONObject | None, FOREIGN_TEXT] = None


class RunWaiting(Payload, frozen=True, kw_only=True):
    """Nothing executes except background tasks; these tickets are open."""

    source: Stage
    to: Stage
    by: str
    tickets: tuple[str, ...]


class RunCompleted(Payload, frozen=True, kw_only=True):
    """The terminal event of a completed run, or of a run that a stop condition ended (`termination` = stopped).

    `stubborn` names calls whose body overran its grace and still runs; its late result is dropped. `outcome_unknown`
    names calls and tasks that the end of the run cut off, and whose effect may or may not have happened. `finish`: why
    the model ended its last answer.
    """

    source: Stage
    to: Stage
    by: str
    termination: TerminationKind
    code: str | None = None
    detail: Annotated[str | None, FOREIGN_TEXT] = None
    output: Annotated[JSONValue, FOREIGN_TEXT] = None
    usage: Usage
    active_seconds: float
    steps: int
    last_sequence: int
    stubborn: tuple[str, ...] = ()
    outcome_unknown: tuple[str, ...] = ()
    finish: FinishReason | None = None


class RunFailed(Payload, frozen=True, kw_only=True):
    """The terminal event of a failed run. `code` is a key of the failure catalogue; the ids are as in run.completed."""

    source: Stage
    to: Stage
    by: str
    termination: TerminationKind
    code: str
    message: Annotated[str, FOREIGN_TEXT]
    usage: Usage
    active_seconds: float
    steps: int
    last_sequence: int
    stubborn: tuple[str, ...] = ()
    outcome_unknown: tuple[str, ...] = ()
    error_id: str | None = None


class RunCancelled(Payload, frozen=True, kw_only=True):
    """The terminal event of a cancelled run. The ids are as in run.completed."""

    source: Stage
    to: Stage
    by: str
    termination: TerminationKind
    code: str | None = None
    reason: Annotated[str | None, FOREIGN_TEXT] = None
    usage: Usage
    active_seconds: float
    steps: int
    last_sequence: int
    stubborn: tuple[str, ...] = ()
    outcome_unknown: tuple[str, ...] = ()


class RunDegraded(Payload, frozen=True, kw_only=True):
    """The run continues with a restriction (agent_changed: its spec has another digest than at the start).

    is_enabled_failed: the predicate of a tool failed, and the tool is not offered.
    tool_changed: the tool of an open call has another definition than when it was called, and decisions about the call
    are asked again; or the tool is gone, and the question is withdrawn.
    """

    reason: str
    detail: Annotated[str | None, FOREIGN_TEXT] = None
    error_id: str | None = None


class InputReceived(Payload, frozen=True, kw_only=True):
    """New input was accepted; it joins the thread at the next step. `attachments` as in run.created."""

    command_id: str
    message_id: str
    text: Annotated[str, FOREIGN_TEXT]
    by: str | None = None
    attachments: Annotated[tuple[JSONObject, ...], FOREIGN_TEXT] = ()


class CancelRequested(Payload, frozen=True, kw_only=True):
    """A cancel of the run was accepted."""

    command_id: str
    mode: Literal["now", "after_step"]
    by: str | None = None
    reason: Annotated[str | None, FOREIGN_TEXT] = None


class PauseRequested(Payload, frozen=True, kw_only=True):
    """A pause was accepted. The run is held (run.approval.requested, reason manual_pause) before its next step.

    `joins`: the command or ticket that pauses the run already; this pause then adds nothing.
    """

    command_id: str
    by: str | None = None
    reason: Annotated[str | None, FOREIGN_TEXT] = None
    joins: str | None = None


class DecisionRefused(Payload, frozen=True, kw_only=True):
    """An accepted decision did not act: an early one that does not fit its ticket, or that was never used.

    Also a pause or an input for which the run ended too early (its `target` is the run).
    """

    command_id: str
    target: str
    code: str
    detail: Annotated[str | None, FOREIGN_TEXT] = None


class CleanupOverrun(Payload, frozen=True, kw_only=True):
    """A body did not end within its grace. Its late result is dropped."""

    call_id: str | None
    tool: str | None
    grace_seconds: float
    stack: Annotated[str | None, FOREIGN_TEXT] = None


# --- step ------------------------------------------------------------------------------------------------------------


class StepStarted(Payload, frozen=True, kw_only=True):
    """A step (one inference and its tools) begins. `agent`: the active agent; absent if it is the run's own."""

    step: int
    agent: str | None = None


class StepFinished(Payload, frozen=True, kw_only=True):
    """A step is over. All its rows are durable with this commit, the checkpoint for recovery and forks."""

    step: int
    usage: Usage


class InferenceStarted(Payload, frozen=True, kw_only=True):
    """A model request begins. The answer will be message `message_id`; a later attempt may continue that message.

    `model`: the fallback that is asked; absent for the step's own model. `agent`: the active agent; absent if it is the
    run's own.
    """

    step: int
    message_id: str
    attempt: int
    model: Annotated[str | None, FOREIGN_TEXT] = None
    agent: str | None = None


class InferenceCompleted(Payload, frozen=True, kw_only=True):
    """The model has answered. `duration_ms` counts from the request, not from the wait before it.

    `finish`: why the answer ended; absent in events of older releases.
    """

    step: int
    message_id: str
    model: Annotated[str, FOREIGN_TEXT]
    usage: Usage
    calls: int
    duration_ms: int
    finish: FinishReason | None = None


class InferenceRetried(Payload, frozen=True, kw_only=True):
    """An inference failed or was interrupted and is repeated, `delay_ms` from now.

    `mode`: with "restart" the answer begins anew, under a new message id; with "continue" the shown text stays, and the
    answer continues it under the same message id. `model`: the fallback that is asked next, if the model changes.
    `usage`: of the failed request, as far as known; absent if no request was made.
    """

    step: int
    message_id: str
    code: str
    detail: Annotated[str | None, FOREIGN_TEXT] = None
    delay_ms: int = 0
    usage: Usage | None = None
    error_id: str | None = None
    mode: Literal["restart", "continue"] = "restart"
    model: Annotated[str | None, FOREIGN_TEXT] = None


class InferenceCut(Payload, frozen=True, kw_only=True):
    """The end of the run has stopped a model request, in the middle of its answer. `usage`: as far as known."""

    step: int
    message_id: str
    usage: Usage


class ContextTrimmed(Payload, frozen=True, kw_only=True):
    """A plugin left so many messages of the thread out of the step's request; they stay in the thread."""

    step: int
    messages: int
    by: str


class UsageSpent(Payload, frozen=True, kw_only=True):
    """A plugin, or with `call_id` the body of that call, asked a model of its own; its usage is part of the run's."""

    by: Annotated[str, FOREIGN_TEXT]
    usage: Usage
    call_id: str | None = None


# --- message ---------------------------------------------------------------------------------------------------------


class MessageDelta(Payload, frozen=True, kw_only=True):
    """More text of a message. `index` counts the deltas of this message from 0.

    With `call_id` the body of that call says this (a program, for example), and the message joins no thread.
    """

    message_id: str
    index: int
    text: Annotated[str, FOREIGN_TEXT]
    call_id: str | None = None


class ReasoningStreamed(Payload, frozen=True, kw_only=True):
    """More reasoning of a message. `index` counts the deltas of this message from 0; `call_id` as in run.message.delta.

    The reasoning of a body may have no message.
    """

    message_id: str
    index: int
    text: Annotated[str, FOREIGN_TEXT]
    call_id: str | None = None


class MessageCompleted(Payload, frozen=True, kw_only=True):
    """A message is complete. `text` is all of it, regardless of earlier deltas.

    `large`: the text is above 262,144 bytes; `text` holds head, tail and size, and the deltas hold all of it.
    `cut`: the run ended while the model wrote the message; `text` is what had arrived. `call_id`: as in
    run.message.delta.
    """

    message_id: str
    role: str
    text: Annotated[str, FOREIGN_TEXT]
    large: bool = False
    cut: bool = False
    call_id: str | None = None


class MessageDiscarded(Payload, frozen=True, kw_only=True):
    """Deltas of this message were emitted, but the message is not part of the history.

    With `call_id` the body of that call ended before its message was complete.
    """

    message_id: str
    reason: str
    call_id: str | None = None


# --- tool ------------------------------------------------------------------------------------------------------------


class ToolCalled(Payload, frozen=True, kw_only=True):
    """The model requested a call; with `parent_call_id` the body of that call did (a nested call)."""

    call_id: str
    tool: Annotated[str, FOREIGN_TEXT]
    status: CallStatus
    arguments: Annotated[JSONObject, FOREIGN_TEXT]
    effect: str
    step: int
    parent_call_id: str | None = None


class ToolStarted(Payload, frozen=True, kw_only=True):
    """A body runs (attempt counts from 1). Durable before a body that is not replay-safe starts."""

    call_id: str
    status: CallStatus
    attempt: int


class ToolSuspended(Payload, frozen=True, kw_only=True):
    """The call waits for the decision of its ticket."""

    call_id: str
    status: CallStatus
    ticket_id: str


class ToolResumed(Payload, frozen=True, kw_only=True):
    """A decision acts on the call. `arguments`: the decision's arguments, if they replace the ticket's."""

    call_id: str
    status: CallStatus
    ticket_id: str
    mode: ResumeMode
    arguments: Annotated[JSONObject | None, FOREIGN_TEXT] = None


class ToolProgress(Payload, frozen=True, kw_only=True):
    """The progress of a body: 0.0 to 1.0."""

    call_id: str
    attempt: int
    fraction: float
    text: Annotated[str, FOREIGN_TEXT] = ""


class ToolOutputDelta(Payload, frozen=True, kw_only=True):
    """Output that a body streams, merged if it comes faster than it can be written. `index` counts per attempt."""

    call_id: str
    attempt: int
    index: int
    text: Annotated[str, FOREIGN_TEXT]


class ToolResult(Payload, frozen=True, kw_only=True):
    """The call has ended: succeeded, failed or cancelled."""

    call_id: str
    tool: Annotated[str, FOREIGN_TEXT]
    status: CallStatus
    result: Annotated[JSONValue, FOREIGN_TEXT] = None
    code: str | None = None
    attempts: int
    duration_ms: int
    error_id: str | None = None


class ToolEdited(Payload, frozen=True, kw_only=True):
    """A plugin replaced the model's arguments before the gates were asked."""

    call_id: str
    arguments: Annotated[JSONObject, FOREIGN_TEXT]
    by: str


class GateOverruled(Payload, frozen=True, kw_only=True):
    """A gate's verdict gave way to that of `by`, which was stronger, or equal and registered earlier.

    `by` is a plugin, or "(approval)": the approval that the tool itself needs.
    """

    call_id: str
    plugin: str
    verdict: Literal["block", "deny", "suspend", "set_result"]
    by: str


class GateAllowed(Payload, frozen=True, kw_only=True):
    """A gate of the plugin let the call pass, and says why."""

    call_id: str
    plugin: str
    note: Annotated[str, FOREIGN_TEXT]


class GuardrailTripped(Payload, frozen=True, kw_only=True):
    """A guardrail did not allow what it judged. `trip`: the run ends as guardrail_tripped.

    `reject`: a call has failed with the text `info` (tool_input), or has it as its result (tool_output).
    """

    kind: GuardrailKind
    guardrail: str
    verdict: Literal["trip", "reject"]
    step: int
    call_id: str | None = None
    info: Annotated[JSONValue, FOREIGN_TEXT] = None


# --- state -----------------------------------------------------------------------------------------------------------


class StateChanged(Payload, frozen=True, kw_only=True):
    """State keys were written. Names only, because values are private.

    `by`: a call or task id, or the phase of the hooks.
    """

    revision: int
    keys: tuple[str, ...]
    by: str


class StateConflict(Payload, frozen=True, kw_only=True):
    """A writer's batch was dropped whole, because `other` wrote `key` meanwhile. The writer's result is kept.

    `writer` and `other` are call or task ids, or the phase of the hooks; `other` may be unknown. `retried`: the call
    runs again instead.
    """

    key: str
    writer: str
    other: str | None
    detail: Annotated[str, FOREIGN_TEXT]
    retried: bool = False


# --- task ------------------------------------------------------------------------------------------------------------


class TaskStarted(Payload, frozen=True, kw_only=True):
    """A background task runs beside the steps of its run (attempt counts from 1); `call_id` is its call.

    Durable before a body that is not replay-safe starts.
    """

    task_id: str
    call_id: str
    tool: Annotated[str, FOREIGN_TEXT]
    arguments: Annotated[JSONObject, FOREIGN_TEXT]
    attempt: int


class TaskProgress(Payload, frozen=True, kw_only=True):
    """The progress of a background task: 0.0 to 1.0."""

    task_id: str
    attempt: int
    fraction: float
    text: Annotated[str, FOREIGN_TEXT] = ""


class TaskOutputDelta(Payload, frozen=True, kw_only=True):
    """Output that a background task streams. `index` counts per attempt."""

    task_id: str
    attempt: int
    index: int
    text: Annotated[str, FOREIGN_TEXT]


class TaskFinished(Payload, frozen=True, kw_only=True):
    """A background task has ended; the model reads a message with the user role at the next step.

    Each started task has one such event, before the run's terminal event. The code outcome_unknown: the process ended
    while the task ran, and the task must not run again.
    """

    task_id: str
    call_id: str
    tool: Annotated[str, FOREIGN_TEXT]
    status: Literal["succeeded", "failed", "cancelled"]
    result: Annotated[JSONValue, FOREIGN_TEXT] = None
    code: str | None = None
    attempts: int
    duration_ms: int
    error_id: str | None = None


# --- handoff ---------------------------------------------------------------------------------------------------------


class HandedOver(Payload, frozen=True, kw_only=True):
    """The call has handed the run over to another agent, whose step is the next one. The names are keys of agents.

    The fields are not `from` and `to`: in all other events these are stages.
    """

    from_agent: str
    to_agent: str
    call_id: str
    step: int


# --- child -----------------------------------------------------------------------------------------------------------


class ChildStarted(Payload, frozen=True, kw_only=True):
    """A child run works for the call: `agent` is the key of its agent. The child run has a log of its own."""

    call_id: str
    child_run_id: str
    agent: str


class ChildFinished(Payload, frozen=True, kw_only=True):
    """The child run of the call has ended in this stage. Its usage is part of this run's from here on.

    `code`: why it failed, or was stopped or cancelled by a policy.
    """

    call_id: str
    child_run_id: str
    stage: Stage
    code: str | None = None
    usage: Usage


# --- approval --------------------------------------------------------------------------------------------------------


class ApprovalRequested(Payload, frozen=True, kw_only=True):
    """A ticket is open for exactly this action. `reviewers`: the principals that may decide; empty: any principal.

    `child_run_id`, `child_ticket_id` (reason child_approval): the ticket mirrors that ticket of a child run. A decision
    about either acts, and several mirrors of one call may be open.

    `live`: a process waits for the decision; the ticket is withdrawn if that process ends.
    """

    ticket_id: str
    call_id: str | None
    tool: str
    arguments: Annotated[JSONObject, FOREIGN_TEXT]
    fingerprint: str
    reason: TicketReason
    action: Annotated[str, FOREIGN_TEXT] = ""
    message: Annotated[str, FOREIGN_TEXT] = ""
    parameters: Annotated[JSONObject | None, FOREIGN_TEXT] = None
    response_schema: Annotated[JSONObject | None, FOREIGN_SCHEMA] = None
    resume_mode: ResumeMode
    expires_at: str | None = None
    on_expiry: Literal["deny", "cancel_run", "set_result"] = "deny"
    reviewers: tuple[str, ...] = ()
    replaces: str | None = None
    child_run_id: str | None = None
    child_ticket_id: str | None = None
    live: bool = False


class ApprovalResolved(Payload, frozen=True, kw_only=True):
    """A ticket is closed: how, by whom and why."""

    ticket_id: str
    call_id: str | None
    resolution: Literal["approved", "denied", "expired", "withdrawn"]
    by: str | None = None
    reason: Annotated[str | None, FOREIGN_TEXT] = None
    edited: bool = False
