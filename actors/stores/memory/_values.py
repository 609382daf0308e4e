"""The stored values in memory."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Sequence
from itertools import islice

from ...stored_values import StoredValue, ValueWrite
from ..common._paging import values_page


class ValueTable:
    """The values of all spaces. Each change is one synchronous stretch."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str], StoredValue] = {}
        self._names: defaultdict[str, list[str]] = defaultdict(list)
        self._revision = 0

    def __repr__(self) -> str:
        return f"<ValueTable: {len(self._values)} values>"

    def page(self, space: str, after: str, limit: int) -> Sequence[StoredValue]:
        """Return a page of the values of a space."""
        names = self._names.get(space, [])
        later = islice(names, bisect_right(names, after), None)
        return values_page((self._values[space, name] for name in later), limit)

    def set(self, writes: Sequence[ValueWrite]) -> bool:
        """Write values, or none if one is not at its expected revision."""
        if any(self._revision_of(write) != write.expected for write in writes):
            return False
        for space, name, value, before in writes:
            if value is None:
                del self._values[space, name]
                names = self._names[space]
                del names[bisect_left(names, name)]
                continue
            self._revision += 1
            self._values[space, name] = StoredValue(name=name, value=value, revision=self._revision)
            if not before:
                insort(self._names[space], name)
        return True

    def _revision_of(self, write: ValueWrite) -> int:
        value = self._values.get((write.space, write.name))
        return 0 if value is None else value.revision
