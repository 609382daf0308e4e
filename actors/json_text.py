"""JSON from strangers, read in bounded time.

A decoder makes an object for each value, whatever its size: 1 MiB of `[[],[],...]` becomes 350,000 lists, takes 70 ms
and stops the event loop for as long. Commas and opening brackets count the values before a text is decoded, at 1 GiB/s.
"""

from typing import Final

import msgspec

from .contract.plain import JSONValue

VALUES_LIMIT: Final = 100_000
"""Most values of a text, counted by commas and opening brackets: 50,000 empty lists, which take 7 ms to decode."""


ANSWER_VALUES: Final = 250_000
"""Most values of an answer of a server that the program's author has chosen; at most 35 ms."""


_FEW: Final = 20_000
"""Commas, brackets and quotes up to which nothing has to be looked at closer: 5 ms."""


class JSONTextError(ValueError):
    """The text is not JSON, or has more values than may be decoded; the text of the error follows a noun: "is ..."."""


def values_of(data: bytes) -> int:
    """Return at least the number of the values in a JSON text, less one.

    Commas and brackets inside strings count, too, in a text with many strings, where a closer look would take long. A
    text with few, such as a table of 4 MiB in one string, is counted without them.
    """
    count = _marks(data)
    if count <= _FEW:
        return count
    plain = data.replace(rb"\\", b"").replace(rb"\"", b"")
    if plain.count(b'"') > _FEW:
        return count
    return sum(map(_marks, plain.split(b'"')[::2]))


def _marks(data: bytes) -> int:
    return data.count(b",") + data.count(b"[") + data.count(b"{")


def read_json(data: bytes | str, *, most: int = VALUES_LIMIT) -> JSONValue:
    """Decode a JSON text.

    Args:
        data: the text; bytes are UTF-8.
        most: the values that it may have.

    Raises:
        JSONTextError: the text is not JSON, or has too many values; it says which, without the text.
    """
    try:
        if (count := values_of(data.encode() if isinstance(data, str) else data)) > most:
            raise JSONTextError(f"has {count:,} values; at most {most:,} are read")
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise JSONTextError(f"is not JSON: {error}") from error
