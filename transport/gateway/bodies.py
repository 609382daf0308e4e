"""The bodies of responses as types. The OpenAPI document is made of them; tests hold real responses against it.

What the gateway writes it writes as plain data (`plain_view`); nothing is copied into these classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal

import msgspec

from greenroom.actors.contract.calls import CallStatus
from greenroom.actors.contract.decisions import ResumeMode, TicketReason
from greenroom.actors.contract.lifecycle import RunStatus, Stage, Termination
from greenroom.actors.contract.messages import Usage
from greenroom.actors.contract.plain import JSONObject
from greenroom.actors.contract.tasks import TaskView
from greenroom.actors.contract.waiting_for import WaitKind

from ..protocol.codes import ERRORS
from ..protocol.lines import Counts, Newest, RunLine

ErrorCode = Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(ERRORS)})]


class ResponseBody(msgspec.Struct, frozen=True, kw_only=True):
    """What all bodies have in common. Readers pass over fields that they do not know: more may come."""


class Health(ResponseBody, frozen=True, kw_only=True):
    """The process serves (ok), or takes work (ready)."""

    status: Literal["ok", "ready"]


class OpenTicket(ResponseBody, frozen=True, kw_only=True):
    """A ticket that can be decided: exactly this would happen."""

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


class WaitBody(ResponseBody, frozen=True, kw_only=True):
    """What a run waits for. `run`: for `thread`, the run that works on it, if it may be seen."""

    kind: WaitKind
    detail: str
    run: str | None


class RunBody(ResponseBody, frozen=True, kw_only=True):
    """A run at one moment.

    `calls`: call id -> status; `tasks`: task id -> the background tasks that live; `degraded`: why nobody works on it
    here, or null; `waiting_for`: why nothing happens, or null.
    """

    run: str
    thread: str
    agent: str
    by: str
    title: str
    stage: Stage
    status: RunStatus
    termination: Termination | None
    calls: Mapping[str, CallStatus]
    tickets: tuple[OpenTicket, ...]
    tasks: Mapping[str, TaskView]
    usage: Usage
    step: int
    sequence: Newest
    pending: int
    degraded: str | None
    waiting_for: WaitBody | None


class AgentLine(ResponseBody, frozen=True, kw_only=True):
    """An agent that can be started."""

    key: str
    description: str
    tools: tuple[str, ...]


class AgentList(ResponseBody, frozen=True, kw_only=True):
    """The agents that can be started by key."""

    agents: tuple[AgentLine, ...]


class RunList(ResponseBody, frozen=True, kw_only=True):
    """Runs in the order that was asked for. `cursor` asks for the next page; null on the last one.

    `counts`, if it was asked for: how many runs are not done, whatever the filters are.
    """

    runs: tuple[RunLine, ...]
    cursor: str | None
    counts: Counts | None


class AnyEvent(ResponseBody, frozen=True, kw_only=True):
    """Stands for every event; the document has one schema per type in its place."""


class EventPage(ResponseBody, frozen=True, kw_only=True):
    """A page of a run's events, as stored.

    `epoch` names the log that sequences belong to, `head` is the newest sequence, `next` is the `after` of the next
    page, `done` says that the run's terminal event is on this page or before it.
    """

    run: str
    epoch: str
    events: tuple[AnyEvent, ...]
    head: Newest
    next: Newest
    done: bool


class Started(ResponseBody, frozen=True, kw_only=True):
    """A run is durable. duplicate: the same order had started it before."""

    run: str
    thread: str
    status: Literal["accepted", "duplicate"]


class Accepted(ResponseBody, frozen=True, kw_only=True):
    """A command is durable. duplicate: it was before, and acts once. `code` early: a decision before its ticket."""

    id: str
    run: str
    status: Literal["accepted", "duplicate"]
    code: str | None


class Refusal(ResponseBody, frozen=True, kw_only=True, omit_defaults=True):
    """Why nothing happened. `retry`: the same request may work later. `current`: what is the case instead."""

    code: ErrorCode
    message: str
    retry: bool
    current: Any = None


class ErrorBody(ResponseBody, frozen=True, kw_only=True):
    """The body of every response from 400 on."""

    error: Refusal


BODIES: Final[Mapping[str, type[ResponseBody]]] = {
    cls.__name__: cls for cls in (Health, RunBody, AgentList, RunList, EventPage, Started, Accepted, ErrorBody)
}
"""Name in the document's components -> class; a route's `answers` uses these names."""
