"""A model that answers as the model of a stored run did.

async with gr.open_runtime("production.db", agents=[agent]) as runtime:
    model = await recorded(runtime, "run_17")
# another tool, another plugin, the same answers:
outcome = await gr.run(changed(model), "Refund order 7.", deps=FakeBank())
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Final, cast

import trio

from ..abc import CallDelta, ModelEvent, TextDelta
from ..contract.envelope import decode_event
from ..contract.messages import ModelRequest
from ..engine.inputs import ModelAnswered, ModelFailed
from ..engine.recording import RecordGap
from ..errors import MODEL_ERROR_KINDS, ModelError, ModelErrorKind, UnknownRun, UsageError
from ..runtime.runtime import Runtime
from .models import KEEP, _TestModel

_PAGE: Final = 1_000
Answer = ModelAnswered | ModelFailed


class RecordedModel(_TestModel):
    """A model that gives recorded answers and errors; `recorded` makes one.

    Each run and agent reads the record from its beginning, at `ModelRequest.model_attempts`. Texts and calls are those
    of the record; reasoning is not recorded and not streamed. A recorded error is raised again, after the part of the
    answer that had arrived.

    Attributes:
        answers: how many answers and errors the record has, by the agent's key.
    """

    name = "recorded"

    def __init__(self, run_id: str, answers: Mapping[str, Sequence[Answer]]) -> None:
        super().__init__(None, KEEP)
        self._run_id = run_id
        self._recorded = answers

    @property
    def answers(self) -> Mapping[str, int]:
        """The number of recorded answers and errors by the agent's key."""
        return {agent: len(answers) for agent, answers in self._recorded.items()}

    async def _play(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        await trio.lowlevel.checkpoint()
        answer = self._next(request)
        if isinstance(answer, ModelFailed):
            if answer.received:
                yield TextDelta(answer.received)
            for index, tool in enumerate(answer.cut_calls):
                yield CallDelta(index, tool)
            raise _error(answer)
        response = answer.response
        for text in filter(None, response.text):
            yield TextDelta(text)
        for index, call_request in enumerate(response.calls):
            yield CallDelta(index, call_request.tool)
        yield response

    def _next(self, request: ModelRequest) -> Answer:
        only = next(iter(self._recorded.values())) if len(self._recorded) == 1 else ()
        answers = self._recorded.get(request.agent, only)  # of one agent, the record serves another key, too
        if request.model_attempts >= len(answers):
            raise ModelError(
                f"the record of run {self._run_id!r} has {len(answers)} answers, but run {request.run_id!r} (agent"
                f" {request.agent!r}) asks for number {request.model_attempts + 1}",
                kind="invalid_request",
            )
        return answers[request.model_attempts]


def _error(failure: ModelFailed) -> Exception:
    if failure.kind not in MODEL_ERROR_KINDS:
        return RuntimeError(failure.text)  # the model's code had a bug
    kind = cast("ModelErrorKind", failure.kind)
    return ModelError(failure.text, kind=kind, retry_after=failure.retry_after, usage=failure.usage)


async def recorded(runtime: Runtime, run_id: str, *, after_step: int = 0) -> RecordedModel:
    """Return a model that answers as the models of a stored run did.

    The model outlives the runtime. A run that is not done gives the answers so far. Child runs have records of their
    own.

    Args:
        runtime: reads the run.
        run_id: The id of the run.
        after_step: leave out the answers up to this step: for a run that begins as `Runtime.fork` of that step.

    Raises:
        UnknownRun: no run has this id.
        UsageError: the run was not recorded (`open_runtime(record=False)`), or only in part; or `after_step` is
            negative or no int.
        RuntimeClosed: the runtime is closed.
        StoreError: the record is damaged.
    """
    if type(after_step) is not int or after_step < 0:
        raise UsageError(f"after_step={after_step!r}: give the number of a step, or 0 for all answers")
    outline = await runtime.reader.outline(run_id)
    if outline is None:
        raise UnknownRun(run_id)
    steps = await _asked(runtime, run_id)
    answers: dict[str, list[Answer]] = {outline.info.agent: []}
    count = 0
    while page := await runtime.store.record(run_id, after=count, limit=_PAGE):
        count += len(page)
        for entry in (record_entry.entry for delta in page for record_entry in delta.taken):
            if isinstance(entry, RecordGap):
                raise UsageError(f"run {run_id} has no whole record: {entry.why or 'it was not recorded'}")
            if isinstance(entry, ModelAnswered) or (isinstance(entry, ModelFailed) and not entry.refused):
                step, agent = steps.get(entry.message_id, (0, None))
                if step > after_step:
                    answers.setdefault(agent or outline.info.agent, []).append(entry)
    if not count:
        raise UsageError(f"run {run_id} has no record: a release without records has begun it")
    return RecordedModel(run_id, {agent: tuple(answer_list) for agent, answer_list in answers.items()})


async def _asked(runtime: Runtime, run_id: str) -> dict[str, tuple[int, str | None]]:
    """Return the step and the agent of each request by its message id; None: the run's agent."""
    steps, last = dict[str, tuple[int, str | None]](), 0
    while page := await runtime.reader.events(run_id, after=last, limit=_PAGE):
        last += len(page)
        for frame in page:
            event = decode_event(frame)
            if event.type == "run.inference.started":
                steps[event.payload["messageId"]] = event.payload["step"], event.payload.get("agent")
    return steps
