"""Faults of values and of JSON Schemas. The validator is imported at its first use."""

from __future__ import annotations

from typing import Any

from .plain import JSONObject


def schema_fault(schema: JSONObject, value: Any, *, unusable: str = "the schema cannot be used ({})") -> str | None:
    """Return None if `value` satisfies the JSON Schema, else the path and the fault.

    For an unusable schema the fault says so: no value fits, and a judge does not raise. References are resolved inside
    the schema only, never fetched.
    """
    import jsonschema  # noqa: PLC0415 - 60 ms of import that most programs never need
    from referencing import Registry  # noqa: PLC0415 - comes with it

    form = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        fault = jsonschema.exceptions.best_match(form(schema, registry=Registry()).iter_errors(value))
    except Exception as error:  # noqa: BLE001 - a schema of the program, possibly inside the store's transaction
        return unusable.format(f"{type(error).__name__}: {error}")
    return None if fault is None else f"{fault.json_path}: {fault.message}"


def unusable_schema(schema: JSONObject) -> str | None:
    """Return None if `schema` is a valid JSON Schema, else the path and the fault."""
    import jsonschema  # noqa: PLC0415 - 60 ms of import that most programs never need

    form = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        form.check_schema(dict(schema))
    except jsonschema.SchemaError as error:
        return f"{error.json_path}: {error.message}"
    except Exception as error:  # noqa: BLE001 - a tool's schema
        return f"{type(error).__name__}: {error}"
    return None
