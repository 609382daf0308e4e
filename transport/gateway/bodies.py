"""The bodies of responses as types. The OpenAPI document is generated from them; tests check real responses against it.

The gateway writes its responses as plain data (`plain_view`) and does not instantiate these classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal

import msgspec

from greenroom.actors.contract.artifacts import ArtifactKind
from greenroom.actors.contract.calls import CallStatus
from greenroom.actors.contract.casing import camel
from greenroom.actors.contract.lifecycle import RunStatus, Stage
from greenroom.actors.contract.messages import Usage
from greenroom.actors.contract.plain import JSONObject
from greenroom.actors.contract.tasks import TaskStatus
from greenroom.actors.contract.threads.messages import ThreadMessages
from greenroom.actors.contract.waiting_for import WaitKind
from greenroom.actors.evidence.account import RunEvidence
from greenroom.actors.permission.remembered import RememberAs, RememberScope

from ..protocol.codes import ERRORS
from ..protocol.lines import Counts, ListedTicketLine, Newest, OpenTicket, RunLine, TerminationLine, ThreadLine

ErrorCode = Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(ERRORS)})]


class ResponseBody(msgspec.Struct, frozen=True, kw_only=True, rename=camel):
    """The base of all bodies. Readers ignore unknown fields: fields may be added."""


class Health(ResponseBody, frozen=True, kw_only=True):
    """The process is alive (ok), or accepts work (ready).

    `crashed`: parts that have crashed within the last minute and begun again, each with its number of crashes.
    """

    status: Literal["ok", "ready"]
    crashed: dict[str, int] | None = None


class WaitBody(ResponseBody, frozen=True, kw_only=True):
    """What a run waits for. `run`: for `thread`, the run that works on the thread, if visible."""

    kind: WaitKind
    detail: str
    run: str | None


class TaskLine(ResponseBody, frozen=True, kw_only=True):
    """A background task that lives."""

    task_id: str
    tool: str
    status: TaskStatus


class ArtifactLine(ResponseBody, frozen=True, kw_only=True, omit_defaults=True):
    """An artifact that the run has published, or that a fork has copied. Fields with their default are left out.

    `size`, `sha256`: of the stored bytes; absent for a preview of an address. `path`, `url`, `read_at`: of a preview.
    """

    artifact_id: str
    call_id: str
    kind: ArtifactKind
    name: str
    media_type: str
    size: int = 0
    sha256: str = ""
    path: str = ""
    url: str = ""
    read_at: str = ""
    metadata: JSONObject = msgspec.field(default_factory=dict)


class RunBody(ResponseBody, frozen=True, kw_only=True):
    """A run at one moment.

    `calls`: call id -> status; `tasks`: task id -> live background task; `degraded`: why the run has no owner here, or
    null; `waiting_for`: why the run does not proceed, or null; `active_agent`: the agent whose step it is, another one
    than `agent` after a handoff.
    """

    run: str
    thread: str
    agent: str
    active_agent: str
    by: str
    title: str
    stage: Stage
    status: RunStatus
    termination: TerminationLine | None
    calls: Mapping[str, CallStatus]
    tickets: tuple[OpenTicket, ...]
    tasks: Mapping[str, TaskLine]
    usage: Usage
    step: int
    sequence: Newest
    pending: int
    degraded: str | None
    waiting_for: WaitBody | None
    artifacts: tuple[ArtifactLine, ...]


class QueueLine(ResponseBody, frozen=True, kw_only=True):
    """A queue of runs. `ready` runs wait to be claimed, `oldest` is since when the oldest of them is ready.

    `working` runs have an owner and do not wait for people, at most `max_running` of them over all processes (null: no
    limit). No run of a `paused` queue is claimed. `scheduled` runs become ready later, the first of them at `later`.
    """

    name: str
    max_running: int | None
    paused: bool
    ready: int
    working: int
    oldest: datetime | None
    scheduled: int
    later: datetime | None


class Me(ResponseBody, frozen=True, kw_only=True):
    """The principal of a request; null without a token."""

    principal: str | None
    scopes: tuple[str, ...]


class QueueList(ResponseBody, frozen=True, kw_only=True):
    """The queues of the store, by name."""

    queues: tuple[QueueLine, ...]


class PrunedBody(ResponseBody, frozen=True, kw_only=True):
    """What a prune has deleted. `reusable_bytes` stay in the file for new rows."""

    runs: int
    messages: int
    freed_bytes: int
    reusable_bytes: int


class Revived(ResponseBody, frozen=True, kw_only=True):
    """`revived` is false if the run was no dead letter."""

    run: str
    revived: bool


class RuleLine(ResponseBody, frozen=True, kw_only=True):
    """A rule that a person made with "always": it lets later calls of a tool pass without a question.

    `scope` and `holder`: the run, thread or workspace that it holds for. `form`: it covers one call, the words of a
    command (argv), or every call of the tool. `about` is what the person was asked, redacted and shortened. `run_id`
    and `ticket_id` name the question. A rule with `revoked_at` covers nothing any more.
    """

    rule_id: str
    scope: RememberScope
    holder: str
    form: RememberAs
    tool: str
    about: str
    by: str | None
    at: datetime
    run_id: str
    ticket_id: str
    revoked_at: datetime | None
    revoked_by: str | None


class RuleList(ResponseBody, frozen=True, kw_only=True):
    """Remembered rules. `cursor` requests the next page; null on the last one."""

    rules: tuple[RuleLine, ...]
    cursor: str | None


class AgentLine(ResponseBody, frozen=True, kw_only=True):
    """An agent that can be started.

    `here`: this process has the agent; if not, another process on the same store has it, and `description` and `tools`
    are empty. `digests`: of its definitions; processes with different releases of an agent have different ones.
    """

    key: str
    description: str
    tools: tuple[str, ...]
    digests: tuple[str, ...]
    here: bool


class AgentList(ResponseBody, frozen=True, kw_only=True):
    """The agents that can be started by key."""

    agents: tuple[AgentLine, ...]


class RunList(ResponseBody, frozen=True, kw_only=True):
    """Runs in the requested order. `cursor` requests the next page; null on the last one.

    `counts`, if requested: the number of runs that are not done, independent of the filters.
    """

    runs: tuple[RunLine, ...]
    cursor: str | None
    counts: Counts | None


class PriceLine(ResponseBody, frozen=True, kw_only=True):
    """The price of a model, per million tokens, in any one currency. `cached` and `stored`: null: as `input`."""

    input: float
    output: float
    cached: float | None
    stored: float | None


class PriceList(ResponseBody, frozen=True, kw_only=True):
    """The prices that the gateway was started with, by the names of models."""

    prices: dict[str, PriceLine]


class EndedHour(ResponseBody, frozen=True, kw_only=True):
    """How many runs ended within one hour, by outcome. `hour` is its beginning, UTC."""

    hour: datetime
    completed: int
    stopped: int
    failed: int
    cancelled: int


class Throughput(ResponseBody, frozen=True, kw_only=True):
    """The last hours, the oldest first; the present hour is the last one.

    For a principal that may not see all runs, visible runs are counted that began in these hours, and `complete` is
    false if they are too many to count all of them.
    """

    hours: tuple[EndedHour, ...]
    complete: bool


class ThreadList(ResponseBody, frozen=True, kw_only=True):
    """Threads, the one with the newest run first. `cursor` requests the next page; null on the last one."""

    threads: tuple[ThreadLine, ...]
    cursor: str | None


class TicketList(ResponseBody, frozen=True, kw_only=True):
    """Open tickets in the requested order. `cursor` requests the next page; null on the last one."""

    tickets: tuple[ListedTicketLine, ...]
    cursor: str | None


class AnyEvent(ResponseBody, frozen=True, kw_only=True):
    """A placeholder for every event; the document has one schema per event type in its place."""


class EventPage(ResponseBody, frozen=True, kw_only=True):
    """A page of a run's events, as stored.

    `epoch` identifies the log of the sequences, `head` is the newest sequence, `next` is the `after` of the next page,
    `done` is true if the run's terminal event is on this page or before it.
    """

    run: str
    epoch: str
    events: tuple[AnyEvent, ...]
    head: Newest
    next: Newest
    done: bool


class Started(ResponseBody, frozen=True, kw_only=True):
    """A run is durable. duplicate: an identical order had started the run before."""

    run: str
    thread: str
    status: Literal["accepted", "duplicate"]


class Accepted(ResponseBody, frozen=True, kw_only=True):
    """A command is durable. duplicate: it was durable before and acts once.

    `code` early: a decision before its ticket; not_remembered: the decision counts, and its rule could not be kept.
    """

    id: str
    run: str
    status: Literal["accepted", "duplicate"]
    code: str | None


class Refusal(ResponseBody, frozen=True, kw_only=True, omit_defaults=True):
    """A refusal without effect. `retry`: the same request may succeed later. `current`: the conflicting state."""

    code: ErrorCode
    message: str
    retry: bool
    current: Any = None


class ErrorBody(ResponseBody, frozen=True, kw_only=True):
    """The body of every response from 400 on."""

    error: Refusal


BODIES: Final[Mapping[str, type[msgspec.Struct]]] = {
    cls.__name__: cls
    for cls in (
        Health,
        RunBody,
        RunEvidence,
        Me,
        AgentList,
        QueueLine,
        QueueList,
        RuleLine,
        RuleList,
        RunList,
        PriceList,
        Throughput,
        ThreadList,
        ThreadMessages,
        TicketList,
        EventPage,
        Started,
        Accepted,
        Revived,
        PrunedBody,
        ErrorBody,
    )
}
"""Component name -> class; a route's `responses` uses these names."""
