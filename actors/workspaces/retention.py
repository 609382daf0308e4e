"""Remove the worktrees of threads that have not worked for long, and what only they needed of the shadow repository."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from .records import ThreadFolder, WorktreeRecord, now
from .shadow import Shadow

KEPT_FOR: Final = 7 * 24 * 3_600.0
"""Seconds for which the worktree of a thread is kept after its last use."""
KEPT_BYTES: Final = 5 * 1024**3
"""Bytes of the worktrees of a workspace; beyond them the oldest are removed."""


def idle_threads(shadow: Shadow, age: float, most: int) -> list[tuple[ThreadFolder, WorktreeRecord]]:
    """Return the threads whose worktrees may go: not used for `age` seconds, and the oldest beyond `most` bytes."""
    records = list[tuple[ThreadFolder, WorktreeRecord]]()
    for folder in (shadow.state / "threads").iterdir():
        record = ThreadFolder(folder).load()
        if record is not None:
            records.append((ThreadFolder(folder), record))
    size, idle = 0, list[tuple[ThreadFolder, WorktreeRecord]]()
    for thread, record in sorted(records, key=lambda one: one[1].used, reverse=True):
        size += _size(thread.folder)
        if size > most or record.used < now() - age:
            idle.append((thread, record))
    return idle


def remove_unused(thread: ThreadFolder, record: WorktreeRecord) -> bool:
    """Remove the folder of a thread, unless it was used since the record was read; the caller holds the lock."""
    if thread.load() != record:
        return False
    shutil.rmtree(thread.folder, ignore_errors=True)
    return True


def _size(folder: Path) -> int:
    return sum(
        os.lstat(os.path.join(place, name)).st_size  # a quarter of pathlib's time, for many files
        for place, _, names in os.walk(folder)
        for name in names
    )


async def forget(shadow: Shadow, key: str) -> None:
    """Drop the versions that only a removed worktree needed."""
    _, output = await shadow.git.run("for-each-ref", "--format=delete %(refname)", f"refs/greenroom/{key}")
    await shadow.git.run("update-ref", "--stdin", data=output)
    await shadow.git.run("prune", "--expire=1.hour.ago")
