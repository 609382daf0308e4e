"""Constraints of a user's type that no check would apply, so that the type is refused instead of half obeyed.

msgspec checks arguments and outputs, and applies `msgspec.Meta` alone: it reads `Annotated[int, Field(ge=0)]` of
pydantic, or `annotated_types.Ge(0)`, as a plain int, and builds a dataclass of pydantic without pydantic's validation.
msgspec builds classes of attrs without their converters, too. cattrs, which checks state, calls constructors, and
applies no metadata at all.
"""

from __future__ import annotations

import typing
from collections import deque
from collections.abc import Iterator
from typing import Annotated, Any, Final, get_args, get_origin

import attrs
import msgspec

_PYDANTIC: Final = ("__pydantic_validator__", "__pydantic_core_schema__")
"""Attributes of the classes that pydantic makes. pydantic itself is not imported: most programs do not use it."""
_NO_CONVERTERS: Final = "give a validator, or convert in __attrs_post_init__"
_SHOWN: Final = 120
"""Most characters of a piece of metadata in a message."""
_PARTS: Final = 10_000
"""Most parts of a type that are visited; a type that makes new types without end is cut there."""


def dropped_constraint(kind: object, *, by_msgspec: bool = True) -> str | None:
    """Return None, or the part of a type whose constraint would be dropped, and the form to write instead.

    Args:
        kind: A type, as an annotation with its extras. Fields of classes are visited, at any depth.
        by_msgspec: msgspec checks the values: it applies `msgspec.Meta`, and calls no constructor. Otherwise cattrs
            does: it applies no metadata, and calls constructors, so that pydantic's dataclasses check themselves.
    """
    for part, where in _parts(kind):
        place = f"{where}: " if where else ""
        if _is_pydantic(part):
            if not by_msgspec:
                continue
            return (
                f"{place}pydantic checks {part.__name__}, and Greenroom does not call pydantic; use a class of attrs,"
                " dataclasses or msgspec, or take plain data and validate it in your code"
            )
        if by_msgspec and isinstance(part, type) and attrs.has(part):
            for field in attrs.fields(part):
                if field.converter is not None:
                    return f"{part.__name__}.{field.name}: its converter would not be called; {_NO_CONVERTERS}"
        if get_origin(part) is not Annotated:
            continue
        for extra in part.__metadata__:
            if not (by_msgspec and isinstance(extra, msgspec.Meta)):
                way = _way_out(extra, by_msgspec=by_msgspec)
                return f"{place}Annotated[...] with {extra!r:.{_SHOWN}} would not be applied; {way}"
    return None


def _is_pydantic(part: object) -> bool:
    return isinstance(part, type) and any(name in vars(part) for name in _PYDANTIC)


def _way_out(extra: object, *, by_msgspec: bool) -> str:
    if not by_msgspec:
        return "check the value where it is written, or in a class of attrs with validators"
    if isinstance(extra, str):
        return "write Annotated[..., msgspec.Meta(description=...)], or describe the argument in the docstring"
    return "write the constraint as Annotated[..., msgspec.Meta(ge=..., le=..., pattern=..., ...)]"


def _parts(kind: object) -> Iterator[tuple[Any, str]]:
    """Yield a type and all types in it, each once, with the field in which each was met."""
    waiting = deque[tuple[Any, str]]([(kind, "")])
    seen_ids: set[int] = set()
    visited_parts: list[object] = []  # keeps the ids of `seen_ids` from being used again
    while waiting and len(visited_parts) < _PARTS:
        part, where = waiting.popleft()
        if id(part) in seen_ids:
            continue
        seen_ids.add(id(part))
        visited_parts.append(part)
        yield part, where
        for name in ("__supertype__", "__value__", "__origin__"):  # of NewType, `type X = ...`, Annotated and generics
            inner = getattr(part, name, None)
            if inner is not None:
                waiting.append((inner, where))
        if typing.get_origin(part) is not typing.Literal:
            waiting.extend((inner, where) for inner in get_args(part) if not isinstance(inner, str | int))
        if _has_fields(part):
            waiting.extend((hint, f"{part.__name__}.{name}") for name, hint in _hints(part))


def _has_fields(part: object) -> bool:
    return (
        isinstance(part, type)
        and not _is_pydantic(part)
        and (
            attrs.has(part)
            or hasattr(part, "__dataclass_fields__")
            or issubclass(part, msgspec.Struct)
            or typing.is_typeddict(part)
            or hasattr(part, "_fields")
        )
    )


def _hints(part: type) -> list[tuple[str, object]]:
    try:
        return list(typing.get_type_hints(part, include_extras=True).items())
    except Exception:  # noqa: BLE001 - annotations are user code; the check of the type's form reports what it cannot read
        return []
