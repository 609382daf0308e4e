"""The two cattrs converters and their hooks: a strict reader of everything from outside, and a terse writer of rows.

cattrs on its own is lenient where we must not be: it makes the text "None" of a null, True of "no", ("a", "b") of "ab".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, get_args

import attrs
import msgspec
from cattrs import BaseConverter, IterableValidationError, IterableValidationNote
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override
from cattrs.preconf.msgspec import make_converter

converter: Final = make_converter()
"""Reads everything that comes from outside (rows, commands, config) and shows values in full."""

row_writer: Final = make_converter()
"""Writes rows. What has its default is left out: rows are a third to a half smaller, and faster to write and read. A
release that changes a default must raise `SCHEMA_VERSION` and fill in the old one."""


def _exactly(*kinds: type) -> Callable[[Any, Any], Any]:
    """A value of one of these types as it stands: cattrs itself would make text of None and True of "no".

    A type that is derived from one of them, as an enum of texts is, is made of the value.
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


def _row_hook(cls: Any, writer: BaseConverter) -> Callable[[Any], Any]:
    made = [field.name for field in attrs.fields(cls) if isinstance(field.default, attrs.Factory)]  # type: ignore[arg-type]
    dear: Any = dict.fromkeys(made, override(omit_if_default=False))  # comparing would make a default each time
    return make_dict_unstructure_fn(cls, writer, _cattrs_omit_if_default=True, **dear)


def _shown(value: object) -> str:
    text = f"{type(value).__name__} {value!r}"
    return text if len(text) <= 80 else f"{text[:79]}…"


for _kind, _hook in {
    str: _exactly(str),
    int: _exactly(int),
    bool: _exactly(bool),
    float: _exactly(float, int),
    datetime: _moment,
}.items():
    converter.register_structure_hook(_kind, _hook)
converter.register_structure_hook_factory(lambda cls: get_args(cls)[1:] == (...,), _array_hook)
converter.register_structure_hook_factory(attrs.has, _class_hook)
row_writer.register_unstructure_hook_factory(attrs.has, _row_hook)
