"""The record of a run as bytes, and back: `[[milliseconds, "CallReturned", {...}], ...]` in the envelope of all rows.

Fields with their default are left out, as in rows. A command is stored in the inbox, word for word, and written here as
its position. Other values are written whole, although most of them are also in a row: a call's row may change after the
commit that carries the input, and a message may never be written.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import compress
from operator import is_not
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import attrs
import msgspec
from msgspec.structs import astuple

from ...contract import codec
from ...contract.artifacts import Artifact
from ...contract.codec import SchemaError
from ...contract.converters import converter, row_writer
from ...contract.decisions import InboxItem, SetResult, Suspend, Verdict
from ...contract.parts import Part
from ...contract.plain import JSONValue
from ...contract.recording import RecordEntry
from ...contract.state import KeyId, Keys, KeySpec
from ...engine.inputs import BodyOverran, FailUnrecoverable
from ...engine.recording import ClockJump, CreatedEntry, Entry, ForcedEndEntry, RecordGap, TakeoverEntry
from ._timestamps import milliseconds, moment

Items = Mapping[int, InboxItem]
Write = Callable[[Any], Any]
Read = Callable[[Any, Items], Any]

_STORED_AS: Final[Mapping[type, str]] = {
    BodyOverran: "Overran",
    ClockJump: "ClockMoved",
    CreatedEntry: "Born",
    FailUnrecoverable: "Abandon",
    ForcedEndEntry: "Buried",
    RecordGap: "NotRecorded",
    TakeoverEntry: "TakenUp",
}
"""Entries whose class has another name than files have: a file keeps the first name that it was written with."""

_ENTRIES: Final = {_STORED_AS.get(kind, kind.__name__): kind for kind in get_args(Entry)}
_VERDICTS: Final = {kind.__name__: kind for kind in get_args(Verdict)}


def dump_taken(entries: Sequence[RecordEntry]) -> bytes:
    """Encode entries; entries that cannot be encoded become one `RecordGap`, so that the commit succeeds."""
    try:
        return codec.dump_data([_plain(entry) for entry in entries])
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - a value that its writer should have refused: the run matters more than its record
        why = RecordGap(why=f"an entry cannot be encoded: {codec.failure_text(error)}")
        return codec.dump_data([_plain(RecordEntry(entries[-1].at, why))])


def load_taken(body: bytes, items: Items) -> tuple[RecordEntry, ...]:
    """Decode entries. `items`: all commands of the run.

    Raises:
        SchemaError: the bytes are not entries; or a newer release wrote them.
    """
    rows = codec.load(list[Any], body)
    if not rows:  # a commit without entries has no record; an object would be read as a list of its keys
        raise SchemaError("the record of a run cannot be read: it has no entries")
    try:
        return tuple(_taken(row, items) for row in rows)
    except (LookupError, TypeError, ValueError) as error:
        raise SchemaError(f"the record of a run cannot be read: {codec.failure_text(error)}") from error


def _plain(entry: RecordEntry) -> list[Any]:
    kind = type(entry.entry)
    data = [milliseconds(entry.at), _STORED_AS.get(kind, kind.__name__), _form(kind)[0](entry.entry)]
    return [*data, entry.reduced] if entry.reduced else data


def _taken(data: list[Any], items: Items) -> RecordEntry:
    at, name, fields = data[:3]
    reduced = tuple(map(tuple, data[3])) if len(data) > 3 else ()
    return RecordEntry(moment(at), _form(_ENTRIES[name])[1](fields, items), reduced)


# --- forms -----------------------------------------------------------------------------------------------------------


@cache
def _form(hint: Any) -> tuple[Write, Read]:
    """Return writer and reader for the values of a type."""
    special = _SPECIAL.get(hint)
    if special is not None:
        return special
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _struct(hint)
    if get_origin(hint) is tuple:
        write, read = _form(get_args(hint)[0])
        return (
            lambda value: [write(item) for item in value],
            lambda data, items: tuple(read(item, items) for item in data),
        )
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else ()
    if type(None) in kinds:
        (write, read) = _form(Union[tuple(kind for kind in kinds if kind is not type(None))])  # noqa: UP007
        return (
            lambda value: None if value is None else write(value),
            lambda data, items: None if data is None else read(data, items),
        )
    foreign = isinstance(hint, type) and attrs.has(hint)
    return (row_writer.unstructure if foreign else _same), lambda data, _: converter.structure(data, hint)


def _struct(kind: Any) -> tuple[Write, Read]:
    hints, fields = get_type_hints(kind), msgspec.structs.fields(kind)
    defaults = [
        field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory() for field in fields
    ]
    forms = [(field.name, *_form(hints[field.name])) for field in fields]
    reads = {name: read for name, _, read in forms}

    def write(value: Any) -> dict[str, JSONValue]:
        written, values = {}, astuple(value)
        # most fields have their default: a loop in Python over all of them was a fourteenth of a run
        for (name, write_field, _), field, default in compress(
            zip(forms, values, defaults, strict=True), map(is_not, values, defaults)
        ):
            if default is msgspec.NODEFAULT or field != default:
                written[name] = field if write_field is _same else write_field(field)
        return written

    def read(data: dict[str, JSONValue], items: Items) -> Any:
        return kind(**{name: reads[name](field, items) for name, field in data.items()})

    return write, read


def _light(part: Part | Artifact) -> dict[str, JSONValue]:
    """Return a part or an artifact as JSON, without its bytes: a fold needs none."""
    return {name: field for name in part.__struct_fields__ if name != "data" and (field := getattr(part, name))}


def _same(value: object) -> Any:
    return value


def _number(value: float) -> float | str:
    """Return a float as JSON; an infinity as text, because JSON has none."""
    return value if math.isfinite(value) else repr(float(value))


def _verdict(value: object) -> list[Any]:
    return [type(value).__name__, row_writer.unstructure(value)]


def _keys(keys: Keys) -> list[Any]:
    """Return state keys as JSON; of a reducer only its existence, because its results are in `RecordEntry.reduced`."""
    return [[key.scope, key.name, rules.persistent, rules.reduce is not None] for key, rules in keys.items()]


def _read_keys(data: Any, _: Items) -> Keys:
    specs = {}
    for scope, name, persistent, commutative in data:
        key = KeyId(scope, name)
        specs[key] = KeySpec(key=key, reduce=_unknown if commutative else None, persistent=persistent)
    return specs


def _unknown(_value: object, _update: object) -> Any:
    raise LookupError("a stored key has no reducer; a replay uses the recorded results")


def _expiry(data: object, _: object) -> Any:
    return data if isinstance(data, str) else converter.structure(data, SetResult)


converter.register_structure_hook_func(lambda hint: hint == (Literal["deny", "cancel_run"] | SetResult), _expiry)

_SPECIAL: Final[Mapping[object, tuple[Write, Read]]] = {
    float: (_number, lambda data, _: float(data)),
    InboxItem: (lambda item: item.position, lambda position, items: items[position]),
    Keys: (_keys, _read_keys),
    Verdict: (_verdict, lambda data, _: converter.structure(data[1], _VERDICTS[data[0]])),
    Part: (_light, lambda data, _: converter.structure(data, Part)),
    Artifact: (_light, lambda data, _: converter.structure(data, Artifact)),
    Suspend: (row_writer.unstructure, lambda data, _: converter.structure(data, Suspend)),
}
