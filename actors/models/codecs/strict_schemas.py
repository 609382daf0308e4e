"""JSON Schemas in the strict form of OpenAI, which a model cannot leave.

Every object names its properties and demands all of them; an optional one may be null, which the runtime reads as left
out (`without_nulls`). Sources: openai-python's `to_strict_json_schema` (lib/_pydantic.py), and the guide
(developers.openai.com/api/docs/guides/structured-outputs): what is supported, and how much of it. A schema that says
more than the form can has none, and is sent as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

from ...contract.json_schema.optional import takes_null
from ...contract.plain import JSONObject, JSONValue
from .port import json_text
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
_UNIONS: Final = frozenset({"anyOf", "oneOf"})
_TYPES: Final[Mapping[type, str]] = {str: "string", bool: "boolean", int: "integer", float: "number"}
MOST_PROPERTIES: Final = 5_000
MOST_VALUES: Final = 1_000
"""Values of all enumerations together."""
MANY: Final = 250
"""Values of an enumeration from which on all of its texts together have at most `MOST_OF_MANY` characters."""
MOST_OF_MANY: Final = 15_000
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

    Args:
        strictness: what the service takes.
        model: the provider's name of the model.
    """

    def __init__(self, strictness: Strictness, model: str) -> None:
        fine_tuned = model.startswith("ft:")  # such models know no limits
        self._strictness = "plain" if strictness == "limits" and fine_tuned else strictness
        self._forms: dict[int, tuple[JSONObject, JSONObject | None]] = {}

    def of(self, schema: JSONObject) -> JSONObject | None:
        """Return the strict form of an object's schema; None if it has none, or the service takes none."""
        if self._strictness == "never":
            return None
        entry = self._forms.get(id(schema))
        if entry is None:
            if len(self._forms) >= MEMO:
                self._forms.clear()
            entry = schema, strict_schema(schema, limits=self._strictness == "limits")
            self._forms[id(schema)] = entry  # with the schema, so that no other one gets its identity
        return entry[1]


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

    def written(self, schema: JSONValue, depth: int = 0, *, in_union: bool = False) -> dict[str, JSONValue]:
        if not isinstance(schema, Mapping) or depth > DEEPEST or (in_union and not _UNIONS.isdisjoint(schema)):
            raise NoStrictForm
        if "$ref" in schema:
            return self._reference(schema)
        out: dict[str, JSONValue] = {}
        for key, value in schema.items():
            if key not in _SILENT:
                out |= self._keyword(key, value, depth)
        kinds = out.get("type")
        if "items" not in out and (kinds == "array" or (isinstance(kinds, list) and "array" in kinds)):
            raise NoStrictForm
        if "properties" in schema or kinds == "object":
            self._object(schema, out, depth)
        elif "anyOf" not in out and kinds is None:
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
            case "title" | "description" | "type":
                return {key: value}
            case "properties":  # written with the object
                return {}
            case "$defs" if isinstance(value, Mapping):
                return {key: {name: self._named(name, part) for name, part in value.items()}}
            case "items":
                return {key: self.written(value, depth + 1)}
            case "anyOf" | "oneOf" if depth and isinstance(value, list | tuple):
                return {"anyOf": [self.written(part, depth, in_union=True) for part in value]}
            case "enum" if isinstance(value, list | tuple):
                self._count(values=value)
                return {key: value}
            case "const":
                return {"enum": [value]}
            case _:
                return self._limit(key, value)

    def _limit(self, key: str, value: JSONValue) -> dict[str, JSONValue]:
        looks_around = key == "pattern" and not (isinstance(value, str) and "(?" not in value)
        if not self._limits or key not in LIMITS or looks_around or (key == "format" and value not in FORMATS):
            raise NoStrictForm
        return {key: value}

    def _named(self, name: str, part: JSONValue) -> dict[str, JSONValue]:
        self._count(names=[name])
        return self.written(part, 1)

    def _object(self, schema: JSONObject, out: dict[str, JSONValue], depth: int) -> None:
        names = schema.get("properties")
        if not isinstance(names, Mapping) or schema.get("additionalProperties", False) is not False:
            raise NoStrictForm
        self._properties += len(names)
        self._count(names=names)
        demands = schema.get("required")
        demands = demands if isinstance(demands, list | tuple) else ()
        out["properties"] = {
            name: self.written(part, depth + 1) if name in demands else self._optional(part, depth + 1)
            for name, part in names.items()
        }
        out["required"] = list(names)
        out["additionalProperties"] = False

    def _optional(self, part: JSONValue, depth: int) -> dict[str, JSONValue]:
        """Return the schema of a property that may be null in place of being left out."""
        form = self.written(part, depth)
        if takes_null(part, self._root):
            return form
        text = form.pop("description", "")
        if part.get("default") is not None:
            text = f"{text} Null stands for {json_text(part['default'])}.".strip()
        note = {"description": text} if text else {}
        kind = form.get("type")
        if isinstance(kind, str) and "enum" not in form and kind != "object":
            return {**note, **form, "type": [kind, "null"]}
        return {**note, "anyOf": [*(form.get("anyOf") or [form]), {"type": "null"}]}

    def _count(self, names: Iterable[str] = (), values: Sequence[JSONValue] = ()) -> None:
        characters = sum(len(value) for value in values if isinstance(value, str))
        self._values += len(values)
        self._characters += sum(map(len, names)) + characters
        counts = (
            *((self._properties, MOST_PROPERTIES), (self._values, MOST_VALUES), (self._characters, MOST_CHARACTERS)),
            (characters if len(values) > MANY else 0, MOST_OF_MANY),
        )
        if any(count > most for count, most in counts):
            raise NoStrictForm


def _type_of(schema: JSONObject) -> str:
    """Return the type of all values of an enumeration."""
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])  # a list, as the enumeration is written
    kinds = {_TYPES.get(type(value), "") for value in values}
    if len(kinds) != 1 or kinds == {""}:
        raise NoStrictForm
    return kinds.pop()
