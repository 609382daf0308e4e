"""`BodyPort`: the connection of one attempt of a body to its run: reports, output, background tasks.

Theory of operation. A tool's context calls these methods; the body sees only the context. Reports and output go into
the run's buffers. An operation on a background task is a request to the run's machine, whose answer the body awaits. A
body in a worker thread calls these methods in the loop's thread.
"""

from __future__ import annotations

from bisect import insort
from typing import Final

import trio

from ..contract.codec import normalise
from ..contract.ids import content_digest
from ..contract.plain import JSONObject
from ..contract.tasks import TaskView
from ..engine.inputs import CancelAsked, Input, SpawnAsked, TasksAsked
from ..errors import ToolError
from ..services.children import Children
from ..services.delta_buffers import DeltaBuffers, pieces

_MARK: Final = 16
"""Hex digits of the mark that identifies a repeated spawn: enough for the thousand spawns of one body."""


class BodyPort:
    """The requests of one attempt of a body to its run, and the reports of the attempt."""

    def __init__(self, children: Children, spawner: str, attempt: int) -> None:
        """`spawner`: the call or task that the attempt belongs to."""
        self._children, self._spawner, self._attempt = children, spawner, attempt
        self._spawn_counts: dict[str, int] = {}
        self._unread: dict[str, list[int]] = {}  # spawns whose answer was cancelled: their numbers are used again

    @property
    def _streams(self) -> DeltaBuffers:
        return self._children.call_stream(self._spawner, self._attempt)

    # --- reports -----------------------------------------------------------------------------------------------------

    async def progress(self, fraction: float, text: str) -> None:
        """Report the progress; the newest report wins."""
        self.set_progress(fraction, text)

    async def output(self, text: str) -> None:
        """Stream output; waits while too much of it waits for the store."""
        await self._streams.text.put(text)

    def output_from_thread(self, text: str) -> None:
        """Stream output from a worker thread, which limits its own pace: never waits for the store."""
        add = self._streams.text.add
        for piece in pieces(text):
            trio.from_thread.run_sync(add, piece)

    def set_progress(self, fraction: float, text: str) -> None:
        """Do the same as `progress`, without an await."""
        self._streams.tell(fraction, text)
        self._children.nudge()

    # --- background tasks --------------------------------------------------------------------------------------------

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
        unread = self._unread.setdefault(mark, [])
        if not unread:
            self._spawn_counts[mark] = self._spawn_counts.get(mark, 0) + 1
            unread.append(self._spawn_counts[mark])
        nth = unread.pop(0)

        def question(number: int) -> Input:
            return SpawnAsked(
                ask=number, spawner=self._spawner, attempt=self._attempt, tool=tool, arguments=data, mark=mark, nth=nth
            )

        try:
            name: str = await self._children.questions.ask(question)
        except trio.Cancelled:
            insort(unread, nth)
            raise
        return name

    async def stop(self, task_id: str) -> bool:
        """Cancel a task. Returns True if the task was alive.

        Raises:
            ToolError: the run has no owner any more.
        """
        was_running: bool = await self._children.questions.ask(lambda number: CancelAsked(ask=number, task_id=task_id))
        return was_running

    async def see(self) -> tuple[TaskView, ...]:
        """Return the live tasks.

        Raises:
            ToolError: the run has no owner any more.
        """
        tasks: tuple[TaskView, ...] = await self._children.questions.ask(lambda number: TasksAsked(ask=number))
        return tasks
