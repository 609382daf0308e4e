"""Two JSON Schemas as one that demands what both demand, as far as one schema can say so. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from math import gcd, lcm
from typing import Final

from ..contract.plain import JSONObject, JSONValue


def merged(one: JSONValue, other: JSONValue) -> JSONValue:
    """Return a schema for values that are valid against both.

    A second anyOf, oneOf or reference is put into an `allOf` of its own, which is merged once the first is resolved.
    Of a keyword that cannot be merged, such as a second pattern, the first stays, because the value is judged against
    both schemas.
    """
    if one is True or one == {}:
        return other
    if other is True or other == {}:
        return one
    if one is False or other is False:
        return False
    whole, more = dict(one), dict[str, JSONValue]()
    for key, value in other.items():
        if key not in whole or whole[key] == value:
            whole[key] = value
        elif key in _MERGERS:
            whole[key] = _MERGERS[key](whole[key], value)
        elif key in ("allOf", "anyOf", "oneOf", "$ref"):
            more[key] = value
    if more:
        whole["allOf"] = [*whole.get("allOf", ()), more]
    return whole


def _by_name(one: JSONObject, other: JSONObject) -> dict[str, JSONValue]:
    return {**one, **{name: merged(one[name], part) if name in one else part for name, part in other.items()}}


def _common_types(one: JSONValue, other: JSONValue) -> list[str]:
    """Return the types of both; a whole number is a number."""
    left, right = ([kinds] if isinstance(kinds, str) else kinds for kinds in (one, other))
    both = [kind for kind in left if kind in right]
    if "integer" not in both and {"integer", "number"} <= {*left, *right}:
        both.append("integer")
    return both


def _least_common(one: JSONValue, other: JSONValue) -> int | float:
    first, second = Fraction(str(one)), Fraction(str(other))
    both = Fraction(lcm(first.numerator, second.numerator), gcd(first.denominator, second.denominator))
    return int(both) if both.denominator == 1 else float(both)


_MERGERS: Final[Mapping[str, Callable[[JSONValue, JSONValue], JSONValue]]] = {
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties", "minContains"), max),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties", "maxContains"), min),
    **dict.fromkeys(("items", "additionalProperties", "contains", "propertyNames"), merged),
    **dict.fromkeys(("properties", "patternProperties", "$defs"), _by_name),
    "type": _common_types,
    "required": lambda one, other: [*dict.fromkeys((*one, *other))],
    "enum": lambda one, other: [value for value in one if value in other],
    "uniqueItems": lambda one, other: one or other,
    "multipleOf": _least_common,
    "not": lambda one, other: {"anyOf": [one, other]},
}
