"""The providers of this release, by the format that they speak: their models, and the codecs inside."""

from collections.abc import Callable
from functools import partial
from typing import Any

from greenroom.actors.models.codecs.anthropic import AnthropicCodec
from greenroom.actors.models.codecs.gemini import GeminiCodec
from greenroom.actors.models.codecs.openai_chat import OpenAIChatCodec
from greenroom.actors.models.codecs.openai_responses import OpenAIResponsesCodec
from greenroom.actors.models.codecs.port import Codec
from greenroom.actors.models.http import HTTPModel
from greenroom.models import Anthropic, Gemini, OpenAIChat, OpenAIResponses
from greenroom.testing import FaultServer

KEY = "sk-canary-0123456789abcdef"
"""A key that must be nowhere but on the wire."""

MODELS: dict[str, Callable[..., HTTPModel]] = {
    "chat": OpenAIChat,
    "responses": OpenAIResponses,
    "anthropic": Anthropic,
    "gemini": Gemini,
}
CODECS: dict[str, Callable[..., Codec]] = {
    "chat": partial(OpenAIChatCodec, "small"),
    "responses": partial(OpenAIResponsesCodec, "small"),
    "anthropic": partial(AnthropicCodec, "small"),
    "gemini": partial(GeminiCodec, "small"),
}


def model_of(name: str, server: FaultServer, **options: Any) -> HTTPModel:
    """A model of the provider that speaks this format, with a key, at a server."""
    return MODELS[name]("small", base_url=server.base_url(name), **{"api_key": KEY, **options})
