"""AG-UI 1.0: `POST /v1/ag-ui/agents/{agent}/run` accepts a RunAgentInput and answers with the events of one AG-UI run.

| the request | the effect |
|---|---|
| a new user message | a Greenroom run starts in the thread `threadId`; principal, thread and message determine its id |
| the same message again | the same run is sent again, from its start to its first rest |
| nothing new | the run of the newest user message is sent again, completely: the stream broke, or the page reloaded |
| nothing that has started a run | the run that the thread is at is sent, whoever has started it |
| `resume`, under any `runId` but that of another run | decisions, all or none; the run is sent from there on
(`ag_ui_resume`) |
| `resume` and a new user message | also sent to the run, which reads it at its next step; a done run is followed by a
new one |

One Greenroom run therefore spans several AG-UI runs. No state is kept in memory, so all of this works after a restart.

An invalid request is answered with an HTTP status before a stream begins: a field of the wrong type, an unknown agent,
a `runId` or message id that was used for another content. Conditions that the protocol defines are RUN_ERROR:
unanswered open interrupts, answers that do not fit. Neither has an effect.

A client that names no `protocolVersion` is older than version 1.0 of the protocol, and is sent nothing that it would
refuse (`encoders.ag_ui`).

A run remembers the `runId` that started it (as its session id); the newest `REMEMBERED` runs of a thread are searched.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import attrs

import greenroom as gr
from greenroom.actors.contract.envelope import decode_event
from greenroom.actors.contract.ids import content_digest
from greenroom.actors.contract.lifecycle import RunStatus
from greenroom.actors.contract.plain import JSONObject
from greenroom.actors.contract.rows import RunInfo

from ...gateway.access import Principal
from ...gateway.http import EVENT_STREAM, Request, Response, Route, Streamed
from ...gateway.run_response import RunResponse
from ...protocol.codes import Refused
from ...protocol.up import Send, Start
from . import encoder as ag_ui
from .builder import AgUiState, Sent
from .history import Payload, fold, messages
from .input import RunAgentInput, SentMessage, plain_messages, read_content, read_input, unanswered
from .resume import OPEN, ResumeRefused, decide, find, load, open_tickets

if TYPE_CHECKING:
    from ...gateway.gateway import Gateway

REMEMBERED: Final = 100
"""Runs of a thread that are searched for a `runId`."""
MOST_UNANSWERED: Final = 32
"""Maximum number of unanswered user messages; each is looked up."""
_SESSION: Final = re.compile(r"[A-Za-z0-9_.:-]{1,120}")
_PART: Final = "\n\n"
"""Separator between two user messages that start one run."""
_STOPS: Final = ("closing", "The server stops; the run continues when the server is back. Send the same request again.")


async def run_ag_ui(gateway: Gateway, request: Request) -> Response | Streamed:
    """Serve one AG-UI run.

    Raises:
        Refused: Before the stream begins; see the module.
    """
    who, run_input = request.who, read_input(request.json())
    agent = request.params["agent"]
    if not await gateway.api.knows_agent(agent):
        raise Refused("unknown_agent", f"no agent has the key {agent!r:.200}; GET /v1/agents lists them")
    try:
        part = await _answer(gateway, who, agent, run_input)
    except ResumeRefused as declined:
        state = _state(run_input, who, answered=[entry.interruptId for entry in run_input.resume or ()])
        _, frames = ag_ui.finish(state, code=declined.code, message=declined.message)
        return Response(body=ag_ui.frame(frames), content_type=EVENT_STREAM, headers=[("cache-control", "no-cache")])
    state = _state(run_input, who, part, await _behind(gateway, who, run_input, part))
    ahead = await gateway.api.ahead(who, run_input.threadId, part.run_id)
    return AgUiResponse(gateway, who, part.run_id, state, ahead=ahead, refused=part.refused).response()


async def _answer(gateway: Gateway, who: Principal, agent: str, run_input: RunAgentInput) -> RunSegment:
    """Do what the request asks for, and return what to send.

    A client before version 1.0 is stuck with the interrupts of a refused `resume`: an error does not replace them, and
    the client sends nothing without an answer to them. So it is sent the run as it is, which ends with the interrupts
    that are open, or with the end of the run.
    """
    if not run_input.resume:
        begins = await _unanswered(gateway, who, run_input)
        return await (_begin if begins else _repeat)(gateway, who, agent, run_input)
    try:
        return await _resume(gateway, who, agent, run_input)
    except ResumeRefused as declined:
        if run_input.protocolVersion is not None:
            raise
        try:
            part = await _repeat(gateway, who, agent, run_input)
        except (ResumeRefused, Refused):
            raise declined from None
        return attrs.evolve(part, refused={"code": declined.code, "message": declined.message})


@attrs.frozen(kw_only=True)
class RunSegment:
    """The part of a run that a response sends; see `ag_ui.begin`.

    Attributes:
        run_id: The Greenroom run.
        answered: The response begins with what these answers have led to.
        after: Alternatively, the response has everything after this sequence.
        behind: A run that ended meanwhile; the response has a snapshot of it.
        refused: Code and message of an answer that had no effect; the response has them as CUSTOM `greenroom.refused`.
    """

    run_id: str
    answered: Sequence[str] = ()
    after: int | None = None
    behind: str | None = None
    refused: JSONObject | None = None


# --- ids -------------------------------------------------------------------------------------------------------------


def run_of(who: Principal, thread_id: str, message_id: str) -> str:
    """Return the id of the run that a user message starts."""
    return f"run_{content_digest(['ag-ui', who.name, thread_id, message_id])[:16]}"


def command_of(thread_id: str, message_id: str) -> str:
    """Return the id of the command that sends a user message to a started run."""
    return content_digest(["ag-ui", thread_id, message_id])


def session_of(run_id: str) -> str:
    """Return the session id in which a run remembers the `runId` that started it."""
    return f"r.{run_id if _SESSION.fullmatch(run_id) else content_digest(run_id)}"


# --- beginning and resuming ------------------------------------------------------------------------------------------


async def _begin(gateway: Gateway, who: Principal, agent: str, run_input: RunAgentInput) -> RunSegment:
    """Start a run with the new user messages, or find the run that they have started."""
    who.need("start")  # first: the principal must learn nothing of runs that it may not start
    waiting = await _unanswered(gateway, who, run_input)
    run_id = run_of(who, run_input.threadId, waiting[-1].id)
    await _check_unused(gateway, who, run_input, run_id)
    info = await _info(gateway, who, run_id)
    if info is None:
        await _check_interrupts(gateway, who, run_input.threadId)
    new = [*await _new(gateway, who, run_input.threadId, waiting[:-1]), waiting[-1]]
    said = list(map(read_content, new))
    order = Start(
        id=command_of(run_input.threadId, waiting[-1].id),
        agent=agent,
        text=_PART.join(text for text, _ in said),
        attachments=tuple(attachment for _, attachments in said for attachment in attachments),
        run=run_id,
        thread=run_input.threadId,
        session=session_of(run_input.runId),
    )
    if info is None:
        try:
            await gateway.api.start(who, order)
        except Refused as refused:
            if refused.error.code != "run_exists":
                raise
            info = await _info(gateway, who, run_id)  # the same message arrived in another request at the same time
    if info is not None:
        await _begin_again(gateway, who, attrs.evolve(order, session=info.session_id), waiting[-1].id)
    return RunSegment(run_id=run_id)


async def _begin_again(gateway: Gateway, who: Principal, order: Start, message_id: str) -> None:
    """Check that an existing run is the one that this order starts, under any `runId`."""
    try:
        await gateway.api.start(who, order)
    except Refused as refused:
        if refused.error.code != "run_exists":
            raise
        text = f"the message id {message_id!r:.200} was used for another message or agent; take a new one"
        raise Refused("run_exists", text) from refused


async def _unanswered(gateway: Gateway, who: Principal, run_input: RunAgentInput) -> list[SentMessage]:
    """Return the user messages without an answer that the client has written itself.

    A text that came to a run by another road is a user message, too: the client has its id from the run.
    """
    waiting = unanswered(run_input.messages)
    if len(waiting) > MOST_UNANSWERED:
        raise Refused("unprocessable", f"{len(waiting)} user messages without an answer; {MOST_UNANSWERED} are taken")
    own: list[SentMessage] = []
    for message in waiting:
        run_id, _, number = message.id.rpartition(".m")  # the inverse of `contract.ids.message_id`
        info = await _info(gateway, who, run_id) if run_id and number.isdecimal() else None
        if info is None or info.thread_id != run_input.threadId:
            own.append(message)
    return own


async def _repeat(gateway: Gateway, who: Principal, agent: str, run_input: RunAgentInput) -> RunSegment:
    """Find the run of the newest user message that has started one, or else the run that the thread is at."""
    users = [message for message in run_input.messages if message.role == "user"]
    for message in users[: -MOST_UNANSWERED - 1 : -1]:
        run_id = run_of(who, run_input.threadId, message.id)
        info = await _info(gateway, who, run_id)
        if info is not None and info.agent == agent:
            return await _whole(gateway, who, run_input, run_id)
    line = await gateway.api.current(who, run_input.threadId, agent)
    if line is None:
        text = "messages holds no user message that asks for something, and the thread has no run; add a message"
        raise ResumeRefused("unprocessable", text)
    return await _whole(gateway, who, run_input, line.info.run_id)


async def _whole(gateway: Gateway, who: Principal, run_input: RunAgentInput, run_id: str) -> RunSegment:
    await _check_unused(gateway, who, run_input, run_id)
    record = await load(gateway, run_id)
    if record is None:
        raise Refused("unknown_run", f"the run {run_id} has been pruned")
    remaining = {ticket.ticket_id for ticket in open_tickets(record)}
    closed_ids = [ticket.ticket_id for ticket in record.tickets if ticket.ticket_id not in remaining]
    return RunSegment(run_id=run_id, answered=closed_ids, after=0)


async def _resume(gateway: Gateway, who: Principal, agent: str, run_input: RunAgentInput) -> RunSegment:
    entries = run_input.resume or ()
    record = await find(gateway, who, run_input.threadId, entries)
    run_id = record.info.run_id
    if record.info.agent != agent:
        raise ResumeRefused("unknown_target", f"the interrupts are of the agent {record.info.agent!r:.200}")
    waiting = await _unanswered(gateway, who, run_input)
    existing = await _info(gateway, who, run_of(who, run_input.threadId, waiting[-1].id)) if waiting else None
    if existing is not None and existing.run_id != run_id and existing.session_id == session_of(run_input.runId):
        await decide(gateway, who, record, entries, [])
        return attrs.evolve(await _begin(gateway, who, agent, run_input), behind=run_id)
    await _check_unused(gateway, who, run_input, run_id)
    new = await _new(gateway, who, run_input.threadId, waiting)
    said = [(command_of(run_input.threadId, message.id), *read_content(message)) for message in new]
    sends = [
        Send(id=name, run=run_id, text=text, attachments=attachments)
        for name, text, attachments in said
        if text.strip() or attachments
    ]
    try:
        await decide(gateway, who, record, entries, sends)
    except ResumeRefused as declined:
        if declined.code != "run_done" or not sends or record.row.status is not RunStatus.DONE:
            raise
        return attrs.evolve(await _begin(gateway, who, agent, run_input), behind=run_id)
    return RunSegment(run_id=run_id, answered=[entry.interruptId for entry in entries])


async def _new(gateway: Gateway, who: Principal, thread_id: str, waiting: Sequence[SentMessage]) -> list[SentMessage]:
    """Return the newest user messages after the last one that has started a run."""
    new: list[SentMessage] = []
    for message in reversed(waiting):
        if await _info(gateway, who, run_of(who, thread_id, message.id)) is not None:
            break
        new.append(message)
    return new[::-1]


async def _info(gateway: Gateway, who: Principal, run_id: str) -> RunInfo | None:
    try:
        return await gateway.api.info(who, run_id)
    except Refused as refused:
        if refused.error.code != "unknown_run":
            raise
        return None


async def _check_unused(gateway: Gateway, who: Principal, run_input: RunAgentInput, run_id: str | None) -> None:
    """Check that a `runId` that has started a run is not used for another; it may name the answers to that run, too."""
    session = session_of(run_input.runId)
    page = await gateway.runtime.runs(thread_id=run_input.threadId, limit=REMEMBERED)
    for summary in page.runs:
        if summary.info.session_id == session and summary.info.run_id != run_id and who.sees(summary.info):
            raise Refused("run_exists", f"runId {run_input.runId!r:.200} was used for something else; take a new one")


async def _check_interrupts(gateway: Gateway, who: Principal, thread_id: str) -> None:
    """Check that the thread has no open interrupts; a thread that waits for answers accepts no other input."""
    page = await gateway.runtime.runs(thread_id=thread_id, status=RunStatus.WAITING, limit=REMEMBERED)
    for summary in page.runs:
        record = await load(gateway, summary.info.run_id) if who.sees(summary.info) else None
        names = [] if record is None else [ticket.ticket_id for ticket in open_tickets(record)]
        if names:
            raise ResumeRefused(OPEN, f"the thread waits for answers; send them as resume: {', '.join(names)}")


# --- telling ---------------------------------------------------------------------------------------------------------


def _state(
    run_input: RunAgentInput,
    who: Principal,
    part: RunSegment | None = None,
    known: Sequence[Payload] | None = None,
    answered: Sequence[str] = (),
) -> AgUiState:
    users = [message.id for message in run_input.messages if message.role == "user"]
    sent = plain_messages(run_input.messages)
    run_id = None if part is None else part.run_id
    return ag_ui.begin(
        thread_id=run_input.threadId,
        run_id=run_input.runId,
        parent_run_id=run_input.parentRunId,
        versioned=run_input.protocolVersion is not None,
        known=sent if known is None else known,
        agreed=None if known is None else _agreed(sent, known),
        shared=run_input.state,
        start_message=next((name for name in users if run_of(who, run_input.threadId, name) == run_id), None),
        sent={command_of(run_input.threadId, name): name for name in users},
        answered=answered if part is None else part.answered,
        after=None if part is None else part.after,
    )


def _agreed(sent: Sequence[Payload], known: Sequence[Payload]) -> int:
    """Return the length of the common prefix."""
    pairs = enumerate(zip(sent, known, strict=False))
    return next((at for at, (mine, other) in pairs if mine["id"] != other["id"]), min(len(sent), len(known)))


async def _behind(gateway: Gateway, who: Principal, run_input: RunAgentInput, part: RunSegment) -> list[Payload] | None:
    """Return the client's messages with those of a run that ended while the client was away.

    None if there is no such run.
    """
    if part.behind is None:
        return None
    state = _state(run_input, who, RunSegment(run_id=part.behind, after=0))
    history = state.history
    async with gateway.follow(part.behind) as follower:
        async for events in follower:
            for frame in events.frames:
                history = fold(history, decode_event(frame))
    return messages(history, state.known)


class AgUiResponse(RunResponse[AgUiState]):
    """The chunks of one response.

    Args:
        gateway, who, run_id, state: As for `RunResponse`.
        ahead: The runs that block this one, of which the client is not informed yet.
        refused: See `RunSegment`.
    """

    def __init__(
        self,
        gateway: Gateway,
        who: Principal,
        run_id: str,
        state: AgUiState,
        *,
        ahead: Sequence[str] = (),
        refused: JSONObject | None = None,
    ) -> None:
        super().__init__(gateway, who, run_id, state)
        notices = [("queued", {"behind": other}) for other in ahead] + ([("refused", refused)] if refused else [])
        self._notices: list[Sent] = [
            {"type": "CUSTOM", "name": f"greenroom.{name}", "value": value} for name, value in notices
        ]

    def _encoded(self, found: gr.EventSlice) -> bytes:
        out: list[Sent] = []
        state = self._told
        for frame in found.frames:
            state, frames = ag_ui.step(state, decode_event(frame))
            out += frames
        self._next = state
        return ag_ui.frame(self._with_notices(out))

    def _with_notices(self, sent: list[Sent]) -> list[Sent]:
        """Return the events with the notices of this response, once, behind the start of the AG-UI run."""
        if not sent:
            return sent
        notices, self._notices = self._notices, []
        return [sent[0], *notices, *sent[1:]]

    def _ended(self, state: AgUiState, cause: Exception | None) -> tuple[AgUiState, bytes]:
        code, message = _run_error(cause)
        closed, frames = ag_ui.finish(state, code=code, message=message)
        return closed, ag_ui.frame(frames)


def _run_error(cause: Exception | None) -> tuple[str | None, str]:
    """Return code and message of the RUN_ERROR of a stream that ends before its run rests."""
    match cause:
        case None:
            return None, ""
        case gr.RuntimeClosed():
            return _STOPS
        case gr.RunDegradedError():
            return "degraded", str(cause)
        case gr.UnknownRun():
            return "unknown_run", str(cause)
        case gr.StoreUnavailable() | gr.StoreDown():
            return "store_unavailable", f"{cause}; send the same request again"
        case _:
            return "internal", "the log of the run cannot be read"


ROUTES: Final = (
    Route(
        method="POST",
        template="/v1/ag-ui/agents/{agent}/run",
        handler=run_ag_ui,
        scope="follow",
        summary="AG-UI 1.0: begin or resume a run; its events are answered",
        tag="ag-ui",
        body=RunAgentInput,
        responses={200: ("The events of one AG-UI run; what the protocol itself refuses is RUN_ERROR.", EVENT_STREAM)},
    ),
)
"""The routes of this protocol."""
