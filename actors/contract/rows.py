"""Rows: the truth. What a store keeps of a run, and the commit that changes it.

Rows are private and unredacted; events, ticket views and exports go through the redactor. A commit is one transaction:
events, run row, changed calls and tickets, thread messages, state keys, consumed commands. Everything here costs what
is new.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal

import attrs
import msgspec

from .calls import POSITIONS, CallPosition, CallRule, CallStatus, open_status
from .decisions import Command, CommandResult, Decision, InboxItem, Ticket
from .lifecycle import STATUS, RunStatus, Stage, Termination
from .messages import CallRequest, FinishReason, Message, Usage
from .phases import RunPosition
from .plain import JSONObject, JSONValue
from .recording import RecordEntry
from .row_forms import Fields, Value
from .spec import ExecutionMode
from .state import Batch, StateWrite
from .tasks import Lost, TaskRow


class RunInfo(Value, frozen=True, kw_only=True):
    """What never changes about a run; written once.

    Attributes:
        run_id: unique; the idempotency key of start.
        thread_id: the history that the run reads and appends to.
        agent: key of the agent. agent_digest: its spec at start.
        created_at: UTC. deadline: absolute, UTC; includes waiting.
        by: the principal that asked.
        content: digest of what was asked for, to tell the same start again from another one.
        forked_from, forked_step: where a fork begins.
        has_deps: the run was started with dependencies of its own.
        title: one line for lists, redacted; empty for a run that was written before there were titles.
    """

    run_id: str
    thread_id: str
    agent: str
    agent_digest: str
    created_at: datetime
    execution: ExecutionMode
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


class CounterFields(Fields, kw_only=True):
    """What stop conditions count; survives suspension and restart. A step sets these; `Counters` is the same, frozen.

    Attributes:
        rounds: finished steps.
        errors: failed steps in a row, and failures of the model since the last step that was finished.
        active_ms: milliseconds of active time up to `active_since`.
        active_since: start of the present stretch of activity, UTC; None while waiting.
        unowned_ms: milliseconds in which it would have been active if it had had an owner; not in `active_ms`.
        trail: fingerprints of the newest steps (for loop detection), newest last.
        answers: answers and errors from the model, for scripted models.
        output_retries: how often the final answer was asked for again.
        messages, tickets: numbers given out so far.
    """

    rounds: int = 0
    errors: int = 0
    active_ms: int = 0
    active_since: datetime | None = None
    unowned_ms: int = 0
    trail: tuple[str, ...] = ()
    answers: int = 0
    output_retries: int = 0
    messages: int = 0
    tickets: int = 0


class Counters(CounterFields, frozen=True):  # type: ignore[misc]  # `sealed` makes one of the other
    """The counters of a run, as they are stored. It adds no field (see `row_forms.py`)."""


class PendingCancel(Value, frozen=True, kw_only=True):
    """A cancel that has been accepted."""

    mode: Literal["now", "after_step"]
    by: str | None = None
    reason: str | None = None


class PendingPause(Value, frozen=True, kw_only=True):
    """A pause that has been accepted and waits for the end of the step."""

    command_id: str
    by: str | None = None
    reason: str | None = None


class Inference(Value, frozen=True, kw_only=True):
    """The model call in flight, or the one whose answer this step works on.

    Attributes:
        message_id: of the assistant message. attempt: counts from 1 per step.
        failures: tries of this step that the model has failed; an interruption is none.
        started_at: UTC. delay_ms: milliseconds from then to the moment at which the model is asked.
        text_index, reasoning_index: the next delta's index.
    """

    message_id: str
    attempt: int
    started_at: datetime
    text_index: int = 0
    reasoning_index: int = 0
    failures: int = 0
    delay_ms: int = 0

    @property
    def asked_at(self) -> datetime:
        """When the model is asked: in the future while the run waits to ask again."""
        return self.started_at + timedelta(milliseconds=self.delay_ms) if self.delay_ms else self.started_at


class ContextMessage(Value, frozen=True, kw_only=True):
    """A message that a hook puts into the request of one step; the thread does not get it.

    Attributes:
        content: the text.
        role: system or user.
        placement: "system" (after the instructions), "session" (before the thread), "conversation" (before the newest
            user message) or "suffix" (last).
        priority: within a placement the lower one comes first.
    """

    content: str
    role: Literal["system", "user"] = "system"
    placement: Literal["system", "session", "conversation", "suffix"] = "suffix"
    priority: int = 0


class RequestChanges(Value, frozen=True, kw_only=True):
    """What the hooks of before_inference change about the model request of one step.

    Attributes:
        messages: put into the request, in their order within a placement.
        include: only these tools are offered; None: all of the agent's.
        exclude: not offered.
        settings: override the agent's, field by field.
        model: asked in place of the agent's, as "provider:name".
    """

    messages: tuple[ContextMessage, ...] = ()
    include: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    settings: JSONObject = msgspec.field(default_factory=dict)
    model: str | None = None

    def offers(self, tool: str) -> bool:
        """True if the tool is offered in this step."""
        return tool not in self.exclude and (self.include is None or tool in self.include)

    def joined(self, more: RequestChanges) -> RequestChanges:
        """Both: what only one can decide is decided by `more`; messages are in the order of their priorities."""
        include = self.include
        if more.include is not None:
            include = (*(include or ()), *more.include)
        messages = sorted((*self.messages, *more.messages), key=lambda message: message.priority)
        return RequestChanges(
            messages=tuple(messages),
            include=include,
            exclude=(*self.exclude, *more.exclude),
            settings={**self.settings, **more.settings},
            model=more.model or self.model,
        )


class SentText(Value, frozen=True, kw_only=True):
    """Where the text of a message stands that somebody has sent and no step has heard: in the inbox, and only there.

    Attributes:
        number: of the message. step: in which it came.
        command_id: of the command that brought it.
        size: bytes of the text in UTF-8.
        at: its place in `RunRow.pending_input`, in a row that is stored without the message.
    """

    number: int
    step: int
    command_id: str
    size: int
    at: int = 0


class RunFields(Fields, kw_only=True):
    """What changes about a run. Small and constant in size. A step sets these; `RunRow` is the same, frozen.

    Attributes:
        stage: of the lifecycle table.
        cursor: where the machine stands.
        step: of the step that is being worked on, from 1; 0 before the first.
        last_sequence: of the newest event.
        inbox: position of the newest consumed command.
        begun: run_start began (so run_end is owed).
        termination: why the run is on its way out; the step_end hooks of its last step are before that (`cursor`).
        answer: the newest answer of the model, whole. answer_at: where its final text begins in it.
        output: the final output (JSON).
        draft: the step's assistant message until the step's messages are appended to the thread.
        pending_input: messages that wait for the next step, in their order. Of a run that ended before it was admitted:
            for the moment in which its thread is free.
        sent: of those, the ones whose text is in the inbox (see `pending_input.py`).
        unheard: who has sent the newest input that waits there ("": nobody is named); None: what waits was not sent.
        early: decisions that came before their call's first ticket.
        tasks: background tasks that live.
        stubborn: what has overrun its grace and may still live.
        unknown: calls and tasks that the end of the run cut, and whose effect may or may not have happened.
        pause: a pause that has not taken effect yet.
        holds: the open tickets of the run itself; no step begins while there is one.
        next_due: when the earliest timer of the run fires, UTC.
        revision: of the newest state.
        request: what before_inference hooks changed about the request of this step.
        finish: why the model ended its newest answer.
    """

    stage: Stage = Stage.CREATED
    cursor: RunPosition = RunPosition.ADMISSION
    step: int = 0
    last_sequence: int = 0
    inbox: int = 0
    begun: bool = False
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
    unheard: str | None = None
    early: Mapping[str, Decision] = msgspec.field(default_factory=dict)
    stubborn: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    tasks: tuple[TaskRow, ...] = ()
    pause: PendingPause | None = None
    holds: tuple[Ticket, ...] = ()
    next_due: datetime | None = None
    revision: int = 0
    request: RequestChanges | None = None
    finish: FinishReason | None = None


class RunRow(RunFields, frozen=True):  # type: ignore[misc]  # `sealed` makes one of the other
    """The row of a run; the newest one wins. It adds no field (see `row_forms.py`)."""

    @property
    def status(self) -> RunStatus:
        """The stage's status."""
        return STATUS[self.stage]

    @property
    def restless(self) -> bool:
        """True if it needs an owner though it waits: it is on its way out, or background tasks of it live."""
        return self.termination is not None or bool(self.tasks)


class CallFields(Fields, kw_only=True):
    """A tool call: everything private about it. `CallRow` is the same, frozen.

    Attributes:
        call_id: unique in the run. index: its place in the model's order, from 0. step: its step.
        tool, arguments: what runs (the edited arguments if a decision carried some).
        requested: as the model asked for it.
        at: its position (`POSITIONS` in `calls.py`).
        attempts: bodies started. A child message with another attempt is ignored.
        resumed_at: bodies that had started when a decision last let it go on; None: no decision has.
        outcome: how it ended: succeeded, failed or cancelled; None until then.
        provisional: a gate said block, deny or set_result behind calls that had not run; it is asked again.
        weighed: how many calls before it had settled when it was asked again and stayed provisional.
        approved: fingerprint that a decision has approved.
        decision: the newest decision; the gates are told. told: the newest answer to what the body itself has asked.
        asked: the newest ticket is a question of the body.
        ticket: the newest ticket.
        result: the full result (JSON). shown: the text the model gets. code: of a failure.
        edited: the arguments are not the model's. edited_at: bodies that had started when somebody edited them last.
        started_at: when the newest body started, UTC.
        batch: what it wrote to state keys, until that is merged.
        verdict_at: revision of the state on which its gates allowed it.
        alone: its writes clashed and it runs again with nothing beside it (on_conflict="retry").
        large: the result is too large to be shown whole.
        spawned: marks of the background tasks that its body has spawned, in order.
        task_id: the background task that runs the body of a background tool; None for any other tool.
        definition: mark of the tool's definition that the fingerprint covers; "" in rows of older releases.
        lost: an attempt of its body came to an end that is not known: "process" (its process ended meanwhile) or
            "grace" (it went on beyond its grace).
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
    weighed: int | None = None
    started_at: datetime | None = None
    batch: Batch | None = None
    verdict_at: int = 0
    alone: bool = False
    large: bool = False
    spawned: tuple[str, ...] = ()
    told: Decision | None = None
    asked: bool = False
    lost: Lost = ""
    definition: str = ""
    task_id: str | None = None


class CallRow(CallFields, frozen=True):  # type: ignore[misc]  # `sealed` makes one of the other
    """The row of a call. It adds no field (see `row_forms.py`)."""

    @property
    def position(self) -> CallRule:
        """The row of the call's position in the table."""
        return POSITIONS[self.at]

    @property
    def status(self) -> CallStatus:
        """What clients see of the call; derived, never stored."""
        return POSITIONS[self.at].status or self.outcome or open_status(self.attempts, self.resumed_at)

    @property
    def settled(self) -> bool:
        """True once nothing can change about the call's outcome."""
        return self.outcome is not None

    @property
    def doubt(self) -> Lost:
        """Why an effect of the call may have happened that no result tells of; "" if there is none."""
        asked = self.ticket is not None and self.ticket.reason == "outcome_unknown"  # also rows of older releases
        return self.lost or ("process" if asked else "")


class EventDraft(msgspec.Struct, frozen=True, gc=False):
    """An event before numbering and encoding: its type and its payload object. A struct is cheap to make."""

    type: str
    payload: Any


class Commit(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Everything that one input changed, as one transaction.

    Attributes:
        run_id: whose.
        expected_last: sequence of the newest event before this commit; the store refuses the commit if it is another.
        at: UTC time of all events in it.
        events: in order; number i gets sequence expected_last + 1 + i.
        row: the run row after it.
        calls, tickets: those that changed.
        messages: appended to the thread.
        state: written keys, at `state_step`.
        state_step: the step that they were written in; None: `row.step`. A commit that ends a step may begin the next.
            What run_end writes is of a step that never comes: a fork of the last one has none of it.
        consumed: position of the newest inbox item consumed by it (0: none).
        taken: what the machine took since the commit before it, for the record; the owner of the run adds it.
    """

    run_id: str
    expected_last: int
    at: datetime
    events: tuple[EventDraft, ...] = ()
    row: RunRow
    calls: tuple[CallRow, ...] = ()
    tickets: tuple[Ticket, ...] = ()
    messages: tuple[Message, ...] = ()
    state: tuple[StateWrite, ...] = ()
    state_step: int | None = None
    consumed: int = 0
    taken: tuple[RecordEntry, ...] = ()

    @property
    def written_at(self) -> int:
        """The step that the state keys count to."""
        return self.row.step if self.state_step is None else self.state_step

    @property
    def last(self) -> int:
        """Sequence of the newest event after the commit."""
        return self.expected_last + len(self.events)


class NewRun(Value, frozen=True, kw_only=True):
    """A run to be created: its info, the thread messages that it starts with, and its first event.

    Attributes:
        info: as it stays.
        row: at birth, with last_sequence 1.
        messages: appended to the thread (the input; for a fork, the copied history before it).
        created: the run.created event.
        on_busy: what to do when the thread has an active run: hold the run back (queue) or refuse it.
        thread_parent: (thread, position) that a fork's thread begins as a copy of.
        thread_runs: create the run only if exactly so many runs were ever created in its thread (0: the thread is
            new); None: whatever that is. `ThreadInfo.runs` has the number.
        taken: the beginning of the run's record; empty if it is not recorded.
    """

    info: RunInfo
    row: RunRow
    messages: tuple[Message, ...]
    created: EventDraft
    on_busy: Literal["queue", "refuse"] = "queue"
    state: tuple[StateWrite, ...] = ()
    thread_parent: tuple[str, int] | None = None
    thread_runs: int | None = None
    taken: tuple[RecordEntry, ...] = ()


@attrs.frozen(kw_only=True)
class ThreadInfo:
    """To whom a thread belongs: a fact of the store, which outlives the runs of the thread.

    Attributes:
        thread_id: whose facts these are.
        owner: the principal whose run began the thread; "" if that is not known (files of older releases).
        created_at: when it began, UTC.
        runs: how many runs were ever created in it; pruned ones count. `NewRun.thread_runs` refers to it.
        members: the runs that are left in the thread, oldest first, behind those that were pruned while their messages
            stayed: of the latter the first one of each combination of by, agent, session_id and workspace.
    """

    thread_id: str
    owner: str
    created_at: datetime
    runs: int
    members: tuple[RunInfo, ...] = ()


@attrs.frozen(kw_only=True)
class RunOutline:
    """What can be known of a run without reading its calls, tickets and commands. Costs the same for every run.

    Attributes:
        info: the constant facts.
        stage, step, last_sequence: as in `RunRow`.
        posted, consumed: positions of the newest accepted and of the newest consumed command.
        held: the run waits for its thread.
        behind: the run that works on the thread meanwhile.
        row: None if the row can not be read.
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

    @property
    def status(self) -> RunStatus:
        """The stage's status."""
        return STATUS[self.stage]


class Claim(Value, frozen=True, kw_only=True):
    """The right to append to a run. `token` is the fencing token: a newer claim makes all older ones useless."""

    run_id: str
    token: int


@attrs.frozen(kw_only=True)
class RunRecord:
    """A run as it is in the store: one consistent snapshot.

    Attributes:
        info, row: the two halves of the run.
        calls: of the current step, or of the whole run if so asked, in step and model order.
        inbox: accepted commands that nobody has consumed yet, in order.
        call_ids: every call id that the run has used.
        state: the newest values of the thread's and the run's persistent state keys; those that other runs wrote have
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
    def at_rest(self) -> bool:
        """Done, or waiting with every command acted on; a run on its way out does not rest before its end."""
        row = self.row
        waits = row.status is RunStatus.WAITING and row.termination is None and not self.inbox
        return waits or row.status is RunStatus.DONE


@attrs.frozen(kw_only=True)
class CommandContext:
    """What a store looks up for the judge, inside the transaction that will journal the command.

    Attributes:
        stage: the run's durable stage.
        pending: accepted commands that nobody has consumed yet.
        known: the accepted command with the same command id, and the answer that it got.
        ticket: the ticket that the decision targets: by ticket id, else the newest of the call with that id.
        call: the targeted call (the ticket's, or the one with that id).
        prior: an accepted decision for the same ticket (or an early one for the same call), consumed or not.
        leaving: the run is on its way out. Looked up for a pause only.
        inputs, input_bytes: texts that were sent and that no step has heard, and their size. Looked up for a send only.
    """

    stage: Stage
    pending: int
    known: tuple[Command, CommandResult] | None = None
    ticket: Ticket | None = None
    call: CallRow | None = None
    prior: Command | None = None
    leaving: bool = False
    inputs: int = 0
    input_bytes: int = 0

    @property
    def target_key(self) -> str | None:
        """What a decision occupies: its ticket, or the call if it came before the call's first ticket."""
        if self.ticket is not None:
            return f"ticket:{self.ticket.ticket_id}"
        return None if self.call is None else f"call:{self.call.call_id}"


Judge = Callable[[CommandContext, Command], CommandResult]
"""A pure function. An accepted answer makes the store journal the command; any other leaves no trace."""
