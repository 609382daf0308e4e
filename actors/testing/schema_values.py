"""Values that are valid against a JSON Schema, for models that call every tool.

Theory of operation. A value is made top-down: alternatives are tried in a drawn order, `allOf`, `anyOf` and references
are merged into one schema, and each keyword without a way to build for it (`not`, `if`, `oneOf`, ...) is judged by
jsonschema, on the value that was made for its own part of the schema. Below a depth only what the schema demands is
made, so that recursive schemas end; a budget of nodes bounds the search.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from functools import cached_property
from random import Random
from typing import Any, Final

from ..contract.json_schema.faults import unusable_schema
from ..contract.patterns import linear
from ..contract.plain import JSONObject, JSONValue
from ..errors import UsageError
from .patterns import LONGEST, PatternText, UnknownPattern
from .schema_merging import merged

_SHALLOW: Final = 4
"""Depth below which only what a schema demands is made."""
_DEEPEST: Final = 60
_NODES: Final = 20_000
"""Parts of a schema that are visited for one value."""
_TRIES: Final = 60
"""Draws for a part that is judged afterwards."""
_JUDGED: Final = frozenset(
    {"not", "if", "oneOf", "contains", "dependentSchemas", "patternProperties", "propertyNames", "unevaluatedItems"}
    | {"unevaluatedProperties", "dependencies", "uniqueItems", "maxProperties", "minProperties", "multipleOf"}
)
"""Keywords that a value is drawn for more than once."""
_FORMATS: Final[Mapping[str, str]] = {
    "date-time": "2031-05-01T12:00:00Z",
    "date": "2031-05-01",
    "time": "12:00:00Z",
    "duration": "PT90S",
    "uuid": "0b7a1f3e-5a54-4c0e-9a58-3f2f6f1c2d10",
    "decimal": "1.5",
    "email": "ada@example.org",
    "idn-email": "ada@example.org",
    "hostname": "example.org",
    "idn-hostname": "example.org",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.org/a",
    "uri-reference": "/a",
    "iri": "https://example.org/a",
    "iri-reference": "/a",
    "uri-template": "https://example.org/{a}",
    "json-pointer": "/a",
    "relative-json-pointer": "0",
    "regex": "a+",
}
_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "object": ("properties", "required", "additionalProperties", "minProperties", "patternProperties"),
    "array": ("items", "prefixItems", "minItems", "contains"),
    "string": ("pattern", "minLength", "maxLength", "format", "contentEncoding"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
"""Keywords that tell the type of a schema that has none."""


class UnsupportedSchema(UsageError):
    """No value can be made for a schema: it contradicts itself, or demands something that nothing here can make.

    Attributes:
        path: The path of the part of the value, from "$".
    """

    def __init__(self, path: str, what: str) -> None:
        super().__init__(f"{path}: {what}")
        self.path = path


def value_for(schema: JSONObject, seed: str) -> JSONValue:
    """Return a JSON value that is valid against a schema. The same schema and seed give the same value.

    References are resolved inside the schema only, never fetched.

    Raises:
        UnsupportedSchema: the schema is invalid, contradicts itself, refers to another document, or no value was found.
    """
    fault = unusable_schema(schema, judges=False)
    if fault is not None:
        raise UnsupportedSchema("$", f"the schema is invalid: {fault}")
    return _Values(schema, Random(seed)).whole()  # noqa: S311 - reproducible on purpose


class _Values:
    def __init__(self, root: JSONObject, rng: Random) -> None:
        self._root = root
        self._rng = rng
        self._nodes_left = _NODES

    @cached_property
    def _validator(self) -> Any:
        import jsonschema  # noqa: PLC0415 - 60 ms of import that most programs never need
        from referencing import Registry  # noqa: PLC0415 - comes with it

        form = jsonschema.validators.validator_for(self._root, default=jsonschema.Draft202012Validator)
        return form(dict(self._root), registry=Registry())

    @cached_property
    def _resolver(self) -> Any:  # the class of resolvers is private
        from referencing import Registry  # noqa: PLC0415 - comes with jsonschema
        from referencing.jsonschema import DRAFT202012, specification_with  # noqa: PLC0415 - comes with jsonschema

        dialect = specification_with(str(self._root.get("$schema")), default=DRAFT202012)
        registry: Registry[JSONValue] = Registry()
        return registry.resolver_with_root(dialect.create_resource(self._root))

    def whole(self) -> JSONValue:
        """Return a value for the root, judged whole."""
        try:
            return self._judged(self._root, "$", 0, self._made)
        except RecursionError:
            raise UnsupportedSchema("$", "the schema is nested too deeply") from None

    def value(self, schema: JSONValue, path: str, depth: int) -> JSONValue:
        """Return a value for a part of the schema.

        Raises:
            UnsupportedSchema: there is none.
        """
        self._nodes_left -= 1
        if self._nodes_left < 0 or depth > _DEEPEST:
            raise UnsupportedSchema(path, "no value was found within the limits of size and depth")
        if schema is True or schema == {}:
            return self._rng.choice([self._letters(1, 6), self._rng.randint(0, 9), True, None])
        if schema is False:
            raise UnsupportedSchema(path, "no value is valid here")
        if _JUDGED.isdisjoint(schema):
            return self._made(schema, path, depth)
        return self._judged(schema, path, depth, self._made)

    def _judged(
        self, schema: JSONObject, path: str, depth: int, make: Callable[[JSONObject, str, int], JSONValue]
    ) -> JSONValue:
        """Draw until jsonschema accepts the value."""
        judge, last = self._validator.evolve(schema=dict(schema)), ""
        for _ in range(_TRIES):
            value = make(schema, path, depth)
            try:
                fault = next(judge.iter_errors(value), None)
            except Exception as error:  # a reference into another document, or an expression that re refuses
                raise UnsupportedSchema(path, f"the schema cannot be used: {error}") from error
            if fault is None:
                return value
            last = fault.message
        raise UnsupportedSchema(path, f"no value was found: {last}")

    def _made(self, schema: JSONObject, path: str, depth: int) -> JSONValue:
        for key in ("$ref", "$dynamicRef"):
            if key in schema:
                rest = {name: value for name, value in schema.items() if name != key}
                return self.value(merged(rest, self._target(schema[key], path)), path, depth + 1)
        for key in ("anyOf", "oneOf"):
            if key in schema:
                return self._alternative(schema, key, path, depth)
        if "allOf" in schema:
            whole: JSONValue = {name: value for name, value in schema.items() if name != "allOf"}
            for part in schema["allOf"]:
                whole = merged(whole, part)
            return self.value(whole, path, depth + 1)
        if "const" in schema:
            return self._one_of(schema, [schema["const"]], path)
        if "enum" in schema:
            return self._one_of(schema, schema["enum"], path)
        return self._typed(schema, path, depth)

    def _one_of(self, schema: JSONObject, values: list[JSONValue], path: str) -> JSONValue:
        judge = self._validator.evolve(schema={name: value for name, value in schema.items() if name != "$defs"})
        fitting = [value for value in values if judge.is_valid(value)]
        if not fitting:
            raise UnsupportedSchema(path, f"none of {values!r:.200} is valid")
        return self._rng.choice(fitting)

    def _alternative(self, schema: JSONObject, key: str, path: str, depth: int) -> JSONValue:
        rest = {name: value for name, value in schema.items() if name != key}
        parts = list(schema[key])
        self._rng.shuffle(parts)
        if depth >= _SHALLOW:
            parts.sort(key=lambda part: "$ref" in repr(part))  # what ends the recursion comes first
        failure = UnsupportedSchema(path, f"{key} has no alternatives")
        for part in parts:
            try:
                return self.value(merged(rest, part), path, depth + 1)
            except UnsupportedSchema as error:
                failure = error
        raise failure

    def _target(self, reference: str, path: str) -> JSONValue:
        from referencing.exceptions import Unresolvable  # noqa: PLC0415 - comes with jsonschema

        try:
            return self._resolver.lookup(reference).contents
        except Unresolvable:
            raise UnsupportedSchema(path, f"{reference!r} leads nowhere from the root of the schema") from None

    def _typed(self, schema: JSONObject, path: str, depth: int) -> JSONValue:
        kinds = schema.get("type")
        if isinstance(kinds, list):
            some = [kind for kind in kinds if kind != "null"] if depth < _SHALLOW else kinds
            kinds = self._rng.choice(some or kinds)
        if kinds is None:
            kinds = next((kind for kind, keys in _KEYS.items() if any(key in schema for key in keys)), "string")
        match kinds:
            case "null":
                return None
            case "boolean":
                return self._rng.random() < 0.5
            case "integer" | "number":
                return self._number(schema, path, whole=kinds == "integer")
            case "string":
                return self._string(schema, path)
            case "array":
                return self._array(schema, path, depth)
            case _:
                return self._object(schema, path, depth)

    # --- numbers and strings -----------------------------------------------------------------------------------------

    def _number(self, schema: JSONObject, path: str, *, whole: bool) -> int | float:
        low, high = _bound(schema, "inimum", max), _bound(schema, "aximum", min)
        step = Fraction(str(schema["multipleOf"])) if "multipleOf" in schema else None
        if whole and step is not None:
            step = Fraction(step.numerator)  # the whole multiples of a/b in lowest terms are those of a
        elif whole:
            step = Fraction(1)
        edge = (high - 100 * (step or 1)) if low is None and high is not None else low
        low = Fraction(0) if edge is None else edge
        high = low + 100 * (step or 1) if high is None else high
        if step is None:
            return self._between(schema, low, high, path)
        first, last = math.ceil(low / step), math.floor(high / step)
        first += first * step == _exclusive(schema, "exclusiveMinimum")
        last -= last * step == _exclusive(schema, "exclusiveMaximum")
        if first > last:
            raise UnsupportedSchema(path, "no number is within the bounds")
        number = self._rng.randint(first, last) * step
        return int(number) if number.denominator == 1 else float(number)

    def _between(self, schema: JSONObject, low: Fraction, high: Fraction, path: str) -> float:
        for digits in (2, 4, 8, 17):  # a short number where one fits
            exact = float(low + (high - low) * Fraction(self._rng.randint(1, 999), 1000))
            number = round(exact, digits)
            if low < Fraction(number) < high:
                return number
        if low == high and _exclusive(schema, "exclusiveMinimum") is None is _exclusive(schema, "exclusiveMaximum"):
            return float(low)
        raise UnsupportedSchema(path, "no number is within the bounds")

    def _letters(self, least: int, most: int) -> str:
        return "".join(self._rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(self._rng.randint(least, most)))

    def _string(self, schema: JSONObject, path: str) -> str:
        least = schema.get("minLength", 0)
        most = schema.get("maxLength", max(least, 1) + 7)
        if least > most:
            raise UnsupportedSchema(path, f"no text has {least} to {most} characters")
        if least > LONGEST:
            raise UnsupportedSchema(path, f"no text of {least:,} characters is made; at most {LONGEST:,} are")
        if "pattern" in schema:
            return self._matching(schema["pattern"], least, schema.get("maxLength", math.inf), path)
        if schema.get("contentEncoding") == "base64":
            return self._base64(least, schema.get("maxLength", least + 8), path)
        example = _FORMATS.get(schema.get("format", ""))
        if example is not None and least <= len(example) <= schema.get("maxLength", len(example)):
            return example
        return self._letters(max(least, min(1, most)), min(most, max(least, 1) + 7))

    def _base64(self, least: int, most: int, path: str) -> str:
        groups = range(math.ceil(least / 4), most // 4 + 1)
        if not groups:
            raise UnsupportedSchema(path, f"no base64 text has {least} to {most} characters")
        size = 3 * groups[0]  # the least: bounds of bytes are looser in base64
        return base64.b64encode(self._letters(size, size).encode()).decode()

    def _matching(self, pattern: str, least: int, most: float, path: str) -> str:
        try:
            pattern_text = PatternText(pattern, self._rng)
            matches = _search(pattern)
            for more in (*(1, 3, 8) * _TRIES, *range(0, least, least // _TRIES + 1), least):
                text = pattern_text.draw(more)
                longer_text = text + self._letters(least - len(text), least - len(text)) if len(text) < least else text
                for whole in dict.fromkeys((text, longer_text)):
                    if least <= len(whole) <= most and matches(whole):
                        return whole
        except (UnknownPattern, re.error) as error:
            raise UnsupportedSchema(path, str(error)) from error
        raise UnsupportedSchema(path, f"no text was found for the pattern {pattern!r}")

    # --- arrays and objects ------------------------------------------------------------------------------------------

    def _array(self, schema: JSONObject, path: str, depth: int) -> list[JSONValue]:
        least = schema.get("minItems", 0)
        heads = schema.get("prefixItems", [])
        rest = schema.get("items", True)
        if isinstance(rest, list):  # as older drafts write prefixItems
            heads, rest = rest, schema.get("additionalItems", True)
        if max(least, schema.get("minContains", 0)) > _NODES:
            raise UnsupportedSchema(path, f"at most {_NODES:,} items are made")
        contained_schemas = [schema["contains"]] * schema.get("minContains", 1) if "contains" in schema else []
        least = max(least, len(contained_schemas) + (len(heads) if contained_schemas else 0))
        usual = max(least, len(heads)) + (self._rng.randint(0, 2) if depth < _SHALLOW and rest is not False else 0)
        most = schema.get("maxItems", math.inf)
        size = int(min(usual, max(most, least)))
        items: list[JSONValue] = []
        for index in range(size):
            part = heads[index] if index < len(heads) else rest
            remaining = size - index
            if 0 < len(contained_schemas) >= remaining:
                part = merged(part, contained_schemas.pop())
            try:
                items.append(
                    self._another(part, f"{path}[{index}]", depth + 1, items if schema.get("uniqueItems") else ())
                )
            except UnsupportedSchema:
                if index < least:
                    raise
                break
        return items

    def _another(self, schema: JSONValue, path: str, depth: int, others: Iterable[JSONValue]) -> JSONValue:
        """Return a value that is not among `others`."""
        other_values = list(others)
        value = self.value(schema, path, depth)
        for _ in range(_TRIES):
            if value not in other_values:
                return value
            value = self.value(schema, path, depth)
        raise UnsupportedSchema(path, "too few different values are valid")

    def _object(self, schema: JSONObject, path: str, depth: int) -> dict[str, JSONValue]:
        properties = schema.get("properties", {})
        names = dict.fromkeys(schema.get("required", ()))
        most = schema.get("maxProperties", math.inf)
        for name in properties:
            if name not in names and depth < _SHALLOW and len(names) < most and self._rng.random() < 0.5:
                names[name] = None
        for name in tuple(names):
            names.update(dict.fromkeys(schema.get("dependentRequired", {}).get(name, ())))
        out: dict[str, JSONValue] = {}
        for name in names:
            try:
                part = properties[name] if name in properties else self._unnamed(schema, name)
                out[name] = self.value(part, f"{path}.{name}", depth + 1)
            except UnsupportedSchema:
                if name in schema.get("required", ()):
                    raise
        for name in self._more_names(schema, out, depth, path):
            part = properties[name] if name in properties else self._unnamed(schema, name)
            out[name] = self.value(part, f"{path}.{name}", depth + 1)
        return out

    def _unnamed(self, schema: JSONObject, name: str) -> JSONValue:
        """Return the schema of a property that `properties` does not have."""
        parts = [part for pattern, part in schema.get("patternProperties", {}).items() if re.search(pattern, name)]
        return {"allOf": parts} if parts else schema.get("additionalProperties", True)

    def _more_names(self, schema: JSONObject, values: JSONObject, depth: int, path: str) -> Iterator[str]:
        """Yield names beyond the chosen ones: up to minProperties, and one or two of a plain mapping."""
        least, properties = schema.get("minProperties", 0), schema.get("properties", {})
        is_mapping = not properties and isinstance(schema.get("additionalProperties"), dict) and depth < _SHALLOW
        size = min(max(least, self._rng.randint(1, 2) if is_mapping else 0), schema.get("maxProperties", math.inf))
        spare = [name for name in properties if name not in values]
        self._rng.shuffle(spare)
        patterns, tries = list(schema.get("patternProperties", ())), 0
        while len(values) < size and tries < _TRIES:
            tries += 1
            if spare:
                name = spare.pop()
            elif schema.get("additionalProperties", True) is False and patterns:
                name = self._matching(self._rng.choice(patterns), 0, math.inf, path)
            else:
                name = str(
                    self.value({"type": "string", "minLength": 1, **schema.get("propertyNames", {})}, path, depth)
                )
            if name not in values:
                yield name


def _search(pattern: str) -> Callable[[str], object]:
    """Return a search in linear time; for a pattern that RE2 does not take, the search of `re`."""
    try:
        return linear(pattern)
    except ValueError:
        return re.compile(pattern).search


def _exclusive(schema: JSONObject, key: str) -> Fraction | None:
    value = schema.get(key)
    return None if value is None or isinstance(value, bool) else Fraction(str(value))


def _bound(schema: JSONObject, key: str, pick: Callable[[Iterable[Fraction]], Fraction]) -> Fraction | None:
    """Return the tighter one of the inclusive and the exclusive bound."""
    inclusive = Fraction(str(schema[f"m{key}"])) if f"m{key}" in schema else None
    bounds = [bound for bound in (inclusive, _exclusive(schema, f"exclusiveM{key}")) if bound is not None]
    return pick(bounds) if bounds else None
