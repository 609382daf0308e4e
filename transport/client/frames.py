"""The codec of frames: client frames are encoded, gateway frames are decoded. Pure."""

from __future__ import annotations

from typing import Any, Final

import attrs
import msgspec

from greenroom.actors.contract.casing import camel
from greenroom.actors.contract.envelope import Event, decode_event

from ..protocol.down import DOWN, Frame
from ..protocol.up import UP, Remember, Up

_NAMES: Final = {cls: name for name, cls in UP.items()}
_encode = msgspec.json.Encoder().encode


class InvalidFrame(Exception):
    """The text is not a frame of greenroom.v1; the message says why."""


class _Kind(msgspec.Struct):
    """The field that selects the decoder of the other fields."""

    type: str


_kind = msgspec.json.Decoder(_Kind).decode
_readers: Final = {name: msgspec.json.Decoder(cls).decode for name, cls in DOWN.items()}


def write(frame: Up) -> str:
    """Encode a frame of the client; fields that are None or empty lists are left out.

    Raises:
        TypeError: A value has no JSON form.
    """
    return _encode({"type": _NAMES[type(frame)], **fields(frame)}).decode()


def fields(frame: Up) -> dict[str, Any]:
    """Return the fields of a frame with the names of the wire; fields that are None or empty lists are left out."""
    return _fields(frame)


def _fields(value: Any) -> dict[str, Any]:
    fields: dict[str, Any] = attrs.asdict(value, recurse=False)
    return {camel(name): _plain(value) for name, value in fields.items() if value not in (None, ())}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_fields(one) for one in value]
    return _fields(value) if isinstance(value, Remember) else value


def read(text: str | bytes) -> Event | Frame | None:
    """Decode a frame of the gateway; return None for a frame type that this release does not know.

    Raises:
        InvalidFrame: The text is not a frame.
    """
    if isinstance(text, bytes):
        raise InvalidFrame("a binary message; frames are text")
    try:
        kind = _kind(text).type
        if not kind.startswith("gw."):
            return decode_event(text.encode())
        reader = _readers.get(kind)
        return None if reader is None else reader(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError, KeyError, TypeError, ValueError) as error:
        raise InvalidFrame(f"{error} in {text[:100]!r}") from error
