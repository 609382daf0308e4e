"""The JSON Schema of an answer as providers take it: an object at the root, without a reference there."""

from __future__ import annotations

from typing import Any, Final

from ...contract.plain import JSONObject

_DEFINITIONS: Final = "#/$defs/"


def object_schema(schema: JSONObject) -> dict[str, Any] | None:
    """Return the schema with an object at its root; None if its values are no objects."""
    root: Any = schema
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith(_DEFINITIONS):
        found = schema.get("$defs", {}).get(reference.removeprefix(_DEFINITIONS))
        if not isinstance(found, dict):
            return None
        root = {**found, "$defs": schema["$defs"]}
    return dict(root) if root.get("type") == "object" else None
