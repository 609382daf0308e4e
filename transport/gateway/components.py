"""The common parts of the API's documents: security, events as components, and merging without losing a schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from greenroom.actors.contract.schemas import event_schemas

from ..protocol.schemas import Schema, moved, tidied

API_VERSION: Final = "1.0.0"
"""Version of the paths below /v1 and of the subprotocol; its first number is in their names."""

TEMPLATE: Final = "#/components/schemas/{name}"
"""Reference to a schema of the same document."""

BEARER: Final[Schema] = {
    "type": "http",
    "scheme": "bearer",
    "description": "The token of a principal. A path or query never contains it.",
}


def info(title: str) -> Schema:
    """Return the `info` section of a document."""
    about = (
        "Follow the runs of AI agents, decide about their tickets, start, steer and cancel them. Events are the stored "
        "bytes; a cursor is the sequence of the last event that was applied, and never gets too old."
    )
    return {"title": title, "version": API_VERSION, "description": about, "license": {"name": "MIT"}}


def event_components() -> dict[str, Schema]:
    """Return event type -> schema of the whole event."""
    return {schema["title"]: _component(schema) for schema in event_schemas()["oneOf"]}


def payload_components() -> dict[str, Schema]:
    """Return name of a payload's class -> its schema; event schemas refer to these."""
    return {name: _component(schema) for name, schema in event_schemas()["$defs"].items()}


def any_event() -> Schema:
    """Return the schema of an event of any type."""
    refs = {name: TEMPLATE.format(name=name) for name in event_components()}
    return {
        "description": "An event, as stored: one of the types.",
        "oneOf": [{"$ref": ref} for ref in refs.values()],
        "discriminator": {"propertyName": "type", "mapping": refs},
    }


def apart(*groups: Mapping[str, Schema]) -> dict[str, Schema]:
    """Merge the groups.

    Raises:
        ValueError: Two different schemas have one name.
    """
    schemas: dict[str, Schema] = {}
    for group in groups:
        for name, schema in group.items():
            if schemas.setdefault(name, schema) != schema:
                raise ValueError(f"two schemas have the name {name}; rename one of the classes")
    return schemas


def _component(schema: Schema) -> Schema:
    component: Schema = moved(tidied(schema), "#/$defs/", TEMPLATE.format(name=""))
    return component
