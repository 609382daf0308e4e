"""JSON Schemas of every event, made from the payload classes; `scripts/generate.py` writes them to docs/schemas."""

from __future__ import annotations

import inspect

import msgspec

from .envelope import EVENT_VERSION
from .events import CATALOGUE
from .plain import JSONValue


def event_schemas() -> dict[str, JSONValue]:
    """Return one JSON Schema document (draft 2020-12): `oneOf` over all event types, payloads under `$defs`."""
    classes = sorted(set(CATALOGUE.values()), key=lambda cls: cls.__name__)
    schemas, definitions = msgspec.json.schema_components(classes, ref_template="#/$defs/{name}")
    refs = dict(zip(classes, schemas, strict=True))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Greenroom events",
        "oneOf": [_envelope(name, refs[cls]) for name, cls in sorted(CATALOGUE.items())],
        "$defs": definitions,
    }


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
    excerpted = {
        "type": "array",
        "items": {"type": "string"},
        "description": "Fields of the payload that are too long for an event: they hold head and tail of their texts.",
    }
    return {
        "title": name,
        "description": inspect.getdoc(CATALOGUE[name]),
        "type": "object",
        "properties": properties | {"excerpted": excerpted},
        "required": list(properties),
        "additionalProperties": False,
    }
