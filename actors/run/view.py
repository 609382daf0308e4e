"""`RunView`, what people see of a run at one moment, and the outcome of a run at rest.

Theory of operation. Both are functions of one snapshot of the store, so their fields never contradict each other.
Tickets are redacted, because they are shown; messages and state are private data of the run's owner and come whole. The
messages of the current step are in no thread yet: the view appends the step's draft and the results of its settled
calls, with ids that serve this view only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
from msgspec.structs import replace

from ..agents.agent import Agent
from ..contract.artifacts import Artifact, copied_artifacts
from ..contract.calls import CallStatus
from ..contract.codec import SchemaError
from ..contract.decisions import Ticket
from ..contract.failures import FAILURES
from ..contract.lifecycle import DONE, RunStatus, Stage, Termination, TerminationKind
from ..contract.messages import Message, Usage
from ..contract.outcomes import Cancelled, Completed, Failed, Stopped, Waiting
from ..contract.plain import JSONObject
from ..contract.rows import RunRecord
from ..contract.secrets.redaction import Redactor
from ..contract.state import RESERVED, SCOPES
from ..contract.stepwise import Steps
from ..contract.tasks import TaskView, shown_tasks
from ..contract.titles import title_of
from ..contract.waiting_for import WaitingFor
from ..engine.termination import tool_text
from ..state.values import copied, copied_message, copied_ticket


@attrs.frozen(kw_only=True)
class RunView:
    """One consistent, durable snapshot of a run. Tickets are redacted; messages and state are private.

    Attributes:
        run_id, agent, thread_id, by: identity and origin; `agent` is the key of the agent that the run was started
            with.
        active_agent: key of the agent whose step it is; another one than `agent` after a handoff.
        stage, status: The position of the run in its lifecycle, fine and coarse.
        termination: why the run ended; None before that.
        calls: call id -> status, of the whole run in order.
        tickets: the open tickets.
        tasks: task id -> live background task.
        usage: The usage of the whole run.
        messages: the thread so far, including the current step.
        state: persistent state keys by name, without reserved ones; where a thread's and a run's key share a name, the
            run's.
        step: the current step, from 1.
        last_sequence: The sequence of the newest event.
        pending: accepted commands that have not acted yet.
        degraded: The reason why no owner here works on the run (deps_missing, agent_unknown, target_offline,
            state_mismatch, gave_up), or None.
        title: one line that describes the run, redacted; the run id for a run without a title.
        artifacts: The facts of the artifacts that the run has published, and of those that a fork has copied; redacted.
        waiting_for: The obstacle of a waiting run: its thread, a slot, people...; None if the run works or is done.
    """

    run_id: str
    agent: str
    thread_id: str
    by: str
    stage: Stage
    status: RunStatus
    termination: Termination | None
    calls: Mapping[str, CallStatus]
    tickets: tuple[Ticket, ...]
    usage: Usage
    messages: tuple[Message, ...]
    state: JSONObject
    step: int
    last_sequence: int
    pending: int
    tasks: Mapping[str, TaskView] = attrs.field(factory=dict)
    degraded: str | None = None
    title: str = ""
    waiting_for: WaitingFor | None = None
    active_agent: str = ""
    artifacts: tuple[Artifact, ...] = ()


def ticket_steps(record: RunRecord, redactor: Redactor) -> Steps[tuple[Ticket, ...]]:
    """Return the redacted tickets that can be decided, of calls and of the run itself, in steps.

    A model chooses how large the arguments are that a ticket asks about.
    """
    redactor = redactor.within(record.info.workspace)
    suspended_tickets = (call.ticket for call in record.calls if call.status is CallStatus.SUSPENDED)
    tickets = list[Ticket]()
    for ticket in (*suspended_tickets, *record.open_mirrors, *record.row.run_tickets):
        if ticket is not None and ticket.status == "open":
            tickets.append((yield from shown_ticket_steps(ticket, redactor)))
    return tuple(tickets)


def shown_ticket_steps(ticket: Ticket, redactor: Redactor) -> Steps[Ticket]:
    """Return a redacted copy of a ticket, in steps; `redactor` is that of its run's workspace."""
    clean = replace(
        ticket,
        arguments=(yield from redactor.steps(ticket.arguments)),
        message=(yield from redactor.text_steps(ticket.message)),
        action=(yield from redactor.text_steps(ticket.action)),
        parameters=(yield from redactor.steps(ticket.parameters)),
        response_schema=redactor.schema(ticket.response_schema),
        expiry_result=(yield from redactor.steps(ticket.expiry_result)),
    )
    yield
    return copied_ticket(clean)


def view_steps(
    record: RunRecord,
    thread: tuple[Message, ...],
    redactor: Redactor,
    degraded: str | None,
    waiting_for: WaitingFor | None = None,
) -> Steps[RunView]:
    """Return the snapshot of a record (loaded with all calls) and its thread, in steps."""
    info, row = record.info, record.row
    tickets = () if row.status is DONE else (yield from ticket_steps(record, redactor))
    redactor = redactor.within(info.workspace)
    messages = list(thread)
    if row.draft is not None and (row.inference is None or not row.inference.unsure):
        messages.append(row.draft)
        messages += [
            Message(
                id=f"{row.draft.id}:{call.call_id}",
                role="tool",
                content=tool_text(call),
                call_id=call.call_id,
                kind="text" if call.task_id is None else "task_started",
                task_id=call.task_id,
                parts=call.parts,
            )
            for call in record.calls
            if call.step == row.step and call.settled and call.parent is None
        ]
    thread_ids = {message.id for message in messages} if row.pending_input else ()
    messages += (message for message in row.pending_input if message.id not in thread_ids)
    title = redactor.text(info.title)
    if not info.title:  # a run from before runs had titles
        own = next((message.content for message in messages if message.id == f"{info.run_id}.m1"), "")
        title = title_of(own, redactor) or info.run_id
    return RunView(
        run_id=info.run_id,
        agent=info.agent,
        thread_id=info.thread_id,
        by=info.by,
        stage=row.stage,
        status=row.status,
        termination=shown_termination(row.termination, redactor) if row.status is DONE else None,
        calls={call.call_id: call.status for call in record.calls},
        tickets=tickets,
        usage=row.usage,
        messages=tuple(map(copied_message, messages)),
        state={
            write.key: copied(write.value)
            for scope in SCOPES[::-1]
            for write in record.state
            if write.scope == scope and not write.key.startswith(RESERVED)
        },
        step=row.step,
        last_sequence=row.last_sequence,
        pending=len(record.inbox),
        tasks={task.task_id: task for task in shown_tasks(row.tasks)},
        degraded=degraded,
        title=title,
        active_agent=row.agent or info.agent,
        artifacts=(yield from shown_artifacts(record, redactor)),
        waiting_for=waiting_for and attrs.evolve(waiting_for, detail=redactor.text(waiting_for.detail)),
    )


def shown_artifacts(record: RunRecord, redactor: Redactor) -> Steps[tuple[Artifact, ...]]:
    """Return the facts of all artifacts of a run, the copied ones first, in steps."""
    artifacts = list[Artifact]()
    own_artifacts = (artifact for call in record.calls for artifact in call.artifacts)
    for artifact in (*copied_artifacts(record.state), *own_artifacts):
        artifacts.append((yield from shown_artifact(artifact, redactor)))
    return tuple(artifacts)


def shown_artifact(artifact: Artifact, redactor: Redactor) -> Steps[Artifact]:
    """Return the facts of an artifact as people may see them, in steps."""
    return replace(
        artifact,
        name=(yield from redactor.text_steps(artifact.name)),
        path=(yield from redactor.text_steps(artifact.path)),
        url=(yield from redactor.text_steps(artifact.url)),
        metadata=(yield from redactor.steps(artifact.metadata)),
    )


def shown_termination(termination: Termination | None, redactor: Redactor) -> Termination | None:
    """Return the redacted termination."""
    if termination is None or termination.detail is None:
        return termination
    return replace(termination, detail=redactor.text(termination.detail))


Outcome = Completed[object] | Waiting | Failed | Cancelled


def outcome_steps(record: RunRecord, agent: Agent[object] | None, redactor: Redactor) -> Steps[Outcome]:
    """Return the outcome of a run at rest, in steps. Without the agent the output stays plain JSON data."""
    row = record.row
    termination = shown_termination(row.termination, redactor.within(record.info.workspace))
    if row.status is not DONE or termination is None:
        return Waiting(tickets=(yield from ticket_steps(record, redactor)))
    cut: dict[str, Any] = {"outcome_unknown": row.unknown}
    match termination.kind:
        case TerminationKind.NATURAL_END | TerminationKind.BEHAVIOR_REQUESTED | TerminationKind.SUSPENDED:
            output_copy = copied(row.output)
            output = output_copy if agent is None else typed_output(agent, output_copy)
            return Completed(output=output, usage=row.usage, termination=termination, finish=row.finish, **cut)
        case TerminationKind.CANCELLED:
            return Cancelled(reason=termination.detail, by=termination.by, code=termination.code, **cut)
        case TerminationKind.ERROR | TerminationKind.BLOCKED:
            code = termination.code or "internal_error"
            message = termination.detail or FAILURES[code].message
            return Failed(code=code, message=message, termination=termination, **cut)
        case TerminationKind.STOPPED:
            return Stopped(
                output=copied(row.output),
                usage=row.usage,
                termination=termination,
                code=termination.code or "stopped",
                detail=termination.detail,
                finish=row.finish,
                **cut,
            )


def typed_output(agent: Agent[object], value: object) -> Any:
    """Return the output in the agent's output type; a tool's result as output (tool_use) may have another type."""
    try:
        return agent.parse_output(value)
    except SchemaError:
        return value
