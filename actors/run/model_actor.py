"""One model request: stream the answer into the run's buffer, then submit the response or the failure.

Theory of operation. The child waits out the back-off, resolves the model, builds the request and streams. Exactly one
final input results. A ModelError is an expected failure with a kind, which the machine may retry. Every other exception
is a bug of the model's code, which is not retried. The back-off's jitter is drawn here, because the machine is pure.
The limit of silence is the deadline of the child's own scope, because a further scope for each request would cost more.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator
from datetime import datetime
from typing import Final

import attrs
import msgspec
import trio

from greenroom.supervision import Raised, capture, failure_of_call

from ..abc import CallDelta, Model, ModelDelta, ReasoningDelta, TextDelta, UsageReport
from ..agents.agent import Agent
from ..contract.codec import message_of
from ..contract.excerpt import is_large
from ..contract.ids import error_id
from ..contract.inference import Inference
from ..contract.messages import ModelResponse, ToolInfo, Usage
from ..contract.plain import exact
from ..contract.policies import BreakerPolicy
from ..contract.sizes import ANSWER_LIMIT, too_large
from ..engine.effects import CallModel
from ..engine.inputs import BUG, ONE_REQUEST, UNAVAILABLE, Input, ModelAnswered, ModelCut, ModelFailed
from ..engine.state import RunState
from ..errors import MODEL_ERROR_KINDS, AgentDefinitionError, ModelError, ModelErrorKind
from ..services.breakers import Circuit
from ..services.children import Child
from ..services.delta_buffers import BUFFER_LIMIT
from ..services.sanitize import InvalidValue, response_of, text_of, usage_of
from ..tools.invoke import TEXT_LIMIT, shown_text
from ..user_code.toolsets import StepTools
from .model_request import model_request
from .run_context import RunContext
from .step_tools import tools_of_step

_UNSHOWN: Final = (CallDelta, UsageReport)
_DELTAS: Final = (TextDelta, ReasoningDelta, *_UNSHOWN)
"""Tuples, because isinstance with a union would build the union each time."""
_STEP: Final = 0.01
"""Part of the limit of silence that passes before an event moves it again."""


@attrs.define(eq=False)
class ModelCall:
    """A child that makes one model request. An unresolvable model is a failure of that request.

    Attributes:
        run: The run, with the objects that its effects need.
        agent: asks.
        effect: the request as the machine asks for it.
        state: The state of the run when the machine asked.
        sent: the request was made.
        model: names the asked model.
        scope: the child's; its deadline is the limit of silence.
        until: when the next event moves that limit, in trio time.
        answering: the first event has come.
        answer: the input that a response has become.
        text_pieces: the streamed text.
        size: characters of it.
        call_names: the tools of the calls that have begun, by their index.
        usage_report: the newest `UsageReport`.
        tools: The tools of the agent's toolsets; None: it has none.
    """

    run: RunContext
    agent: Agent[object]
    effect: CallModel
    state: RunState
    sent: bool = attrs.field(init=False, default=False)
    model: str = attrs.field(init=False, default="")
    scope: trio.CancelScope = attrs.field(init=False)
    until: float = attrs.field(init=False, default=0.0)
    answering: bool = attrs.field(init=False, default=False)
    answer: Input | None = attrs.field(init=False, default=None)
    text_pieces: list[str] = attrs.field(init=False, factory=list)
    size: int = attrs.field(init=False, default=0)
    call_names: dict[int, str] = attrs.field(init=False, factory=dict)
    usage_report: UsageReport | None = attrs.field(init=False, default=None)
    tools: StepTools | None = attrs.field(init=False, default=None)

    def __repr__(self) -> str:
        return f"<ModelCall {self.effect.message_id}>"

    async def body(self, child: Child) -> None:
        """Wait out the back-off, make the request, and submit its outcome."""
        if self.effect.delay:
            child.pausing = True  # the owner may end now: the wait is in the row
            await trio.sleep(self.effect.delay)
            child.pausing = False
        changes, services, breaker = self.effect.changes, self.run.services, self.agent.spec.policies.breaker
        other = None if changes is None or self.effect.model else changes.model
        model = services.agents.model_for(self.agent, self.effect.model, other)
        if breaker is not None:
            await self._ask_through(services.models.breakers.circuit(model.name), breaker, child, model)
        else:
            self.run.children.submit_last(await self._ask(child, model))

    async def _ask_through(self, circuit: Circuit, policy: BreakerPolicy, child: Child, model: Model) -> None:
        """Make the request if the model's circuit is closed, or as its trial, and note how the request ended."""
        refusal = circuit.refusal(policy, trio.current_time())
        if refusal is not None:
            text = f"{model.name} has failed too often and is not asked for {refusal:.0f} s"
            later = math.ceil(refusal * 1000 + 1) / 1000  # waits are whole milliseconds, and must not end too early
            failure = self._failure("overloaded", text, retryable=True, retry_after=later)
            self.run.children.submit_last(msgspec.structs.replace(failure, refused=True))
            return
        outcome: Input | None = None
        try:
            outcome = await self._ask(child, model)
        finally:
            silent = outcome is None and self.answer is None and trio.current_time() >= child.scope.deadline
            if isinstance(outcome or self.answer, ModelAnswered):
                circuit.succeeded()
            elif silent or (isinstance(outcome, ModelFailed) and outcome.retryable):
                circuit.failed(policy, trio.current_time())
            else:
                circuit.left()
        self.run.children.submit_last(outcome)

    async def _ask(self, child: Child, model: Model) -> Input:
        """Make the request and stream one answer. A ModelError becomes an input; any other exception passes."""
        native, history = model.structured == "native", await self.run.history_for(self.state)
        if self.run.part_bytes.needed:
            history = [*await self.run.part_bytes.filled(history)]
        run_id, name = self.run.info.run_id, model.name
        more_tools: tuple[ToolInfo, ...] = ()
        if self.agent.toolsets:
            self.tools = await tools_of_step(self.run, self.agent, self.state)
            more_tools = self.tools.infos
            if self.tools.unavailable is not None:
                failure = self._failure(UNAVAILABLE, self.tools.unavailable)
                return msgspec.structs.replace(failure, refused=True)
        request = model_request(self.agent, run_id, self.effect, history, model=name, native=native, offered=more_tools)
        self.model, self.scope, child.at_deadline = name, child.scope, self._silent
        first = self.agent.spec.policies.idle.first
        self.scope.deadline = math.inf if first is None else trio.current_time() + first
        try:
            if type(model).open is not Model.open:
                await self.run.services.models.opened(model)
            self.sent = True
            async with model.stream(request) as events:
                try:
                    async for event in events:
                        if type(event) is ModelResponse or not isinstance(event, _DELTAS):
                            self.answer = self._answered(event)
                            return self.answer
                        await self._take(event)
                finally:
                    # Finalise a generator in the model's own task; the collector would do so in another one.
                    if isinstance(events, AsyncGenerator):
                        await events.aclose()
        except ModelError as error:
            self.tell(error)
            return self._failed(error)
        return self._cut(f"{model.name} ended its stream without a response", "interrupted")

    def tell(self, error: BaseException) -> None:
        """Log an exception of the model."""
        run_id, effect = self.run.info.run_id, self.effect
        what = f"the model of run {run_id} failed (step {effect.step}, attempt {effect.attempt})"
        fields = {"step": effect.step, "attempt": effect.attempt, "message_id": effect.message_id}
        self.run.log.model_failed(what, error, error_id=error_id(run_id, effect.message_id), **fields)

    def cut(self) -> ModelCut:
        """Return the text and usage so far, for a run that ends and stops this request. The buffers are closed."""
        text, usage = text_of("".join(self.text_pieces)), Usage()
        if isinstance(self.answer, ModelAnswered):  # whole, but too late for the run to use its calls
            text, usage = "".join(self.answer.response.text), _known(self.answer.response)
        elif self.sent:
            usage = _known(self.usage_report) + Usage(incomplete=1)
        rest = self.run.children.cut_message_stream(self.effect.message_id)
        large = is_large(f"{self.effect.prefix}{text}")  # else one event holds the text
        return ModelCut(message_id=self.effect.message_id, text=text, rest=rest if large else (), usage=usage)

    async def _take(self, event: ModelDelta | UsageReport) -> None:
        """Take a delta; it gives the model its time again."""
        now = trio.current_time()
        if now >= self.until:
            self._extend(now)
        if isinstance(event, _UNSHOWN):
            if isinstance(event, UsageReport):
                self.usage_report = event
            elif event.tool or event.index not in self.call_names:
                self.call_names[event.index] = text_of(event.tool)
            return
        if self.size > ANSWER_LIMIT:
            raise ModelError(f"its answer is too large: {too_large(self.size, ANSWER_LIMIT)}", kind="provider")
        streams = self.run.children.message_stream(self.effect.message_id)
        buffer = streams.text if isinstance(event, TextDelta) else streams.reasoning
        if buffer.waiting > BUFFER_LIMIT:
            self.until, self.scope.deadline = 0.0, math.inf  # the store is slow, not the model
            await buffer.put(event.text)
            self._extend(trio.current_time())
        else:
            await buffer.put(event.text)
        if buffer is streams.text:
            self.text_pieces.append(event.text)
            self.size += len(event.text)

    def _extend(self, now: float) -> None:
        """Move the limit of silence. Moving costs, so it is moved once per `_STEP` of it, and is that much late."""
        idle = self.agent.spec.policies.idle.idle
        self.answering = True
        self.until = math.inf if idle is None else now + idle * _STEP
        self.scope.deadline = math.inf if idle is None else now + idle * (1 + _STEP)

    def _silent(self) -> Input | None:
        """Return the failure of a request that the limit of silence ended, or the answer if it was there already."""
        if self.answer is not None or trio.current_time() < self.scope.deadline:
            return self.answer
        limit = self.agent.spec.policies.idle.idle if self.answering else self.agent.spec.policies.idle.first
        return self._cut(f"{self.model} was silent for {limit:g} s", "timeout")

    def _cut(self, what: str, kind: ModelErrorKind) -> Input:
        error = ModelError(what, kind=kind)
        self.tell(error)
        return self._failure(error.kind, what, retryable=error.retryable)

    def _answered(self, response: ModelResponse) -> Input:
        try:
            answer = response_of(response)
            offered_tools = () if self.tools is None else self.tools.offered([call.tool for call in answer.calls])
            return ModelAnswered(message_id=self.effect.message_id, response=answer, offered=offered_tools)
        except InvalidValue as error:
            self.tell(error)
            return self._failure("provider", f"the model's answer cannot be used: {error}", usage=response)

    def broke(self, error: BaseException) -> Input:
        """Turn a crash of the model's code into a failure that is not retried.

        A ModelError inside an exception group counts as that ModelError.
        """
        self.tell(error)
        if isinstance(error, AgentDefinitionError):  # no model has that name: not a bug of a model
            return self._failure("provider", message_of(error))
        return self._failed(error) if isinstance(error, ModelError) else self._failure(BUG, shown_text(error))

    def _failed(self, error: ModelError) -> ModelFailed:
        kind: str = "provider"
        retryable, retry_after = False, None
        try:
            kind = exact(error.kind) if error.kind in MODEL_ERROR_KINDS else kind
            retryable, wait = bool(error.retryable), error.retry_after
            if isinstance(wait, int | float) and not isinstance(wait, bool) and wait >= 0:  # false for NaN
                retry_after = wait
        except BaseException as fault:  # noqa: BLE001, ASYNC103 - a subclass may answer with code of its own
            failure_of_call(fault)
        text = message_of(error)[:TEXT_LIMIT]
        return self._failure(kind, text, retryable=retryable, retry_after=retry_after, usage=error)

    def _failure(
        self,
        kind: str,
        text: str,
        *,
        retryable: bool = False,
        retry_after: float | None = None,
        usage: ModelError | ModelResponse | None = None,
    ) -> ModelFailed:
        return ModelFailed(
            message_id=self.effect.message_id,
            kind=kind,
            text=text_of(text),
            retryable=retryable,
            retry_after=retry_after,
            usage=_known(usage) if self.sent else Usage(),
            jitter=self.run.services.jitter(),
            received=text_of("".join(self.text_pieces), ANSWER_LIMIT),
            cut_calls=tuple(filter(None, self.call_names.values())),
        )


def cut_request(flight: Inference, asking: ModelCall | None, at_start: Inference | None, now: datetime) -> ModelCut:
    """Return the report about a request that the end of the run stops.

    Args:
        flight: the request, as the run's row has it.
        asking: the newest request of this owner.
        at_start: the request that was in flight when this owner took the run up.
        now: UTC.
    """
    key = (flight.message_id, flight.attempt)
    if asking is not None and (asking.effect.message_id, asking.effect.attempt) == key:
        return asking.cut()
    if at_start is not None and (at_start.message_id, at_start.attempt) == key and flight.asked_at <= now:
        return ModelCut(message_id=flight.message_id, usage=Usage(requests=1, incomplete=1))
    return ModelCut(message_id=flight.message_id, text="")  # the request was not made yet


def _known(source: ModelError | ModelResponse | UsageReport | None) -> Usage:
    """Return the usage of a request, as far as known."""
    usage = capture(lambda: usage_of(getattr(source, "usage", None)))  # a subclass may answer with code of its own
    if isinstance(usage, Raised):
        return ONE_REQUEST
    return usage.value if usage.value.requests else usage.value + ONE_REQUEST
