"""JSON Schemas of every event, made from the payload classes; `scripts/generate.py` writes them to docs/schemas."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection
from typing import Final

import msgspec

from .casing import camel
from .catalogue import CATALOGUE
from .envelope import EVENT_VERSION
from .plain import JSONValue

_QUOTED: Final = re.compile(r"`([a-z]+(?:_[a-z]+)+)`")


def wire_words(text: str, properties: Collection[str]) -> str:
    """A docstring for readers of the wire: a field of the class that it quotes has its name there."""

    def camel_name(match: re.Match[str]) -> str:
        name = camel(match[1])
        return f"`{name}`" if name in properties else match[0]

    return _QUOTED.sub(camel_name, text)


def event_schemas() -> dict[str, JSONValue]:
    """Return one JSON Schema document (draft 2020-12): `oneOf` over all event types, payloads under `$defs`."""
    classes = sorted(set(CATALOGUE.values()), key=lambda cls: cls.__name__)
    schemas, definitions = msgspec.json.schema_components(classes, ref_template="#/$defs/{name}")
    refs = dict(zip(classes, schemas, strict=True))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Greenroom events",
        "oneOf": [_envelope(name, refs[cls]) for name, cls in sorted(CATALOGUE.items())],
        "$defs": {name: _with_wire_words(schema) for name, schema in definitions.items()},
    }


def _with_wire_words(schema: dict[str, JSONValue]) -> dict[str, JSONValue]:
    if "description" not in schema:
        return schema
    # Python 3.13 removes the indentation of docstrings, an older one does not
    text = inspect.cleandoc(schema["description"])
    return {**schema, "description": wire_words(text, schema.get("properties", ()))}


def described(cls: type[msgspec.Struct]) -> str:
    """The docstring of a payload's class, with the names of the wire."""
    return wire_words(inspect.getdoc(cls) or "", [field.encode_name for field in msgspec.structs.fields(cls)])


def _envelope(name: str, payload: object) -> dict[str, JSONValue]:
    properties = {
        "id": {"type": "string"},
        "sequence": {"type": "integer", "minimum": 1},
        "type": {"const": name},
        "version": {"const": EVENT_VERSION},
        "runId": {"type": "string"},
        "sessionId": {"type": ["string", "null"]},
        "agentId": {"type": "string"},
        "timestamp": {"type": "string", "format": "date-time"},
        "payload": payload,
    }
    excerpt_schema = {
        "type": "array",
        "items": {"type": "string"},
        "description": "Fields of the payload that are too long for an event: they hold head and tail of their texts.",
    }
    return {
        "title": name,
        "description": described(CATALOGUE[name]),
        "type": "object",
        "properties": properties | {"excerpted": excerpt_schema},
        "required": list(properties),
        "additionalProperties": False,
    }
