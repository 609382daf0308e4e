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
_WITHOUT_PLACE: Final = frozenset(
    {
        *("oneOf", "allOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "$dynamicRef"),
        *("patternProperties", "unevaluatedProperties", "prefixItems", "contains", "unevaluatedItems"),
    }
)
"""Keywords that a strict form refuses, and whose loss would change the form."""
_NAMES: Final = frozenset({"properties", "$defs", "definitions"})
"""Keywords whose keys are names of the user."""
_DATA: Final = frozenset({"enum", "const", "default", "examples"})
"""Keywords whose values are data, no schemas."""


def object_schema(schema: JSONObject) -> dict[str, JSONValue] | None:
    """Return the schema with an object at its root; None if its values are not objects."""
    root: JSONValue = schema
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith(_DEFINITIONS):
        definition = schema.get("$defs", {}).get(reference.removeprefix(_DEFINITIONS))
        if not isinstance(definition, dict):
            return None
        root = {**definition, "$defs": schema["$defs"]}
    return dict(root) if root.get("type") == "object" else None


def closed_schema(schema: JSONObject) -> dict[str, JSONValue] | None:
    """Return the schema in a strict form: objects have no other properties, no limits; None if it has no such form."""
    try:
        closed_root = _closed(schema, names=False)
    except NoStrictForm:
        return None
    root: dict[str, JSONValue] = closed_root
    return root


class NoStrictForm(Exception):
    """The schema says more than a strict form can."""


def _closed(value: JSONValue, *, names: bool) -> JSONValue:
    if isinstance(value, list | tuple):
        return [_closed(item, names=False) for item in value]
    if not isinstance(value, Mapping):
        return value
    if names:
        return {name: _closed(item, names=False) for name, item in value.items()}
    has_names, kind = "properties" in value, value.get("type")
    has_objects = has_names or kind == "object" or (isinstance(kind, list) and "object" in kind)
    is_open = value.get("additionalProperties", False) is not False or (has_objects and not has_names)
    if is_open or not _WITHOUT_PLACE.isdisjoint(value):
        raise NoStrictForm
    copy = {
        key: item if key in _DATA else _closed(item, names=key in _NAMES)
        for key, item in value.items()
        if key not in _UNKNOWN
    }
    return copy | {"additionalProperties": False} if has_objects else copy


def words(schema: JSONObject) -> str:
    """Return the system text that asks for an answer of this form."""
    return WORDS.format(schema=msgspec.json.encode(schema).decode())
