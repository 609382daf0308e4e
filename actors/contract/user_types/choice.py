"""Choose the library that reads the values of a type. pydantic, an extra, is imported at the first type in need."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ..plain import JSONObject, JSONValue
from .constraints import TypeFault, dropped_constraint, names_nothing, pydantic_part, without_note

if TYPE_CHECKING:
    from .pydantic_type import PydanticType

_FORMS: Final = (
    "use str, int, float, bool, list, dict, Literal, Enum, or a class of attrs, dataclasses, msgspec, pydantic or"
    " TypedDict"
)
_WITHOUT: Final = "write constraints as msgspec.Meta(ge=...), and classes with attrs, dataclasses or msgspec"
"""The way out for a program without pydantic."""
_DEFINITIONS: Final = "#/$defs/"


def chosen_reader(kind: Any) -> PydanticType | None:
    """Return pydantic's reader of a type; None if msgspec reads the type.

    msgspec reads whatever it can. pydantic reads what only pydantic applies, and what msgspec cannot read, such as a
    union of two dataclasses.

    Args:
        kind: A type, as an annotation with its extras.

    Raises:
        TypeFault: the type has no form in JSON, or a part of it would be dropped, or pydantic is not installed.
    """
    reader = pydantic_type(kind)
    if reader is not None:
        return reader
    fault = dropped_constraint(kind)
    if fault is not None:
        raise TypeFault(fault)
    try:
        msgspec.json.schema(kind)
        msgspec.json.Decoder(kind)
    except Exception as error:  # msgspec raises what it meets inside the class (TypeError, NameError, RuntimeError)
        reader = last_resort(kind)
        if reader is None:
            what = str(error).strip().splitlines()[-1]
            more = "" if find_spec("pydantic") else "; pydantic knows more types (pip install 'greenroom[pydantic]')"
            raise TypeFault(f"{kind!r:.200} has no JSON form ({what}); {_FORMS}{more}") from error
    return reader


def rooted(schema: JSONObject) -> dict[str, JSONValue]:
    """Return a schema with the form itself at its root, where forms are made of it, in place of a reference to it."""
    root = dict(schema)
    definitions = dict(root.pop("$defs", {}))
    if "$ref" in root:
        title = root.pop("$ref").removeprefix(_DEFINITIONS)
        root = {**definitions[title], **root}
        if f'"{_DEFINITIONS}{title}"' not in msgspec.json.encode([root, definitions]).decode():  # nothing names it
            del definitions[title]
    return {**root, "$defs": definitions} if definitions else root


def schema_of(kind: Any) -> JSONObject:
    """Return the JSON Schema of a type. Shared; do not change it.

    Raises:
        TypeFault: as for `chosen_reader`.
    """
    return _form_of(kind)[0]


def read_as(kind: Any, data: object) -> Any:
    """Return the value of JSON data.

    Raises:
        TypeFault: as for `chosen_reader`.
        BaseException: the data does not fit, or a validator of the program has raised.
    """
    return _form_of(kind)[1](data)


def _form_of(kind: Any) -> tuple[JSONObject, Callable[[Any], Any]]:
    try:
        return _remembered_form(kind)
    except TypeError:  # metadata that cannot be a key of the cache
        return _form(kind)


def _form(kind: Any) -> tuple[JSONObject, Callable[[Any], Any]]:
    bare, _ = without_note(kind)
    reader = chosen_reader(bare)
    if reader is None:
        return rooted(msgspec.json.schema(bare)), partial(msgspec.convert, type=bare)
    return rooted(reader.schema), reader.read


_remembered_form: Final = lru_cache(maxsize=256)(_form)
forget_forms: Final = _remembered_form.cache_clear
"""Forget the forms of all types, as a process begins."""


def pydantic_type(kind: Any) -> PydanticType | None:
    """Return the reader of a type with a part that only pydantic applies; None for any other type.

    Raises:
        TypeFault: as for `chosen_reader`.
    """
    part = pydantic_part(kind)
    if part is None:
        return None
    try:
        reader = _import()
    except ImportError as error:
        way = f"pip install 'greenroom[pydantic]', or {_WITHOUT}"
        raise TypeFault(f"pydantic applies {part}, and cannot be imported ({error}); {way}") from error
    fault = dropped_constraint(kind, reader="pydantic")
    if fault is not None:
        raise TypeFault(fault)
    return reader.of(kind)


def last_resort(kind: Any) -> PydanticType | None:
    """Return pydantic's reader, or None: msgspec's fault of a type that neither reads says more than pydantic's."""
    try:
        return None if dropped_constraint(kind, reader="pydantic") or names_nothing(kind) else _import().of(kind)
    except (ImportError, TypeFault):
        return None


def _import() -> type[PydanticType]:
    from .pydantic_type import PydanticType  # noqa: PLC0415 - an extra, which takes 100 ms

    return PydanticType
