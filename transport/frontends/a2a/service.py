"""A2A 1.0: an agent as an A2A server, in both bindings. An A2A task is a run, a context is a thread.

Theory of operation. A request becomes commands to the runtime, and answers are folds of the log (`view`, `encoder`), so
any process on the store answers any request, also after a restart. The same message again is the same run, the same
decisions and the same input.

| the request | the effect |
|---|---|
| SendMessage, SendStreamingMessage | a run, decisions or input (`input`, `telling`); answered at rest, or as a stream |
| SubscribeToTask | the A2A task and what follows; with Last-Event-ID only what follows |
| GetTask, ListTasks | the A2A task from its log; the landed list |
| CancelTask | cancel; answered at the end of the run, or after 10 s |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec
import trio

import greenroom as gr
from greenroom.actors.backends import a2a_codec as codec
from greenroom.actors.backends.a2a_codec import A2AFault, Operation
from greenroom.actors.backends.a2a_values import (
    A2AInvalid,
    A2AMessage,
    ListParams,
    SendConfiguration,
    SendParams,
    TaskParams,
    read,
)
from greenroom.actors.contract.ids import content_digest
from greenroom.actors.contract.lifecycle import RunStatus
from greenroom.actors.contract.rows import RunInfo

from ...gateway.http import Request, Response, Streamed
from ...gateway.run_routes import resumed_after
from ...protocol.codes import Refused
from ...protocol.up import Cancel
from .encoder import A2AStream, begin
from .errors import not_found
from .input import MessageContent, check_count, read_parts, start_of
from .listing import list_tasks
from .response import A2AAnswer, A2AResponse, AnswerForm, folded, with_files
from .telling import tell

if TYPE_CHECKING:
    from ...gateway.gateway import Gateway

CANCEL_SECONDS: Final = 10.0
"""Seconds that CancelTask waits for the end of a run."""
_TAKEN: Final = ("text/*", "text/plain", "application/json", "*/*")
"""Media types of which a client must accept one."""

_NO_PUSH: Final = "push notifications are not sent; subscribe to the task"
_NO_EXTENDED_CARD: Final = "an extended card is not offered; the card of the agent has everything"


@attrs.frozen(kw_only=True)
class A2ACall:
    """An operation that a client asks for.

    Attributes:
        gateway: The gateway.
        request: The request, for its principal and headers.
        agent: The agent's key.
        operation: The operation.
        params: Its parameters, as JSON data.
        form: The form of the answer.
    """

    gateway: Gateway
    request: Request
    agent: str
    operation: Operation
    params: Any
    form: AnswerForm

    def read(self, kind: Any) -> Any:
        """Return the parameters as a value.

        Raises:
            A2AInvalid: they are invalid.
        """
        in_query = self.form.binding == "HTTP+JSON" and self.request.method != "POST"
        return read(kind, self.params, textual=in_query)

    def answer(self, result: msgspec.Struct) -> Response:
        """Return the response of a result."""
        return Response(body=self.form.result(result))


async def perform(call: A2ACall) -> Response | Streamed:
    """Perform an operation.

    Raises:
        A2AFault, A2AInvalid, Refused: the operation is answered with an error.
    """
    version = call.request.headers.get(codec.VERSION_HEADER.lower())
    if not codec.speaks(version):
        shown = "no version, which means 0.3" if version is None else f"the version {version!r:.40}"
        text = f"the request has {shown}; send {codec.VERSION_HEADER}: {codec.VERSION}"
        raise A2AFault(codec.VERSION_NOT_SUPPORTED, text)
    await check_agent(call.gateway, call.agent)
    match call.operation:
        case codec.SEND_MESSAGE | codec.SEND_STREAMING_MESSAGE:
            return await _send(call)
        case codec.GET_TASK:
            return await _get(call)
        case codec.LIST_TASKS:
            return call.answer(await list_tasks(call.gateway, call.request.who, call.agent, call.read(ListParams)))
        case codec.CANCEL_TASK:
            return await _cancel(call)
        case codec.SUBSCRIBE_TO_TASK:
            return await _subscribe(call)
        case codec.GET_EXTENDED_CARD:
            raise A2AFault(codec.EXTENDED_AGENT_CARD_NOT_CONFIGURED, _NO_EXTENDED_CARD)
        case _:
            raise A2AFault(codec.PUSH_NOTIFICATION_NOT_SUPPORTED, _NO_PUSH)


async def check_agent(gateway: Gateway, key: str) -> None:
    """Check that an agent is offered here.

    Raises:
        Refused: unknown_agent.
    """
    if not gateway.a2a.offers(key) or not await gateway.api.knows_agent(key):
        raise Refused(
            "unknown_agent", f"no agent that is offered here has the key {key!r:.200}; GET /v1/agents lists them"
        )


# --- messages --------------------------------------------------------------------------------------------------------


async def _send(call: A2ACall) -> Response | Streamed:
    """Take a message: start a run, or tell one something, and answer with it."""
    check_count(call.params)
    params: SendParams = call.read(SendParams)
    _check_configuration(params.configuration)
    said = read_parts(params.message)
    history, after = params.configuration.history_length, _cursor(call)
    if params.message.task_id:
        info = await _visible(call, params.message.task_id)
        _check_context(params.message, info)
        refused = await tell(call.gateway, call.request.who, info.run_id, params.message, said)
        call = attrs.evolve(call, form=attrs.evolve(call.form, refused=refused))
    else:
        info = await _started(call, params.message, said)
    if params.configuration.return_immediately and not call.operation.streams:
        task = await _task(call, info, history)
        return Response(body=call.form.item(task))
    state = await _begun(call, info, after, history)
    kind = A2AResponse if call.operation.streams else A2AAnswer
    return kind(call.gateway, call.request.who, state, call.form).response()


def _check_configuration(wishes: SendConfiguration) -> None:
    if wishes.task_push_notification_config is not None:
        raise A2AFault(codec.PUSH_NOTIFICATION_NOT_SUPPORTED, _NO_PUSH)
    _check_history(wishes.history_length)
    modes = wishes.accepted_output_modes
    if modes and not any(mode.partition(";")[0].strip().lower() in _TAKEN for mode in modes):
        text = f"acceptedOutputModes has {', '.join(modes)[:200]}; answers are text/plain and application/json"
        raise A2AFault(codec.CONTENT_TYPE_NOT_SUPPORTED, text)


def _check_history(length: int | None) -> None:
    if length is not None and length < 0:
        raise A2AInvalid(f"historyLength={length}: give 0 or more")


def _check_context(message: A2AMessage, info: RunInfo) -> None:
    if message.context_id and message.context_id != info.thread_id:
        raise A2AInvalid(f"the task {info.run_id!r} is not in the context {message.context_id!r:.200}; leave it out")


async def _started(call: A2ACall, message: A2AMessage, said: MessageContent) -> RunInfo:
    """Start the run of a message, or find the one that it has started."""
    who = call.request.who
    who.need("start")  # first: the principal must learn nothing of runs that it may not start
    order = start_of(who.name, call.agent, message, said)
    try:
        ack = await call.gateway.api.start(who, order)
    except Refused as refused:
        if refused.error.code != "run_exists":
            raise
        text = f"the message id {message.message_id!r:.200} was used for another message; take a new one"
        raise Refused("run_exists", text) from refused
    return await _visible(call, ack.run or order.id)


# --- A2A tasks -------------------------------------------------------------------------------------------------------


async def _get(call: A2ACall) -> Response:
    params: TaskParams = call.read(TaskParams)
    _check_history(params.history_length)
    return call.answer(await _task(call, await _visible(call, params.id), params.history_length))


async def _subscribe(call: A2ACall) -> Streamed:
    params: TaskParams = call.read(TaskParams)
    info, after = await _visible(call, params.id), _cursor(call)
    if after is None and await _status(call, info) is RunStatus.DONE:
        raise A2AFault(codec.UNSUPPORTED_OPERATION, f"the task {info.run_id!r} has ended; GetTask has its end")
    state = await _begun(call, info, after, None)
    return A2AResponse(call.gateway, call.request.who, state, call.form).response()


async def _cancel(call: A2ACall) -> Response:
    """Cancel a run, and answer at its end, or after a while with its state then."""
    params: TaskParams = call.read(TaskParams)
    gateway, who = call.gateway, call.request.who
    info = await _visible(call, params.id)
    run_id = info.run_id
    ended = A2AFault(codec.TASK_NOT_CANCELABLE, f"the task {run_id!r} has ended", metadata={"code": "run_done"})
    if await _status(call, info) is RunStatus.DONE:
        raise ended
    try:
        await gateway.api.command(who, Cancel(id=content_digest(["cancel", who.name, run_id]), run=run_id))
    except Refused as refused:
        if refused.error.code == "run_done":
            raise ended from refused
        raise
    with trio.move_on_after(CANCEL_SECONDS) as limit:
        gateway.idle.add(limit)  # a gateway that stops does not wait
        try:
            async with gateway.follow(run_id) as follower:
                async for _ in follower:
                    pass
        except (gr.RunDegradedError, gr.RuntimeClosed):
            pass  # the answer says what became of the run until now
        finally:
            gateway.idle.discard(limit)
    return call.answer(await _task(call, info, None))


async def _task(call: A2ACall, info: RunInfo, history: int | None) -> Any:
    """Return the A2A task as it is now, with its small files, and the decisions that were refused."""
    task = (await folded(call.gateway, info.run_id, info.thread_id)).task(history=history)
    return call.form.noted(await with_files(call.gateway, info.run_id, task))


async def _status(call: A2ACall, info: RunInfo) -> RunStatus | None:
    outline = await call.gateway.runtime.reader.outline(info.run_id)
    return None if outline is None else outline.status


async def _visible(call: A2ACall, task_id: str) -> RunInfo:
    """Return the run of an A2A task of this agent that the principal may see.

    Raises:
        A2AFault: TASK_NOT_FOUND, in the same words for all others.
    """
    try:
        info = await call.gateway.api.info(call.request.who, task_id)
    except (Refused, gr.UsageError) as refused:
        if isinstance(refused, Refused) and refused.error.code != "unknown_run":
            raise
        raise not_found(task_id) from refused
    if info.agent != call.agent:
        raise not_found(task_id)
    return info


def _cursor(call: A2ACall) -> int | None:
    """Return the sequence behind which a stream goes on; None for a new one.

    Raises:
        Refused: bad_message, reset.
    """
    is_resumed = call.operation.streams and call.request.headers.get("last-event-id")
    return resumed_after(call.gateway, call.request) if is_resumed else None


async def _begun(call: A2ACall, info: RunInfo, after: int | None, history: int | None) -> A2AStream:
    """Return the state of a stream that begins now, or that goes on behind a sequence."""
    head = await call.gateway.api.head(call.request.who, info.run_id)
    if after is not None and after > head:
        raise Refused("reset", f"the newest event is {head}, not {after}; subscribe without Last-Event-ID")
    if after is not None:
        return begin(info.run_id, info.thread_id, after=after, resumed=True)
    return begin(info.run_id, info.thread_id, after=head, history=history)
