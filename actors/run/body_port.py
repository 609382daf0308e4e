"""`BodyPort`: the connection of one attempt of a body to its run: reports, output, background tasks.

Theory of operation. A tool's context calls these methods; the body sees only the context. Reports and output go into
the run's buffers. An operation on a background task is a request to the run's machine, whose answer the body awaits. A
body in a worker thread calls these methods in the loop's thread.
"""

from __future__ import annotations

from bisect import insort
from typing import Any, Final

import attrs
import trio

from ..contract.artifacts import Artifact
from ..contract.calls import CallStatus
from ..contract.codec import normalise
from ..contract.decisions import Action, Decision, Suspend
from ..contract.excerpt import LARGE, shown_result
from ..contract.facts import NestedAnswer
from ..contract.ids import content_digest
from ..contract.plain import JSONObject
from ..contract.sizes import VALUE_LIMIT, TooLarge, measured
from ..contract.spec import HANDOFF
from ..contract.tasks import TaskView
from ..engine.body_inputs import (
    CancelAsked,
    NestedCalled,
    NestedDropped,
    NestedEnded,
    PublishAsked,
    SpawnAsked,
    TasksAsked,
)
from ..engine.inputs import Input
from ..errors import ToolError
from ..services.children import Children
from ..services.delta_buffers import DeltaBuffers, pieces
from ..services.sanitize import InvalidValue, object_of, suspend_of, text_of
from ..state.values import copied_decision
from .masking import Mask, masked_artifact
from .results import count_among_results

LONGEST_TOOL: Final = 200
"""Most characters of the name of a nested call's tool."""
LONGEST_EFFECT: Final = 64
"""Most characters of the effect class of a nested call."""
_MARK: Final = 16
"""Hex digits of the mark that identifies a repeated spawn: enough for the thousand spawns of one body."""


class BodyPort:
    """The requests of one attempt of a body to its run, and the reports of the attempt."""

    def __init__(self, children: Children, spawner: str, attempt: int, step: int, *, mask: Mask) -> None:
        """`spawner`: the call or task that the attempt belongs to; `step`: the run's step; `mask`: hides secrets."""
        self._children, self._spawner, self._attempt, self._step = children, spawner, attempt, step
        self._mask = mask
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

    # --- artifacts ---------------------------------------------------------------------------------------------------

    async def publish(self, artifact: Artifact) -> Artifact:
        """Publish an artifact, with secrets masked in its text; returns the facts when the bytes are durable.

        Cancellation: the artifact may be published; the same artifact again is published once.

        Raises:
            ToolError: the run has no room for it, or does not wait for this call any more.
        """
        clean = await masked_artifact(artifact, self._mask)

        def question(number: int) -> Input:
            return PublishAsked(ask=number, call_id=self._spawner, attempt=self._attempt, artifact=clean)

        artifact_in_store: Artifact = await self._children.questions.ask(question)
        return artifact_in_store

    # --- nested calls ------------------------------------------------------------------------------------------------

    async def ask(self, suspend: Suspend) -> Decision:
        """Ask people, and return their decision; the body waits meanwhile.

        Cancellation: the question is withdrawn.

        Raises:
            ToolError: the question is refused, with the reason.
        """
        try:
            question = attrs.evolve(suspend_of(suspend), resume_mode="use_decision_as_tool_result")
        except InvalidValue as error:
            raise ToolError(f"ask(...): the question cannot be stored: {error}") from None
        answer = await self._call_nested(suspend=question)
        if answer.decision is not None:
            return copied_decision(answer.decision)
        succeeded = answer.status is not CallStatus.CANCELLED  # the ticket has expired
        action: Action = "resume" if succeeded else "cancel"
        return Decision(
            target=answer.call_id, action=action, result=answer.result, reason=answer.text, decided_by="clock"
        )

    async def call_nested(
        self, tool: str, arguments: JSONObject, *, effect: str = "read", editable: bool = False, seen: bool = False
    ) -> NestedAnswer:
        """Make a nested call; returns when its start is durable, or when it has ended without work.

        Cancellation: the nested call is withdrawn; its work must not be done.

        Raises:
            ToolError: the call is refused, with the reason.
        """
        if not isinstance(tool, str) or not 0 < len(tool) <= LONGEST_TOOL or not tool.isprintable():
            raise ToolError(
                f"nested call {tool!r:.100}: the tool is a name of 1 to {LONGEST_TOOL} printable characters"
            )
        if not effect.isidentifier() or len(effect) > LONGEST_EFFECT or effect == HANDOFF:
            raise ToolError(f"nested call {tool!r}: effect={effect!r:.100} is no effect class")
        try:
            data = object_of(arguments, "the arguments")
            self._count(measured(data, VALUE_LIMIT))
        except (InvalidValue, TooLarge) as error:
            raise ToolError(f"nested call {tool!r}: {error}") from None
        return await self._call_nested(tool=tool, arguments=data, effect=effect, editable=editable, seen=seen)

    async def _call_nested(self, **facts: Any) -> NestedAnswer:
        ask = 0

        def question(number: int) -> Input:
            nonlocal ask
            ask = number
            return NestedCalled(ask=number, parent=self._spawner, attempt=self._attempt, **facts)

        try:
            answer: NestedAnswer = await self._children.questions.ask(question)
        except trio.Cancelled:
            self._children.submit_input(NestedDropped(ask=ask, parent=self._spawner))
            raise
        return answer

    def end_nested(
        self, call_id: str, result: object = None, *, text: str | None = None, code: str | None = None
    ) -> None:
        """Report that the work of a nested call is done, with its result, or with the code of its failure.

        `text`: what people read about it; None: the result. A result that has no form in JSON, or more than 4 MiB, is
        replaced by a sentence. A report about a call that has ended is dropped.
        """
        data, why = normalise(result)
        try:
            content, large, size = shown_result(data)
            self._count(size)
        except TooLarge as error:
            data, content, large = None, f"The call ran, and its result cannot be kept: {error}.", False
        if why is not None:
            content, large = f"The call ran, but its result cannot be shown ({why}).", False
        content = content if text is None else text_of(text, LARGE)
        self._children.submit_input(NestedEnded(call_id=call_id, result=data, shown=content, code=code, large=large))

    def _count(self, size: int) -> None:
        count_among_results(size, children=self._children, step=self._step)

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
