"""Which library reads the values of a user's type, and constraints of the type that the library would drop.

msgspec checks arguments and outputs, and applies `msgspec.Meta` alone: it reads `Annotated[int, Field(ge=0)]` of
pydantic, or `annotated_types.Ge(0)`, as a plain int, and builds a dataclass of pydantic without pydantic's validation.
msgspec builds classes of attrs without their converters, too. cattrs, which checks state, calls constructors, and
applies no metadata at all. So a type with a part that only pydantic applies is read by pydantic as a whole
(`pydantic_part`), and a type with a part that its reader would drop is refused (`dropped_constraint`).
"""

from __future__ import annotations

import typing
from collections import deque
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal, get_args, get_origin

import attrs
import msgspec
import typing_extensions

Reader = Literal["msgspec", "cattrs", "pydantic"]

_CLASS: Final = ("__pydantic_validator__", "__pydantic_core_schema__", "__pydantic_config__")
"""Attributes of the classes that pydantic makes, or that name its options. pydantic itself is not imported."""
_HOOK: Final = "__get_pydantic_core_schema__"
"""The method of other types that pydantic reads, such as `pydantic.SecretStr`."""
_NO_CONVERTERS: Final = "give a validator, or convert in __attrs_post_init__"
_META: Final = "write the constraint as Annotated[..., msgspec.Meta(ge=..., le=..., pattern=..., ...)]"
_SHOWN: Final = 120
"""Most characters of a piece of metadata in a message."""
_PARTS: Final = 10_000
"""Most parts of a type that are visited; a type that makes new types without end is cut there."""


class TypeFault(Exception):
    """A type cannot be used; the text names the part and the way out."""


def without_note(kind: Any) -> tuple[Any, str]:
    """Return a type without the texts of its `Annotated[...]`, and these as one text: a description for the model.

    Only the annotation itself is read. Texts inside of containers and classes stay.
    """
    if get_origin(kind) is not Annotated:
        return kind, ""
    notes = [extra for extra in kind.__metadata__ if isinstance(extra, str)]
    if not notes:
        return kind, ""
    others = tuple(extra for extra in kind.__metadata__ if not isinstance(extra, str))
    return (Annotated.__class_getitem__((kind.__origin__, *others)) if others else kind.__origin__), " ".join(notes)


def pydantic_part(kind: object) -> str | None:
    """Return None, or the first part of a type that only pydantic applies, with the field in which it was met."""
    for part, where in _parts(kind):
        if is_pydantic(part):
            return _placed(where, part.__name__)
        if get_origin(part) is Annotated:
            for extra in part.__metadata__:
                if not isinstance(extra, str | msgspec.Meta):
                    return _placed(where, f"Annotated[...] with {extra!r:.{_SHOWN}}")
    return None


def dropped_constraint(kind: object, *, reader: Reader = "msgspec") -> str | None:
    """Return None, or the part of a type whose constraint would be dropped, and the form to write instead.

    Args:
        kind: A type, as an annotation with its extras. Fields of classes are visited, at any depth.
        reader: The library that reads the values. msgspec applies `msgspec.Meta`, and calls no constructor. cattrs
            applies no metadata, and calls constructors. pydantic applies its own metadata and that of annotated_types.
    """
    for part, where in _parts(kind):
        fault = _dropped(part, reader)
        if fault is not None:
            return _placed(where, fault)
    return None


def names_nothing(kind: object) -> bool:
    """Return True for a type with `object` in it, which any value is, also one without a form in JSON."""
    return any(part is object for part, _ in _parts(kind))


def _dropped(part: Any, reader: Reader) -> str | None:
    if isinstance(part, type):
        library = "attrs" if attrs.has(part) else "msgspec" if issubclass(part, msgspec.Struct) else ""
        if library and reader == "pydantic" and not hasattr(part, _HOOK):
            return f"pydantic, which reads this type, knows no class of {library} as {part.__name__}; {_ONE_LIBRARY}"
        if library == "attrs" and reader == "msgspec":
            for field in attrs.fields(part):
                if field.converter is not None:
                    return f"{part.__name__}.{field.name}: its converter would not be called; {_NO_CONVERTERS}"
    if get_origin(part) is not Annotated:
        return None
    for extra in part.__metadata__:
        if reader == "pydantic" and not isinstance(extra, str | msgspec.Meta):
            continue
        if not (reader == "msgspec" and isinstance(extra, msgspec.Meta)):
            return f"Annotated[...] with {extra!r:.{_SHOWN}} would not be applied; {_way_out(extra, reader)}"
    return None


_ONE_LIBRARY: Final = "write the class with pydantic or dataclasses, or the other parts with attrs and msgspec"


def _way_out(extra: object, reader: Reader) -> str:
    if reader == "cattrs":
        return "check the value where it is written, in a class of attrs with validators, or by pydantic.Field(...)"
    if reader == "pydantic":
        return "write Annotated[..., pydantic.Field(description=..., ge=..., ...)], which pydantic reads"
    if isinstance(extra, str):
        return "write Annotated[..., msgspec.Meta(description=...)], or describe the argument in the docstring"
    return _META


def _placed(where: str, text: str) -> str:
    return f"{where}: {text}" if where else text


def is_pydantic(part: object) -> bool:
    """Return True for a class that pydantic makes, and for a type that only pydantic reads."""
    if not isinstance(part, type):
        return False
    return any(name in vars(part) for name in _CLASS) or (hasattr(part, _HOOK) and not _is_plain(part))


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


def _is_plain(part: type) -> bool:
    """Return True for a class that other libraries read, too."""
    return attrs.has(part) or hasattr(part, "__dataclass_fields__") or issubclass(part, msgspec.Struct)


def _has_fields(part: object) -> bool:
    return (
        isinstance(part, type)
        and not is_pydantic(part)
        and (_is_plain(part) or typing_extensions.is_typeddict(part) or hasattr(part, "_fields"))
    )


def _hints(part: type) -> list[tuple[str, object]]:
    try:
        return list(typing_extensions.get_type_hints(part, include_extras=True).items())
    except Exception:  # noqa: BLE001 - annotations are user code; the check of the type's form reports what it cannot read
        return []
