"""A model that a hook asks: one request, read to its response, beside the run's own requests."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import attrs
from msgspec.structs import replace

from ..abc import Model
from ..agents.agent import Agent
from ..contract.messages import Message, ModelRequest, ModelResponse
from ..engine.inputs import ONE_REQUEST
from ..errors import ModelError
from ..services.part_bytes import PartBytes
from ..services.sanitize import InvalidValue, response_of
from ..services.services import Services


@attrs.frozen
class HookModels:
    """Answers the requests of the hooks of one run."""

    services: Services
    agent: Agent[object]
    run_id: str
    part_bytes: PartBytes

    async def answer(self, model: Model | str | None, messages: tuple[Message, ...]) -> ModelResponse:
        """Ask a model. See `PhaseContext.ask_model`."""
        chosen_model = self.services.agents.model_for(self.agent, chosen=model)
        await self.services.models.opened(chosen_model)
        if any(message.parts for message in messages):
            messages = tuple(await self.part_bytes.filled(messages))
        request = ModelRequest(agent=self.agent.key, messages=messages, run_id=self.run_id, model=chosen_model.name)
        async with chosen_model.stream(request) as events:
            try:
                async for event in events:
                    if isinstance(event, ModelResponse):
                        answer = response_of(event)
                        return answer if answer.usage.requests else replace(answer, usage=answer.usage + ONE_REQUEST)
            except InvalidValue as error:
                raise ModelError(f"the answer of {chosen_model.name} cannot be used: {error}") from error
            finally:
                if isinstance(events, AsyncGenerator):
                    await events.aclose()
        raise ModelError(f"{chosen_model.name} ended its stream without a response", kind="interrupted")
