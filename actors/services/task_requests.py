"""Requests of bodies to their run's machine (background tasks): sent as inputs, answered by effects.

Theory of operation. Each request has a number and gets exactly one answer. When the run's owner ends, open requests
fail with ToolError, so no body waits without bound. A spawn is at most once: it carries a digest of tool and arguments
and a count (`mark`, `nth`), so a body that runs again, or whose wait was cancelled, gets the same task for the same
spawn:

    await ctx.spawn("crawl", site="a")   # mark of ("crawl", {"site": "a"}), nth 1
    await ctx.spawn("crawl", site="a")   # the same mark, nth 2: another task
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import attrs
import trio

from ..engine.effects import AnswerBody
from ..engine.inputs import Input
from ..errors import ToolError

GONE: Final = "The run has no owner here any more: nothing can be asked of it."


@attrs.define(eq=False)
class _TaskRequest:
    answer_event: trio.Event = attrs.field(factory=trio.Event)
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
            await question.answer_event.wait()
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
            question.answer_event.set()

    def close(self) -> None:
        """Fail all open requests; no answer will come."""
        self._closed = True
        for question in self._open.values():
            if not question.answer_event.is_set():
                question.fault = GONE
                question.answer_event.set()
