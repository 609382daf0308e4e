"""Requests of bodies to their run's machine (background tasks): sent as inputs, answered by effects.

Each request gets exactly one answer. When the run's owner ends, open requests fail with ToolError, so no body waits
without bound.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any, Final

import attrs
import trio

from ..contract.codec import normalise
from ..contract.ids import content_digest
from ..contract.plain import JSONObject
from ..contract.tasks import TaskView
from ..engine.effects import AnswerBody
from ..engine.inputs import CancelAsked, Input, SpawnAsked, TasksAsked
from ..errors import ToolError

GONE: Final = "The run has no owner here any more: nothing can be asked of it."
_MARK: Final = 16
"""Hex digits of the mark that identifies a repeated spawn: enough for the thousand spawns of one body."""


@attrs.define(eq=False)
class _TaskRequest:
    answered: trio.Event = attrs.field(factory=trio.Event)
    value: Any = None
    fault: str | None = None


class TaskRequests:
    """The open requests of one incarnation of a run actor.

    Args:
        owe: submits a request to the machine.
    """

    def __init__(self, owe: Callable[[Input], None]) -> None:
        self._owe = owe
        self._open: dict[int, _TaskRequest] = {}
        self._last = 0
        self._closed = False

    async def ask(self, make: Callable[[int], Input]) -> Any:
        """Submit a request and wait for its answer.

        Raises:
            ToolError: the request is refused, with the reason; or the run has no owner any more.
        """
        if self._closed:
            raise ToolError(GONE)
        self._last += 1
        number = self._last
        question = self._open[number] = _TaskRequest()
        self._owe(make(number))
        try:
            await question.answered.wait()
        finally:
            del self._open[number]
        if question.fault is not None:
            raise ToolError(question.fault)
        return question.value

    def deliver(self, effect: AnswerBody) -> None:
        """Deliver the machine's answer. An answer without a waiting body is dropped."""
        question = self._open.get(effect.ask)
        if question is not None:
            question.value, question.fault = effect.value, effect.fault
            question.answered.set()

    def close(self) -> None:
        """Fail all open requests; no answer will come."""
        self._closed = True
        for question in self._open.values():
            if not question.answered.is_set():
                question.fault = GONE
                question.answered.set()


class TaskPort:
    """The operations on background tasks for one attempt of a body."""

    def __init__(self, requests: Callable[[], TaskRequests], spawner: str, attempt: int) -> None:
        """`requests`: called with the first request; most bodies make none."""
        self._requests, self._spawner, self._attempt = requests, spawner, attempt
        self._spawned: Counter[str] = Counter()
        # spawns whose answer was cancelled: their numbers are used again
        self._unread: defaultdict[str, list[int]] = defaultdict(list)

    async def start(self, tool: str, arguments: JSONObject) -> str:
        """Spawn a task and return its id as soon as the task is stored.

        Cancellation: the task may run; the same spawn again returns the same task.

        Raises:
            ToolError: the task cannot be spawned, with the reason.
        """
        data, why = normalise(dict(arguments))
        if why is not None:
            raise ToolError(f"spawn({tool!r}): the arguments cannot be stored ({why}); give plain JSON data")
        mark = content_digest([tool, data])[:_MARK]
        unread = self._unread[mark]
        if not unread:
            self._spawned[mark] += 1
            unread.append(self._spawned[mark])
        nth = unread.pop(0)

        def question(number: int) -> Input:
            return SpawnAsked(
                ask=number, spawner=self._spawner, attempt=self._attempt, tool=tool, arguments=data, mark=mark, nth=nth
            )

        try:
            name: str = await self._requests().ask(question)
        except trio.Cancelled:
            insort(unread, nth)
            raise
        return name

    async def stop(self, task_id: str) -> bool:
        """Cancel a task. Returns True if the task was alive.

        Raises:
            ToolError: the run has no owner any more.
        """
        lived: bool = await self._requests().ask(lambda number: CancelAsked(ask=number, task_id=task_id))
        return lived

    async def see(self) -> tuple[TaskView, ...]:
        """Return the live tasks.

        Raises:
            ToolError: the run has no owner any more.
        """
        tasks: tuple[TaskView, ...] = await self._requests().ask(lambda number: TasksAsked(ask=number))
        return tasks

    def start_from_thread(self, tool: str, arguments: JSONObject) -> str:
        """Call `start` from a worker thread.

        Raises:
            ToolError: the task cannot be spawned, with the reason.
            trio.Cancelled: the call was cancelled.
        """
        return trio.from_thread.run(self.start, tool, arguments)

    def stop_from_thread(self, task_id: str) -> bool:
        """Call `stop` from a worker thread.

        Raises:
            ToolError: the run has no owner any more.
            trio.Cancelled: the call was cancelled.
        """
        return trio.from_thread.run(self.stop, task_id)

    def see_from_thread(self) -> tuple[TaskView, ...]:
        """Call `see` from a worker thread.

        Raises:
            ToolError: the run has no owner any more.
            trio.Cancelled: the call was cancelled.
        """
        return trio.from_thread.run(self.see)
