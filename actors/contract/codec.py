"""The one cattrs converter: rows to bytes and back, with a schema version in every blob.

Writers write the current version; readers read every released one; a newer one is refused, never guessed. Keys that a
reader does not know are an error at the same version (they would be lost at the next write).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec
from cattrs import ClassValidationError, ForbiddenExtraKeysError, transform_error
from cattrs.preconf.msgspec import make_converter

T = TypeVar("T")

SCHEMA_VERSION: Final = 1
"""Version of every row blob that this release writes."""

UPGRADES: Final[dict[int, Callable[[str, Any], Any]]] = {}
"""Version n -> function (class name, data as of n) -> data as of n + 1. Empty until a second version is released."""

converter: Final = make_converter(forbid_extra_keys=True)
"""Reads everything that comes from outside (rows, commands, config) and writes rows."""

_PREFIX: Final = b'{"v":%d,"d":' % SCHEMA_VERSION
_decode = msgspec.json.Decoder().decode


class SchemaError(ValueError):
    """Stored or received data does not have the form of its class; the message says where."""


class NewerSchema(SchemaError):
    """The data was written by a newer release; upgrade Greenroom to read it."""


def dump(value: Any) -> bytes:
    """A row as bytes: `{"v": version, "d": data}`.

    Raises:
        TypeError: the value holds something that JSON has no form for.
    """
    return _PREFIX + msgspec.json.encode(converter.unstructure(value)) + b"}"


def load(cls: type[T], blob: bytes) -> T:
    """A row from bytes, upgraded from the version that it was written with.

    Raises:
        NewerSchema: a newer release wrote it.
        SchemaError: it is not such a row; the message names class and path.
    """
    try:
        outer = _decode(blob)
        version, data = outer["v"], outer["d"]
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise SchemaError(f"{cls.__name__}: this is not a row of Greenroom: {bytes(blob[:60])!r}") from error
    if not isinstance(version, int) or version < 1:
        raise SchemaError(f"{cls.__name__}: schema version {version!r} is not a version")
    if version > SCHEMA_VERSION:
        raise NewerSchema(
            f"{cls.__name__}: schema version {version} is newer than this release reads ({SCHEMA_VERSION}); "
            "upgrade Greenroom"
        )
    for step in range(version, SCHEMA_VERSION):
        data = UPGRADES[step](cls.__name__, data)
    return parse(cls, data)


def parse(cls: type[T], data: Any) -> T:
    """Build `cls` from plain data.

    Raises:
        SchemaError: names the class and, for each fault, the path.
    """
    try:
        return converter.structure(data, cls)
    except (ClassValidationError, ForbiddenExtraKeysError) as error:
        raise SchemaError(f"{cls.__name__}: {'; '.join(transform_error(error))}") from error
    except (TypeError, ValueError, KeyError) as error:
        raise SchemaError(f"{cls.__name__}: {error}") from error


def plain(value: Any) -> Any:
    """A value as plain JSON data (dict, list, str, int, float, bool, None)."""
    return converter.unstructure(value)


def normalise(value: Any) -> tuple[Any, str | None]:
    """A foreign value (a tool's result) as JSON data, whatever it is.

    Lone surrogates are replaced, NaN and infinities become text, unknown types go through the converter. Called after
    an effect has happened, so it never raises.

    Returns:
        (data, None), or (a text that the value can not be shown, why).
    """
    try:
        return _decode(msgspec.json.encode(_clean(value))), None
    except Exception as error:  # noqa: BLE001 - an effect has happened: whatever the value does, the call has succeeded
        why = f"{type(error).__name__}: {error}"
        return f"<a {type(value).__name__} that can not be shown>", why


def _clean(value: Any) -> Any:
    match value:
        case None | bool() | int():
            return value
        case str():
            return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
        case float():
            return value if value - value == 0 else str(value)
        case Mapping():
            return {_clean(str(key)): _clean(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_clean(item) for item in value]
        case bytes() | bytearray():
            return bytes(value).decode("utf-8", "replace")
        case _:
            data = converter.unstructure(value)
            return data if data is value else _clean(data)
