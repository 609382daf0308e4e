"""Models: resolve the model names of agents. A later release registers providers here."""

from __future__ import annotations

from ..abc import Model
from ..errors import AgentDefinitionError


def resolve_model(name: str) -> Model:
    """Return the model for a name such as "openai:gpt-5-mini".

    Raises:
        AgentDefinitionError: the name has no provider, or no provider is installed for it.
    """
    provider, colon, model = name.partition(":")
    if not (provider and colon and model):
        raise AgentDefinitionError(
            f'model {name!r} is not of the form "provider:name", such as "openai:gpt-5-mini"; or pass a Model object'
        )
    raise AgentDefinitionError(
        f"no provider is installed for model {name!r} (this release has none for {provider!r} or any other);"
        " pass a Model object, such as a ScriptedModel or one of a class of your own"
    )
