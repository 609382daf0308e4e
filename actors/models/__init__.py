"""Models: the providers by the names of their models.

A provider's module is imported when the first model of that provider is made, because it imports httpx.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Final

from greenroom.supervision.fields import did_you_mean

from ..abc import Model
from ..errors import AgentDefinitionError

ModelFactory = Callable[[str], Model]
"""(name of a model) -> the model; called once per runtime and name."""

PROVIDERS: Final[Mapping[str, tuple[str, str]]] = {
    "openai": ("openai", "OpenAIChat"),
}
"""Prefix of a model's name: module of this package, class."""


def resolve_model(name: str) -> Model:
    """Return the model for a name such as "openai:gpt-5-mini".

    Raises:
        AgentDefinitionError: the name has no provider, the provider is unknown, or it cannot make the model.
    """
    provider, colon, model = name.partition(":")
    if not (provider and colon and model):
        raise AgentDefinitionError(
            f'model {name!r} is not of the form "provider:name", such as "openai:gpt-5-mini"; or pass a Model object'
        )
    if provider not in PROVIDERS:
        near = did_you_mean(provider, PROVIDERS)
        raise AgentDefinitionError(
            f"no provider is installed for model {name!r}; {near}the providers are: {', '.join(PROVIDERS)};"
            " or pass a Model object"
        )
    module, kind = PROVIDERS[provider]
    made: Model = getattr(import_module(f".{module}", __name__), kind)(model)
    return made
