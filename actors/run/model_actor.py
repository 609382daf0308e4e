"""One model request: streams the answer into the run's buffer and owes the run the response or the failure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from ..abc import Model, ReasoningDelta, TextDelta
from ..contract.messages import ModelRequest, ModelResponse
from ..engine.effects import CallModel
from ..engine.inputs import Input, ModelAnswered, ModelFailed
from ..errors import ModelError
from ..tools.invoke import TEXT_LIMIT, shown_text
from .children import Child, Children
from .foreign import Unusable, response_of, text_of


def streaming(
    effect: CallModel,
    *,
    find_model: Callable[[], Model],
    make_request: Callable[[], Awaitable[ModelRequest]],
    children: Children,
    delay: float,
) -> Callable[[Child], Awaitable[None]]:
    """The body of a child that asks the model once. A model that is not there is a failure of that request."""

    async def body(child: Child) -> None:
        if delay:
            await trio.sleep(delay)
        request = await make_request()
        children.owe(await ask(find_model(), request, effect.message_id, children))

    return body


async def ask(model: Model, request: ModelRequest, message_id: str, children: Children) -> Input:
    """Stream one answer. A ModelError is an answer, too; anything else leaves as it is."""
    try:
        async with model.stream(request) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    await children.message_stream(message_id).text.put(event.text)
                elif isinstance(event, ReasoningDelta):
                    await children.message_stream(message_id).reasoning.put(event.text)
                else:
                    return _answered(message_id, event)
    except ModelError as error:
        return _failed(message_id, error)
    text = f"{model.name} ended its stream without a response"
    return ModelFailed(message_id=message_id, kind="interrupted", text=text, retryable=True)


def _failed(message_id: str, error: ModelError) -> ModelFailed:
    return ModelFailed(
        message_id=message_id, kind=error.kind, text=text_of(str(error))[:TEXT_LIMIT], retryable=error.retryable
    )


def _answered(message_id: str, response: ModelResponse) -> Input:
    try:
        return ModelAnswered(message_id=message_id, response=response_of(response))
    except Unusable as error:
        text = f"the model's answer can not be used: {error}"
        return ModelFailed(message_id=message_id, kind="provider", text=text, retryable=False)


def broken(message_id: str) -> Callable[[Exception], Input]:
    """What a crash of the model's code means: a failure that asking again will not mend.

    A ModelError that comes out of a group of errors is what it says.
    """

    def failed(error: Exception) -> Input:
        if isinstance(error, ModelError):
            return _failed(message_id, error)
        text = text_of(shown_text(error))
        return ModelFailed(message_id=message_id, kind="provider", text=text, retryable=False)

    return failed
