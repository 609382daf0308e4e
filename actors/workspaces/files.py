"""The files of a worktree, as tools use them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import attrs
import trio

from .allowlist import parts_of
from .errors import OutsideWorkspace, WorkspaceTooLarge
from .paths import Parts, look_at, opened_root, read_file, remove_file, write_file
from .withheld import Withheld

MOST_READ: Final = 8 * 1024 * 1024
"""Bytes of a file that a tool reads or writes."""


@attrs.frozen
class Files:
    """The files of a worktree, by paths relative to the folder of the run.

    `..`, absolute paths, links, devices, hard links, `.git` and withheld names are refused with one text, the one for
    what is missing. Each method runs in a worker thread and is a checkpoint; a cancel does not wait for a read.

    Attributes:
        root: The worktree.
        inside: The folder of the run in it.
        withheld: The patterns.
    """

    root: Path
    inside: Parts
    withheld: Withheld
    _list: Callable[[], Awaitable[list[str]]]

    async def read(self, path: str, *, most: int = MOST_READ) -> bytes:
        """Return the content of a file.

        Raises:
            OutsideWorkspace: a run may use no such file.
            WorkspaceTooLarge: the file has more than `most` bytes.
        """
        parts = self.parts(path)
        return await trio.to_thread.run_sync(self._read, parts, most, abandon_on_cancel=True)

    async def write(self, path: str, content: bytes) -> None:
        """Write a file as a whole: a reader sees the former or the new content. Missing folders are made.

        Raises:
            OutsideWorkspace: a run may use no such file, or the path is a folder.
            WorkspaceTooLarge: the content has more than 8 MiB.
        """
        if len(content) > MOST_READ:
            raise WorkspaceTooLarge(f"{path!r:.300}: {len(content):,} bytes; the limit is {MOST_READ:,}")
        parts = self.parts(path)
        await trio.to_thread.run_sync(self._write, parts, content)

    async def remove(self, path: str) -> None:
        """Remove a file.

        Raises:
            OutsideWorkspace: a run may use no such file.
        """
        parts = self.parts(path)
        await trio.to_thread.run_sync(self._remove, parts)

    async def has(self, path: str) -> bool:
        """Return True if there is something at a path that a run may use."""
        return await trio.to_thread.run_sync(self._facts, self.parts(path)) is not None

    async def has_folder(self, path: str) -> bool:
        """Return True if a path is a folder; a link is none."""
        return await trio.to_thread.run_sync(self._facts, self.parts(path)) == "folder"

    async def names(self, path: str = ".") -> list[str]:
        """Return the paths of the files below a folder, sorted: without ignored and withheld ones.

        Raises:
            OutsideWorkspace: there is no such folder.
            WorkspaceTooLarge: the worktree is over a limit.
        """
        if not await self.has_folder(path):
            raise OutsideWorkspace(path)
        top = "".join(f"{part}/" for part in self.inside)
        below = "".join(f"{part}/" for part in self.parts(path))
        names = await self._list()
        return await trio.to_thread.run_sync(
            lambda: sorted(name.removeprefix(top) for name in names if name.startswith(below))
        )

    def parts(self, path: str) -> Parts:
        """Return the components of a path from the root of the worktree.

        Raises:
            OutsideWorkspace: the path leads out, or its name is withheld.
        """
        parts = (*self.inside, *parts_of(path))
        if self.withheld.has("/".join(parts)):
            raise OutsideWorkspace(path)
        return parts

    def _read(self, parts: Parts, most: int) -> bytes:
        with opened_root(self.root) as root:
            return read_file(root, parts, most=most)

    def _write(self, parts: Parts, content: bytes) -> None:
        with opened_root(self.root) as root:
            write_file(root, parts, content)

    def _remove(self, parts: Parts) -> None:
        with opened_root(self.root) as root:
            remove_file(root, parts)

    def _facts(self, parts: Parts) -> str | None:
        with opened_root(self.root) as root:
            return look_at(root, parts)
