"""The two cattrs converters: a strict reader of all data from outside, and a terse writer of rows.

cattrs itself is too lenient for data from outside: it converts null to "None", "no" to True, and "ab" to ("a", "b").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from functools import cache, partial
from typing import Any, Final, get_args, get_type_hints
from uuid import UUID

import attrs
import msgspec
from cattrs import (
    AttributeValidationNote,
    BaseConverter,
    ClassValidationError,
    ForbiddenExtraKeysError,
    IterableValidationError,
    IterableValidationNote,
)
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override
from cattrs.preconf.msgspec import make_converter

from .row_forms import Fields, Value
from .user_types.constraints import is_pydantic

converter: Final = make_converter()
"""Reads all data from outside (rows, commands, configuration) and writes values in full."""

row_writer: Final = make_converter()
"""Writes rows of attrs classes; msgspec writes structs itself.

Both leave out fields that have their default: rows are a third to a half smaller, and faster to write and read. A
release that changes a default must raise `SCHEMA_VERSION` and fill in the old default.
"""


def _exactly(*kinds: type) -> Callable[[Any, Any], Any]:
    """Return a hook that accepts exactly these types, because cattrs would convert null to text and "no" to True.

    For a derived type, such as an enum of str, the hook constructs that type from the value.
    """

    def hook(value: object, kind: object) -> Any:
        if type(value) not in kinds:
            raise TypeError(f"expected {kinds[0].__name__}, not {_shown(value)}")
        return value if kind in kinds or not isinstance(kind, type) else kind(value)

    return hook


def _moment(value: object, _: object) -> datetime:
    moment = msgspec.convert(value, datetime)
    if moment.tzinfo is None:
        raise ValueError(f"{_shown(value)} has no time zone; add Z for UTC")
    return moment.astimezone(UTC)


def _converted(value: object, kind: Any) -> Any:
    return msgspec.convert(value, kind)


def _array_hook(cls: Any, reader: BaseConverter) -> Callable[[Any, Any], Any]:
    of = get_args(cls)[0]
    inner = reader.get_structure_hook(of)

    def hook(value: Any, _: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            raise TypeError(f"expected an array, not {_shown(value)}")
        items, errors = [], []
        for index, item in enumerate(value):
            try:
                items.append(inner(item, of))
            except Exception as error:  # noqa: BLE001 - collected with its place, as cattrs does
                error.add_note(IterableValidationNote(f"{cls} @ index {index}", index, of))
                errors.append(error)
        if errors:
            raise IterableValidationError(f"{cls}", errors, cls)
        return tuple(items)

    return hook


def _class_hook(cls: Any, reader: BaseConverter) -> Callable[[Any, Any], Any]:
    inner = make_dict_structure_fn(cls, reader, _cattrs_forbid_extra_keys=True, _cattrs_detailed_validation=True)

    def hook(value: object, kind: object) -> Any:
        if not isinstance(value, Mapping):
            raise TypeError(f"expected an object, not {_shown(value)}")
        return inner(dict(value), kind)

    return hook


class _StructReader:
    """Reads a struct, and names each fault with its path as cattrs does for attrs classes.

    msgspec's own reader stops at the first fault, and accepts a moment without a time zone.
    """

    def __init__(self, cls: Any, reader: BaseConverter) -> None:
        hints = get_type_hints(cls)
        fields = msgspec.structs.fields(cls)
        self._fields = {
            field.encode_name: (field.name, hints[field.name], reader.get_structure_hook(hints[field.name]))
            for field in fields
        }
        self._required = [field.encode_name for field in fields if field.required]

    def __call__(self, value: Any, cls: Any) -> Any:
        if not isinstance(value, Mapping):
            raise TypeError(f"expected an object, not {_shown(value)}")
        fields, errors = self._read(value)
        errors |= {name: KeyError(name) for name in self._required if name not in value}
        if errors or len(fields) < len(value):
            raise self._refusal(cls, errors, set(value) - self._fields.keys())
        return cls(**fields)

    def _read(self, value: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Exception]]:
        """The fields that can be read, and the faults of the others."""
        fields, errors = {}, {}
        for name, item in value.items():
            if name in self._fields:
                field, hint, reader = self._fields[name]
                try:
                    fields[field] = reader(item, hint)
                except Exception as error:  # noqa: BLE001 - collected with its place, as cattrs does
                    errors[name] = error
        return fields, errors

    def _refusal(self, cls: Any, errors: Mapping[str, Exception], unknown: set[str]) -> ClassValidationError:
        for name, error in errors.items():
            error.add_note(AttributeValidationNote(f"{cls.__name__}.{name}", name, self._fields[name][1]))
        extra = [ForbiddenExtraKeysError("", cls, unknown)] if unknown else []
        return ClassValidationError(f"While structuring {cls.__name__}", [*errors.values(), *extra], cls)


@cache
def _reader_of(cls: Any) -> _StructReader:
    return _StructReader(cls, converter)


def _read_struct(value: Any, cls: Any) -> Any:
    return _reader_of(cls)(value, cls)


def _show_struct(value: Any) -> dict[str, Any]:
    """All fields that are set, also those that have their default."""
    names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
    fields = ((name, getattr(value, field)) for name, field in names)
    return {name: converter.unstructure(item) for name, item in fields if item is not msgspec.UNSET}


def _unstructured(value: object) -> object:
    """Return the data of an object in a struct that msgspec does not know, such as a model of pydantic.

    Raises:
        TypeError: nothing knows it.
    """
    data: object = converter.unstructure(value)
    if data is value:
        raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")
    return data


def _row_hook(cls: Any, writer: BaseConverter) -> Callable[[Any], Any]:
    factory_fields = [field.name for field in attrs.fields(cls) if isinstance(field.default, attrs.Factory)]  # type: ignore[arg-type]
    # comparing with a factory's default would create that default each time
    dear: Any = dict.fromkeys(factory_fields, override(omit_if_default=False))
    return make_dict_unstructure_fn(cls, writer, _cattrs_omit_if_default=True, **dear)


def _dumped(value: Any) -> Any:
    """Return an object of a class of pydantic, which a tool has returned, as the JSON data that the class writes.

    Names are aliases, as in the schema of the class. A value that is not of its field's type is written as it is.
    """
    return type(value).__pydantic_serializer__.to_python(value, mode="json", by_alias=True, warnings=False)


def _dumped_other(value: Any) -> Any:
    """Return an object of another type that pydantic reads, such as a SecretStr, as JSON data."""
    try:
        from .user_types.pydantic_values import dumped  # noqa: PLC0415 - an extra
    except ImportError:  # a class that pydantic could read, in a program without pydantic
        return value
    return dumped(value)


def _shown(value: object) -> str:
    text = f"{type(value).__name__} {value!r}"
    return text if len(text) <= 80 else f"{text[:79]}…"


for _kind, _hook in {
    str: _exactly(str),
    int: _exactly(int),
    bool: _exactly(bool),
    float: _exactly(float, int),
    datetime: _moment,
    **dict.fromkeys((time, timedelta, Decimal, UUID), _converted),
}.items():
    converter.register_structure_hook(_kind, _hook)
converter.register_unstructure_hook_func(lambda cls: is_pydantic(cls) and not attrs.has(cls), _dumped_other)
converter.register_unstructure_hook_func(lambda cls: hasattr(cls, "__pydantic_serializer__"), _dumped)
converter.register_structure_hook_func(lambda hint: hint == int | msgspec.UnsetType, _exactly(int))
converter.register_structure_hook_factory(lambda cls: get_args(cls)[1:] == (...,), _array_hook)
converter.register_structure_hook_factory(attrs.has, _class_hook)
converter.register_unstructure_hook(msgspec.Struct, partial(msgspec.to_builtins, enc_hook=_unstructured))
for _kind in (Value, Fields):  # instead of msgspec's own hooks for all structs
    converter.register_structure_hook(_kind, _read_struct)
    converter.register_unstructure_hook(_kind, _show_struct)
row_writer.register_unstructure_hook_factory(attrs.has, _row_hook)
