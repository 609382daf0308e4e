"""Forms of ACP elicitation: the schema of an answer as a form that an editor shows, and its content as the answer.

A form is flat: texts, numbers, choices and yes or no. A schema that is such an object is the form itself; one that is
such a value is the form's only property; of any other the form asks for the JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, Literal

import attrs

from greenroom.actors.contract.plain import JSONObject, JSONValue

from ..terminal.ticket_text import read_value

RESULT: Final = "result"
"""The property of a form that asks for one value."""
PROPERTIES: Final = 50
"""Most properties of a form; of a larger schema the form asks for the JSON text."""
SHOWN: Final = 2_000
"""Most characters of a schema in the description of a JSON text."""

_ANNOTATIONS: Final = frozenset(("type", "title", "description", "default"))
_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "string": _ANNOTATIONS | {"minLength", "maxLength", "pattern", "format", "enum"},
    "number": _ANNOTATIONS | {"minimum", "maximum"},
    "integer": _ANNOTATIONS | {"minimum", "maximum"},
    "boolean": _ANNOTATIONS,
}
"""Type of a property -> the keywords that a form may have beside it."""
_FORMATS: Final = frozenset(("email", "uri", "date", "date-time"))
_OBJECT: Final = frozenset(
    ("type", "title", "description", "properties", "required", "additionalProperties", "$schema")
)


@attrs.frozen(kw_only=True)
class ElicitationForm:
    """A form: its schema, and what its content is: the answer itself, a value in it, or a JSON text in it."""

    schema: JSONObject
    content: Literal["answer", "value", "text"]

    def answer(self, content: JSONObject) -> JSONValue:
        """Return the answer of a filled form."""
        match self.content:
            case "answer":
                return content
            case "value":
                return content.get(RESULT)
            case "text":
                text = content.get(RESULT)
                return read_value(text) if isinstance(text, str) else text


def form_of(schema: JSONObject | None) -> ElicitationForm:
    """Return the form for an answer; of no schema, for any value."""
    if schema is not None and _is_flat(schema):
        fields = {name: schema[name] for name in ("title", "required") if name in schema}
        properties = {name: dict(part) for name, part in schema.get("properties", {}).items()}
        return ElicitationForm(schema={"type": "object", **fields, "properties": properties}, content="answer")
    if schema is not None and _is_field(schema):
        return ElicitationForm(schema=_one(dict(schema)), content="value")
    rule = "" if schema is None else f" It must satisfy {json.dumps(schema, ensure_ascii=False)[:SHOWN]}"
    return ElicitationForm(schema=_one({"type": "string", "description": f"JSON, or a text.{rule}"}), content="text")


def _one(part: JSONObject) -> JSONObject:
    return {"type": "object", "properties": {RESULT: part}, "required": [RESULT]}


def _is_flat(schema: JSONObject) -> bool:
    properties = schema.get("properties")
    return (
        schema.get("type") == "object"
        and _OBJECT.issuperset(schema)
        and isinstance(properties, Mapping)
        and 0 < len(properties) <= PROPERTIES
        and all(isinstance(part, Mapping) and _is_field(part) for part in properties.values())
    )


def _is_field(part: JSONObject) -> bool:
    kind = part.get("type")
    if not isinstance(kind, str) or not _FIELDS.get(kind, frozenset()).issuperset(part):
        return False
    choices = part.get("enum", ())
    return part.get("format") in (None, *_FORMATS) and all(isinstance(choice, str) for choice in choices)
