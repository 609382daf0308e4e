"""The talk with an A2A server about one task: send, attach, look, hear; and the patience with lost connections.

Theory of operation. While a stream is silent, the task is looked at beside it: official servers keep the stream of a
task open that waits for input. A stream is left at the first state of rest. All that is heard goes to the task
(`a2a_task`) and from there to the log of the run. A lost connection is `Away`; the caller waits (`wait`) and goes on.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Final

import attrs
import msgspec
import trio

from ...supervision.nursery import open_collapsing_nursery
from ..contract.plain import JSONObject
from ..contract.sizes import measured
from ..errors import ToolError
from .a2a_codec import (
    CANCEL_TASK,
    GET_TASK,
    LIST_TASKS,
    SEND_MESSAGE,
    SEND_STREAMING_MESSAGE,
    SUBSCRIBE_TO_TASK,
    TASK_NOT_CANCELABLE,
    A2AFault,
    Operation,
)
from .a2a_http import LARGE, A2AConnection, Away, Unusable, at_length
from .a2a_task import ARTIFACTS_LIMIT, FAULTS_LIMIT, PART_WEIGHT, Heard, RemoteTask
from .a2a_values import (
    A2AInvalid,
    A2AMessage,
    A2ATask,
    Kind,
    ListParams,
    SendConfiguration,
    SendParams,
    TaskPage,
    TaskParams,
    read,
    read_item,
    written,
)
from .narration import Narration

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


@attrs.frozen(kw_only=True)
class Patience:
    """How long the other side may be silent or gone, in seconds: `A2A(idle=, offline=)`."""

    idle: float
    offline: float


class RemoteTalk:
    """The talk about one task.

    Args:
        connection: The connection to the agent.
        task: The task.
        narration: The log of the run.
        patience: The limits.
        on_task: Called with the first news of a task whose id was not known.
    """

    def __init__(
        self,
        connection: A2AConnection,
        task: RemoteTask,
        narration: Narration,
        patience: Patience,
        *,
        on_task: Callable[[], Awaitable[None]],
    ) -> None:
        self._connection, self._task, self._narration, self._patience = connection, task, narration, patience
        self._on_task, self._is_known = on_task, bool(task.task_id)
        self._heard_at = self._gone_since = trio.current_time()
        self._lost = 0
        self._sent: A2AMessage | None = None

    def __repr__(self) -> str:
        return f"<RemoteTalk about {self._task!r}: {self._lost} connections lost>"

    async def patiently(self, step: Callable[[], Awaitable[bool]]) -> bool:
        """Take a step, again after each lost connection, as long as `offline` allows."""
        while True:
            try:
                return await step()
            except Away as error:
                await self.wait(error)

    async def wait(self, error: Away) -> None:
        """Pause after a lost connection.

        Raises:
            ToolError: the other side has been gone for `offline` seconds.
        """
        now = trio.current_time()
        self._gone_since = self._gone_since if self._lost else now
        self._lost += 1
        remaining = self._gone_since + self._patience.offline - now
        if remaining <= 0:
            place = f"; its task {self._task.task_id} goes on there" if self._task.task_id else ""
            text = f"the other side has been away for {self._patience.offline:g} s ({error}){place}"
            raise ToolError(text, run_code="target_offline") from None
        shortest, longest = BACKOFF
        pause = min(longest, shortest * 2 ** (self._lost - 1)) if self._lost <= TRIES else LOOK
        await trio.sleep(min(remaining, pause * random.uniform(0.5, 1.0)))  # noqa: S311 - only spreads the load
        self._heard_at = trio.current_time()

    # --- sending and attaching ---------------------------------------------------------------------------------------

    async def send(self, message: A2AMessage) -> None:
        """Send a message, and hear what comes of it.

        Raises:
            Away: the connection was lost before the task was at rest.
            A2AFault: the message is refused.
            Unusable: as `A2AConnection.call`.
        """
        self._sent = message
        target = await self._connection.target()
        settings = SendConfiguration(return_immediately=not target.streams)
        params = written(SendParams(message=message, configuration=settings))
        refusal: A2AFault | None = None
        try:
            if target.streams:
                await self._hear(SEND_STREAMING_MESSAGE, params)
            else:
                await self._take(await self._connection.call(SEND_MESSAGE, params))
        except A2AFault as fault:
            refusal = fault
        if refusal is not None:
            await self._doubt(refusal)
            raise refusal

    async def attach(self) -> None:
        """Hear what comes of the task, from now on; raises as `send`."""
        await self.look()
        for pause in LOOKS:  # an answer may be on its way, of an attempt that was cut off
            if self._task.at_rest or not self._task.asks_again:
                break
            await trio.sleep(pause)
            await self.look()
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
        await self.look()
        while not self._task.at_rest:
            await trio.sleep(pause)
            pause = min(2 * pause, LOOK)
            await self.look()

    async def find(self, context_id: str, message_id: str) -> bool:
        """Look for the task of a message that may have been sent, among the newest of a conversation."""
        for pause in LOOKS:
            if await self._is_there(context_id, message_id):
                return True
            await trio.sleep(pause)
        return await self._is_there(context_id, message_id)

    async def _is_there(self, context_id: str, message_id: str) -> bool:
        params = ListParams(context_id=context_id, page_size=NEWEST, history_length=NEWEST)
        page = await self._answer(LIST_TASKS, params, TaskPage)
        if isinstance(page, A2AFault):
            return False  # the agent does not list its tasks
        for task in page.tasks[:NEWEST]:
            if any(message.message_id == message_id for message in task.history[-NEWEST:]):
                await self._look_at(task)
                return True
        return False

    async def look(self) -> None:
        """Take a snapshot of the task."""
        task = await self._answer(GET_TASK, TaskParams(id=self._task.task_id, history_length=0), A2ATask)
        if isinstance(task, A2AFault):
            text = f"it does not give its task {self._task.task_id}: {task.message}"
            raise ToolError(text, run_code="runtime_failed")
        await self._look_at(task)

    async def _answer(self, operation: Operation, params: msgspec.Struct, kind: type[Kind]) -> Kind | A2AFault:
        """Return the answer to an operation, or its error.

        Raises:
            Away: the answer is not one of the protocol, or does not come.
        """
        try:
            data = await self._connection.call(operation, written(params))
            return await at_length(measured(data, LARGE), read, kind, data)
        except A2AInvalid as error:
            fault = A2AFault(None, f"its answer is invalid: {error}")
        except A2AFault as error:
            fault = error
        await self._doubt(fault)
        return fault

    async def _look_at(self, task: A2ATask) -> None:
        self._heard_at = self._gone_since = trio.current_time()
        parts = sum(len(artifact.parts) for artifact in task.artifacts[:ARTIFACTS_LIMIT])
        for item in await at_length(parts * PART_WEIGHT, self._task.look, task):
            await self.report(item)
        await self._know()

    async def cancel(self) -> str:
        """Cancel the task, and return why it may still run; "" if it has ended."""
        try:
            task = await self._answer(CANCEL_TASK, TaskParams(id=self._task.task_id), A2ATask)
        except (Away, Unusable) as error:
            return str(error)
        if isinstance(task, A2AFault):
            return "" if task.error is TASK_NOT_CANCELABLE else task.message
        return "" if task.status.state.terminal else f"its state is {task.status.state}"

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
            await self.look()
            return
        if self._sent is not None and await self._is_there(self._sent.context_id, self._sent.message_id):
            return
        if trio.current_time() >= self._heard_at + self._patience.idle:
            await self._narration.late("idle", self._patience.idle)
            text = f"it said nothing for {self._patience.idle:g} s"
            raise ToolError(text, run_code="run_timeout")

    async def _take(self, data: JSONObject) -> None:
        """Take an item of a stream, or the answer to a message."""
        self._heard_at, self._lost = trio.current_time(), 0
        for item in await at_length(measured(data, LARGE), self._fed, data):
            await self.report(item)
        await self._know()

    def _fed(self, data: JSONObject) -> list[Heard]:
        try:
            return self._task.feed(read_item(data))
        except A2AInvalid as error:
            return [self._task.fault("invalid_item", str(error))]

    async def _know(self) -> None:
        if self._task.task_id and not self._is_known:
            self._is_known = True
            await self._on_task()

    async def report(self, item: Heard) -> None:
        """Report what was heard to the log of the run.

        Raises:
            ToolError: the other side breaks the protocol again and again.
        """
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
            await self.report(self._task.fault("invalid_answer", fault.message))
            raise Away(fault.message, reached=True)
