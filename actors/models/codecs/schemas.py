"""The JSON Schema of an answer as providers take it, and the words for one that they do not take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from ...contract.plain import JSONObject, JSONValue
from ..answers import WORDS

_DEFINITIONS: Final = "#/$defs/"
_UNKNOWN: Final = frozenset(
    {
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength"),
        *("pattern", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "propertyNames"),
    }
)
"""Limits that a strict form refuses. The runtime checks each answer against the whole schema anyway."""
_NAMES: Final = frozenset({"properties", "$defs"})
"""Keywords whose keys are names of the user."""


def object_schema(schema: JSONObject) -> dict[str, JSONValue] | None:
    """Return the schema with an object at its root; None if its values are no objects."""
    root: JSONValue = schema
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith(_DEFINITIONS):
        found = schema.get("$defs", {}).get(reference.removeprefix(_DEFINITIONS))
        if not isinstance(found, dict):
            return None
        root = {**found, "$defs": schema["$defs"]}
    return dict(root) if root.get("type") == "object" else None


def closed_schema(schema: JSONObject) -> dict[str, JSONValue] | None:
    """Return the schema in a strict form: objects have no other properties, no limits; None if it has open objects."""
    try:
        closed = _closed(schema, names=False)
    except _OpenObject:
        return None
    made: dict[str, JSONValue] = closed
    return made


class _OpenObject(Exception):
    """An object takes properties of any name."""


def _closed(value: JSONValue, *, names: bool) -> JSONValue:
    if isinstance(value, list | tuple):
        return [_closed(item, names=False) for item in value]
    if not isinstance(value, Mapping):
        return value
    if names:
        return {name: _closed(item, names=False) for name, item in value.items()}
    if value.get("additionalProperties", False) is not False:
        raise _OpenObject
    made = {key: _closed(item, names=key in _NAMES) for key, item in value.items() if key not in _UNKNOWN}
    return made | {"additionalProperties": False} if value.get("type") == "object" else made


def words(schema: JSONObject) -> str:
    """Return the system text that asks for an answer of this form."""
    return WORDS.format(schema=msgspec.json.encode(schema).decode())
