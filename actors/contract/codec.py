"""Encode rows to bytes and back with a schema version in every blob; normalise foreign values to JSON data.

Writers write the current version; readers read every released version; a newer version is refused, never guessed.
Unknown keys are an error at the current version, because they would be lost at the next write.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Mapping
from collections.abc import Set as AbstractSet
from enum import Enum
from pathlib import PurePath
from typing import Any, Final, TypeVar

import msgspec
from cattrs import BaseValidationError, ForbiddenExtraKeysError, transform_error
from cattrs.v import format_exception

from greenroom.supervision.border import Raised, capture, failure_of_call

from .converters import converter, row_writer
from .parts import Attachment, InvalidPart, Part, fault_of_parts
from .plain import base_value
from .renamed_fields import renamed
from .row_forms import Fields, Value
from .sizes import VALUE_LIMIT, TooLarge, oversized, too_large

T = TypeVar("T")

SCHEMA_VERSION: Final = 4
"""Version of the row blobs that this release writes."""


def _derived_status(name: str, data: object) -> Any:
    """Upgrade a call: version 2 derives the status of a call from its position; version 1 stored both."""
    if name != "CallRow" or not isinstance(data, dict):
        return data
    row = dict(data)
    status = row.pop("status", "new")
    if status == "resuming":
        row["resumed_at"] = row.get("attempts", 0)
    elif status in ("succeeded", "failed", "cancelled"):
        row["outcome"] = status
    return row


def _as_it_is(_: str, data: Any) -> Any:
    """Upgrade nothing: a row of version 3 holds the calls of its draft, which `pending_input.with_calls` heeds."""
    return data


UPGRADES: Final[dict[int, Callable[[str, Any], Any]]] = {1: _derived_status, 2: renamed, 3: _as_it_is}
"""Version n -> function (class name, data as of n) -> data as of n + 1."""

MAX_DEPTH: Final = 64
"""Deepest nesting of a foreign value.

Later readers (redactor, encoder, cattrs) recurse; this depth is safe for them.
"""

MAX_ITEMS: Final = 1_000_000
"""Most items of a foreign value. Shared parts count each time, because 40 nested pairs would fill memory."""
PIECE: Final = 20_000
"""Items and characters of a result that are converted without a pause: 5 ms."""
PLACES: Final = "an image or a file may be a tool's whole result, or an item of the list that a tool returns"
MESSAGE_LIMIT: Final = 2_000
"""Characters kept of a failure message from foreign code."""
_ASYNCIO_WAY_OUT: Final = (
    "asyncio does not run here, trio does: use a library for trio or anyio, such as httpx; or, in a program on asyncio,"
    " open the runtime with greenroom.aio.open_runtime and write @gr.tool(loop='asyncio'); or write a sync function"
    " that calls asyncio.run(...), which runs in a worker thread"
)

_PREFIX: Final = b'{"v":%d,"d":' % SCHEMA_VERSION
_encode = msgspec.json.Encoder(enc_hook=base_value).encode
_decode = msgspec.json.Decoder().decode


class SchemaError(ValueError):
    """Stored or received data does not have the form of its class; the message names the path."""


class NewerSchema(SchemaError):
    """A newer release wrote the data; upgrade Greenroom to read it."""


def dump(value: object) -> bytes:
    """Encode a row: `{"v": version, "d": data}`, without the fields that have their default.

    A decision inside a row is written whole, because it is an attrs class, which users create, and msgspec does not
    know the defaults of attrs classes.

    Raises:
        TypeError: a value has no form in JSON.
    """
    return _PREFIX + _encode(value if isinstance(value, (Fields, Value)) else row_writer.unstructure(value)) + b"}"


def dump_data(data: object) -> bytes:
    """Encode plain data as the bytes of a row. Raises as `dump` does."""
    return _PREFIX + _encode(data) + b"}"


def load(cls: type[T], blob: bytes) -> T:
    """Decode a row, upgraded from the version in which it was written.

    Raises:
        NewerSchema: a newer release wrote it.
        SchemaError: the bytes are not such a row; the message names class and path.
    """
    try:
        outer = _decode(blob)
        version, data = outer["v"], outer["d"]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError) as error:
        raise SchemaError(f"{cls.__name__}: this is not a row of Greenroom ({_size_of(blob)})") from error
    if type(version) is not int or version < 1:
        raise SchemaError(f"{cls.__name__}: schema version {version!r} is not a version")
    if version > SCHEMA_VERSION:
        raise _newer(cls, version)
    if len(outer) != 2:
        raise SchemaError(f"{cls.__name__}: keys beside v and d: {', '.join(sorted(outer.keys() - {'v', 'd'}))}")
    for step in range(version, SCHEMA_VERSION):
        data = UPGRADES[step](cls.__name__, data)
    return parse(cls, data)


def _size_of(blob: object) -> str:
    return f"{len(blob)} bytes" if isinstance(blob, bytes | str) else f"a value of type {type(blob).__name__}"


def _newer(cls: type, version: int) -> NewerSchema:
    return NewerSchema(
        f"{cls.__name__}: schema version {version} is newer than this release reads ({SCHEMA_VERSION}); "
        "upgrade Greenroom"
    )


class _Outer(msgspec.Struct):
    v: int
    d: msgspec.Raw


_outer = msgspec.json.Decoder(_Outer).decode


def glance(cls: type[T], blob: bytes) -> T:
    """Decode some fields of a row, which all versions name alike; the others are skipped, at a hundredth of the cost.

    Args:
        cls: a struct with these fields.
        blob: the row.

    Raises:
        NewerSchema, SchemaError: as `load`.
    """
    try:
        outer = _outer(blob)
        if outer.v > SCHEMA_VERSION:
            raise _newer(cls, outer.v)
        return msgspec.json.decode(outer.d, type=cls)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError) as error:
        raise SchemaError(f"{cls.__name__}: this is not a row of Greenroom ({_size_of(blob)})") from error


def parse(cls: type[T], data: object) -> T:
    """Build `cls` from plain data.

    Raises:
        SchemaError: names the class and, for each fault, the path.
    """
    name = getattr(cls, "__name__", str(cls))  # a union has none
    try:
        return converter.structure(data, cls)
    except (BaseValidationError, ForbiddenExtraKeysError) as error:
        faults = "; ".join(transform_error(error, format_exception=_complaint))
        raise SchemaError(f"{name}: {faults}") from error
    except (TypeError, ValueError) as error:
        raise SchemaError(f"{name}: {error}") from error


def _complaint(error: BaseException, kind: type | None) -> str:
    by_converter = isinstance(error, (KeyError, ForbiddenExtraKeysError))
    return format_exception(error, kind) if by_converter else str(error)


def plain(value: object) -> Any:
    """Return a value as plain JSON data (dict, list, str, int, float, bool, None)."""
    return _decode(_encode(converter.unstructure(value)))


def normalise(value: object) -> tuple[Any, str | None]:
    """Return a foreign value (a tool's result) as JSON data.

    Only dict, list, str, int, float, bool and None remain. Lone surrogates are replaced; NaN, infinities and integers
    beyond 64 bits become text; exceptions become their text; unknown types go through the converter, then msgspec.
    Called after an effect has happened, so it never raises, and terminates for values that contain themselves. A value
    that is too large is not copied.

    Returns:
        (data, None), or (a text in place of the value, the reason).
    """
    result = capture(_Cleaner().clean, value, MAX_DEPTH)
    if isinstance(result, Raised):  # an effect has happened: the call has succeeded whatever its value does
        return f"<a {_type_name(value)} that cannot be shown>", _said(result.error)
    return result.value, None


StoredResult = tuple[Any, tuple[Part, ...], str | None]
"""A tool's result as it is stored: JSON data with the facts of images and files in their place; these, in order, with
their bytes; and why the data is only a text in place of the value (None if it is the value). A plain tuple, because one
is made for each call.
"""


class ManyItems(Exception):
    """A value has more items than are converted without a pause."""


def normalise_result(value: object, most: int | None = None) -> StoredResult:
    """Return a tool's result as JSON data and parts. As `normalise`, but for images and files.

    Raises:
        InvalidPart: an image or a file is deep inside the value, or they are too many or too large together.
        TooLarge: the texts in the value have more than `VALUE_LIMIT` characters.
        ManyItems: it has more than `most` items, if that is given.
    """
    cleaner = _Cleaner(value, most)
    try:
        data = cleaner.clean(value, MAX_DEPTH)
    except (InvalidPart, TooLarge, ManyItems):
        raise
    except BaseException as error:  # noqa: BLE001, ASYNC103 - as in `normalise`
        return _unshown(value, failure_of_call(error))  # noqa: ASYNC104 - the border has raised what passes
    return _with_parts(data, cleaner.parts)


def normalising(value: object) -> Generator[None, None, StoredResult]:
    """Do the work of `normalise_result`, which it returns; yields after each `PIECE` items. Raises as it does."""
    cleaner = _Cleaner(value)
    try:
        data = yield from cleaner.in_pieces(value, MAX_DEPTH)
    except (InvalidPart, TooLarge):
        raise
    except BaseException as error:  # noqa: BLE001, ASYNC103 - as in `normalise`
        return _unshown(value, failure_of_call(error))  # noqa: ASYNC104 - the border has raised what passes
    return _with_parts(data, cleaner.parts)


def _unshown(value: object, error: BaseException) -> StoredResult:
    return f"<a {_type_name(value)} that cannot be shown>", (), _said(error)


def _with_parts(data: Any, parts: tuple[Part, ...]) -> StoredResult:
    if parts:
        fault = fault_of_parts(parts)
        if fault is not None:
            raise InvalidPart(fault)
    return data, parts, None


def message_of(error: BaseException) -> str:
    """Return the message of a foreign exception, or its type's name: bounded, encodable text. Never raises.

    The complaint of asyncio that no event loop runs says nothing to a reader who does not know that trio runs here; the
    way out follows that complaint.
    """
    message = capture(lambda: _text(shortened(str(error) or _type_name(error), MESSAGE_LIMIT)))
    if isinstance(message, Raised):  # by the exception's own `__str__`
        return "(its message cannot be shown)"
    text = message.value
    return f"{text}; {_ASYNCIO_WAY_OUT}" if type(error) is RuntimeError and _needs_asyncio(text) else text


def _needs_asyncio(text: str) -> bool:
    """Return whether a message is that of `asyncio.get_running_loop`, `get_event_loop`, or a timeout of asyncio."""
    return text.startswith(("no running event loop", "There is no current event loop")) or "used inside a task" in text


def shortened(text: str, limit: int) -> str:
    """Return at most `limit` characters of a text.

    The cut is marked with "…", so that the redactor hides a cut secret.
    """
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def failure_text(error: BaseException) -> str:
    """Return type and `message_of` of a foreign exception. Never raises."""
    kind, message = _type_name(error), message_of(error)
    return kind if message == kind else f"{kind}: {message}"


class _Cleaner:
    """Walks one foreign value once; returns new data of exact built-in types only."""

    __slots__ = ("_last_pause", "_most", "_remaining", "_room", "_top", "parts")

    def __init__(self, top: object = None, most: int | None = None) -> None:
        """`top`: the value, if images and files have their place in it. `most`: items of it; None: `MAX_ITEMS`."""
        self._most = most
        self._remaining = self._last_pause = MAX_ITEMS if most is None else most
        self._room = VALUE_LIMIT
        self._top = top
        self.parts: tuple[Part, ...] = ()

    def _take(self, size: int) -> None:
        """Count bytes before they are copied.

        Raises:
            TooLarge: there are more than the limit.
        """
        self._room -= size
        if self._room < 0:
            raise too_large(VALUE_LIMIT - self._room)

    def clean(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind is str:
            self._room -= len(value)
            if self._room < 0:
                raise too_large(VALUE_LIMIT - self._room)
            return value if value.isascii() else _text(value)
        if value is None or kind is bool or (kind is int and _LEAST <= value <= _MOST):
            return value
        if kind is dict or kind is list:
            return self._container(value, depth)
        return self._other(value, depth)

    def in_pieces(self, value: Any, depth: int) -> Generator[None, None, Any]:
        """Return the value of `clean`; yields after each `PIECE` items of a large container."""
        if type(value) not in _BUILT_IN or depth == 0 or not oversized(value, PIECE):
            if depth and hasattr(type(value), "__pydantic_serializer__"):  # only the dump itself has no pause
                return (yield from self.in_pieces(converter.unstructure(value), depth - 1))
            return self.clean(value, depth)
        if type(value) is not dict:
            items = []
            for item in value:
                yield from self._count()
                items.append((yield from self.in_pieces(item, depth - 1)))
            return items
        out = {}
        for key, item in value.items():
            yield from self._count()
            name = self.clean(key, 0) if type(key) is str else _key(key)
            out[name] = yield from self.in_pieces(item, depth - 1)
        return out

    def _count(self) -> Generator[None, None, None]:
        self._remaining -= 1
        if self._remaining < 0:
            raise self._too_many()
        if self._last_pause - self._remaining >= PIECE:
            self._last_pause = self._remaining
            yield

    def _too_many(self) -> Exception:
        return ValueError(f"more than {MAX_ITEMS} items") if self._most is None else ManyItems()

    def _container(self, value: Any, depth: int) -> Any:
        if depth == 0:
            raise ValueError(f"nested more than {MAX_DEPTH} levels deep, or it holds itself")
        if type(value) is dict or isinstance(value, Mapping):
            out = {}
            for key, item in value.items():  # each item is counted as it comes: a foreign container may have no end
                self._remaining -= 1
                if self._remaining < 0:
                    raise self._too_many()
                if type(key) is str:
                    self._room -= len(key)  # the next text, or the end, finds the excess
                name = key if type(key) is str and key.isascii() else _key(key)
                out[name] = self.clean(item, depth - 1)
            self._take(0)
            return out
        items = []
        for item in value:
            self._remaining -= 1
            if self._remaining < 0:
                raise self._too_many()
            items.append(self.clean(item, depth - 1))
        return items

    def _other(self, value: object, depth: int) -> Any:
        match value:
            case Enum():
                return self.clean(value.value, depth)
            case str():
                self._take(str.__len__(value))
                return _text(value)
            case int():
                self._take(int.bit_length(value) // 4)
                return _integer(int.__int__(value))
            case float():
                number = float.__float__(value)
                return number if math.isfinite(number) else float.__repr__(number)
            case bytes() | bytearray() | memoryview():
                self._take(memoryview(value).nbytes)
                return bytes(value).decode("utf-8", "replace")
            case Mapping() | list() | tuple() | AbstractSet() | deque():
                return self._container(value, depth)
            case PurePath():
                return _text(str(value))
            case BaseException():
                return _said(value)
            case _:
                return self._converted(value, depth)

    def _converted(self, value: object, depth: int) -> Any:
        if isinstance(value, Attachment):
            if value is not self._top and (depth < MAX_DEPTH - 1 or not isinstance(self._top, list | tuple)):
                raise InvalidPart(f"{value!r} has no place here: {PLACES}")
            self.parts += (value.part,)
            return value.part.facts()
        if depth == 0:
            raise ValueError(f"nested more than {MAX_DEPTH} levels deep, or it holds itself")
        data = converter.unstructure(value)
        return self.clean(msgspec.to_builtins(value) if data is value else data, depth - 1)


def _text(value: str) -> str:
    return str.encode(value, "utf-8", "replace").decode("utf-8")


def _key(key: object) -> str:
    return _text(key) if isinstance(key, str) else _text(str(key.value if isinstance(key, Enum) else key))


_BUILT_IN: Final = (dict, list, tuple)
"""Containers that a pause does not disturb."""
_LEAST: Final = -(1 << 63)
_MOST: Final = (1 << 64) - 1
"""The range of whole numbers that rows and events hold; any other becomes text."""


def _integer(value: int) -> int | str:
    if _LEAST <= value <= _MOST:
        return value
    return str(value) if value.bit_length() <= 10_000 else hex(value)


def _type_name(value: object) -> str:
    name = capture(lambda: _text(type(value).__name__))  # a metaclass may do anything
    return "value" if isinstance(name, Raised) else name.value


def _said(error: BaseException) -> str:
    if isinstance(error, TooLarge):
        return str(error)
    text = capture(lambda: _text(f"{_type_name(error)}: {shortened(str(error), MESSAGE_LIMIT)}"))
    return _type_name(error) if isinstance(text, Raised) else text.value
