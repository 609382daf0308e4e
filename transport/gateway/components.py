"""What the documents of the API have in common: who may, events as components, and joining without losing a schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from greenroom.actors.contract.schemas import event_schemas

from ..protocol.schemas import Schema, moved, tidied

API_VERSION: Final = "1.0.0"
"""Of the paths below /v1 and of the subprotocol; the first number is theirs."""

TEMPLATE: Final = "#/components/schemas/{name}"
"""How a document refers to one of its schemas."""

BEARER: Final[Schema] = {
    "type": "http",
    "scheme": "bearer",
    "description": "The token of a principal. It never stands in a path or query.",
}


def info(title: str) -> Schema:
    """What a document says of itself."""
    about = (
        "Follow the runs of AI agents, decide about their tickets, start, steer and cancel them. Events are the stored "
        "bytes; a cursor is the sequence of the last event that was applied, and never gets too old."
    )
    return {"title": title, "version": API_VERSION, "description": about, "license": {"name": "MIT"}}


def event_components() -> dict[str, Schema]:
    """Event type -> schema of the whole event."""
    return {one["title"]: _component(one) for one in event_schemas()["oneOf"]}


def payload_components() -> dict[str, Schema]:
    """Name of a payload's class -> its schema; events refer to these."""
    return {name: _component(schema) for name, schema in event_schemas()["$defs"].items()}


def any_event() -> Schema:
    """An event of any type."""
    refs = {name: TEMPLATE.format(name=name) for name in event_components()}
    return {
        "description": "An event, as stored: one of the types.",
        "oneOf": [{"$ref": ref} for ref in refs.values()],
        "discriminator": {"propertyName": "type", "mapping": refs},
    }


def apart(*groups: Mapping[str, Schema]) -> dict[str, Schema]:
    """All of the groups in one.

    Raises:
        ValueError: two schemas of one name; one of them would hide the other.
    """
    found: dict[str, Schema] = {}
    for group in groups:
        for name, schema in group.items():
            if found.setdefault(name, schema) != schema:
                raise ValueError(f"two schemas have the name {name}; rename one of the classes")
    return found


def _component(schema: Schema) -> Schema:
    found: Schema = moved(tidied(schema), "#/$defs/", TEMPLATE.format(name=""))
    return found
