"""Questions of bodies to the machine of their run: asked as inputs, answered by effects.

Each question gets exactly one answer. Whoever still waits when the run's owner goes is told so: nobody waits for ever.
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
"""Hex digits of the mark by which a spawn is known again: enough for the thousand spawns of one body."""


@attrs.define(eq=False)
class _TaskRequest:
    answered: trio.Event = attrs.field(factory=trio.Event)
    value: Any = None
    fault: str | None = None


class TaskRequests:
    """The open questions of one incarnation of a run actor: as many as its bodies ask at once.

    Args:
        owe: takes a question to the machine.
    """

    def __init__(self, owe: Callable[[Input], None]) -> None:
        self._owe = owe
        self._open: dict[int, _TaskRequest] = {}
        self._last = 0
        self._closed = False

    async def ask(self, make: Callable[[int], Input]) -> Any:
        """Ask, and wait for the answer.

        Raises:
            ToolError: it can not be, and why; or the run has no owner any more.
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

    def answer(self, effect: AnswerBody) -> None:
        """The machine has answered. An answer that nobody waits for any more is dropped."""
        question = self._open.get(effect.ask)
        if question is not None:
            question.value, question.fault = effect.value, effect.fault
            question.answered.set()

    def close(self) -> None:
        """Nobody will answer any more."""
        self._closed = True
        for question in self._open.values():
            if not question.answered.is_set():
                question.fault = GONE
                question.answered.set()


class TaskPort:
    """What one attempt of a body can do with background tasks."""

    def __init__(self, requests: Callable[[], TaskRequests], spawner: str, attempt: int) -> None:
        """`requests`: called with the first request; most bodies make none."""
        self._requests, self._spawner, self._attempt = requests, spawner, attempt
        self._spawned: Counter[str] = Counter()
        self._unheard: defaultdict[str, list[int]] = defaultdict(list)  # spawns whose answer nobody got

    async def start(self, tool: str, arguments: JSONObject) -> str:
        """Spawn a task; its id, as soon as it is stored.

        Cancellation: the task may run; the same spawn again is that one.

        Raises:
            ToolError: it can not be spawned, and why.
        """
        data, why = normalise(dict(arguments))
        if why is not None:
            raise ToolError(f"spawn({tool!r}): the arguments can not be stored ({why}); give plain JSON data")
        mark = content_digest([tool, data])[:_MARK]
        unheard = self._unheard[mark]
        if not unheard:
            self._spawned[mark] += 1
            unheard.append(self._spawned[mark])
        nth = unheard.pop(0)

        def question(number: int) -> Input:
            return SpawnAsked(
                ask=number, spawner=self._spawner, attempt=self._attempt, tool=tool, arguments=data, mark=mark, nth=nth
            )

        try:
            name: str = await self._requests().ask(question)
        except trio.Cancelled:
            insort(unheard, nth)
            raise
        return name

    async def stop(self, task_id: str) -> bool:
        """Cancel a task; True if it lived.

        Raises:
            ToolError: the run has no owner any more.
        """
        lived: bool = await self._requests().ask(lambda number: CancelAsked(ask=number, task_id=task_id))
        return lived

    async def see(self) -> tuple[TaskView, ...]:
        """The tasks that live.

        Raises:
            ToolError: the run has no owner any more.
        """
        tasks: tuple[TaskView, ...] = await self._requests().ask(lambda number: TasksAsked(ask=number))
        return tasks

    def start_from_thread(self, tool: str, arguments: JSONObject) -> str:
        """As `start`, from a worker thread.

        Raises:
            ToolError: it can not be spawned, and why.
            trio.Cancelled: the call has been cancelled.
        """
        return trio.from_thread.run(self.start, tool, arguments)

    def stop_from_thread(self, task_id: str) -> bool:
        """As `stop`, from a worker thread.

        Raises:
            ToolError: the run has no owner any more.
            trio.Cancelled: the call has been cancelled.
        """
        return trio.from_thread.run(self.stop, task_id)

    def see_from_thread(self) -> tuple[TaskView, ...]:
        """As `see`, from a worker thread.

        Raises:
            ToolError: the run has no owner any more.
            trio.Cancelled: the call has been cancelled.
        """
        return trio.from_thread.run(self.see)
