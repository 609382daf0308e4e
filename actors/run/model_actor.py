"""One model request: stream the answer into the run's buffer, then submit the response or the failure.

Theory of operation. The child waits out the back-off, resolves the model, builds the request and streams. Exactly one
final input results. A ModelError is an expected failure with a kind, which the machine may retry. Every other exception
is a bug of the model's code, which is not retried. The back-off's jitter is drawn here, because the machine is pure.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable

import attrs
import trio

from greenroom.supervision import failure_of_call

from ..abc import Model, ReasoningDelta, TextDelta
from ..contract.codec import message_of
from ..contract.messages import ModelRequest, ModelResponse, Usage
from ..contract.plain import exact
from ..engine.effects import CallModel
from ..engine.inputs import BUG, ONE_REQUEST, Input, ModelAnswered, ModelFailed
from ..errors import MODEL_ERROR_KINDS, AgentDefinitionError, ModelError
from ..tools.invoke import TEXT_LIMIT, shown_text
from .children import Child, Children
from .sanitize import InvalidValue, response_of, text_of, usage_of

Tell = Callable[[BaseException], None]
"""Logs an exception of a model."""


@attrs.define(eq=False)
class ModelCall:
    """A child that makes one model request. An unresolvable model is a failure of that request.

    Attributes:
        effect: the request as the machine asks for it.
        find_model: returns the model, called when the request is made.
        opened: waits until the model is open.
        make_request: builds the request for a model.
        children: takes streamed text and the final input.
        jitter: draws the factor of the back-off, in case the request fails.
        tell: logs an exception of the model.
        sent: the request was made.
    """

    effect: CallModel
    find_model: Callable[[], Model]
    opened: Callable[[Model], Awaitable[None]]
    make_request: Callable[[Model], Awaitable[ModelRequest]]
    children: Children
    jitter: Callable[[], float]
    tell: Tell
    sent: bool = attrs.field(init=False, default=False)

    def __repr__(self) -> str:
        return f"<Asking for {self.effect.message_id}>"

    async def run(self, child: Child) -> None:
        """Wait out the back-off, make the request, and submit its outcome."""
        if self.effect.delay:
            child.pausing = True  # the owner may end now: the wait is in the row
            await trio.sleep(self.effect.delay)
            child.pausing = False
        model = self.find_model()
        request = await self.make_request(model)
        self.children.submit_input(await self._ask(model, request))

    async def _ask(self, model: Model, request: ModelRequest) -> Input:
        """Stream one answer. A ModelError becomes an input; any other exception passes."""
        message_id = self.effect.message_id
        try:
            await self.opened(model)
            self.sent = True
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
        except BaseException as broken:  # noqa: BLE001, ASYNC103 - a subclass may answer with code of its own
            failure_of_call(broken)
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
            jitter=self.jitter(),
        )


def _known(source: ModelError | ModelResponse | None) -> Usage:
    """Return the usage of a failed request, as far as known."""
    try:
        usage = usage_of(getattr(source, "usage", None))
    except InvalidValue:
        return ONE_REQUEST
    except BaseException as broken:  # noqa: BLE001, ASYNC103 - a subclass may answer with code of its own
        failure_of_call(broken)
        return ONE_REQUEST  # noqa: ASYNC104 - the border has raised what passes
    return usage if usage.requests else usage + ONE_REQUEST
