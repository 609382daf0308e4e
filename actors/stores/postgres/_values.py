"""Values of PostgreSQL in their binary form: arrays, and times in whole milliseconds.

Arrays are written by hand: the driver looks at the type of each element first, and writes bytes as hexadecimal text.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from ._driver import psycopg

pq = psycopg.pq

_INT8, _TEXT, _BYTEA, _TIME = 20, 25, 17, 1184
_BASE: Final = 946_684_800_000
"""Milliseconds from 1970 to 2000, where PostgreSQL's times begin."""


class Bigints(list[int]):
    """An array of bigint, without nulls."""


class Texts(list[str | None]):
    """An array of text."""


class Blobs(list[bytes | None]):
    """An array of bytea."""


class Moments(list[int | None]):
    """An array of timestamptz: milliseconds since 1970."""


class Moment(int):
    """A timestamptz: milliseconds since 1970."""

    __slots__ = ()


_EMPTY: Final = struct.Struct(">iiI").pack
_HEAD: Final = struct.Struct(">iiIiii").pack
"""Dimensions, whether there may be nulls, type of the elements, their count, index of the first one; then the length of
the first element. A commit has dozens of arrays, and most of them have one element."""
_ONE: Final = struct.Struct(">iiIiiiq").pack
_NEXT: Final = struct.Struct(">iq").pack
_INTEGER: Final = struct.Struct(">q").pack
_NULL: Final = -1
"""Length of an element that is null."""


def _array(oid: int, pieces: Sequence[bytes | None]) -> bytes:
    if not pieces:
        return _EMPTY(0, 0, oid)
    first = pieces[0]
    parts = [_HEAD(1, 1, oid, len(pieces), 1, _NULL if first is None else len(first)), first or b""]
    for piece in pieces[1:]:
        if piece is None:
            parts.append(b"\xff\xff\xff\xff")
        else:
            parts += (len(piece).to_bytes(4, "big"), piece)
    return b"".join(parts)


def _integers(oid: int, numbers: Sequence[int]) -> bytes:
    if not numbers:
        return _EMPTY(0, 0, oid)
    begin = _ONE(1, 1, oid, len(numbers), 1, 8, numbers[0])
    return begin if len(numbers) == 1 else b"".join([begin, *[_NEXT(8, number) for number in numbers[1:]]])


def _time(number: int) -> int:
    return (number - _BASE) * 1000


class _BigintsDumper(psycopg.adapt.Dumper):
    oid, format = 1016, pq.Format.BINARY

    def dump(self, obj: Bigints) -> psycopg.abc.Buffer:
        """Return the array's binary form."""
        return _integers(_INT8, obj)


class _TextsDumper(psycopg.adapt.Dumper):
    oid, format = 1009, pq.Format.BINARY

    def dump(self, obj: Texts) -> psycopg.abc.Buffer:
        """Return the array's binary form."""
        return _array(_TEXT, [None if text is None else text.encode() for text in obj])


class _BlobsDumper(psycopg.adapt.Dumper):
    oid, format = 1001, pq.Format.BINARY

    def dump(self, obj: Blobs) -> psycopg.abc.Buffer:
        """Return the array's binary form."""
        return _array(_BYTEA, obj)


class _MomentsDumper(psycopg.adapt.Dumper):
    oid, format = 1185, pq.Format.BINARY

    def dump(self, obj: Moments) -> psycopg.abc.Buffer:
        """Return the array's binary form."""
        if None in obj:
            return _array(_TIME, [None if number is None else _INTEGER(_time(number)) for number in obj])
        return _integers(_TIME, [_time(number) for number in obj if number is not None])


class _MomentDumper(psycopg.adapt.Dumper):
    oid, format = _TIME, pq.Format.BINARY

    def dump(self, obj: Moment) -> psycopg.abc.Buffer:
        """Return the time's binary form."""
        return _INTEGER(_time(obj))


class _MomentLoader(psycopg.adapt.Loader):
    format = pq.Format.BINARY

    def load(self, data: psycopg.abc.Buffer) -> int:
        """Return milliseconds since 1970, rounded down."""
        return int(struct.unpack(">q", data)[0]) // 1000 + _BASE


def adapt(context: psycopg.abc.AdaptContext) -> None:
    """Teach a connection these values."""
    adapters = context.adapters
    adapters.register_dumper(Bigints, _BigintsDumper)
    adapters.register_dumper(Texts, _TextsDumper)
    adapters.register_dumper(Blobs, _BlobsDumper)
    adapters.register_dumper(Moments, _MomentsDumper)
    adapters.register_dumper(Moment, _MomentDumper)
    adapters.register_loader(_TIME, _MomentLoader)
