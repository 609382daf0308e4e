"""The body of a call whose work an A2A server does.

Theory of operation. The memo of the call says how far an earlier attempt came (`a2a_memo`), and each attempt goes on
from there: it sends, looks for what was sent, or attaches to the task. A connection that breaks leads back to the same
choice, after a pause. So a message is sent once, unless a person says that it may be sent again.

While a stream is silent, the task is looked at beside it: official servers keep the stream of a task open that waits
for input. The stream is left at the first state of rest.

If the run is cancelled, so is the task. If only this process ends, the task goes on, and another owner attaches.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any, Final

import attrs
import trio

from ...supervision.nursery import open_collapsing_nursery
from ..contract.codec import shortened
from ..contract.decisions import Suspend
from ..contract.parts import Attachment
from ..contract.plain import JSONObject
from ..errors import ToolError
from ..tools.context import ToolContext
from .a2a_codec import (
    CANCEL_TASK,
    GET_TASK,
    LIST_TASKS,
    SEND_MESSAGE,
    SEND_STREAMING_MESSAGE,
    SUBSCRIBE_TO_TASK,
    TASK_NOT_CANCELABLE,
    UNSUPPORTED_OPERATION,
    A2AFault,
    Operation,
)
from .a2a_forms import answer_message, attachments_of, auth_question, input_question, prompt_message, unknown_question
from .a2a_http import A2AConnection, Away, Unusable
from .a2a_memo import Asked, Memo, answer_id, context_of
from .a2a_task import FAULTS_LIMIT, Heard, RemoteTask
from .a2a_values import (
    A2AInvalid,
    A2AMessage,
    A2ATask,
    ListParams,
    SendConfiguration,
    SendParams,
    TaskPage,
    TaskParams,
    TaskState,
    read,
    read_item,
    written,
)
from .driver import new_parts
from .items import Notice
from .narration import Narration

logger = logging.getLogger("greenroom.backend")

LOOK: Final = 15.0
"""Seconds of a silent stream after which the task is looked at."""
LOOKS: Final = (0.5, 1.0, 2.0)
"""Seconds between the looks for a message that another process, or a broken connection, may have sent just now."""
TRIES: Final = 5
"""Lost connections one after the other before the task is only looked at from time to time."""
BACKOFF: Final = (0.5, 8.0)
"""The shortest and the longest pause of these tries, in seconds; each has a part that is random."""
NEWEST: Final = 100
"""Tasks of a conversation, and messages of each, among which a message is looked for."""
CANCEL_TIME: Final = 9.0
"""Seconds for the cancel of a task: within the grace of the tool."""
GRACE: Final = 10.0

Result = str | list[str | Attachment] | Suspend


@attrs.frozen(kw_only=True)
class Patience:
    """How long the other side may be silent or gone, in seconds: `A2A(idle=, offline=)`."""

    idle: float
    offline: float


class RemoteCall:
    """One attempt of a call.

    Args:
        ctx: The context of the body.
        name: The backend.
        url: Its address, for people.
        connection: The connection to the agent.
        patience: The limits.
    """

    def __init__(
        self, ctx: ToolContext[Any], name: str, url: str, connection: A2AConnection, patience: Patience
    ) -> None:
        self._ctx, self._name, self._url, self._connection, self._patience = ctx, name, url, connection, patience
        self._memo = Memo.of(ctx.memo)
        self._context = context_of(ctx.thread_id, name, url)
        self._task = RemoteTask(self._memo.task, answered=self._memo.question, told=self._memo.told)
        self._narration = Narration(ctx, name, "")
        self._heard_at = trio.current_time()
        self._lost, self._lost_since = 0, 0.0
        self._notes: list[str] = []

    def __repr__(self) -> str:
        return f"<RemoteCall {self._ctx.call_id!r} to {self._name}: {self._task!r}>"

    async def outcome(self, prompt: str) -> Result:
        """Do the work, or go on with it, and return the result or a question.

        Raises:
            ToolError: the work has failed, with its code.
        """
        try:
            return await self._work(prompt)
        except Unusable as error:
            await self._narration.unavailable(str(error))
            raise ToolError(str(error), run_code="runtime_unavailable") from None
        finally:
            if self._ctx.stopped:
                await self._stop()  # noqa: ASYNC102 - shielded and bounded inside

    async def _work(self, prompt: str) -> Result:
        message = await self._next_message(prompt)
        while message is not None or not self._task.at_rest:
            try:
                if message is not None:
                    await self._send(message)
                    message = None
                elif self._task.task_id:
                    await self._attach()
                elif not await self._find():
                    return await self._ask("unknown", unknown_question(self._name, self._url))
                self._lost = 0
            except Away as error:
                message = message if not error.reached else None
                await self._wait(error)
        return await self._rest()

    # --- what comes next ---------------------------------------------------------------------------------------------

    async def _next_message(self, prompt: str) -> A2AMessage | None:
        """Return the message that is to be sent now; None if one was sent already."""
        memo, decision = self._memo, self._ctx.decision
        if not memo.sent:
            return await self._prompt(prompt)
        if decision is None or not memo.is_answered(decision):
            return None
        if memo.asked == "unknown":
            return None if await self._patiently(self._find) else await self._prompt(prompt)
        if memo.asked == "input" and await self._patiently(self._still_asks):
            message_id = answer_id(self._ctx.idempotency_key, decision)
            is_ticket = bool(self._task.tickets)
            return answer_message(message_id, self._context, memo, decision, is_ticket=is_ticket)
        await self._keep(asked="")
        return None

    async def _prompt(self, prompt: str) -> A2AMessage:
        parts = new_parts(await self._ctx.messages(), self._name)
        return prompt_message(self._ctx.idempotency_key, self._context, prompt, parts)

    async def _still_asks(self) -> bool:
        """Return True if the other side still asks what people have answered."""
        await self._look()
        same = self._task.state is TaskState.INPUT_REQUIRED and self._task.question == self._memo.question
        if not same:
            self._notes.append("The answer was not sent, because the other side had gone on meanwhile.")
        return same

    async def _patiently(self, step: Callable[[], Awaitable[bool]]) -> bool:
        """Take a step, again after each lost connection, as long as `offline` allows."""
        while True:
            try:
                return await step()
            except Away as error:
                await self._wait(error)

    async def _wait(self, error: Away) -> None:
        """Pause after a lost connection.

        Raises:
            ToolError: the other side has been gone for `offline` seconds.
        """
        now = trio.current_time()
        self._lost_since = self._lost_since if self._lost else now
        self._lost += 1
        remaining = self._lost_since + self._patience.offline - now
        if remaining <= 0:
            place = f"; its task {self._task.task_id} goes on there" if self._task.task_id else ""
            text = f"the other side has been away for {self._patience.offline:g} s ({error}){place}"
            raise ToolError(text, run_code="target_offline") from None
        shortest, longest = BACKOFF
        pause = min(longest, shortest * 2 ** (self._lost - 1)) if self._lost <= TRIES else LOOK
        await trio.sleep(min(remaining, pause * random.uniform(0.5, 1.0)))  # noqa: S311 - only spreads the load
        self._heard_at = trio.current_time()

    # --- sending and attaching ---------------------------------------------------------------------------------------

    async def _send(self, message: A2AMessage) -> None:
        """Send a message, and hear what comes of it."""
        target = await self._connection.target()
        is_answer = bool(message.task_id)
        await self._keep(sent=message.message_id, asked="")
        self._task.answer(self._memo.question)
        settings = SendConfiguration(return_immediately=not target.streams)
        params = written(SendParams(message=message, configuration=settings))
        try:
            if target.streams:
                await self._hear(SEND_STREAMING_MESSAGE, params)
            else:
                await self._take(await self._connection.call(SEND_MESSAGE, params))
        except Away as error:
            if not error.reached and not is_answer:
                await self._keep(sent="")
            raise
        except A2AFault as fault:
            await self._doubt(fault)
            if not (is_answer and fault.error is UNSUPPORTED_OPERATION):
                raise ToolError(f"it refused the message: {fault.message}", run_code="runtime_failed") from None
            self._notes.append("The answer was refused, because the other side had gone on meanwhile.")

    async def _attach(self) -> None:
        """Hear what comes of the task, from now on."""
        await self._look()
        for pause in LOOKS:  # an answer may be on its way, of an attempt that was cut off
            if self._task.at_rest or not self._task.asks_again:
                break
            await trio.sleep(pause)
            await self._look()
        self._task.answer("")
        if self._task.at_rest:
            return
        if not (await self._connection.target()).streams:
            await self._watch()
            return
        try:
            await self._hear(SUBSCRIBE_TO_TASK, written(TaskParams(id=self._task.task_id)))
        except A2AFault as fault:  # the task has just ended; or the agent does not stream what it has begun
            await self._doubt(fault)
            await trio.sleep(LOOKS[0])
            await self._watch()

    async def _watch(self) -> None:
        """Look at the task from time to time until it is at rest."""
        pause = LOOKS[0]
        await self._look()
        while not self._task.at_rest:
            await trio.sleep(pause)
            pause = min(2 * pause, LOOK)
            await self._look()

    async def _find(self) -> bool:
        """Look for the task of the message that may have been sent, among the newest of the conversation."""
        params = ListParams(context_id=self._context, page_size=NEWEST, history_length=NEWEST)
        for pause in (*LOOKS, None):
            try:
                page = read(TaskPage, await self._connection.call(LIST_TASKS, written(params)))
            except A2AFault as fault:  # the agent does not list its tasks
                await self._doubt(fault)
                return False
            except A2AInvalid as error:
                raise await self._invalid(error) from None
            for task in page.tasks:
                if any(message.message_id == self._memo.sent for message in task.history):
                    self._task.look(task)
                    await self._keep(task=task.id)
                    return True
            if pause is not None:
                await trio.sleep(pause)
        return False

    async def _look(self) -> None:
        """Take a snapshot of the task."""
        try:
            params = TaskParams(id=self._task.task_id, history_length=0)
            task = read(A2ATask, await self._connection.call(GET_TASK, written(params)))
        except A2AFault as fault:
            await self._doubt(fault)
            text = f"it does not give its task {self._task.task_id}: {fault.message}"
            raise ToolError(text, run_code="runtime_failed") from None
        except A2AInvalid as error:
            raise await self._invalid(error) from None
        self._heard_at = trio.current_time()
        for item in self._task.look(task):
            await self._report(item)

    # --- hearing -----------------------------------------------------------------------------------------------------

    async def _hear(self, operation: Operation, params: JSONObject) -> None:
        """Hear a stream until the task is at rest; look at the task beside a silent one.

        Raises:
            Away: the stream has ended before that.
            A2AFault: the answer is an error.
            Unusable: as `A2AConnection.call`.
        """
        outgoing, incoming = trio.open_memory_channel[JSONObject](0)
        end: Exception = Away("the stream ended before the task was at rest", reached=True)

        async def receive() -> None:
            nonlocal end
            with outgoing:
                try:
                    async with self._connection.stream(operation, params) as items:
                        async for item in items:
                            await outgoing.send(item)
                except (Away, A2AFault, Unusable) as error:  # told behind the items: they are reported whole
                    end = error

        async with open_collapsing_nursery() as nursery:
            nursery.start_soon(receive)
            while not self._task.at_rest:
                item: JSONObject | None = None
                with trio.move_on_after(LOOK):
                    try:
                        item = await incoming.receive()
                    except trio.EndOfChannel:
                        break
                await (self._look_beside() if item is None else self._take(item))
            nursery.cancel_scope.cancel()
        if not self._task.at_rest:
            raise end

    async def _look_beside(self) -> None:
        """Look at the task while its stream is silent.

        Raises:
            ToolError: the other side has said nothing for `idle` seconds.
        """
        self._task.answer("")
        if self._task.task_id:
            await self._look()
        elif trio.current_time() >= self._heard_at + self._patience.idle:
            await self._narration.late("idle", self._patience.idle)
            text = f"it said nothing for {self._patience.idle:g} s"
            raise ToolError(text, run_code="run_timeout")

    async def _take(self, data: JSONObject) -> None:
        """Take an item of a stream, or the answer to a message."""
        self._heard_at = trio.current_time()
        try:
            news = self._task.feed(read_item(data))
        except A2AInvalid as error:
            news = [self._task.fault("invalid_item", str(error))]
        for item in news:
            await self._report(item)
        if self._task.task_id and not self._memo.task:
            await self._keep(task=self._task.task_id)

    async def _report(self, item: Heard) -> None:
        await self._narration.report(item)
        if self._task.faults > FAULTS_LIMIT:
            text = f"it broke the protocol more than {FAULTS_LIMIT} times"
            raise ToolError(text, run_code="schema_validation_failed")

    async def _doubt(self, fault: A2AFault) -> None:
        """Count an answer that is not one of the protocol.

        Raises:
            Away: it is not.
        """
        if fault.error is None:
            await self._report(self._task.fault("invalid_answer", fault.message))
            raise Away(fault.message, reached=True) from None

    async def _invalid(self, error: A2AInvalid) -> Away:
        """Count an answer that is not of the form of its operation."""
        await self._report(self._task.fault("invalid_answer", str(error)))
        return Away(f"its answer is invalid: {error}", reached=True)

    # --- the end -----------------------------------------------------------------------------------------------------

    async def _rest(self) -> Result:
        task, words = self._task, self._task.words
        match task.state:
            case TaskState.COMPLETED:
                return await self._result()
            case TaskState.INPUT_REQUIRED:
                return await self._ask("input", input_question(self._name, task))
            case TaskState.AUTH_REQUIRED:
                return await self._ask("auth", auth_question(self._name, task))
            case TaskState.CANCELED:
                raise ToolError("cancelled by the other side", run_code="runtime_failed")
            case state:
                what = "rejected the task" if state is TaskState.REJECTED else "failed"
                raise ToolError(f"it {what}: {words or 'no reason was said'}", run_code="runtime_failed")

    async def _result(self) -> Result:
        if self._task.task_id:
            await self._patiently(self._see_whole)
        result = self._task.result()
        attachments, notes = attachments_of(result.files)
        for note in (notes := [*self._notes, *result.notes, *notes]):
            await self._narration.report(Notice(kind="notice", text=note))
        is_data = result.text.lstrip()[:1] in ("{", "[")  # a sentence behind it would make it invalid
        text = result.text if is_data else "\n\n".join((result.text, *notes)) if notes else result.text
        return [text, *attachments] if attachments else text

    async def _see_whole(self) -> bool:
        """Take the artifacts as they are at the end; a server may have forgotten the task by then."""
        try:
            await self._look()
        except ToolError:
            return False
        return True

    async def _ask(self, asked: Asked, question: Suspend) -> Suspend:
        """Keep what is asked, and return the question."""
        for item in self._task.complete():
            await self._report(item)
        await self._narration.go_on()
        ticket = next(iter(self._task.tickets), {})
        decision = self._ctx.decision
        await self._keep(
            asked=asked,
            question=self._task.question if asked == "input" else "",
            fingerprint=str(ticket.get("fingerprint") or "") if asked == "input" else "",
            before="" if decision is None else decision.decision_id,
            told=self._task.told,
        )
        return question

    async def _keep(self, **changes: Any) -> None:
        self._memo = attrs.evolve(self._memo, **changes)
        await self._ctx.save(self._memo.as_json())

    async def _stop(self) -> None:
        """Cancel the task: the run does not want its result. Bounded and shielded.

        Raises:
            ToolError: the task may still run; names it.
        """
        why = f"it did not answer within {CANCEL_TIME:g} s"
        with trio.move_on_after(CANCEL_TIME, shield=True):
            why = await self._cancelled()
        if why:
            task = self._task.task_id or f"of the message {self._memo.sent}"
            text = f"the task {task} of {self._name} ({self._url}) may still run: {shortened(why, 300)}"
            logger.warning(text, extra={"run_id": self._ctx.run_id, "call_id": self._ctx.call_id})
            raise ToolError(text, run_code="outcome_unknown")

    async def _cancelled(self) -> str:
        """Cancel the task, and return why it may still run; "" if it has ended, or never begun."""
        if not self._memo.sent or (self._task.state is not None and self._task.state.terminal):
            return ""
        try:
            if not self._task.task_id and not await self._find():
                return "it was not found"
            task = read(A2ATask, await self._connection.call(CANCEL_TASK, written(TaskParams(id=self._task.task_id))))
        except A2AFault as fault:
            return "" if fault.error is TASK_NOT_CANCELABLE else fault.message
        except (Away, Unusable, A2AInvalid, ToolError) as error:
            return str(error)
        return "" if task.status.state.terminal else f"its state is {task.status.state}"
