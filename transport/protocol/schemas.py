"""JSON Schemas of the frames in both directions, generated from their classes.

`gateway_schema` is docs/schemas/gateway.json. Client frames are closed, since unknown fields are refused. Gateway
frames are open: a client ignores unknown fields, so fields may be added.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from greenroom.actors.contract.casing import camel
from greenroom.actors.contract.plain import JSONObject
from greenroom.actors.contract.schemas import wire_words

from .codes import CLOSE_CODES, ERRORS, SUBPROTOCOL
from .down import DOWN
from .up import COMMANDS, UP

Schema = dict[str, Any]

ELSEWHERE: Final = ("id", "run")
"""Fields of a command that a POST carries in the header and the path."""


def components(classes: Iterable[type[object]], template: str) -> dict[str, Schema]:
    """Return name -> schema of these classes and of the types they contain.

    `template` formats a reference to `{name}`.

    Properties have the names of the wire.
    """
    _, schemas = msgspec.json.schema_components(classes, ref_template=template)
    return {name: tidied(schema) for name, schema in schemas.items()}


def tidied(schema: object) -> Any:
    """Return the schema as plain JSON data; field descriptions from docstrings are moved to the fields."""
    match schema:
        case {"description": str(text), **rest}:
            clean = tidied(rest)
            about, fields = _read_docstring(wire_words(text, clean.get("properties", ())))
            return {"description": about, **_described(clean, fields)}
        case {"properties": dict(properties), **rest}:
            names = {camel(name): tidied(value) for name, value in properties.items()}
            clean = {name: tidied(value) for name, value in rest.items()}
            if "required" in clean:
                clean["required"] = list(map(camel, clean["required"]))
            return {"properties": names, **clean}
        case dict():
            return {name: tidied(value) for name, value in schema.items()}
        case list() | tuple():
            return [tidied(item) for item in schema]
        case _:
            return schema


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Split a Google-style docstring into the text about the class and name -> text of its Attributes section."""
    about, _, section = inspect.cleandoc(text).partition("\n\nAttributes:\n")
    entries = re.findall(r"^    (\w[\w, ]*): (.*(?:\n {8}.*)*)", section, re.MULTILINE)
    return about, {camel(name): " ".join(texts.split()) for names, texts in entries for name in names.split(", ")}


def _described(schema: Schema, fields: Mapping[str, str]) -> Schema:
    if "properties" not in schema:
        return schema
    properties = {
        name: {"description": fields[name], **value} if name in fields else value
        for name, value in schema["properties"].items()
    }
    return {**schema, "properties": properties}


def moved(schema: object, old: str, new: str) -> Any:
    """Return the schema with the prefix `old` of its references replaced by `new`."""
    match schema:
        case dict():
            return {
                name: new + value.removeprefix(old)
                if name == "$ref" and isinstance(value, str) and value.startswith(old)
                else moved(value, old, new)
                for name, value in schema.items()
            }
        case list():
            return [moved(item, old, new) for item in schema]
        case _:
            return schema


def up_schemas() -> dict[str, Schema]:
    """Return type -> schema of the client's frames."""
    names = components(UP.values(), "#/{name}")
    shut = {name: {**schema, "additionalProperties": False} for name, schema in names.items()}
    return {kind: _closed(kind, _whole(names[cls.__name__], shut)) for kind, cls in UP.items()}


def down_schemas() -> dict[str, Schema]:
    """Return type -> schema of the gateway's frames except events."""
    names = components(DOWN.values(), "#/{name}")
    return {kind: {**_whole(names[cls.__name__], names), "title": kind} for kind, cls in DOWN.items()}


def _whole(schema: object, names: Mapping[str, Schema]) -> Any:
    """Return the schema with its references resolved in place."""
    match schema:
        case {"$ref": str(name)}:
            return _whole(names[name.removeprefix("#/")], names)
        case dict():
            return {key: _whole(value, names) for key, value in schema.items()}
        case list():
            return [_whole(item, names) for item in schema]
        case _:
            return schema


def command_schemas() -> dict[str, Schema]:
    """Return type -> schema of a command as the body of a POST, without the run and the id."""
    return {kind: _without(schema, ELSEWHERE) for kind, schema in up_schemas().items() if kind in COMMANDS}


def gateway_schema() -> Schema:
    """Return one JSON Schema document (draft 2020-12) of all frames; events have another document."""
    up, down = up_schemas(), down_schemas()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Frames of {SUBPROTOCOL}",
        "description": (
            "Each text frame holds one of these: `up` from the client, `down` from the gateway. Whatever comes down "
            "and has a type that does not begin with `gw.` is an event: events.json has those."
        ),
        "oneOf": [{"$ref": "#/$defs/up"}, {"$ref": "#/$defs/down"}],
        "$defs": {
            "up": {"oneOf": [{"$ref": f"#/$defs/{kind}"} for kind in up]},
            "down": {"oneOf": [{"$ref": f"#/$defs/{kind}"} for kind in down]},
            **up,
            **down,
        },
    }


def close_code_table() -> str:
    """Return the close codes as rows of Markdown."""
    rows = ["| code | name | meaning | reconnect? |", "|---|---|---|---|"]
    rows += [f"| {code.code} | {code.name} | {code.meaning} | {_yes(code.retry)} |" for code in CLOSE_CODES.values()]
    return "\n".join(rows)


def error_code_table() -> str:
    """Return the error codes as rows of Markdown."""
    rows = ["| code | status | meaning | retry |", "|---|---|---|---|"]
    rows += [f"| `{code.code}` | {code.status} | {code.meaning} | {_yes(code.retry)} |" for code in ERRORS.values()]
    return "\n".join(rows)


def _yes(value: bool) -> str:
    return "yes" if value else ""


def _closed(kind: str, schema: JSONObject) -> Schema:
    return {
        **schema,
        "title": kind,
        "properties": {"type": {"const": kind}, **schema["properties"]},
        "required": ["type", *schema.get("required", ())],
        "additionalProperties": False,
    }


def _without(schema: JSONObject, names: Iterable[str]) -> Schema:
    dropped = frozenset(names)
    return {
        **schema,
        "properties": {name: value for name, value in schema["properties"].items() if name not in dropped},
        "required": [name for name in schema["required"] if name not in dropped],
    }
