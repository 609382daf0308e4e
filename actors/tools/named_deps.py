"""The dependencies that functions name: `ToolContext[Deps]`, `PhaseContext[Deps]` in the annotation of the context."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Mapping
from typing import Any, Final, Union, get_args, get_origin

from ..plugins.contexts import PhaseContext
from .context import SyncToolContext, ToolContext

_CONTEXTS: Final = (ToolContext, SyncToolContext, PhaseContext)
ANY: Final[object] = Any
"""Stands for dependencies that a function does not name."""
_NOTHING: Final[Mapping[str, object]] = {}


def named_deps(function: object, namespace: Mapping[str, object] = _NOTHING) -> object:
    """Return the type argument of the context that is a function's first parameter; `ANY` if it names none.

    Args:
        function: any callable.
        namespace: names that annotations may use in addition to the function's globals.
    """
    try:
        parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]  # TypeError for others
    except (TypeError, ValueError):
        return ANY
    annotation: object = next((parameter.annotation for parameter in parameters), None)
    if isinstance(annotation, str) and "[" in annotation:
        annotation = _resolved(function, annotation, namespace)
    origin = get_origin(annotation)
    return get_args(annotation)[0] if isinstance(origin, type) and issubclass(origin, _CONTEXTS) else ANY


def _resolved(function: object, annotation: str, namespace: Mapping[str, object]) -> object:
    bare = inspect.unwrap(function if inspect.isroutine(function) else type(function).__call__)
    holder = types.SimpleNamespace(__annotations__={"ctx": annotation})
    names = getattr(getattr(bare, "__func__", bare), "__globals__", {})
    try:
        return typing.get_type_hints(holder, names, dict(namespace))["ctx"]
    except Exception:  # noqa: BLE001 - a name for type checkers only, or any code of the program
        return None


def provides(deps_type: object, annotation: object) -> bool:
    """Return False if dependencies of this type are certainly not of the named one."""
    if get_origin(annotation) in (Union, types.UnionType):
        return any(provides(deps_type, one) for one in get_args(annotation))
    own_class, base = get_origin(deps_type) or deps_type, get_origin(annotation) or annotation
    if ANY in (own_class, base) or not isinstance(own_class, type) or not isinstance(base, type):
        return True
    try:
        return issubclass(own_class, base)
    except TypeError:  # a protocol or a TypedDict, which only type checkers can compare
        return True
