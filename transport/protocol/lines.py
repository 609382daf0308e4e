"""A run as one line of a list, the same over HTTP and the WebSocket."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec

from greenroom.actors.contract.casing import camel
from greenroom.actors.contract.decisions import ResumeMode, TicketReason
from greenroom.actors.contract.lifecycle import RunStatus, Stage, TerminationKind
from greenroom.actors.contract.messages import Usage
from greenroom.actors.contract.plain import JSONObject

Newest = Annotated[int, msgspec.Meta(ge=0, description="Of the newest event; 0 if there is none.")]


class TicketLine(msgspec.Struct, frozen=True, kw_only=True, rename=camel):
    """A summary of an open ticket. `reviewers`: who may decide; empty means every principal with the scope.

    `live`: a process waits for the decision, and the ticket is withdrawn if that process ends.
    """

    ticket_id: str
    call_id: str | None
    tool: str
    reason: TicketReason
    action: str
    message: str
    requested_at: datetime
    expires_at: datetime | None
    on_expiry: Literal["deny", "cancel_run", "set_result"]
    reviewers: tuple[str, ...]
    live: bool = False


class TerminationLine(msgspec.Struct, frozen=True, kw_only=True, rename=camel):
    """Why a run ended, with the code and text that belong to the kind.

    `by`: who cancelled. `error_id`: of a failure of user code, by which the log line is found. `call_id`: of the call
    that failed, if its tool declares that a failure ends the run.
    """

    kind: TerminationKind
    code: str | None = None
    detail: str | None = None
    by: str | None = None
    error_id: str | None = None
    call_id: str | None = None


class RunLine(msgspec.Struct, frozen=True, kw_only=True, rename=camel):
    """One line of a list of runs; its texts are redacted.

    Attributes:
        title: One line that says what the run is about; the run's id if no title is known.
        pending: Number of accepted commands that have not acted yet.
        held: True while the run waits until another run has left its thread.
        queue: The queue from which processes claim the run.
        owner: Name of the process that works on the run, if the store is shared; null if none does.
        dead: Why the run is a dead letter, which no process claims until it is revived; null if it is none.
        degraded: Why the run has no owner here (deps_missing, agent_unknown, target_offline, gave_up), or null.
        waiting_since: When the oldest open ticket was opened; null while the run does not wait.
        asked: The first open tickets, oldest first.
        asked_count: Number of open tickets.
        termination: Why the run ended; null before the end.
    """

    # named as in RunSummary, RunInfo and RunRow: clients of Python read this class; the wire has shorter names
    run_id: str = msgspec.field(name="run")
    thread_id: str = msgspec.field(name="thread")
    agent: str
    by: str
    title: str
    stage: Stage
    status: RunStatus
    created_at: datetime
    ended_at: datetime | None
    step: int
    last_sequence: Newest = msgspec.field(name="sequence")
    usage: Usage
    pending: int
    held: bool
    queue: str
    owner: str | None
    dead: str | None
    degraded: str | None
    waiting_since: datetime | None
    asked: tuple[TicketLine, ...]
    asked_count: int
    termination: TerminationLine | None


class ThreadLine(msgspec.Struct, frozen=True, kw_only=True, rename=camel):
    """One line of a list of threads; its texts are redacted.

    Attributes:
        by: The principal that started the thread's first run.
        title: The title of the oldest run that is left.
        newest_at: When the newest run was started.
        runs: Number of runs that were started in the thread; pruned ones count.
        run: The run that the thread is at: the oldest unfinished one, else the newest.
    """

    thread_id: str = msgspec.field(name="thread")
    by: str
    title: str
    created_at: datetime
    newest_at: datetime
    runs: int
    run: RunLine


class Counts(msgspec.Struct, frozen=True, kw_only=True, rename=camel):
    """The numbers of unfinished runs that the principal may see, by status."""

    created: int
    running: int
    waiting: int


class OpenTicket(msgspec.Struct, frozen=True, kw_only=True, rename=camel):
    """An open ticket: approval has exactly this effect."""

    ticket_id: str
    call_id: str | None
    tool: str
    arguments: JSONObject
    fingerprint: str
    reason: TicketReason
    action: str
    message: str
    parameters: JSONObject
    response_schema: JSONObject | None
    resume_mode: ResumeMode
    requested_at: datetime
    expires_at: datetime | None
    on_expiry: Literal["deny", "cancel_run", "set_result"]
    reviewers: tuple[str, ...]
    live: bool


class ListedTicketLine(OpenTicket, frozen=True, kw_only=True, rename=camel):
    """An open ticket in the list of all runs.

    Attributes:
        title: One line that says what the run is about; the run's id if no title is known.
        by: The principal that started the run.
        whole: False for a ticket that is too large for a list. It lacks its arguments, parameters and schema, and its
            texts are cut; `GET /v1/runs/{run}` has the whole ticket.
    """

    run_id: str = msgspec.field(name="run")
    thread_id: str = msgspec.field(name="thread")
    agent: str
    by: str
    title: str
    whole: bool = True
