"""State keys in the memory store: per key the newest value of each step that wrote it, in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from ...contract.state import StateWrite


class KeyVersion(NamedTuple):
    """A write of a run (by its number) at a step."""

    run: int
    step: int
    write: StateWrite


class StateHistory:
    """The keys of one scope: of a run, or of a thread."""

    def __init__(self) -> None:
        self._entries: dict[str, list[KeyVersion]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._entries.values()))

    def put(self, entry: KeyVersion) -> None:
        """Add the newest write; it replaces a write of the same run to the key at the same step."""
        entries = self._entries.setdefault(entry.write.key, [])
        if entries and entries[-1][:2] == entry[:2]:
            entries.pop()
        entries.append(entry)

    def newest(self, run: int) -> Iterator[StateWrite]:
        """Yield the newest value of each key, with revisions as that run sees them."""
        for entries in self._entries.values():
            yield _as_known(entries[-1], run)

    def at(self, run: int, step: int) -> Iterator[StateWrite]:
        """Yield the values as of the end of a run's step, including earlier values of other runs.

        One run at a time works on a thread, in the order of their numbers.
        """
        for entries in self._entries.values():
            versions = (
                version
                for version in reversed(entries)
                if version.run < run or (version.run == run and version.step <= step)
            )
            if (newest := next(versions, None)) is not None:
                yield _as_known(newest, run)

    def forget(self, oldest: int | None) -> None:
        """Drop the values that no run can read if `oldest` is the oldest remaining run; None: no run remains.

        Each run reads its own writes, and of earlier writes only the newest.
        """
        for key, entries in self._entries.items():
            before = sum(1 for version in entries if oldest is None or version.run < oldest)
            self._entries[key] = entries[max(0, before - 1) :]


def in_order(writes: Iterable[StateWrite]) -> tuple[StateWrite, ...]:
    """Return the writes ordered by scope and name."""
    return tuple(sorted(writes, key=lambda write: (write.scope, write.key)))


def _as_known(entry: KeyVersion, run: int) -> StateWrite:
    return entry.write if entry.run == run else replace(entry.write, revision=0)
