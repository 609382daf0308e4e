"""A store, and the world around it, through the death of processes: a kill leaves both as they are at that moment."""

import copy
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import trio

import greenroom as gr

from .scene_tools import Outside


class Mortal:
    """A place of storage and the world around it; a kill at any moment keeps both as they are at that moment.

    Attributes:
        on_write: called with "before_commit" and with "after_commit" of each write of the store.
        outside: what the world has seen. scope: the life that a kill ends. lives: how many have been ended so far.
    """

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.folder, self.lives = kind, folder, 0
        self.outside = Outside()
        self.on_write: Callable[[str], None] = lambda _: None
        self.store = self._open()
        self._kept: tuple[Any, Outside] | None = None
        self.scope = trio.CancelScope()

    def _open(self) -> Any:
        if self.kind == "memory":
            return gr.MemoryStore(faults=self._written)
        return gr.SQLiteStore(self._file(self.lives), writer="inline", faults=self._written)

    def _written(self, point: str) -> None:
        if point in ("before_commit", "after_commit"):
            self.on_write(point)

    def _file(self, life: int) -> Path:
        return self.folder / f"{life}.db"

    def kill(self) -> None:
        """The process dies now: what it still does on its way down is not kept."""
        if self._kept is not None:
            return
        left = None
        if self.kind == "memory":
            left = copy.deepcopy(self.store._ledger)
        else:
            for ending in ("", "-wal"):
                source = Path(f"{self._file(self.lives)}{ending}")
                if source.exists():
                    shutil.copyfile(source, f"{self._file(self.lives + 1)}{ending}")
        memos = {key: list(found) for key, found in self.outside.memos.items()}
        effects = list(self.outside.effects)
        self._kept = left, attrs.evolve(self.outside, effects=effects, memos=memos, running=[], started=[])
        self.scope.cancel()

    def reopen(self) -> bool:
        """The next process, on what the last one left. False if no process was killed."""
        self.on_write = lambda _: None
        if self._kept is None:
            return False
        (left, self.outside), self._kept = self._kept, None
        self.lives += 1
        self.scope = trio.CancelScope()
        self.store = self._open()
        if left is not None:
            self.store._ledger = left
        return True
