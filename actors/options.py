"""Errors for invalid arguments: the given value, the nearest valid one, and all valid ones."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from greenroom.supervision.fields import did_you_mean

from .errors import UsageError

C = TypeVar("C", bound=type)

_SYNONYMS: Final = {
    "deps": "deps_type",
    "functions": "tools",
    "max_turns": "stop",
    "max_iterations": "stop",
    "max_tokens": "settings",
    "model_settings": "settings",
    "name": "key",
    "prompt": "instructions",
    "response_format": "output_type",
    "result_retries": "output_retries",
    "result_type": "output_type",
    "retries": "output_retries",
    "system_message": "instructions",
    "system_prompt": "instructions",
    "temperature": "settings",
    "tool_use_behavior": "tool_use",
}
"""Options of agents in the OpenAI Agents SDK, pydantic-ai and LangGraph, each with the option of this library."""


def unknown_value(name: str, value: object, known: Iterable[str]) -> UsageError:
    """Return the error for a value that is not among the known ones."""
    known = tuple(known)
    way = f"one of {', '.join(known)}" if len(known) > 2 else " or ".join(map(repr, known))
    return UsageError(f"{name}={value!r:.100} is not known; {did_you_mean(value, known)}use {way}")


def unknown_option(call: str, option: str, known: Iterable[str], error: type[UsageError] = UsageError) -> UsageError:
    """Return the error for a keyword that a function does not have."""
    known = tuple(known)
    near = did_you_mean(option, known, quoted=False, synonyms=_SYNONYMS)
    return error(f"{call}() has no option {option!r}; {near}it has {', '.join(known)}")


def checks_fields(error: type[UsageError]) -> Callable[[C], C]:
    """Make the constructor of a class raise `error` for a keyword that is not a field, and for too many positions.

    A class of attrs with `init=False` gets the constructor that attrs makes for it.
    """

    def decorate(cls: C) -> C:
        create: Callable[..., None] = vars(cls).get("__attrs_init__") or vars(cls)["__init__"]
        known = keywords_of(create)
        kinds = [parameter.kind for parameter in inspect.signature(create).parameters.values()]
        positions = sum(kind is not inspect.Parameter.KEYWORD_ONLY for kind in kinds) - 1  # without self

        @functools.wraps(create)
        def init(self: object, *args: object, **fields: object) -> None:
            if len(args) > positions:
                named = ", ".join(known[:positions]) or "nothing"
                way = f"give the others by name, of {', '.join(known)}"
                raise error(f"{cls.__name__}() takes {named} by position and got {args[positions]!r:.100}, too; {way}")
            for field in fields:
                if field not in known:
                    raise unknown_option(cls.__name__, field, known, error)
            create(self, *args, **fields)

        cls.__init__ = init  # type: ignore[misc]
        return cls

    return decorate


def keywords_of(call: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of the arguments that can be given by keyword."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(call).parameters.values()
    return tuple(parameter.name for parameter in parameters if parameter.kind in kinds and parameter.name != "self")
