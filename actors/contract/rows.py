"""Rows: the private truth about a run in the store, and what the store returns of it.

Rows are private and unredacted; events, ticket views and exports pass the redactor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Literal

import attrs
import msgspec

from .artifacts import Artifact
from .calls import POSITIONS, CallPosition, CallRule, CallStatus
from .decisions import Command, CommandResult, Decision, InboxItem, Ticket
from .inference import Inference, RequestChanges
from .lifecycle import STATUS, RunStatus, Stage, Termination
from .messages import CallRequest, FinishReason, Message, Usage
from .parts import Part
from .phases import RunPosition
from .plain import JSONObject, JSONValue
from .row_forms import Fields, Value
from .spec import Execution, OfferedTool
from .state import Batch, StateWrite
from .tasks import TaskRow, UnknownCause


class RunInfo(Value, frozen=True, kw_only=True):
    """The constant facts of a run, written once.

    Attributes:
        run_id: unique; the idempotency key of start.
        thread_id: the history that the run reads and appends to.
        agent: key of the agent.
        agent_digest: digest of its spec at start.
        created_at: UTC.
        deadline: absolute, UTC; waiting counts.
        by: the principal that started the run.
        content: digest of the start's arguments, which tells a repeated start from another one.
        forked_from, forked_step: where a fork begins.
        has_deps: the start brought dependencies for this run.
        title: one line for lists, redacted; empty for a run written before titles existed.
        parent_run, parent_call: of a child run: the run and the call that it works for.
        depth: how many parent runs there are above the run; 0 for a run that a caller started.
        place: where its workspace is; None for a run without one, or in a process without `Surroundings`.
    """

    run_id: str
    thread_id: str
    agent: str
    agent_digest: str
    created_at: datetime
    execution: Execution
    content: str = ""
    session_id: str | None = None
    by: str = "local"
    workspace: str | None = None
    deadline: datetime | None = None
    parent_run: str | None = None
    parent_call: str | None = None
    forked_from: str | None = None
    forked_step: int | None = None
    has_deps: bool = False
    title: str = ""
    depth: int = 0
    place: str | None = None


class CounterFields(Fields, kw_only=True):
    """The counters for stop conditions, which survive suspension and restart. Mutable form of `Counters`.

    Attributes:
        rounds: finished steps.
        errors: failed steps in a row, and failures of the model since the last finished step.
        active_ms: milliseconds of active time up to `active_since`.
        active_since: start of the present active stretch, UTC; None while waiting.
        unowned_ms: milliseconds that would have been active with an owner; not in `active_ms`.
        trail: fingerprints of the newest steps (for loop detection), newest last.
        model_attempts: answers and errors from the model of the active agent, for scripted models.
        output_retries: how often the final answer was asked for again.
        messages, tickets: numbers used so far.
        bodies: bodies of tools that have begun, for a budget.
        cost: The cost of all models, by the prices of a budget.
        others_attempts: key -> `model_attempts` of each agent that was active before; None before the first handoff.
        artifacts, artifact_bytes: The number of published artifacts, and their bytes together.
    """

    rounds: int = 0
    errors: int = 0
    active_ms: int = 0
    active_since: datetime | None = None
    unowned_ms: int = 0
    trail: tuple[str, ...] = ()
    model_attempts: int = 0
    output_retries: int = 0
    messages: int = 0
    tickets: int = 0
    bodies: int = 0
    cost: float = 0.0
    others_attempts: Mapping[str, int] | None = None
    artifacts: int = 0
    artifact_bytes: int = 0


class Counters(CounterFields, frozen=True):  # type: ignore[misc]  # `sealed` makes one of the other
    """The counters of a run, as stored. Adds no field (see `row_forms.py`)."""


class PendingCancel(Value, frozen=True, kw_only=True):
    """An accepted cancel."""

    mode: Literal["now", "after_step"]
    by: str | None = None
    reason: str | None = None


class PendingPause(Value, frozen=True, kw_only=True):
    """An accepted pause that waits for the end of the step."""

    command_id: str
    by: str | None = None
    reason: str | None = None


class Handover(Value, frozen=True, kw_only=True):
    """A handoff that was carried out: the next step is the other agent's.

    Attributes:
        agent: key of the agent that takes over.
        call_id: the call that handed the run over.
    """

    agent: str
    call_id: str


class SentText(Value, frozen=True, kw_only=True):
    """The place of a sent text that waits for the next step: it is stored in the inbox only.

    Attributes:
        number: The number of the message.
        step: the step during which the text arrived.
        command_id: The id of the command with the text.
        size: bytes of the text in UTF-8.
        at: index in `RunRow.pending_input`, in a row that is stored without the message.
    """

    number: int
    step: int
    command_id: str
    size: int
    at: int = 0


class Mirror(Value, frozen=True, kw_only=True):
    """A ticket of a child run, as its parent run shows the ticket.

    Attributes:
        ticket: the parent's ticket, with the ids of the child's.
        decision: the decision about it, addressed to the child's ticket; None while the ticket is open. The mirror
            stays in its call's row until the child run has taken the decision, so that a restart can forward it again.
    """

    ticket: Ticket
    decision: Decision | None = None


class OpenGuardrails(Value, frozen=True, kw_only=True):
    """The guardrails of an agent that have not passed yet: they are asked, or will be in this step.

    Attributes:
        kind: input or output.
        names: The guardrails that have not passed yet. Blocking input guardrails are asked and removed first.
        messages: ids of the messages that input guardrails judge.
        ends: how the run ends once they have passed, because of the answer or by a request of a hook; None: it may
            continue. For output guardrails: the run ends with the judged output after its work has stopped.
    """

    kind: Literal["input", "output"]
    names: tuple[str, ...]
    messages: tuple[str, ...] = ()
    ends: Termination | None = None


class RunFields(Fields, kw_only=True):
    """The changing facts of a run. Small and constant in size. Mutable form of `RunRow`.

    Attributes:
        stage: A stage of the lifecycle table.
        position: The position of the machine (`RUN_POSITIONS`). Stored under its first name, `cursor`.
        step: the current step, from 1; 0 before the first.
        last_sequence: The sequence of the newest event.
        inbox: position of the newest consumed command.
        hooks_started: the hooks of run_start were called, so those of run_end will be.
        termination: why the run is ending; the step_end hooks of its last step still see it running (`position`).
        answer: the newest answer of the model, whole.
        answer_at: where the final text begins in `answer`.
        output: the final output (JSON).
        cancel: an accepted cancel.
        draft: the step's assistant message, until the step's messages join the thread.
        pending_input: messages for the next step, in order. For a run that ended before it was admitted: its input,
            until its thread is free.
        sent: The messages among those whose text is in the inbox (see `pending_input.py`).
        unread_input_by: the sender of the newest input that no step has read ("": none named); None: there is none.
        early: decisions that came before their call's first ticket.
        tasks: live background tasks.
        stubborn: bodies that overran their grace and may still run.
        unknown: calls and tasks that the end of the run cut off, and whose effect may or may not have happened.
        pause: a pause that has not taken effect yet.
        run_tickets: the open tickets of the run itself; no step begins while there is one.
        mirrored: how many mirrors of tickets of child runs its calls hold.
        mirrors: The mirrors in a row of version 3; since then the calls hold them (`RunRecord.mirrors`).
        next_due: when the earliest timer of the run fires, UTC.
        revision: The revision of the newest state.
        request: changes of this step's request by before_inference hooks.
        finish: why the model ended its newest answer.
        tool_users: keys of the agents that have used a tool, of those whose tool_choice is reset by that.
        open_guardrails: guardrails of the agent that have not passed; None if all have.
        passed_output: the newest step with an output that the output guardrails have passed.
        agent: key of the active agent, once the run was handed over; None: the agent of `RunInfo`.
        handoff: a handoff that this step carried out; the other agent becomes active with the next step.
        nested: how many nested calls are open.
        not_asked: tools of the nested calls that ran although their gates did not allow them.
        toolset_faults: marks of the faults of toolsets that the run has reported.
        placed: sequence of the newest event when messages of the run last joined the thread.
    """

    stage: Stage = Stage.CREATED
    position: RunPosition = msgspec.field(default=RunPosition.ADMISSION, name="cursor")
    step: int = 0
    last_sequence: int = 0
    inbox: int = 0
    hooks_started: bool = False
    termination: Termination | None = None
    answer: str | None = None
    answer_at: int = 0
    output: JSONValue = None
    cancel: PendingCancel | None = None
    usage: Usage = Usage()
    counters: Counters = Counters()
    inference: Inference | None = None
    draft: Message | None = None
    pending_input: tuple[Message, ...] = ()
    sent: tuple[SentText, ...] = ()
    unread_input_by: str | None = None
    early: Mapping[str, Decision] = msgspec.field(default_factory=dict)
    stubborn: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    tasks: tuple[TaskRow, ...] = ()
    pause: PendingPause | None = None
    run_tickets: tuple[Ticket, ...] = ()
    mirrored: int = 0
    mirrors: tuple[Mirror, ...] = ()
    next_due: datetime | None = None
    revision: int = 0
    request: RequestChanges | None = None
    finish: FinishReason | None = None
    tool_users: tuple[str, ...] = ()
    open_guardrails: OpenGuardrails | None = None
    passed_output: int = 0
    agent: str | None = None
    handoff: Handover | None = None
    nested: int = 0
    not_asked: tuple[str, ...] = ()
    toolset_faults: tuple[str, ...] = ()
    placed: int = 0


class RunRow(RunFields, frozen=True):  # type: ignore[misc]  # `sealed` makes one of the other
    """The row of a run; the newest one wins. Adds no field (see `row_forms.py`)."""

    @property
    def status(self) -> RunStatus:
        """The stage's status."""
        return STATUS[self.stage]

    @property
    def restless(self) -> bool:
        """True if a waiting run still needs an owner: it is ending, or has live tasks, child runs or nested calls."""
        return self.termination is not None or bool(self.tasks or self.mirrored or self.mirrors or self.nested)


class CallFields(Fields, kw_only=True):
    """The private facts of a tool call. Mutable form of `CallRow`.

    Attributes:
        call_id: unique in the run.
        index: position in the model's order, from 0.
        step: its step.
        tool, arguments: what runs (the edited arguments if a decision had some).
        requested: the call as the model requested it.
        at: its position (`POSITIONS` in `calls.py`).
        attempts: bodies started. A child input with another attempt is ignored.
        resumed_at: bodies started when a decision last resumed the call; None: no decision has.
        outcome: succeeded, failed or cancelled; None before the end.
        provisional: a gate said block, deny or set_result while earlier calls had not run; it is asked again.
        settled_at_gate: the number of earlier calls that had settled when the gate was asked again and its verdict
            stayed provisional.
        approved: fingerprint that a decision has approved.
        decision: the newest decision, for the gates.
        body_decision: the newest decision about a question of the body itself; the body reads it as `ctx.decision`.
        body_question: the newest ticket is a question of the body, not of a gate.
        ticket: the newest ticket.
        result: the full result (JSON).
        shown: the model's text about the result.
        code: The code of a failure.
        edited: the arguments are not the model's.
        edited_at: bodies started at the newest edit.
        started_at: when the newest body started, UTC.
        batch: the body's state writes, until they are merged.
        verdict_at: revision of the state on which the gates allowed the call.
        alone: its writes conflicted and it runs again, alone (on_conflict="retry").
        large: the result is too large to be shown whole.
        spawned: marks of the background tasks that its body has spawned, in order.
        task_id: the background task that runs the body of a background tool; None for any other tool.
        definition: digest of the tool's definition that the fingerprint covers; "" in rows of older releases.
        unknown_cause: why the outcome of an attempt is unknown: "process" (its process ended), "grace" (it overran its
            grace) or "" (it is not).
        child_run: the child run that does the call's work; None for a call of any other tool.
        child_started: the child run has been seen.
        parts: the images and files of the result.
        mirrors: The tickets of its child run, in the order in which they were seen.
        parent: the call whose body makes this nested call; None for a call of the model.
        ask: number of the body's request for a nested call; 0: no body waits for the answer any more.
        editable: a decision may change the arguments of the nested call.
        seen: the nested call runs whatever its gates say: it is reported, not asked for.
        memo: what a body has kept for the next attempt (JSON).
        speaking: number of the message of its body of which text was shown and that is not complete; 0: none is.
        artifacts: The artifacts that its body has published.
        offered: The tool of a toolset that the call is for; None for a tool of the agent's own.
    """

    call_id: str
    index: int
    step: int
    tool: str
    arguments: JSONObject
    fingerprint: str
    requested: CallRequest
    effect: str = "read"
    at: CallPosition = CallPosition.NEW
    attempts: int = 0
    resumed_at: int | None = None
    outcome: CallStatus | None = None
    approved: str | None = None
    decision: Decision | None = None
    ticket: Ticket | None = None
    result: JSONValue = None
    shown: str | None = None
    code: str | None = None
    edited: bool = False
    edited_at: int = 0
    provisional: bool = False
    settled_at_gate: int | None = None
    started_at: datetime | None = None
    batch: Batch | None = None
    verdict_at: int = 0
    alone: bool = False
    large: bool = False
    spawned: tuple[str, ...] = ()
    body_decision: Decision | None = None
    body_question: bool = False
    unknown_cause: UnknownCause = ""
    definition: str = ""
    task_id: str | None = None
    child_run: str | None = None
    child_started: bool = False
    parts: tuple[Part, ...] = ()
    mirrors: tuple[Mirror, ...] = ()
    parent: str | None = None
    ask: int = 0
    editable: bool = False
    seen: bool = False
    memo: JSONValue = None
    speaking: int = 0
    artifacts: tuple[Artifact, ...] = ()
    offered: OfferedTool | None = None


class CallRow(CallFields, frozen=True):  # type: ignore[misc]  # `sealed` makes one of the other
    """The row of a call. Adds no field (see `row_forms.py`)."""

    @property
    def position(self) -> CallRule:
        """The row of the call's position in the table."""
        return POSITIONS[self.at]

    @property
    def status(self) -> CallStatus:
        """The call's status for clients; derived, never stored."""
        status = POSITIONS[self.at].status or self.outcome
        if status is not None:
            return status
        if self.resumed_at == self.attempts:
            return CallStatus.RESUMING
        return CallStatus.RUNNING if self.attempts else CallStatus.NEW

    @property
    def settled(self) -> bool:
        """True once the call's outcome is final."""
        return self.outcome is not None

    @property
    def doubt(self) -> UnknownCause:
        """Why an effect of the call may have happened that no result shows, or ""."""
        # a row of an older release names no cause: its ticket is the only sign that the outcome is unknown
        cut_off = self.ticket is not None and self.ticket.reason == "outcome_unknown"
        return self.unknown_cause or ("process" if cut_off else "")


class JudgedRow(msgspec.Struct, frozen=True, gc=False):
    """The facts of a run's row that a command is judged on: read without the rest (`codec.glance`).

    Attributes:
        position, agent, sent: as in `RunRow`.
        early: the calls with decisions that came before their first ticket.
    """

    position: RunPosition = msgspec.field(default=RunPosition.ADMISSION, name="cursor")
    agent: str | None = None
    early: Mapping[str, msgspec.Raw] = msgspec.field(default_factory=dict)
    sent: tuple[SentText, ...] = ()


@attrs.frozen(kw_only=True)
class ThreadInfo:
    """The facts of a thread, which outlive its runs.

    Attributes:
        thread_id: the thread.
        owner: the principal whose run began the thread; "" if unknown (files of older releases).
        created_at: when the thread began, UTC.
        runs: how many runs were ever created in it; pruned ones count. `NewRun.thread_runs` refers to it.
        members: first, of the pruned runs whose messages remain, one for each combination of by, agent, session_id and
            workspace; then the remaining runs, oldest first.
    """

    thread_id: str
    owner: str
    created_at: datetime
    runs: int
    members: tuple[RunInfo, ...] = ()


@attrs.frozen(kw_only=True)
class QueuePlace:
    """Where a run waits for a process that takes it.

    Attributes:
        name: the queue.
        ready_at: no process takes the run before, UTC.
        paused, max_running: the limits of the queue; see `QueueInfo`.
    """

    name: str
    ready_at: datetime
    paused: bool = False
    max_running: int | None = None


@attrs.frozen(kw_only=True)
class RunOutline:
    """The facts of a run that need no read of its calls, tickets and commands. Costs the same for every run.

    Attributes:
        info: the constant facts.
        stage, step, last_sequence: as in `RunRow`.
        posted, consumed: positions of the newest accepted and of the newest consumed command.
        held: the run waits for its thread.
        behind: the run that works on the thread meanwhile.
        row: None if the row is unreadable.
        queue: None if the run is at rest, or a process has taken it.
    """

    info: RunInfo
    stage: Stage
    step: int
    last_sequence: int
    posted: int = 0
    consumed: int = 0
    held: bool = False
    behind: str | None = None
    row: RunRow | None = None
    queue: QueuePlace | None = None

    @property
    def status(self) -> RunStatus:
        """The stage's status."""
        return STATUS[self.stage]


@attrs.frozen(kw_only=True)
class RunRecord:
    """A stored run: one consistent snapshot.

    Attributes:
        info, row: the two halves of the run.
        calls: The calls of the current step, or of the whole run if requested, in step and model order.
        tickets: The tickets of these calls, and the open ones.
        inbox: accepted, unconsumed commands, in order.
        call_ids: every call id of the run.
        state: the newest values of the thread's and the run's persistent state keys; values that other runs wrote have
            revision 0.
    """

    info: RunInfo
    row: RunRow
    calls: tuple[CallRow, ...] = ()
    tickets: tuple[Ticket, ...] = ()
    inbox: tuple[InboxItem, ...] = ()
    call_ids: frozenset[str] = frozenset()
    state: tuple[StateWrite, ...] = ()

    @property
    def mirrors(self) -> tuple[Mirror, ...]:
        """The mirrors of tickets of child runs, in the order of their calls."""
        return (*self.row.mirrors, *(mirror for call in self.calls for mirror in call.mirrors))

    @property
    def open_mirrors(self) -> tuple[Ticket, ...]:
        """The undecided tickets of child runs, as this run shows them."""
        return tuple(mirror.ticket for mirror in self.mirrors if mirror.decision is None)

    @property
    def at_rest(self) -> bool:
        """True if done, or waiting with every command acted on; an ending run does not rest before its end."""
        row = self.row
        waits = row.status is RunStatus.WAITING and row.termination is None and not self.inbox
        return waits or row.status is RunStatus.DONE


@attrs.frozen(kw_only=True)
class CommandContext:
    """The facts that a store looks up for the judge, inside the transaction that will journal the command.

    Attributes:
        stage: the run's durable stage.
        pending: accepted, unconsumed commands.
        known: the accepted command with the same command id, and its result.
        ticket: the ticket that the decision targets: by ticket id, else the newest of the call with that id.
        call: the targeted call (the ticket's, or the one with that id).
        prior: an accepted decision about the same ticket (or an early one about the same call), consumed or not.
        agent: key of the run's agent.
        active_agent: key of its active agent, as in `RunRow.agent`. Looked up for a decision only.
        leaving: the run is ending. Looked up for a pause only.
        inputs, input_bytes: sent texts that wait for a step, and their size. Looked up for a send only.
    """

    stage: Stage
    pending: int
    known: tuple[Command, CommandResult] | None = None
    ticket: Ticket | None = None
    call: CallRow | None = None
    prior: Command | None = None
    agent: str = ""
    active_agent: str | None = None
    leaving: bool = False
    inputs: int = 0
    input_bytes: int = 0

    @property
    def target_key(self) -> str | None:
        """The target that a decision occupies: its ticket, or the call if it came before the call's first ticket."""
        if self.ticket is not None:
            return f"ticket:{self.ticket.ticket_id}"
        return None if self.call is None else f"call:{self.call.call_id}"


Judge = Callable[[CommandContext, Command], CommandResult]
"""A pure function. An accepted result makes the store journal the command; any other leaves no trace."""
