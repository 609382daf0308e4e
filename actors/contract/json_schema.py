"""Faults of values and of JSON Schemas. The validator is imported at its first use."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from .codec import MESSAGE_LIMIT, shortened
from .plain import JSONObject

if TYPE_CHECKING:
    import jsonschema


def schema_fault(schema: JSONObject, value: Any, *, unusable: str = "the schema cannot be used ({})") -> str | None:
    """Return None if `value` satisfies the JSON Schema, else the path and the fault.

    For an unusable schema the fault says so: no value fits, and a judge does not raise. References are resolved inside
    the schema only, never fetched.
    """
    import jsonschema  # noqa: PLC0415 - 60 ms of import that most programs never need

    try:
        fault = jsonschema.exceptions.best_match(_form(schema).iter_errors(value))
    except Exception as error:  # noqa: BLE001 - a schema of the program, possibly inside the store's transaction
        return unusable.format(f"{type(error).__name__}: {error}")
    return None if fault is None else _described(fault)


def schema_faults(schema: JSONObject, value: Any, *, most: int) -> tuple[str, ...]:
    """Return the faults of `value`, at most this many, each with its path as `$.a[0]`; () if it satisfies the schema.

    For an unusable schema the only fault says so, as with `schema_fault`.
    """
    import jsonschema  # noqa: PLC0415 - 60 ms of import that most programs never need

    best = jsonschema.exceptions.best_match
    try:
        found = [best([fault]) for fault in islice(_form(schema).iter_errors(value), most)]
    except Exception as error:  # noqa: BLE001 - a schema of the program
        return (f"the schema cannot be used ({type(error).__name__}: {error})",)
    return tuple(f"`{fault.json_path}`: {_shortened(fault)}" for fault in found if fault is not None)


def unusable_schema(schema: JSONObject) -> str | None:
    """Return None if `schema` is a valid JSON Schema whose references lead to its parts, else the place and the fault.

    The place is a path as `$.properties.a`, or the reference.
    """
    import jsonschema  # noqa: PLC0415 - 60 ms of import that most programs never need

    form = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        form.check_schema(dict(schema))
        fault = _dangling(schema)
        if fault is None:
            next(_form(schema).iter_errors(None), None)  # a reference that leads to itself ends in a RecursionError
    except jsonschema.SchemaError as error:
        return _described(error)
    except Exception as error:  # noqa: BLE001 - a schema of the program
        return f"{type(error).__name__}: {error}"
    return fault


def _form(schema: JSONObject) -> Any:
    import jsonschema  # noqa: PLC0415 - as above
    from referencing import Registry  # noqa: PLC0415 - comes with it

    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    return kind(schema, registry=Registry())


def _dangling(schema: JSONObject) -> str | None:
    """Return the first reference that leads to no part of the schema."""
    from referencing import Registry, exceptions  # noqa: PLC0415 - comes with jsonschema
    from referencing.jsonschema import DRAFT202012, specification_with  # noqa: PLC0415 - comes with jsonschema

    root = specification_with(str(schema.get("$schema")), default=DRAFT202012).create_resource(schema)
    waiting = [(root, Registry[Any]().resolver_with_root(root))]
    while waiting:
        part, resolver = waiting.pop()
        reference = part.contents.get("$ref") if isinstance(part.contents, dict) else None
        try:
            if isinstance(reference, str):
                resolver.lookup(reference)
        except exceptions.Unresolvable:
            return f"$ref {reference!r} leads to no part of the schema"
        waiting += [(below, resolver.in_subresource(below)) for below in part.subresources()]
    return None


def _described(fault: jsonschema.exceptions._Error) -> str:
    return f"{fault.json_path}: {_shortened(fault)}"


def _shortened(fault: jsonschema.exceptions._Error) -> str:
    """Return the message of a fault; it quotes the value, which may be of any size."""
    return shortened(fault.message, MESSAGE_LIMIT)
