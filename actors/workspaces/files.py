"""The files of a worktree, as tools use them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import attrs
import trio

from .allowlist import parts_of
from .errors import OutsideWorkspace, WorkspaceTooLarge
from .paths import Parts, look_at, opened_root, read_file, remove_file, write_file
from .withheld import Withheld

T = TypeVar("T")

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
        return await self._use(path, partial(read_file, most=most), wait=False)

    async def write(self, path: str, content: bytes) -> None:
        """Write a file as a whole: a reader sees the former or the new content. Missing folders are made.

        Raises:
            OutsideWorkspace: a run may use no such file, or the path is a folder.
            WorkspaceTooLarge: the content has more than 8 MiB.
        """
        if len(content) > MOST_READ:
            raise WorkspaceTooLarge(f"{path!r:.300}: {len(content):,} bytes; the limit is {MOST_READ:,}")
        await self._use(path, partial(write_file, content=content))

    async def remove(self, path: str) -> None:
        """Remove a file.

        Raises:
            OutsideWorkspace: a run may use no such file.
        """
        await self._use(path, remove_file)

    async def has(self, path: str) -> bool:
        """Return True if there is a file or folder at a path; a link or a device is neither."""
        return await self._use(path, look_at) is not None

    async def has_folder(self, path: str) -> bool:
        """Return True if there is a folder at a path."""
        return await self._use(path, look_at) == "folder"

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

    async def _use(self, path: str, function: Callable[[int, Parts], T], *, wait: bool = True) -> T:
        """Call a function of `paths` in a thread; its error names the path as it was given, whatever is at fault."""
        parts = self.parts(path)

        def use() -> T:
            with opened_root(self.root) as root:
                return function(root, parts)

        try:
            return await trio.to_thread.run_sync(use, abandon_on_cancel=not wait)
        except OutsideWorkspace as error:
            raise OutsideWorkspace(path) from error
