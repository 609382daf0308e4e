"""Models: the providers by the names of their models.

A provider's module is imported when the first model of that provider is made, because it imports httpx.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import Final

from greenroom.supervision.border import Raised, capture
from greenroom.supervision.fields import did_you_mean

from ..abc import Model
from ..contract.codec import failure_text
from ..errors import AgentDefinitionError
from .presets import PRESETS, ROADS, SYNONYMS

ModelFactory = Callable[[str], Model]
"""(name of a model) -> the model; called once per runtime and name."""

PROVIDERS: Final[Mapping[str, tuple[str, str]]] = {
    "openai": ("openai", "OpenAIChat"),
    "openai-responses": ("openai", "OpenAIResponses"),
    "anthropic": ("anthropic", "Anthropic"),
    "gemini": ("gemini", "Gemini"),
    **dict.fromkeys(PRESETS, ("openai", "OpenAIChat")),
}
"""Prefix of a model's name: module of this package, class. The prefixes of `OpenAIChat` are its presets."""


GROUP: Final = "greenroom.models"
"""Entry points of installed packages that bring providers: prefix = "module:factory"."""


def resolve_model(
    name: str, providers: Mapping[str, ModelFactory] = MappingProxyType({}), *, base_url: str | None = None
) -> Model:
    """Return the model for a name such as "openai:gpt-5-mini".

    The prefix is searched among the given providers, then those of this release, then the entry points of installed
    packages.

    Args:
        name: prefix and name of the model.
        providers: by prefix.
        base_url: The address of the provider's service; for the providers of this release.

    Raises:
        AgentDefinitionError: the name has no provider, the provider is unknown, or it cannot make the model.
    """
    provider, colon, model = name.partition(":")
    if not (provider and colon and model):
        raise AgentDefinitionError(
            f'model {name!r} is not of the form "provider:name"; {_in_form(name)}give a name such as'
            ' "openai:gpt-5-mini", or a Model object'
        )
    if base_url is not None and (provider in providers or provider not in PROVIDERS):
        near = did_you_mean(provider, PROVIDERS, synonyms=SYNONYMS)
        road = f"; {ROADS[provider]}" if provider in ROADS else ""
        raise AgentDefinitionError(f"model {name!r}: {near}a base URL is for {', '.join(PROVIDERS)}{road}")
    options = {} if base_url is None else {"base_url": base_url}
    result = capture(lambda: _factory(provider, name, providers)(model, **options))
    if isinstance(result, Raised):  # a factory may be code of the user
        if isinstance(result.error, AgentDefinitionError):
            raise result.error
        text = f"provider {provider!r} could not make model {name!r}: {failure_text(result.error)}"
        raise AgentDefinitionError(text) from result.error
    if not isinstance(result.value, Model):
        raise AgentDefinitionError(f"provider {provider!r} returned {result.value!r:.100}, which is not a Model")
    return result.value


def _in_form(name: str) -> str:
    """Return the question after the right form of "ollama/qwen3" or "claude-sonnet-4-5"; "" if it is unclear."""
    if name in PROVIDERS:
        return f'did you mean "{name}:NAME"? '
    for sign, keeps_prefix in (("/", False), ("-", True)):
        word, _, rest = name.partition(sign)
        provider = SYNONYMS.get(word, word)
        if rest and provider in PROVIDERS:
            return f'did you mean "{provider}:{name if keeps_prefix else rest:.100}"? '
    return ""


def _factory(provider: str, name: str, providers: Mapping[str, ModelFactory]) -> Callable[..., object]:
    if provider in providers:
        return providers[provider]
    if provider in PROVIDERS:
        module, kind = PROVIDERS[provider]
        own: Callable[..., object] = getattr(import_module(f".{module}", __name__), kind)
        return partial(own, preset=provider) if provider in PRESETS else own
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow to import, and rarely needed

    points = {point.name: point for point in entry_points(group=GROUP)}
    if provider in points:
        factory: ModelFactory = points[provider].load()
        return factory
    if provider in ROADS:
        raise AgentDefinitionError(f"no provider is installed for model {name!r}: {ROADS[provider]}")
    names = (*providers, *PROVIDERS, *points)
    near = did_you_mean(provider, names, synonyms=SYNONYMS)
    raise AgentDefinitionError(
        f"no provider is installed for model {name!r}; {near}the providers are: {', '.join(names)}; another service"
        " with the format of OpenAI is openai:NAME with a base URL; or pass a Model object"
    )
