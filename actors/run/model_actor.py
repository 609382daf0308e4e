"""One model request: streams the answer into the run's buffer and owes the run the response or the failure."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import attrs
import trio

from greenroom.supervision import failure_of_call

from ..abc import Model, ReasoningDelta, TextDelta
from ..contract.codec import message_of
from ..contract.messages import ModelRequest, ModelResponse, Usage
from ..engine.effects import CallModel
from ..engine.inputs import BUG, ONE_REQUEST, Input, ModelAnswered, ModelFailed
from ..errors import MODEL_ERROR_KINDS, AgentDefinitionError, ModelError
from ..tools.invoke import TEXT_LIMIT, shown_text
from .children import Child, Children
from .sanitize import InvalidValue, response_of, text_of, usage_of

Tell = Callable[[BaseException], None]
"""Is told of what a model has raised, for the log."""


@attrs.define(eq=False)
class ModelCall:
    """A child that asks the model once. A model that is not there is a failure of that request.

    Attributes:
        find_model: the model, when the time has come. make_request: what it is asked.
        jitter: draws the factor of the back-off, should the request fail.
        tell: is told of what the model has raised, for the log.
        sent: the model has been asked.
    """

    effect: CallModel
    find_model: Callable[[], Model]
    make_request: Callable[[Model], Awaitable[ModelRequest]]
    children: Children
    jitter: Callable[[], float]
    tell: Tell
    sent: bool = attrs.field(init=False, default=False)

    def __repr__(self) -> str:
        return f"<Asking for {self.effect.message_id}>"

    async def run(self, child: Child) -> None:
        """The child's body: wait, ask, and owe what comes of it."""
        if self.effect.delay:
            child.pausing = True  # nothing is lost if the owner goes now: the wait is in the row
            await trio.sleep(self.effect.delay)
            child.pausing = False
        model = self.find_model()
        request = await self.make_request(model)
        self.children.submit_input(await self._ask(model, request))

    async def _ask(self, model: Model, request: ModelRequest) -> Input:
        """Stream one answer. A ModelError is an answer, too; anything else leaves as it is."""
        message_id, self.sent = self.effect.message_id, True
        try:
            async with model.stream(request) as events:
                try:
                    async for event in events:
                        if isinstance(event, TextDelta):
                            await self.children.message_stream(message_id).text.put(event.text)
                        elif isinstance(event, ReasoningDelta):
                            await self.children.message_stream(message_id).reasoning.put(event.text)
                        else:
                            return self._answered(event)
                finally:
                    # Finalise a generator in the model's own task; the collector would do so in another one.
                    if isinstance(events, AsyncGenerator):
                        await events.aclose()
        except ModelError as error:
            self.tell(error)
            return self._failed(error)
        cut = ModelError(f"{model.name} ended its stream without a response", kind="interrupted")
        self.tell(cut)
        return self._failure(cut.kind, str(cut), retryable=cut.retryable)

    def _answered(self, response: ModelResponse) -> Input:
        try:
            return ModelAnswered(message_id=self.effect.message_id, response=response_of(response))
        except InvalidValue as error:
            self.tell(error)
            return self._failure("provider", f"the model's answer can not be used: {error}", usage=response)

    def broke(self, error: BaseException) -> Input:
        """What a crash of the model's code means: a failure that asking again will not mend.

        A ModelError that comes out of a group of errors is what it says.
        """
        self.tell(error)
        if isinstance(error, AgentDefinitionError):  # a model of that name is not there: no bug in a model
            return self._failure("provider", message_of(error))
        return self._failed(error) if isinstance(error, ModelError) else self._failure(BUG, shown_text(error))

    def _failed(self, error: ModelError) -> ModelFailed:
        kind: str = "provider"
        retryable, retry_after = False, None
        try:
            kind = error.kind if error.kind in MODEL_ERROR_KINDS else kind
            retryable, retry_after = bool(error.retryable), error.retry_after
        except BaseException as broken:  # noqa: BLE001, ASYNC103 - a subclass may answer with code of its own
            failure_of_call(broken)
        return self._failure(
            kind, message_of(error)[:TEXT_LIMIT], retryable=retryable, retry_after=_seconds(retry_after), usage=error
        )

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
            jitter=self.jitter(),
        )


def _known(source: ModelError | ModelResponse | None) -> Usage:
    """What a request has cost that came to nothing, as far as it is known."""
    try:
        found = usage_of(getattr(source, "usage", None))
    except InvalidValue:
        return ONE_REQUEST
    except BaseException as broken:  # noqa: BLE001, ASYNC103 - a subclass may answer with code of its own
        failure_of_call(broken)
        return ONE_REQUEST  # noqa: ASYNC104 - the border has raised what passes
    return found if found.requests else found + ONE_REQUEST


def _seconds(value: Any) -> float | None:
    """What a provider asks to wait; None if the value is no number."""
    known = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0  # NaN is not either
    return value if known else None
