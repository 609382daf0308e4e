"""`StateSnapshot`: all state keys of a run at one revision. A value: who holds one never sees a later write.

Theory of operation. A writer reads a snapshot of some revision, its base, and leaves a batch. `merge` makes the next
revision of the newest snapshot and the batch. A key that nobody has written since the base is simply written
(the batch is rebased). If somebody has, an exclusive key clashes and the whole batch is refused with both writers
named; a commutative key is reduced. Nothing is ever overwritten silently.

The map is a hash array mapped trie (PyPI `immutables`): a new revision costs what changed, not the size of the map. So
does finding out what changed lately, as every commit does: the keys of the newest batches are remembered.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import attrs
from immutables import Map

from greenroom.supervision.border import failure_of_call

from ..contract.codec import failure_text
from ..contract.state import Batch, KeyId, Keys, StateWrite, Write

REMEMBERED: Final = 64
"""Batches whose keys a snapshot remembers: more than are merged between two commits of a run."""


class StateValue(NamedTuple):
    """A key's value, the revision that wrote it, whether it is for the store, and who wrote it ("" if not known)."""

    value: Any
    revision: int
    persistent: bool
    by: str


@attrs.frozen
class WriteConflict:
    """A batch can not be merged.

    Attributes:
        key: which one stands in the way.
        by: who wrote it since the batch's base; "" if that is not known any more.
        detail: one sentence.
        error: what the key's reducer raised; None if no reducer is to blame.
    """

    key: KeyId
    by: str
    detail: str
    error: BaseException | None = attrs.field(default=None, eq=False)


@attrs.frozen
class StateSnapshot:
    """State keys at a revision.

    Attributes:
        revision: counts the batches that were merged in the run.
        cells: by key.
        recent: the keys of the newest batches, the newest last.
    """

    revision: int = 0
    cells: Map[KeyId, StateValue] = attrs.field(factory=Map)
    recent: tuple[frozenset[KeyId], ...] = attrs.field(default=(), eq=False, repr=False)

    @classmethod
    def restored(cls, revision: int, writes: Iterable[StateWrite]) -> StateSnapshot:
        """The snapshot that a store has."""
        cells = {KeyId(w.scope, w.key): StateValue(w.value, w.revision, True, "") for w in writes}
        return cls(revision, Map(cells))

    def merge(self, batch: Batch, keys: Keys, by: str) -> StateSnapshot | WriteConflict:
        """This snapshot with a batch: the next revision, or why that can not be.

        Args:
            batch: from a writer that read this snapshot or an older one.
            keys: the reducers that are known.
            by: who wrote it.
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
        touched = frozenset(write.key for write in batch.writes)
        return StateSnapshot(following, cells.finish(), (*self.recent[1 - REMEMBERED :], touched))

    def changes(self, since: StateSnapshot) -> tuple[StateWrite, ...]:
        """The persistent values that were written after an older snapshot, in order of scope and name."""
        behind = self.revision - since.revision
        if behind <= 0:
            return ()
        keys = self.cells.keys() if behind > len(self.recent) else frozenset[KeyId]().union(*self.recent[-behind:])
        found = ((key, self.cells[key]) for key in keys)
        return tuple(
            StateWrite(key=key.name, scope=key.scope, value=cell.value, revision=cell.revision)
            for key, cell in sorted(found, key=lambda item: item[0])
            if cell.revision > since.revision and cell.persistent
        )


EMPTY: Final = StateSnapshot()


def _reduced(write: Write, current: object, keys: Keys, before: StateValue) -> tuple[Any] | WriteConflict:
    """The value of a key that has changed since the write's base, after the write."""
    spec = keys.get(write.key)
    writer = before.by or "an earlier write"
    if write.op == "set":
        return WriteConflict(write.key, before.by, f"state key {str(write.key)!r} was changed meanwhile by {writer}")
    if spec is None or spec.reduce is None:
        text = f"state key {str(write.key)!r} was changed meanwhile by {writer}, and its reducer is not known here"
        return WriteConflict(write.key, before.by, f"{text}; name the key in Agent(state=[...])")
    try:
        return (spec.reduce(current, write.value),)
    except BaseException as error:  # noqa: BLE001, ASYNC103 - a reducer is user code; its failure is a clash, not a crash of the run
        text = f"the reducer of state key {str(write.key)!r} failed: {failure_text(failure_of_call(error))}"
        return WriteConflict(write.key, before.by, text, error)  # noqa: ASYNC104 - the border has raised what passes
