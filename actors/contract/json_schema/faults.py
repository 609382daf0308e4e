"""Faults of values and of JSON Schemas. The validator is imported at its first use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ..codec import MESSAGE_LIMIT, shortened
from ..patterns import WAY_OUT, linear
from ..plain import JSONObject, JSONValue

if TYPE_CHECKING:
    import jsonschema

LARGEST: Final = 256 * 1024
"""Bytes of the largest schema in JSON: a schema goes to the model with every request."""
_AT_ONCE: Final = 1_000
"""Most parts of a schema that apply to one and the same value. References can double their number with each one."""
_PATH_LIMIT: Final = 500
"""Most characters of a path; its keys are the value's own, of any length."""
_DEEP: Final = "the value is nested too deep for the schema"


def schema_fault(schema: JSONObject, value: Any, *, unusable: str = "the schema cannot be used ({})") -> str | None:
    """Return None if `value` satisfies the JSON Schema, else the path and the fault.

    For an unusable schema the fault says so: no value fits, and a judge does not raise. References are resolved inside
    the schema only, never fetched. The work is bounded, see `judge`.
    """
    import jsonschema  # noqa: PLC0415 - 60 ms of import that most programs never need

    from . import judge  # noqa: PLC0415 - as above

    try:
        with judge.bounded_work():
            fault = jsonschema.exceptions.best_match(judge.of(schema).iter_errors(value))
    except judge.TooMuchWork as error:
        return f"$: {error}"
    except RecursionError:
        return f"$: {_DEEP}"
    except Exception as error:  # noqa: BLE001 - a schema of the program, possibly inside the store's transaction
        return unusable.format(f"{type(error).__name__}: {shortened(str(error), MESSAGE_LIMIT)}")
    return None if fault is None else _described(fault)


def schema_faults(schema: JSONObject, value: Any, *, most: int) -> tuple[str, ...]:
    """Return the faults of `value`, at most this many, each with its path as `$.a[0]`; () if it satisfies the schema.

    For an unusable schema the only fault says so, as with `schema_fault`.
    """
    import jsonschema  # noqa: PLC0415 - 60 ms of import that most programs never need

    from . import judge  # noqa: PLC0415 - as above

    best = jsonschema.exceptions.best_match
    try:
        with judge.bounded_work():
            faults = [best([fault]) for fault in islice(judge.of(schema).iter_errors(value), most)]
    except judge.TooMuchWork as error:
        return (f"`$`: {error}",)
    except RecursionError:
        return (f"`$`: {_DEEP}",)
    except Exception as error:  # noqa: BLE001 - a schema of the program
        return (f"the schema cannot be used ({type(error).__name__}: {shortened(str(error), MESSAGE_LIMIT)})",)
    return tuple(f"`{_path(fault)}`: {_shortened(fault)}" for fault in faults if fault is not None)


def unusable_schema(schema: JSONObject, *, judges: bool = True) -> str | None:
    """Return None if `schema` is a valid JSON Schema that can judge values, else the place and the fault.

    References lead to parts of the schema, and not back without a level of the value in between; patterns can be
    searched in linear time; the schema has at most `LARGEST` bytes. The place is a path as `$.properties.a`, or the
    reference. `judges=False` leaves out what only judging values demands of patterns.
    """
    import jsonschema  # noqa: PLC0415 - 60 ms of import that most programs never need

    try:
        size = len(msgspec.json.encode(schema))
        if size > LARGEST:
            return f"it has {size:,} bytes; give one of at most {LARGEST:,}"
        if not isinstance(schema.get("$schema", ""), str):
            return f"$['$schema']: {schema['$schema']!r:.200} is not of type 'string'"
        form = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        form.check_schema(dict(schema))
        return _Parts(schema, form, judges=judges).fault()
    except jsonschema.SchemaError as error:
        return _described(error)
    except RecursionError:
        return "its references are nested too deep; name fewer parts one by the other"
    except Exception as error:  # noqa: BLE001 - a tool's schema
        return f"{type(error).__name__}: {shortened(str(error), MESSAGE_LIMIT)}"


class _Parts:
    """Visits each part of a schema, and what applies to the same value as the part."""

    def __init__(self, schema: JSONObject, form: Any, *, judges: bool) -> None:
        from referencing.jsonschema import DRAFT202012, specification_with  # noqa: PLC0415 - comes with jsonschema

        self._check = form.check_schema
        self._judges = judges
        dialect = str(schema.get("$schema", ""))
        self._resource = specification_with(dialect, default=DRAFT202012).create_resource
        self._root = self._resource(schema)
        self._beside: dict[int, list[JSONValue]] = {}
        self._words: set[str] = set()

    def fault(self) -> str | None:
        """Return the first fault of references and patterns."""
        from referencing import Registry  # noqa: PLC0415 - comes with jsonschema

        waiting = [(self._root, Registry[Any]().resolver_with_root(self._root))]
        known_ids = set[int]()
        while waiting:
            part, resolver = waiting.pop()
            contents = part.contents
            if not isinstance(contents, Mapping) or id(contents) in self._beside:
                continue
            below = list(part.subresources())
            known_ids.update(id(one.contents) for one in below)
            self._beside[id(contents)] = beside = list(_in_place(contents))
            for word in ("$ref", "$dynamicRef"):
                if not isinstance(contents.get(word), str):
                    continue
                wrong = self._follow(contents[word], resolver, word, waiting, known_ids)
                if wrong is not None:
                    return wrong
                beside.append(waiting[-1][0].contents)
            self._words.update(contents)
            wrong = _pattern_fault(contents) if self._judges else None
            if wrong is not None:
                return wrong
            waiting += [(one, resolver.in_subresource(one)) for one in below]
        if self._judges and {"patternProperties", "unevaluatedProperties"} <= self._words:
            return "unevaluatedProperties beside patternProperties cannot be judged; use additionalProperties"
        return self._weight_fault()

    def _follow(self, reference: str, resolver: Any, word: str, waiting: list[Any], known_ids: set[int]) -> str | None:
        """Add the part that a reference leads to."""
        from referencing import exceptions  # noqa: PLC0415 - comes with jsonschema

        try:
            target = resolver.lookup(reference)
        except exceptions.Unresolvable:
            return f"{word} {reference!r:.200} leads to no part of the schema"
        if not isinstance(target.contents, Mapping | bool):
            return f"{word} {reference!r:.200} leads to no schema"
        if isinstance(target.contents, Mapping) and id(target.contents) not in known_ids:
            self._check(dict(target.contents))  # a part under a name that JSON Schema does not know was not checked
        waiting.append((self._resource(target.contents), target.resolver))
        return None

    def _weight_fault(self) -> str | None:
        """Return that a part applies to a value without end, or too often."""
        weights: dict[int, int] = {}
        open_: set[int] = set()

        def weight(contents: object) -> int:
            here = id(contents)
            if here in open_:
                raise _Endless
            if here not in weights:
                open_.add(here)
                weights[here] = 1 + sum(map(weight, self._beside.get(here, ())))
                open_.discard(here)
            return weights[here]

        try:
            heaviest = max(weight(part) for part in self._whole())
        except _Endless:
            return "a reference leads back to itself for the same value, so judging a value would not end"
        if heaviest > _AT_ONCE:
            return f"{heaviest:,} of its parts apply to one value, by references; at most {_AT_ONCE:,}"
        return None

    def _whole(self) -> Iterator[object]:
        """Yield all parts."""
        yield self._root.contents
        for beside in self._beside.values():
            yield from beside


class _Endless(Exception):
    """A part of a schema applies to a value because the part itself does."""


def _in_place(contents: JSONObject) -> Iterator[JSONValue]:
    """Yield the parts of a part that apply to the same value."""
    for word in ("allOf", "anyOf", "oneOf"):
        yield from contents.get(word, ())
    for word in ("not", "if", "then", "else"):
        if word in contents:
            yield contents[word]
    for word in ("dependentSchemas", "dependencies"):
        yield from (part for part in contents.get(word, {}).values() if isinstance(part, Mapping | bool))


def _pattern_fault(contents: JSONObject) -> str | None:
    for pattern in (contents.get("pattern"), *contents.get("patternProperties", ())):
        try:
            if isinstance(pattern, str):
                linear(pattern)
        except ValueError as error:
            return f"the pattern {pattern!r:.200} cannot be searched in linear time: {error}; {WAY_OUT}"
    return None


def _described(fault: jsonschema.exceptions._Error) -> str:
    return f"{_path(fault)}: {_shortened(fault)}"


def _path(fault: jsonschema.exceptions._Error) -> str:
    return shortened(fault.json_path, _PATH_LIMIT)


def _shortened(fault: jsonschema.exceptions._Error) -> str:
    """Return the message of a fault; it quotes the value, which may be of any size, before it says what is wrong."""
    text = shortened(fault.message, MESSAGE_LIMIT)
    return text if len(fault.message) <= MESSAGE_LIMIT else f"{text} ({fault.validator})"
