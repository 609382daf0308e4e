"""Remove the worktrees of threads that have not worked for long, and what only they needed of the shadow repository."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from .records import ThreadFolder, now
from .shadow import Shadow

KEPT_FOR: Final = 7 * 24 * 3_600.0
"""Seconds for which the worktree of a thread is kept after its last use."""
KEPT_BYTES: Final = 5 * 1024**3
"""Bytes of the worktrees of a workspace; beyond them the oldest are removed."""


def remove_idle(shadow: Shadow, busy: frozenset[str], age: float, most: int) -> list[tuple[str, str]]:
    """Remove folders of threads; return their (key, thread id)."""
    idle, size, removed = list[tuple[float, ThreadFolder, str]](), 0, list[tuple[str, str]]()
    for folder in (shadow.state / "threads").iterdir():
        record = ThreadFolder(folder).load()
        if record is not None and record.thread_id not in busy:
            idle.append((record.used, ThreadFolder(folder), record.thread_id))
    for used, thread, thread_id in sorted(idle, key=lambda one: one[0], reverse=True):
        size += _size(thread.folder)
        if size > most or used < now() - age:
            shutil.rmtree(thread.folder, ignore_errors=True)
            removed.append((thread.folder.name, thread_id))
    return removed


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
