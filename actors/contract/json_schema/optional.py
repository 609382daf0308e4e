"""Nulls where a value may be missing: a model that has to name every property says null for one that it leaves out.

Strict forms of schemas (OpenAI) demand each property and allow null for the optional ones; other models do the same by
themselves. A null is left out where the schema has the property, does not demand it and does not take null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from ..plain import JSONObject, JSONValue

V = TypeVar("V")
DEEPEST: Final = 64
"""Levels of a value that are looked at; schemas of tools have a few."""
_HOPS: Final = 16
"""References to references that are followed."""
_SAYING: Final = frozenset({"enum", "const", "type"})
"""Keywords beside a union that bind the value, too."""


def without_nulls(schema: JSONObject, value: V) -> V:
    """Return the value without the nulls that stand for missing properties; the same object if there are none.

    Linear in the size of the value, times the alternatives of a union. Pure.
    """
    fit: V = _fitted(schema, value, schema, 0)
    return fit


def takes_null(schema: JSONValue, root: JSONObject) -> bool:
    """Return True if null is valid, as far as types and values say; a schema that says nothing takes it.

    Linear in the size of the schema: each part is looked at once.

    Args:
        schema: a part of `root`.
        root: The whole schema, for references.
    """
    queue, passed_parts = [schema], set[int]()
    while queue:
        part = _resolved(queue.pop(), root)
        if id(part) in passed_parts:
            continue
        passed_parts.add(id(part))
        union = part.get("anyOf", part.get("oneOf"))
        if isinstance(union, list | tuple) and not _SAYING.intersection(part):
            queue.extend(union)
        elif _names_null(part):
            return True
    return False


def _names_null(part: JSONObject) -> bool:
    if "enum" in part or "const" in part:
        return None in _items(part.get("enum")) or ("const" in part and part["const"] is None)
    kinds = part.get("type", "null")
    return kinds == "null" or "null" in _items(kinds)


def _items(value: JSONValue) -> Sequence[JSONValue]:
    return value if isinstance(value, list | tuple) else ()


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
    names, demands = part.get("properties"), _items(part.get("required"))
    if not isinstance(names, Mapping):
        return value
    out: dict[str, JSONValue] = {}
    for name, item in value.items():
        if item is None and name in names and name not in demands and not takes_null(names[name], root):
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
    for branch in _items(part.get("anyOf", part.get("oneOf"))):
        candidate = _resolved(branch, root)
        if _could_be(candidate, value, root):
            return candidate
    return part


def _could_be(candidate: JSONObject, value: JSONValue, root: JSONObject) -> bool:
    """Return True if the kind fits, the required properties are there, and those that can have one value have it."""
    if not isinstance(value, Mapping):
        return "items" in candidate
    names = candidate.get("properties")
    if not isinstance(names, Mapping) or not all(name in value for name in _items(candidate.get("required"))):
        return False
    tags = ((name, _resolved(names[name], root)) for name in names if name in value)
    return all(
        ("enum" not in tag or value[name] in _items(tag["enum"])) and value[name] == tag.get("const", value[name])
        for name, tag in tags
        if value[name] is not None
    )
