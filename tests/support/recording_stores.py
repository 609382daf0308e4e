"""Stores that tell what is written."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import greenroom as gr
from greenroom.actors.contract.claims import Claim
from greenroom.actors.contract.commits import Commit, Deliver, Receipt
from greenroom.actors.stores.postgres.store import PostgresStore

from .runs import LIVE, SERVED, Shelf, served


class Watched:
    """Notes each commit that a store has written; the first `shelf.refusals` cannot be written."""

    shelf: "WatchedShelf"

    def submit(self, claim: Claim, commit: Commit, frames: Sequence[bytes], deliver: Deliver) -> None:
        """As the store's own."""

        def settled(receipt: Receipt) -> None:
            if receipt.kind == "committed":
                self.shelf.log.append(commit)
            deliver(receipt)

        if self.shelf.refusals:
            self.shelf.refusals -= 1
            settled(Receipt(kind="failed", error=gr.StoreError("this commit cannot be written")))
        else:
            super().submit(claim, commit, frames, settled)  # type: ignore[misc]


class WatchedMemory(Watched, gr.MemoryStore):
    """Memory, watched."""


class WatchedSQLite(Watched, gr.SQLiteStore):
    """SQLite in the calling task, watched."""


class WatchedPostgres(Watched, PostgresStore):
    """PostgreSQL, watched."""


class WatchedShelf(Shelf):
    """A shelf whose stores note all commits in `log`."""

    def __init__(self, kind: str, folder: Path) -> None:
        super().__init__(kind, folder)
        self.log: list[Commit] = []
        self._ledger: WatchedMemory | None = None
        self.refusals = 0

    def open(self, **options: Any) -> gr.Store:
        """As a shelf's."""
        store: WatchedMemory | WatchedSQLite | WatchedPostgres
        if self.kind in (SERVED, LIVE):
            store = WatchedPostgres(self.url, **served(self.kind, options))
        elif self.kind == "sqlite":
            store = WatchedSQLite(self.path, writer="inline", **options)
        elif self.kind == "peers":
            self._ledger = self._ledger or WatchedMemory()
            store = self._ledger.peer(**options)
        else:
            store = self._memory or WatchedMemory(**options)
            self._memory = store
        store.shelf = self
        return store
