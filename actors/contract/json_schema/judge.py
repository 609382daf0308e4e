"""A judge of values by JSON Schemas whose work is bounded. Imports jsonschema.

Theory of operation. The keywords are jsonschema's, each wrapped by a count of its work: a step, one more for each item
of the value and of the keyword, and at each level one for a fault and for each `_MESSAGE` characters of its message. A
judgement that takes more than `STEPS` ends as `TooMuchWork`: alternatives that refer to each other double the work with
each level of a value, and the value is a model's or a client's. Keywords that call `re`, and `uniqueItems`, which
compares all items with each other, are written again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, Final, Protocol

import jsonschema
from jsonschema import ValidationError
from jsonschema.validators import extend, validator_for
from referencing import Registry

from ..patterns import linear
from ..plain import JSONObject

STEPS: Final = 250_000
"""Steps of one judgement, about a second."""
_MESSAGE: Final = 1_000
"""Characters of a fault's message that count as a step: a message quotes the value."""

_SQUARE: Final = 50
"""Comparisons that count as a step, of keywords that compare all items with each other."""


class _Validator(Protocol):
    """The part of jsonschema's validator that a keyword uses."""

    def is_type(self, instance: object, type: str) -> bool: ...  # noqa: A002 - jsonschema's name
    def descend(
        self, instance: object, schema: object, path: object = None, schema_path: object = None
    ) -> Iterator[ValidationError]: ...


_Keyword = Callable[..., Iterator[ValidationError] | None]
"""(validator, value of the keyword, value to judge, part of the schema) -> its faults."""

_steps_left: ContextVar[list[int]] = ContextVar("steps that are left of a judgement")


class TooMuchWork(ValueError):
    """A judgement takes more than `STEPS`; the text is for the author of the value."""


@contextmanager
def bounded_work() -> Iterator[None]:
    """Bound the work of the judgement inside the block.

    Raises:
        TooMuchWork: it takes more than `STEPS`.
    """
    before = _steps_left.set([STEPS])
    try:
        yield
    finally:
        _steps_left.reset(before)


def of(schema: JSONObject) -> Any:
    """Return jsonschema's validator of a schema, for use in `bounded_work`. No reference is fetched."""
    return _bounded(validator_for(schema, default=jsonschema.Draft202012Validator))(schema, registry=Registry())


@lru_cache(maxsize=16)
def _bounded(kind: type[jsonschema.protocols.Validator]) -> Any:
    keywords = {word: _counted(word, _LINEAR.get(word, keyword)) for word, keyword in kind.VALIDATORS.items()}
    return extend(kind, validators=keywords)  # type: ignore[no-untyped-call]


def _counted(word: str, keyword: _Keyword) -> _Keyword:
    is_quadratic = word.startswith("unevaluated")

    def judged(validator: _Validator, rule: object, value: object, schema: object) -> Iterator[ValidationError]:
        size = _size(value)
        _spend(1 + size + _size(rule) + (size * size // _SQUARE if is_quadratic else 0))
        for fault in keyword(validator, rule, value, schema) or ():
            _spend(1 + len(fault.message) // _MESSAGE)
            yield fault

    return judged


def _spend(steps: int) -> None:
    steps_left = _steps_left.get()
    steps_left[0] -= steps
    if steps_left[0] < 0:
        raise TooMuchWork("the value takes too long to be judged by the schema; give a smaller or flatter one")


def _size(value: object) -> int:
    return len(value) if isinstance(value, dict | list) else 0


# --- keywords in linear time -----------------------------------------------------------------------------------------


def _pattern(validator: _Validator, pattern: str, value: str, _: object) -> Iterator[ValidationError]:
    if validator.is_type(value, "string") and not linear(pattern)(value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


def _pattern_properties(
    validator: _Validator, patterns: JSONObject, value: JSONObject, _: object
) -> Iterator[ValidationError]:
    if validator.is_type(value, "object"):
        for pattern, part in patterns.items():
            for name in filter(linear(pattern), value):
                yield from validator.descend(value[name], part, path=name, schema_path=pattern)


def _additional_properties(
    validator: _Validator, part: object, value: JSONObject, schema: JSONObject
) -> Iterator[ValidationError]:
    """Judge what neither `properties` nor `patternProperties` names."""
    if validator.is_type(value, "object"):
        patterns = [linear(pattern) for pattern in schema.get("patternProperties", ())]
        rest = {name: item for name, item in value.items() if not any(matches(name) for matches in patterns)}
        properties = {"properties": schema.get("properties", {})}
        yield from _ADDITIONAL(validator, part, rest, properties)


def _unique_items(validator: _Validator, unique: bool, value: Sequence[object], _: object) -> Iterator[ValidationError]:
    if unique and validator.is_type(value, "array") and len({_hashable(item) for item in value}) < len(value):
        yield ValidationError(f"{value!r} has non-unique elements")


def _hashable(value: object) -> object:
    """Return what is equal for equal JSON values: of 1 and 1.0, not of 1 and true."""
    if isinstance(value, bool):
        return "bool", value, None
    if isinstance(value, Mapping):
        return "object", frozenset((name, _hashable(item)) for name, item in value.items())
    return ("array", tuple(map(_hashable, value))) if isinstance(value, list | tuple) else value


_ADDITIONAL: Final = jsonschema.Draft202012Validator.VALIDATORS["additionalProperties"]
_LINEAR: Final[Mapping[str, _Keyword]] = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "uniqueItems": _unique_items,
}
