"""Steers the processes of a shared memory store, for the store kit."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from ...abc import Store
from ...contract.codec import SCHEMA_VERSION
from ...stores.common.faults import Outage
from ...stores.memory.store import MemoryStore


class MemorySteering:
    """A `Steering` of the handles on one memory store: `open_store` gives peers, and this hampers them.

    Attributes:
        can, lease, turn, patience: as in `Steering`.
    """

    can: Collection[str] = ("freeze", "lose_hints", "lose_follow_ups", "lose_answer", "renew_epoch", "older")
    patience = 0.0

    def __init__(self, store: MemoryStore) -> None:
        """Make the steering of a store that is not open."""
        self._root = store
        self.lease, self.turn = store.times.lease, store.times.turn
        self._losing = set[MemoryStore]()
        self.open_store()

    def __repr__(self) -> str:
        """Return the store."""
        return f"<MemorySteering of {self._root!r}>"

    def open_store(self) -> MemoryStore:
        """Return another handle, whose answers can be lost."""
        handle: MemoryStore = self._root.peer(faults=lambda point: self._fault(handle, point))
        return handle

    def _fault(self, handle: MemoryStore, point: str) -> None:
        if point == "after_commit" and handle in self._losing:
            self._losing.remove(handle)
            raise Outage(ConnectionError("the answer is lost"))

    def freeze(self, store: Store) -> None:
        """See `Steering.freeze`."""
        _handle(store).freeze()

    def thaw(self, store: Store) -> None:
        """See `Steering.thaw`."""
        _handle(store).thaw()

    def lose_answer(self, store: Store) -> None:
        """See `Steering.lose_answer`."""
        self._losing.add(_handle(store))

    @contextmanager
    def lose_hints(self) -> Iterator[None]:
        """See `Steering.lose_hints`."""
        self._root.hints = lambda kind, _: 0.0 if kind == "follow_up" else None
        try:
            yield
        finally:
            self._root.hints = None

    @contextmanager
    def lose_follow_ups(self) -> Iterator[None]:
        """See `Steering.lose_follow_ups`."""
        self._root.hints = lambda kind, _: None if kind == "follow_up" else 0.0
        try:
            yield
        finally:
            self._root.hints = None

    async def renew_epoch(self) -> None:
        """See `Steering.renew_epoch`."""
        self._root.renew_epoch()

    def older(self) -> Store:
        """See `Steering.older`."""
        return self._root.peer(level=SCHEMA_VERSION - 1)


def _handle(store: Store) -> MemoryStore:
    if not isinstance(store, MemoryStore):
        raise TypeError(f"{store!r} is not a memory store")
    return store
