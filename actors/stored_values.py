"""Values that a store keeps beside the runs: bytes under a space and a name, written by compare-and-set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import attrs

from .errors import UsageError

BYTES_LIMIT: Final = 2 * 2**20
"""Bytes of one value: twice a bundle of the configuration, the largest value there is."""
SET_LIMIT: Final = 8 * 2**20
"""Bytes of the values of one set, which is one transaction."""
WRITES_LIMIT: Final = 100
"""Writes of one set."""
PAGE_LIMIT: Final = 1_000
"""Values of one page."""
PAGE_BYTES: Final = 4 * 2**20
"""Bytes of one page: the value that reaches so many is its last one."""
NAME_LIMIT: Final = 512
"""Bytes of a name in UTF-8; an entry of an index in PostgreSQL has room for five times as many."""
_SPACE_LIMIT: Final = 64
"""Bytes of the name of a space."""


@attrs.frozen(kw_only=True)
class StoredValue:
    """A value as it is stored.

    Attributes:
        name: The name, unique in its space.
        value: The bytes.
        revision: A number of this write; no other write of the name has it, also after a removal. Never 0.
    """

    name: str
    value: bytes
    revision: int


class ValueWrite(NamedTuple):
    """One write of a set.

    Attributes:
        space: The space.
        name: The name in it.
        value: The bytes; None removes the value.
        expected: The revision that the value has now; 0: there is no value of this name.
    """

    space: str
    name: str
    value: bytes | None
    expected: int = 0


def check_writes(writes: Iterable[tuple[str, str, bytes | None, int]]) -> Sequence[ValueWrite]:
    """Return the writes of a set in the order of their spaces and names, checked.

    Raises:
        UsageError: a space, name, value or revision is invalid, a name is written twice, or a limit is exceeded.
    """
    ordered_writes = sorted((_checked(write) for write in writes), key=lambda write: write[:2])
    if not 0 < len(ordered_writes) <= WRITES_LIMIT:
        raise UsageError(f"set_values: it has {len(ordered_writes):,} writes; give 1 to {WRITES_LIMIT}")
    size = sum(len(write.value or b"") for write in ordered_writes)
    if size > SET_LIMIT:
        raise UsageError(f"set_values: the values have {size:,} bytes together; give at most {SET_LIMIT:,}")
    for one, other in pairwise(ordered_writes):
        if one[:2] == other[:2]:
            raise UsageError(f"set_values: {one.space!r} {one.name!r} is written twice; give one write for each name")
    return ordered_writes


def check_page(space: str, after: str, limit: int) -> None:
    """Check the arguments of `ValueStore.values`.

    Raises:
        UsageError: one of them is invalid.
    """
    _check_text("space", space, _SPACE_LIMIT)
    if not isinstance(after, str) or (after and not after.isprintable()):
        raise UsageError(f"values(after={after!r:.200}): give a name, or the beginning of one")
    if type(limit) is not int or not 0 < limit <= PAGE_LIMIT:
        raise UsageError(f"values(limit={limit!r:.100}): give an int from 1 to {PAGE_LIMIT:,}")


def _checked(write: tuple[str, str, bytes | None, int]) -> ValueWrite:
    space, name, value, revision = ValueWrite(*write)
    _check_text("space", space, _SPACE_LIMIT)
    _check_text("name", name, NAME_LIMIT)
    if value is not None and type(value) is not bytes:
        raise UsageError(f"set_values: {name!r}: the value is {type(value).__name__}; give bytes, or None to remove it")
    if value is not None and len(value) > BYTES_LIMIT:
        raise UsageError(f"set_values: {name!r}: the value has {len(value):,} bytes; give at most {BYTES_LIMIT:,}")
    if type(revision) is not int or revision < 0:
        raise UsageError(f"set_values: {name!r}: expected={revision!r:.100}: give a revision, or 0 for a new name")
    if value is None and revision == 0:
        raise UsageError(f"set_values: {name!r}: a name without a value cannot be removed; give its revision")
    return ValueWrite(space, name, value, revision)


def _check_text(field: str, text: object, limit: int) -> None:
    if not isinstance(text, str) or not text.isprintable() or not 0 < len(text.encode()) <= limit:
        raise UsageError(f"{field}={text!r:.200}: give 1 to {limit} printable characters")
