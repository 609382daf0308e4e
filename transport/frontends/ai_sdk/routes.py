"""The AI SDK's chat protocol: `useChat` with the default transport, versions 6 and 7. A chat is a thread.

| the request | the effect |
|---|---|
| POST chat, the last message is the user's | its run starts; repeated, the same run is sent again from its start |
| POST chat, the last message (or `messageId`) is an assistant's | its answers act; the run is sent from there on |
| GET stream | the current run of the chat, from its start to its rest; 204 if none is active |
| POST cancel | that run is cancelled |

An assistant message is a run, and its id is the run's id. Only the answers in the message are trusted, and only for
open tickets (`ai_sdk_decide`). Answers in the last assistant message act also if a new user message follows. All else
derives from log and rows. No state is kept in memory, so all of this works after a restart.

The message itself says where a continuation begins: its `data-run` part has the sequence up to which the message
includes the run. Without that part (a torn stream, or a page that drops data parts), the client gets what follows its
answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from greenroom.actors.contract.ids import content_digest
from greenroom.actors.contract.lifecycle import RunStatus
from greenroom.actors.contract.rows import RunRecord
from greenroom.actors.contract.run_lists import RunQuery, RunSummary

from ...gateway.access import Principal
from ...gateway.http import EVENT_STREAM, Request, Response, Route, Streamed, json_response
from ...gateway.run_routes import resumed_after
from ...protocol.codes import Refused
from ...protocol.up import Cancel, Start
from .builder import VERSIONS, Part, Version
from .decide import AnswerResults, decide
from .encoder import begin
from .request import ChatBody, ChatRequest, ReaderPosition, UserMessage, read_request
from .response import AiSdkResponse

if TYPE_CHECKING:
    from ...gateway.gateway import Gateway

RUNS: Final = 100
"""Newest waiting runs of a chat that are searched."""


async def chat(gateway: Gateway, request: Request) -> Response | Streamed:
    """Start a run, or continue one with answers; the response streams its events as parts.

    Raises:
        Refused: Before the stream begins. Nothing had an effect, except answers that were accepted before the refusal.
    """
    version, agent, who = _version(request), request.params["agent"], request.who
    request_body = read_request(request.json())
    if not await gateway.api.knows_agent(agent):
        raise Refused("unknown_agent", f"no agent has the key {agent!r:.200}; GET /v1/agents lists them")
    record = await _record(gateway, who, agent, request_body)
    decided = AnswerResults()
    if record is not None and request_body.seen is not None and request_body.seen.answers:
        decided = await decide(gateway, who, record, request_body.seen.answers)
    if request_body.user_message is not None:
        run_id = await _begin(gateway, who, agent, request_body.chat, request_body.user_message)
        notices = [_queued(behind) for behind in await gateway.api.ahead(who, request_body.chat, run_id)]
        return AiSdkResponse(gateway, who, run_id, begin(run_id, version=version), notices=notices).response()
    return _continue(gateway, who, version, record, request_body.seen, decided)


async def stream(gateway: Gateway, request: Request) -> Response | Streamed:
    """Stream the current run of a chat again from its start; with Last-Event-ID, the rest of that stream."""
    version = _version(request)
    finished = request.query.get("finished", "false")
    if finished not in ("true", "false"):
        raise Refused("bad_message", f"finished={finished!r:.40}: give true or false")
    record = await _current(gateway, request)
    if record is None or (record.row.status is RunStatus.DONE and finished == "false"):
        return Response(status=204)
    run_id, skip = record.info.run_id, resumed_after(gateway, request)
    head = await gateway.api.head(request.who, run_id)
    if skip > head:
        raise Refused("reset", f"the newest event is {head}, not {skip}; resume without Last-Event-ID")
    return AiSdkResponse(gateway, request.who, run_id, begin(run_id, version=version), skip=skip).response()


async def cancel(gateway: Gateway, request: Request) -> Response:
    """Cancel the current run of a chat; a repetition is a duplicate."""
    _version(request)
    record = await _current(gateway, request)
    if record is None:
        raise Refused("unknown_run", f"the chat {request.params['chat']!r:.200} has no run to cancel")
    run_id = record.info.run_id
    order = Cancel(id=content_digest(["ai-sdk", "cancel", run_id]), run=run_id)
    ack = await gateway.api.command(request.who, order)
    return json_response({"id": ack.id, "run": ack.run, "status": ack.status, "code": ack.code}, status=202)


# --- runs of a chat --------------------------------------------------------------------------------------------------


def run_of(who: Principal, chat_id: str, message_id: str) -> str:
    """Return the id of the run that a user message starts."""
    return f"run_{content_digest(['ai-sdk', who.name, chat_id, message_id])[:16]}"


async def _record(gateway: Gateway, who: Principal, agent: str, request_body: ChatRequest) -> RunRecord | None:
    """Return the run of the assistant message with its tickets; None if it is not a run of this chat and agent.

    Raises:
        Refused: not_allowed.
    """
    if request_body.seen is None:
        return None
    record = await gateway.runtime.reader.record(request_body.seen.run_id, calls="all")
    if record is None or not who.sees(record.info):
        return None
    return record if (record.info.thread_id, record.info.agent) == (request_body.chat, agent) else None


async def _begin(gateway: Gateway, who: Principal, agent: str, chat_id: str, message: UserMessage) -> str:
    """Return the run of a user message: a new one, or the one that the message has started."""
    who.need("start")  # first: the principal must learn nothing of runs that it may not start
    run_id = run_of(who, chat_id, message.message_id)
    outline = await gateway.runtime.reader.outline(run_id)
    if outline is None:
        await _check_at_ease(gateway, who, chat_id)
    order = Start(
        id=run_id, agent=agent, text=message.text, run=run_id, thread=chat_id, attachments=message.attachments
    )
    try:
        await gateway.api.start(who, order)
    except Refused as refused:
        if refused.error.code != "run_exists":
            raise
        text = f"the message {message.message_id!r:.200} was sent before with another text or agent"
        raise Refused("run_exists", f"{text}; threads are append-only: send a new message") from refused
    return run_id


async def _check_at_ease(gateway: Gateway, who: Principal, chat_id: str) -> None:
    """Refuse a new message for a chat that waits for answers: the message would wait behind them without notice."""
    query = RunQuery(thread_id=chat_id, status=RunStatus.WAITING, limit=RUNS)
    for line in (await gateway.api.runs(who, query)).lines:
        if not line.pending:
            raise Refused(
                "thread_busy", f"the chat waits for answers to {line.info.run_id}; give them first, or cancel that run"
            )


async def _current(gateway: Gateway, request: Request) -> RunSummary | None:
    return await gateway.api.current(request.who, request.params["chat"], request.params["agent"])


def _continue(  # noqa: PLR0917 - the facts of one request
    gateway: Gateway,
    who: Principal,
    version: Version,
    record: RunRecord | None,
    position: ReaderPosition | None,
    decided: AnswerResults,
) -> Streamed:
    """Stream what is new to the reader of a message.

    Raises:
        Refused: There is nothing to do; the client must not repeat the request automatically.
    """
    if record is None or position is None:
        name = "" if position is None else position.run_id
        raise Refused("unprocessable", f"the message {name!r:.200} is no run of this chat: keep the ids of messages")
    head = record.row.last_sequence
    after = head if position.sequence is None else min(position.sequence, head)
    if not decided.accepted and after == head and record.at_rest:
        for refusal in decided.refused.values():
            raise refusal
        raise Refused(
            "unprocessable", "nothing is answered that is open: resume the stream to see the state of the run"
        )
    notices = [_notice(ticket_id, refusal) for ticket_id, refusal in decided.refused.items()]
    state = begin(record.info.run_id, version=version, after=after, reader=position.parts)
    return AiSdkResponse(gateway, who, record.info.run_id, state, notices=notices).response()


def _queued(run_id: str) -> Part:
    detail = f"the message waits until {run_id} of this chat has ended"
    return {"type": "data-notice", "data": {"event": "queued", "behind": run_id, "detail": detail}, "transient": True}


def _notice(ticket_id: str, refusal: Refused) -> Part:
    notice = {"event": "refused", "ticketId": ticket_id, "code": refusal.error.code, "detail": refusal.message}
    return {"type": "data-notice", "data": notice, "transient": True}


def _version(request: Request) -> Version:
    for version in VERSIONS:
        if request.params["version"] == version:
            return version
    raise Refused("not_found", f"there is no version {request.params['version']!r:.40}; use {' or '.join(VERSIONS)}")


# --- the table -------------------------------------------------------------------------------------------------------

_CHAT: Final = "/v1/ai-sdk/{version}/agents/{agent}/chat"
_LAST: Final = {"Last-Event-ID": "the id of the last part that was read: the stream continues behind it"}
ROUTES: Final[tuple[Route[Gateway], ...]] = (
    Route(
        method="POST", template=_CHAT, handler=chat, scope="follow", tag="ai-sdk", body=ChatBody,
        summary="Send a message or answers (AI SDK, v6 or v7); the run is answered as a UI message stream",
        responses={200: ("The UI message stream of the run, up to its rest.", EVENT_STREAM)},
    ),
    Route(
        method="GET", template=f"{_CHAT}/{{chat}}/stream", handler=stream, scope="follow", tag="ai-sdk",
        summary="Resume a chat: its active run again from its start", headers=_LAST,
        query={"finished": "true: also a run that is done (default false)"},
        responses={200: ("The UI message stream of the run.", EVENT_STREAM), 204: ("No run is active.", None)},
    ),
    Route(
        method="POST", template=f"{_CHAT}/{{chat}}/cancel", handler=cancel, scope="start", tag="ai-sdk",
        summary="Cancel the run that a chat is at", responses={202: ("It is durable.", "Accepted")},
    ),
)  # fmt: skip
"""The routes of this protocol."""
