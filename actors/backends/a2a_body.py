"""The body of a call whose work an A2A server does.

Theory of operation. The memo of the call says how far an earlier attempt came (`a2a_memo`), and each attempt goes on
from there: it sends, looks for what was sent, or attaches to the task. A connection that breaks leads back to the same
choice, after a pause. So a message is sent once, unless a person says that it may be sent again.

If the run is cancelled, so is the task. If only this process ends, the task goes on, and another owner attaches.
"""

from __future__ import annotations

import logging
from typing import Any, Final

import attrs
import trio

from ..contract.codec import shortened
from ..contract.decisions import Suspend
from ..contract.parts import Attachment
from ..errors import ToolError
from ..tools.context import ToolContext
from .a2a_codec import UNSUPPORTED_OPERATION, A2AFault
from .a2a_forms import answer_message, attachments_of, auth_question, input_question, prompt_message, unknown_question
from .a2a_http import A2AConnection, Away, Unusable, at_length
from .a2a_memo import Asked, Memo, answer_id, context_of
from .a2a_talk import Patience, RemoteTalk
from .a2a_task import RemoteTask
from .a2a_values import A2AMessage, TaskState
from .driver import new_parts
from .items import Notice
from .narration import Narration

logger = logging.getLogger("greenroom.backend")

CANCEL_TIME: Final = 9.0
"""Seconds for the cancel of a task: within the grace of the tool."""
GRACE: Final = 10.0

Result = str | list[str | Attachment] | Suspend


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
        self._ctx, self._name, self._url, self._connection = ctx, name, url, connection
        self._memo = Memo.of(ctx.memo)
        self._context = context_of(ctx.thread_id, name, url)
        self._task = RemoteTask(self._memo.task, answered=self._memo.question, told=self._memo.told)
        self._narration = Narration(ctx, name, "")
        self._talk = RemoteTalk(connection, self._task, self._narration, patience, on_task=self._know)
        self._notes: list[str] = []

    def __repr__(self) -> str:
        return f"<RemoteCall {self._ctx.call_id!r} to {self._name}: {self._task!r}>"

    async def outcome(self, prompt: str) -> Result:
        """Do the work, or go on with it, and return the result or a question.

        Raises:
            ToolError: the work has failed, with its code.
        """
        try:
            try:
                return await self._work(prompt)
            except Unusable as error:
                why = str(error)
            await self._narration.unavailable(why)
            raise ToolError(why, run_code="runtime_unavailable")
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
                    await self._talk.attach()
                elif not await self._find():
                    return await self._ask("unknown", unknown_question(self._name, self._url))
            except Away as error:
                message = message if not error.reached else None
                await self._talk.wait(error)
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
            return None if await self._talk.patiently(self._find) else await self._prompt(prompt)
        if memo.asked == "input" and await self._talk.patiently(self._still_asks):
            message_id = answer_id(self._ctx.idempotency_key, decision)
            is_ticket = bool(self._task.tickets)
            return answer_message(message_id, self._context, memo, decision, is_ticket=is_ticket)
        await self._keep(asked="")
        return None

    async def _prompt(self, prompt: str) -> A2AMessage:
        parts = new_parts(await self._ctx.messages(), self._name)
        size, key = sum(part.size for part in parts), self._ctx.idempotency_key
        return await at_length(size, prompt_message, key, self._context, prompt, parts)

    async def _still_asks(self) -> bool:
        """Return True if the other side still asks what people have answered."""
        await self._talk.look()
        same = self._task.state is TaskState.INPUT_REQUIRED and self._task.question == self._memo.question
        if not same:
            self._notes.append("The answer was not sent, because the other side had gone on meanwhile.")
        return same

    # --- sending and attaching ---------------------------------------------------------------------------------------

    async def _send(self, message: A2AMessage) -> None:
        """Send a message, and hear what comes of it; its id is kept before."""
        await self._connection.target()  # no id is kept for an agent that cannot be reached
        is_answer = bool(message.task_id)
        await self._keep(sent=message.message_id, asked="")
        self._task.answer(self._memo.question)
        interruption: Away | None = None
        try:
            await self._talk.send(message)
        except Away as error:
            interruption = error
        except A2AFault as fault:
            if not (is_answer and fault.error is UNSUPPORTED_OPERATION):
                raise ToolError(f"it refused the message: {fault.message}", run_code="runtime_failed") from None
            self._notes.append("The answer was refused, because the other side had gone on meanwhile.")
        if interruption is not None:
            if not interruption.reached and not is_answer:
                await self._keep(sent="")
            raise interruption

    async def _find(self) -> bool:
        return await self._talk.find(self._context, self._memo.sent)

    async def _know(self) -> None:
        await self._keep(task=self._task.task_id)

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
            await self._talk.patiently(self._see_whole)
        result = self._task.result()
        size = sum(len(part.raw or "") for part in result.files)
        attachments, notes = await at_length(size, attachments_of, result.files)
        for note in (notes := [*self._notes, *result.notes, *notes]):
            await self._narration.report(Notice(kind="notice", text=note))
        is_data = result.text.lstrip()[:1] in ("{", "[")  # a sentence behind it would make it invalid
        text = result.text if is_data else "\n\n".join((result.text, *notes)) if notes else result.text
        return [text, *attachments] if attachments else text

    async def _see_whole(self) -> bool:
        """Take the artifacts as they are at the end; a server may have forgotten the task by then."""
        try:
            await self._talk.look()
        except ToolError:
            return False
        return True

    async def _ask(self, asked: Asked, question: Suspend) -> Suspend:
        """Keep what is asked, and return the question."""
        for item in self._task.complete():
            await self._talk.report(item)
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
        except (Away, Unusable, ToolError) as error:
            return str(error)
        return await self._talk.cancel()
