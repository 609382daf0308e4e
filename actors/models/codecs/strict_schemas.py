"""JSON Schemas in the strict form of OpenAI, which a model cannot leave.

Every object names its properties and demands all of them; an optional one may be null, which the runtime reads as left
out (`without_nulls`). Sources: openai-python's `to_strict_json_schema` (lib/_pydantic.py), and the guide
(developers.openai.com/api/docs/guides/structured-outputs): what is supported, and how much of it. A schema that says
more than the form can has none, and is sent as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from ...contract.json_schema.optional import takes_null
from ...contract.plain import JSONObject, JSONValue
from .schemas import NoStrictForm, object_schema

LIMITS: Final = frozenset(
    {
        *("pattern", "format", "multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
        *("minItems", "maxItems"),
    }
)
"""Limits that OpenAI's own service knows, and Azure and others do not."""
FORMATS: Final = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
_SILENT: Final = frozenset(
    {
        *("default", "examples", "discriminator", "$schema", "$id", "$comment", "deprecated", "readOnly", "writeOnly"),
        *("additionalProperties", "required", "contentEncoding", "contentMediaType"),
    }
)
"""Keywords that are left out: they bind no value, or are written new."""
_TYPES: Final[Mapping[type, str]] = {str: "string", bool: "boolean", int: "integer", float: "number"}
MOST_PROPERTIES: Final = 5_000
MOST_VALUES: Final = 1_000
"""Values of all enumerations together."""
DEEPEST: Final = 10
"""Levels of nesting."""
MOST_CHARACTERS: Final = 120_000
"""Characters of all names and values together."""


Strictness = Literal["never", "plain", "limits"]
"""Whether a service gets strict forms: never, of schemas without `LIMITS`, or of those with them, too."""
MEMO: Final = 256
"""Schemas whose forms are kept; an agent has some tens."""


class StrictForms:
    """The strict forms of the schemas of one model's requests, each written once.

    The schemas of an agent are the same objects in all of its requests, so they are known by their identity.
    """

    def __init__(self, strictness: Strictness) -> None:
        self._strictness = strictness
        self._forms: dict[int, tuple[JSONObject, JSONObject | None]] = {}

    def of(self, schema: JSONObject) -> JSONObject | None:
        """Return the strict form of an object's schema; None if it has none, or the service takes none."""
        if self._strictness == "never":
            return None
        known = self._forms.get(id(schema))
        if known is None:
            if len(self._forms) >= MEMO:
                self._forms.clear()
            form = strict_schema(schema, limits=self._strictness == "limits")
            known = self._forms[id(schema)] = (
                schema,
                form,
            )  # the schema itself is kept, so that no other one gets its id
        return known[1]


def strict_schema(schema: JSONObject, *, limits: bool) -> dict[str, JSONValue] | None:
    """Return the strict form of an object's schema; None if it has none.

    Args:
        schema: The schema, with an object or a reference to one at its root.
        limits: the service knows `LIMITS`.
    """
    root = object_schema(schema)
    if root is None:
        return None
    try:
        return _StrictWriter(root, limits=limits).written(root)
    except NoStrictForm:
        return None


class _StrictWriter:
    """Writes one schema, and counts what it has."""

    def __init__(self, root: JSONObject, *, limits: bool) -> None:
        self._root = root
        self._limits = limits
        self._properties = self._values = self._characters = 0

    def written(self, schema: JSONValue, depth: int = 0) -> dict[str, JSONValue]:
        if not isinstance(schema, Mapping) or depth > DEEPEST:
            raise NoStrictForm
        if "$ref" in schema:
            return self._reference(schema)
        out: dict[str, JSONValue] = {}
        for key, value in schema.items():
            if key not in _SILENT:
                out |= self._keyword(key, value, depth)
        if "properties" in schema or schema.get("type") == "object":
            self._object(schema, out, depth)
        elif "anyOf" not in out and "type" not in out:
            out["type"] = _type_of(schema)
        return out

    def _reference(self, schema: JSONObject) -> dict[str, JSONValue]:
        """A reference stands alone; a description is put around it."""
        reference = schema["$ref"]
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/$defs/")):
            raise NoStrictForm
        if {*schema} - _SILENT - {"$ref", "title", "description"}:
            raise NoStrictForm
        if "description" in schema:
            return {"description": schema["description"], "anyOf": [{"$ref": reference}]}
        return {"$ref": reference}

    def _keyword(self, key: str, value: JSONValue, depth: int) -> dict[str, JSONValue]:
        match key:
            case "title" | "description" | "type" | "properties":
                return {} if key == "properties" else {key: value}
            case "$defs":
                return {key: {name: self._named(name, part) for name, part in value.items()}}
            case "items":
                return {key: self.written(value, depth + 1)}
            case "anyOf" | "oneOf" if depth:
                return {"anyOf": [self.written(part, depth) for part in value]}
            case "enum":
                self._count(values=value)
                return {key: value}
            case "const":
                return {"enum": [value]}
            case "format" if value not in FORMATS:
                raise NoStrictForm
            case _ if key in LIMITS and self._limits:
                return {key: value}
            case _:
                raise NoStrictForm

    def _named(self, name: str, part: JSONValue) -> dict[str, JSONValue]:
        self._count(names=[name])
        return self.written(part, 1)

    def _object(self, schema: JSONObject, out: dict[str, JSONValue], depth: int) -> None:
        names = schema.get("properties")
        if not isinstance(names, Mapping) or schema.get("additionalProperties", False) is not False:
            raise NoStrictForm
        self._properties += len(names)
        self._count(names=names)
        required = schema.get("required", ())
        out["properties"] = {
            name: self.written(part, depth + 1) if name in required else self._optional(part, depth + 1)
            for name, part in names.items()
        }
        out["required"] = list(names)
        out["additionalProperties"] = False

    def _optional(self, part: JSONValue, depth: int) -> dict[str, JSONValue]:
        """Return the schema of a property that may be null in place of being left out."""
        written = self.written(part, depth)
        default = part.get("default")
        if takes_null(part, self._root):
            return written
        text = written.pop("description", "")
        if default is not None:
            text = f"{text} Null stands for {msgspec.json.encode(default).decode()}.".strip()
        described = {"description": text} if text else {}
        kind = written.get("type")
        if isinstance(kind, str) and "enum" not in written and kind != "object":
            return {**described, **written, "type": [kind, "null"]}
        return {**described, "anyOf": [*(written.get("anyOf") or [written]), {"type": "null"}]}

    def _count(self, names: Iterable[str] = (), values: Sequence[JSONValue] = ()) -> None:
        texts = (value for value in values if isinstance(value, str))
        self._values += len(values)
        self._characters += sum(map(len, (*names, *texts)))
        counts = (self._properties, MOST_PROPERTIES), (self._values, MOST_VALUES), (self._characters, MOST_CHARACTERS)
        if any(count > most for count, most in counts):
            raise NoStrictForm


def _type_of(schema: JSONObject) -> str:
    """Return the type of all values of an enumeration."""
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    kinds = {_TYPES.get(type(value), "") for value in values}
    if len(kinds) != 1 or kinds == {""}:
        raise NoStrictForm
    return kinds.pop()
