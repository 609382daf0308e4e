"""Values of PostgreSQL in their binary form: arrays, and times in whole milliseconds.

Arrays are written by hand: the driver looks at the type of each element first, and writes bytes as hexadecimal text.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from ._pg_driver import psycopg

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


def _array(oid: int, pieces: Sequence[bytes | None]) -> bytes:
    head = struct.pack(">iiIii", 1, 1, oid, len(pieces), 1) if pieces else struct.pack(">iiI", 0, 0, oid)
    parts = [head]
    for piece in pieces:
        parts.append(b"\xff\xff\xff\xff" if piece is None else len(piece).to_bytes(4, "big"))
        if piece is not None:
            parts.append(piece)
    return b"".join(parts)


def _time(number: int) -> bytes:
    return struct.pack(">q", (number - _BASE) * 1000)


class _BigintsDumper(psycopg.adapt.Dumper):
    oid, format = 1016, pq.Format.BINARY

    def dump(self, obj: Bigints) -> psycopg.abc.Buffer:
        """Return the array's binary form."""
        return _array(_INT8, [struct.pack(">q", number) for number in obj])


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
        return _array(_TIME, [None if number is None else _time(number) for number in obj])


class _MomentDumper(psycopg.adapt.Dumper):
    oid, format = _TIME, pq.Format.BINARY

    def dump(self, obj: Moment) -> psycopg.abc.Buffer:
        """Return the time's binary form."""
        return _time(obj)


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
