"""`StateSnapshot`: all state keys of a run at one revision. An immutable value: a holder never sees a later write.

Theory of operation. A writer reads a snapshot of some revision, its base, and returns a batch. `merge` makes the next
revision from the newest snapshot and the batch. A key without a write since the base is simply written (the batch is
rebased). A key with one is a conflict if it is exclusive: the whole batch is refused and both writers are named; a
commutative key is reduced. Nothing is ever overwritten silently.

The map is a hash array mapped trie (PyPI `immutables`): a new revision costs the size of the change, not of the map.
So does `changes`, which every commit calls: the keys of the newest batches are remembered.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import attrs
from immutables import Map

from greenroom.supervision.border import Raised, capture

from ..contract.codec import failure_text
from ..contract.state import Batch, KeyId, Keys, StateWrite, Write

REMEMBERED: Final = 64
"""Batches whose keys a snapshot remembers: more than are merged between two commits of a run."""


class StateValue(NamedTuple):
    """A key's value, the revision of its write, whether it is stored, and its writer ("" if unknown)."""

    value: Any
    revision: int
    persistent: bool
    by: str


@attrs.frozen
class WriteConflict:
    """Why a batch cannot be merged.

    Attributes:
        key: the key in conflict.
        by: its writer since the batch's base; "" if unknown.
        detail: one sentence.
        error: the exception of the key's reducer; None if no reducer failed.
    """

    key: KeyId
    by: str
    detail: str
    error: BaseException | None = attrs.field(default=None, eq=False)


@attrs.frozen
class StateSnapshot:
    """State keys at a revision.

    Attributes:
        revision: the number of batches merged in the run.
        cells: values by key.
        recent: the keys of the newest batches, the newest last.
    """

    revision: int = 0
    cells: Map[KeyId, StateValue] = attrs.field(factory=Map)
    recent: tuple[frozenset[KeyId], ...] = attrs.field(default=(), eq=False, repr=False)

    @classmethod
    def restored(cls, revision: int, writes: Iterable[StateWrite]) -> StateSnapshot:
        """Return the snapshot of stored writes."""
        cells = {KeyId(w.scope, w.key): StateValue(w.value, w.revision, True, "") for w in writes}
        return cls(revision, Map(cells))

    def merge(self, batch: Batch, keys: Keys, by: str) -> StateSnapshot | WriteConflict:
        """Return the next revision with a batch merged, or the conflict that prevents it.

        Args:
            batch: from a writer that read this snapshot or an older one.
            keys: the known reducers.
            by: the writer.
        """
        following, cells = self.revision + 1, self.cells.mutate()
        for write in batch.writes:
            before = self.cells.get(write.key)
            value: Any = write.result
            if before is not None and before.revision > batch.base:
                current = cells[write.key].value
                outcome = _reduced(write, current, keys, before)
                if isinstance(outcome, WriteConflict):
                    return outcome
                value = outcome[0]
            cells[write.key] = StateValue(value, following, write.persistent, by)
        written_keys = frozenset(write.key for write in batch.writes)
        return StateSnapshot(following, cells.finish(), (*self.recent[1 - REMEMBERED :], written_keys))

    def changes(self, since: StateSnapshot) -> tuple[StateWrite, ...]:
        """Return the persistent values written after an older snapshot, ordered by scope and name."""
        behind = self.revision - since.revision
        if behind <= 0:
            return ()
        keys = self.cells.keys() if behind > len(self.recent) else frozenset[KeyId]().union(*self.recent[-behind:])
        cells = ((key, self.cells[key]) for key in keys)
        return tuple(
            StateWrite(key=key.name, scope=key.scope, value=cell.value, revision=cell.revision)
            for key, cell in sorted(cells, key=lambda item: item[0])
            if cell.revision > since.revision and cell.persistent
        )


EMPTY: Final = StateSnapshot()


def _reduced(write: Write, current: object, keys: Keys, before: StateValue) -> tuple[Any] | WriteConflict:
    """Return the value after the write of a key that has changed since the write's base, or the conflict."""
    spec = keys.get(write.key)
    writer = before.by or "an earlier write"
    if write.op == "set":
        return WriteConflict(write.key, before.by, f"state key {str(write.key)!r} was changed meanwhile by {writer}")
    if spec is None or spec.reduce is None:
        text = f"state key {str(write.key)!r} was changed meanwhile by {writer}, and its reducer is not known here"
        return WriteConflict(write.key, before.by, f"{text}; name the key in Agent(state=[...])")
    result = capture(spec.reduce, current, write.value)
    if isinstance(result, Raised):  # which is a conflict, not a crash of the run
        text = f"the reducer of state key {str(write.key)!r} failed: {failure_text(result.error)}"
        return WriteConflict(write.key, before.by, text, result.error)
    return (result.value,)
