"""The casing of the wire: fields are snake_case in Python and camelCase in every JSON that leaves the process.

A name changes where a class of Greenroom becomes JSON, and in no other place: structs are declared with `rename=camel`,
instances of attrs classes pass `wire`. Both follow the fields of classes. The keys of a mapping are user data
(arguments, results, state, JSON Schemas) or ids, and stay as they are; so do values, those of enumerations included.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import attrs
import msgspec

from .plain import JSONObject, JSONValue


def camel(name: str) -> str:
    """The name of a field on the wire: `ticket_id` becomes `ticketId`. A name in camelCase stays as it is."""
    head, *rest = name.split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in rest)


def wire(value: object) -> JSONValue:
    """An instance of a class of Greenroom as data with the names of the wire; the same in tuples and lists.

    Any other value is returned as it is, mappings included. A field that is unset is left out.
    """
    fields = _fields(type(value))  # type: ignore[arg-type]  # mypy doubts that a class is hashable
    if fields is not None:
        items = ((name_on_wire, getattr(value, name)) for name, name_on_wire in fields)
        return {name_on_wire: wire(item) for name_on_wire, item in items if item is not msgspec.UNSET}
    return [wire(item) for item in value] if isinstance(value, (tuple, list)) else value


def wire_of(value: object, names: Iterable[str]) -> dict[str, JSONValue]:
    """Some fields of an instance, with the names of the wire."""
    return {camel(name): wire(getattr(value, name)) for name in names}


def from_wire(cls: type, data: JSONObject) -> dict[str, JSONValue]:
    """The fields of a class as they came over the wire, with the names of Python; other keys stay as they are."""
    names = {name_on_wire: name for name, name_on_wire in _fields(cls) or ()}
    return {names.get(key, key): value for key, value in data.items()}


@cache
def _fields(cls: type) -> tuple[tuple[str, str], ...] | None:
    """The names of a class's fields, in Python and on the wire; None of a class that has none."""
    if attrs.has(cls):
        return tuple((field.name, camel(field.name)) for field in attrs.fields(cls))
    if issubclass(cls, msgspec.Struct):
        return tuple((field.name, camel(field.name)) for field in msgspec.structs.fields(cls))
    return None
