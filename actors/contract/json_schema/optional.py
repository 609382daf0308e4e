"""Nulls where a value may be missing: a model that has to name every property says null for one that it leaves out.

Strict forms of schemas (OpenAI) demand each property and allow null for the optional ones; other models do the same by
themselves. A null is left out where the schema has the property, does not demand it and does not take null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

from ..plain import JSONObject, JSONValue

V = TypeVar("V")
DEEPEST: Final = 64
"""Levels of a value that are looked at; schemas of tools have a few."""
_HOPS: Final = 16
"""References to references that are followed."""


def without_nulls(schema: JSONObject, value: V) -> V:
    """Return the value without the nulls that stand for missing properties; the same object if there are none.

    Linear in the size of the value, times the alternatives of a union. Pure.
    """
    fitted: V = _fitted(schema, value, schema, 0)
    return fitted


def takes_null(schema: JSONValue, root: JSONObject, hops: int = _HOPS) -> bool:
    """Return True if null is valid, as far as types and values say; a schema that says nothing takes it.

    Args:
        schema: a part of `root`.
        root: The whole schema, for references.
        hops: unions within unions that are looked at.
    """
    part = _resolved(schema, root)
    if "enum" in part or "const" in part:
        return None in part.get("enum", ()) or ("const" in part and part["const"] is None)
    if "type" in part:
        kinds = part["type"]
        return kinds == "null" or (isinstance(kinds, list | tuple) and "null" in kinds)
    union = part.get("anyOf", part.get("oneOf"))
    return union is None or (hops > 0 and any(takes_null(branch, root, hops - 1) for branch in union))


def _fitted(schema: JSONValue, value: JSONValue, root: JSONObject, depth: int) -> JSONValue:
    if depth >= DEEPEST or not isinstance(value, Mapping | list | tuple):
        return value
    part = _branch(_resolved(schema, root), value, root)
    if isinstance(value, Mapping):
        return _object(part, value, root, depth)
    if not isinstance(part.get("items"), Mapping):
        return value
    items = [_fitted(part["items"], item, root, depth + 1) for item in value]
    return value if all(item is old for item, old in zip(items, value, strict=True)) else items


def _object(part: JSONObject, value: JSONObject, root: JSONObject, depth: int) -> JSONObject:
    names, required = part.get("properties", {}), part.get("required", ())
    out: dict[str, JSONValue] = {}
    for name, item in value.items():
        if item is None and name in names and name not in required and not takes_null(names[name], root):
            continue
        out[name] = _fitted(names[name], item, root, depth + 1) if name in names else item
    same = len(out) == len(value) and all(out[name] is item for name, item in value.items())
    return value if same else out


def _resolved(schema: JSONValue, root: JSONObject) -> JSONObject:
    """Return the schema behind references into `root`."""
    for _ in range(_HOPS):
        reference = schema.get("$ref") if isinstance(schema, Mapping) else None
        if not isinstance(reference, str):
            break
        target: JSONValue = root
        for name in reference.removeprefix("#").split("/")[1:]:
            target = target.get(name, {}) if isinstance(target, Mapping) else {}
        schema = target
    return schema if isinstance(schema, Mapping) else {}


def _branch(part: JSONObject, value: JSONValue, root: JSONObject) -> JSONObject:
    """Return the alternative of a union that the value can be; the schema itself if it is not a union."""
    for branch in part.get("anyOf") or part.get("oneOf") or ():
        candidate = _resolved(branch, root)
        if _could_be(candidate, value, root):
            return candidate
    return part


def _could_be(candidate: JSONObject, value: JSONValue, root: JSONObject) -> bool:
    """Return True if the kind fits, the required properties are there, and those that can have one value have it."""
    if not isinstance(value, Mapping):
        return "items" in candidate
    names = candidate.get("properties")
    if not isinstance(names, Mapping) or not all(name in value for name in candidate.get("required", ())):
        return False
    tags = ((name, _resolved(names[name], root)) for name in names if name in value)
    return all(
        value[name] in tag.get("enum", (value[name],)) and value[name] == tag.get("const", value[name])
        for name, tag in tags
        if value[name] is not None
    )
