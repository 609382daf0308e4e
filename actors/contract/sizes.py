"""How large a value may be that comes from outside, and what one commit may carry.

A database has limits for one message, one row and one value (SQLite and PostgreSQL about 1 GB each), and far below them
a limit of time: what takes minutes to send looks like a server that is gone. So a value is refused where it comes in,
with its size, before it is copied or encoded: an argument of a caller by an error, the result of a body, whose effect
has happened, by a failed call. The limits are the same for every store.
"""

from __future__ import annotations

from types import NoneType
from typing import Any, Final

VALUE_LIMIT: Final = 4 * 2**20
"""Bytes of one value: a tool's result, an input, a decision's arguments, a state key. The loop stands still while a
value is encoded, some milliseconds for each of its copies; a model is shown a sixteenth of it."""
ANSWER_LIMIT: Final = 3 * VALUE_LIMIT
"""Bytes of a model's answer, with what a provider wants back; the codecs read no more characters than that."""
STEP_LIMIT: Final = 8 * VALUE_LIMIT
"""Bytes of the results and state writes of all calls of one step: its end writes what they show as one commit, and a
new owner loads them together."""
COMMIT_LIMIT: Final = 16 * VALUE_LIMIT
"""Bytes of one commit: an answer is in it up to four times (row, calls, message, record), and a line of 50 Mbit/s
carries it in the ten seconds that a store waits for an answer."""

_SCALARS: Final = frozenset({int, bool, float, NoneType})
_TEXTS: Final = (str, bytes, bytearray)
_CONTAINERS: Final = (dict, list, tuple, set, frozenset)
"""As tuples, which `isinstance` takes as they are; a union would be made again for each item."""


class TooLarge(ValueError):
    """A value exceeds a limit; the text has the size, the limit and the way out."""


def too_large(size: int, limit: int = VALUE_LIMIT) -> TooLarge:
    """Return the error for a value of at least `size` bytes."""
    return TooLarge(
        f"it has {size:,} bytes or more, and at most {limit:,} are stored; give less, or the name of a file"
    )


def measured(value: object, enough: int) -> int:
    """Return the bytes of the texts in a value of plain containers; counts no further than it takes to exceed `enough`.

    Counts one byte for a character and for each item, and follows no other type.
    """
    size = 0
    waiting: list[Any] = [value]
    for part in waiting:  # the list grows meanwhile
        kind = type(part)
        if kind in _SCALARS:
            continue
        if kind is str:
            size += len(part)
        elif kind is tuple or kind is list or isinstance(part, _CONTAINERS):
            size += len(part)
            if part and size <= enough:
                waiting += part
                if isinstance(part, dict):
                    waiting += part.values()
        elif isinstance(part, _TEXTS):
            size += len(part)
        if size > enough:
            break
    return size


def oversized(value: object, limit: int = VALUE_LIMIT) -> int:
    """Return the bytes of a value, as `measured` counts them, if they exceed the limit, else 0."""
    size = measured(value, limit)
    return size if size > limit else 0
