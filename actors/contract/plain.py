"""Names for JSON data in annotations, and the base values of subclasses, which msgspec does not encode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, TypeVar, cast

Text = TypeVar("Text", bound=str)

JSONValue: TypeAlias = Any
"""A value with a form in JSON: dict, list, str, int, float, bool or None.

Any for the type checker instead of a recursive union: only user code knows the form of its data, and casts at each
access would add no information.
"""

JSONObject: TypeAlias = Mapping[str, JSONValue]
"""A JSON object."""


def exact(text: Text) -> Text:
    """Return a text as a plain str: the same object, or for an instance of a subclass a copy of its characters.

    A subclass (`class Markup(str)`) may compare, hash and print as it likes, and msgspec refuses to encode its
    instances.
    """
    return text if type(text) is str else cast("Text", str.__str__(text))


def encodable(text: str) -> bool:
    """Return True if a text has a form in UTF-8: it has no lone surrogate."""
    return text.isascii() or str.encode(text, "utf-8", "replace").decode() == text


def base_value(value: object) -> str | int | float:
    """Return the value of an instance of a subclass of str, int or float, for encoders (msgspec's `enc_hook`).

    Raises:
        TypeError: the value is of no such class, and has no form in JSON.
    """
    match value:
        case str():
            return exact(value)
        case int():
            return int.__int__(value)
        case float():
            return float.__float__(value)
        case _:
            raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")
