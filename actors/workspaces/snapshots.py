"""Commits of folders as they are, in the shadow repository."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import trio

from .errors import WorkspaceTooLarge
from .git import Git
from .paths import Parts
from .records import scratch_folder
from .walk import (
    MOST_BYTES,
    MOST_FILES,
    MOST_NAMES,
    LeftOut,
    Level,
    WalkedFile,
    digests,
    read_level,
    store_objects,
)
from .withheld import Withheld

NO_FILES: Final[frozenset[str]] = frozenset()
MOST_LEFT_OUT: Final = 1_000
"""Files that a snapshot names as left out."""


@attrs.frozen(kw_only=True)
class FolderSnapshot:
    """A folder as it was.

    Attributes:
        commit: The commit in the shadow repository.
        tree: The tree of the commit: equal for equal files.
        files: How many files it has.
        left_out: What is part of no proposal, by path; at most 1,000.
    """

    commit: str
    tree: str
    files: int
    left_out: tuple[LeftOut, ...] = ()


@attrs.frozen(kw_only=True)
class FolderRules:
    """What a snapshot has of a folder.

    Attributes:
        withheld: The patterns of what is left out.
        exclude: A file with further patterns of ignored files: the user's `info/exclude`.
        tracked: Paths that are part of the folder though a pattern ignores them.
        linked: Files with other hard links are part of it.
    """

    withheld: Withheld
    exclude: Path | None = None
    tracked: frozenset[str] = NO_FILES
    linked: bool = True


async def snapshot(git: Git, root: Path, rules: FolderRules, *, parent: str | None) -> FolderSnapshot:
    """Make a commit of a folder as it is: no ignored file, no withheld one, nothing below `.git`.

    The commit is a function of the files and the parent. Files that change meanwhile are in it as before or as after.

    Raises:
        WorkspaceTooLarge: it has more than 50,000 files, 2 GiB, or 250,000 names with the ignored ones.
        OutsideWorkspace: the folder itself is not there, or its path leads through a link.
        GitFailed: git refuses, such as where the disk is full.
    """
    files, left_out = await walk_folder(git, root, rules)
    names = await trio.to_thread.run_sync(digests, root, files)
    missing = await _missing(git, {name for name in names if name is not None})
    again = [number for number, name in enumerate(names) if name in missing]
    stored = await trio.to_thread.run_sync(
        store_objects, root, [files[number] for number in again], git.folder / "objects"
    )
    for number, name in zip(again, stored, strict=True):  # a file that has changed since has another digest now
        names[number] = name
    lines = await trio.to_thread.run_sync(_index_lines, files, names)
    async with scratch_folder(git.folder, "index-") as folder:
        index = folder / "index"
        await git.run("update-index", "-z", "--index-info", data=lines, index=index)
        tree = await git.line("write-tree", index=index)
    commit = await commit_of(git, tree, parent)
    return FolderSnapshot(commit=commit, tree=tree, files=len(files), left_out=tuple(left_out))


async def commit_of(git: Git, tree: str, parent: str | None) -> str:
    """Return the commit of a tree below a parent; the same for the same two."""
    return await git.line("commit-tree", tree, "-m", "greenroom", *(["-p", parent] if parent else []))


async def tracked_by(git: Git, index: Path) -> frozenset[str]:
    """Return the paths in an index; empty if git cannot read it here, such as one that is split."""
    if not await trio.to_thread.run_sync(index.is_file):
        return NO_FILES
    code, output = await git.run("ls-files", "-z", index=index, accept=(0, 128))
    return await trio.to_thread.run_sync(_names, output) if code == 0 else NO_FILES


async def names_in(git: Git, commit: str) -> frozenset[str]:
    """Return the paths in a commit."""
    _, output = await git.run("ls-tree", "-r", "-z", "--name-only", commit)
    return await trio.to_thread.run_sync(_names, output)


async def walk_folder(git: Git, root: Path, rules: FolderRules) -> tuple[list[WalkedFile], list[LeftOut]]:
    """Return the files of a folder, and what is left out of it. Raises as `snapshot`."""
    files, left_out = list[WalkedFile](), list[LeftOut]()
    folders: list[Parts] = [()]
    size = names = 0
    parents = await trio.to_thread.run_sync(_parents, rules.tracked)
    while folders:
        read = partial(read_level, root, folders, rules.withheld, linked=rules.linked)
        level = await trio.to_thread.run_sync(read)
        ignored_names = await _ignored(git, root, rules, level) - rules.tracked - parents
        kept_files, folders = await trio.to_thread.run_sync(_without, level, ignored_names)
        files += kept_files
        left_out += level.left_out
        size += sum(file.size for file in kept_files)
        names += level.names
        check_limits(files=len(files), size=size, names=names)
    await trio.to_thread.run_sync(lambda: files.sort(key=lambda file: file.folder))
    left_out.sort(key=lambda one: one.path)
    return files, left_out[:MOST_LEFT_OUT]


def _without(level: Level, names: frozenset[str]) -> tuple[list[WalkedFile], list[Parts]]:
    """Return the files and folders of a level whose names (a folder's with a slash at its end) are not given."""
    files = [file for file in level.files if file.path not in names]
    return files, [parts for parts in level.folders if "/".join(parts) + "/" not in names]


def check_limits(*, files: int, size: int, names: int) -> None:
    """Raise WorkspaceTooLarge if a walk has found more than a folder may have."""
    way_out = "; let .gitignore leave out what no run needs"
    if files > MOST_FILES:
        raise WorkspaceTooLarge(f"the folder has {files:,} files or more; the limit is {MOST_FILES:,}{way_out}")
    if size > MOST_BYTES:
        raise WorkspaceTooLarge(f"the folder has {size:,} bytes or more; the limit is {MOST_BYTES:,}{way_out}")
    if names > MOST_NAMES:
        raise WorkspaceTooLarge(f"the folder has {names:,} names or more; the limit is {MOST_NAMES:,}{way_out}")


async def _ignored(git: Git, root: Path, rules: FolderRules, level: Level) -> frozenset[str]:
    """Return the names of a level that git ignores, those of folders with a slash at the end."""
    data = await trio.to_thread.run_sync(_joined, level)
    if not data:
        return NO_FILES
    config = {"core.excludesFile": str(rules.exclude or os.devnull)}
    words = ("check-ignore", "--no-index", "-z", "--stdin")
    _, output = await git.run(*words, data=data, tree=root, config=config, accept=(0, 1))
    return await trio.to_thread.run_sync(_names, output)


async def _missing(git: Git, names: set[str]) -> frozenset[str]:
    """Return the digests of which neither the shadow repository nor the user's has the object."""
    data = await trio.to_thread.run_sync(lambda: "".join(f"{name}\n" for name in sorted(names)).encode())
    _, output = await git.run("cat-file", "--batch-check=%(objectname)", "--buffer", data=data)

    def read() -> frozenset[str]:
        return frozenset(line.split()[0] for line in output.decode().splitlines() if line.endswith(" missing"))

    return await trio.to_thread.run_sync(read)


def _parents(paths: frozenset[str]) -> frozenset[str]:
    """The folders above paths, each with a slash at its end."""
    folders = set[str]()
    for path in paths:
        end = path.rfind("/")
        while end > 0 and (folder := path[: end + 1]) not in folders:
            folders.add(folder)
            end = path.rfind("/", 0, end)
    return frozenset(folders)


def _names(output: bytes) -> frozenset[str]:
    return frozenset(os.fsdecode(output).split("\0")) - {""}


def _joined(level: Level) -> bytes:
    names = [file.path for file in level.files] + ["/".join(parts) + "/" for parts in level.folders]
    return os.fsencode("\0".join(names))


def _index_lines(files: Sequence[WalkedFile], names: Sequence[str | None]) -> bytes:
    pairs = zip(files, names, strict=True)
    return b"".join(f"{file.mode} {name}\t{file.path}\0".encode() for file, name in pairs if name is not None)
