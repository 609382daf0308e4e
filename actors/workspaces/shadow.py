"""The copies in which runs work: one per thread, made from the folder as people see it."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import attrs
import trio

from .allowlist import DEEPEST, is_inside, is_repository, is_usable
from .blobs import blob_sizes, read_blobs
from .difference import Replacement, parse_replacements
from .errors import OutsideWorkspace, WorkspaceTooLarge
from .git import Git, Lent, find_git, init_disposable, init_shadow, lend, lent_by
from .journal import Contents, force
from .paths import Parts, look, mapped, new_file, new_link, opened_file, opened_folder, opened_root, remove_all
from .records import Move, ThreadFolder, WorktreeRecord, locked, now, scratch_folder
from .snapshots import FolderRules, FolderSnapshot, names_in, snapshot, tracked_by, walk_folder
from .walk import MOST_BYTES, MOST_NAMES
from .withheld import Withheld
from .workspace import WorkspaceRule

MOST_IN_MEMORY: Final = 64 * 1024 * 1024
"""Bytes of contents that an apply holds in memory."""
LARGE: Final = 1024 * 1024
"""Bytes from which a content becomes a file first."""
_WORK_TREE: Final = ".git"


@attrs.define(eq=False)
class Shadow:
    """A workspace's folder together with its shadow repository.

    Attributes:
        root: The folder of the user, resolved.
        state: The folder of this workspace in the state folder.
        git: Runs in the shadow repository.
        withheld: The patterns.
        rules: The rules about calls of runs that work in the folder; None for none.
        trusted: The settings of coding agents in the folder are not withheld.
        copied: Paths of folders that are ignored, and copied all the same.
        lent: What the user's repository lends.
        kept: The newest (run, step) of each thread's folder whose files are kept; see `checkpoints`.
    """

    root: Path
    state: Path
    git: Git
    withheld: Withheld
    rules: tuple[WorkspaceRule, ...] | None = None
    trusted: bool = False
    copied: tuple[Parts, ...] = ()
    lent: Lent | None = None
    kept: dict[str, tuple[str, int]] = attrs.field(factory=dict)
    _is_open: bool = attrs.field(init=False, default=False)
    _turn: trio.Lock = attrs.field(init=False, factory=trio.Lock)

    def __repr__(self) -> str:
        return f"<Shadow of {self.root.name}>"

    async def open(self) -> None:
        """Find git, and make the shadow repository if it is missing.

        Raises:
            GitUnavailable: there is no git, or it is older than 2.38.
        """
        if self._is_open:
            return
        git = await find_git(self.state)
        async with self.locked():
            self.git = attrs.evolve(git, folder=self.git.folder)
            await init_shadow(self.git)
        self._is_open = True

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Hold the lock of the workspace: runs of this process wait for their turn, others as `records.locked` says.

        Raises:
            WorkspaceBusy: another process holds the lock for a minute.
        """
        async with self._turn, locked(self.state / "lock"):
            yield

    async def refresh(self) -> None:
        """Look at the user's repository again: it may be new, gone, or have another newest commit."""
        self.lent = await lent_by(self.git, self.root)
        await lend(self.git, [self.lent.objects] if self.lent else [])

    @property
    def objects(self) -> list[Path]:
        """The folders of objects that a repository in a worktree reads from."""
        return [self.git.folder / "objects", *([self.lent.objects] if self.lent else [])]

    async def of_folder(self, *, parent: str | None, tracked: frozenset[str] = frozenset()) -> FolderSnapshot:
        """Make a commit of the user's folder as it is."""
        lent = self.lent
        tracked_names = await tracked_by(self.git, lent.index) if lent else frozenset[str]()
        rules = FolderRules(
            withheld=self.withheld, exclude=lent.exclude if lent else None, tracked=tracked_names | tracked
        )
        return await snapshot(self.git, self.root, rules, parent=parent)

    async def of_tree(self, thread: ThreadFolder, base: str) -> FolderSnapshot:
        """Make a commit of a worktree as it is, below its base."""
        return await snapshot(self.git, thread.tree, await self._tree_rules(base), parent=base)

    async def files_of_tree(self, thread: ThreadFolder, base: str) -> list[str]:
        """Return the paths of a worktree's files as a commit would have them."""
        files, _ = await walk_folder(self.git, thread.tree, await self._tree_rules(base))
        return await trio.to_thread.run_sync(lambda: [file.path for file in files])

    async def _tree_rules(self, base: str) -> FolderRules:
        """What the base has is never ignored, whatever a program writes into .gitignore."""
        exclude, tracked = self.lent.exclude if self.lent else None, await names_in(self.git, base)
        return FolderRules(withheld=self.withheld, exclude=exclude, tracked=tracked, linked=False)

    async def replacements(self, old: str, new: str) -> list[Replacement]:
        """Return the paths in which two trees differ."""
        words = ("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-ext-diff", old, new)
        _, output = await self.git.run(*words)
        return await trio.to_thread.run_sync(parse_replacements, output)

    async def names(self, commit: str) -> frozenset[str]:
        """Return the paths of a commit."""
        return await names_in(self.git, commit)

    async def tree_with(self, base: str, lines: Iterable[str]) -> str:
        """Return the tree of a commit with other versions of some paths, as lines for `update-index --index-info`."""
        async with scratch_folder(self.git.folder, "index-") as scratch:
            index = scratch / "index"
            await self.git.run("read-tree", base, index=index)
            await self.git.run("update-index", "-z", "--index-info", data=os.fsencode("".join(lines)), index=index)
            return await self.git.line("write-tree", index=index)

    @asynccontextmanager
    async def contents(self, replacements: Sequence[Replacement]) -> AsyncIterator[Contents]:
        """Read the contents of both versions of each path, for as long as the block runs.

        Small ones are read into memory, up to 64 MiB together: as files they would cost most of the time of an apply.
        """
        sizes = await blob_sizes(self.git, replacements)
        texts, large = await trio.to_thread.run_sync(_split, sizes)
        async with scratch_folder(self.state, "contents-") as folder:
            for digest in large:
                await self.git.save_blob(digest, folder / digest)
            yield Contents(await read_blobs(self.git, texts), folder)

    async def check_out(self, tree: str, folder: Path) -> None:
        """Write the files of a tree below a new folder."""
        await trio.to_thread.run_sync(lambda: folder.mkdir(parents=True))
        async with scratch_folder(self.git.folder, "index-") as scratch:
            index = scratch / "index"
            await self.git.run("read-tree", tree, index=index)
            await self.git.run("checkout-index", "-q", f"--prefix={folder}/", "-a", index=index, tree=folder)


async def make_tree(shadow: Shadow, thread: ThreadFolder, base: str, files: str | None = None) -> None:
    """Make the worktree of a thread.

    Args:
        shadow: The workspace.
        thread: The folder of the thread.
        base: The commit at which the repository in the worktree begins.
        files: The commit whose files the worktree gets; None for the base.
    """
    scratch = thread.folder / "tree.new"
    await trio.to_thread.run_sync(lambda: shutil.rmtree(scratch, ignore_errors=True))
    await shadow.check_out(files or base, scratch)
    for parts in shadow.copied:
        await trio.to_thread.run_sync(copy_folder, shadow.root, scratch, parts, shadow.withheld)
    await trio.to_thread.run_sync(os.rename, scratch, thread.tree)
    await make_repository(shadow, thread, base)


async def make_repository(shadow: Shadow, thread: ThreadFolder, base: str) -> None:
    """Give the worktree a new repository: `git status` there shows what is pending, and `git log` the history."""
    scratch = thread.folder / "repository.new"
    await trio.to_thread.run_sync(lambda: shutil.rmtree(scratch, ignore_errors=True))
    fresh = scratch / _WORK_TREE
    fresh.mkdir(parents=True)
    await init_disposable(shadow.git, fresh, shadow.objects, base)

    def exchange() -> None:
        with opened_root(thread.tree) as root:
            remove_all(root, (_WORK_TREE,))
            os.rename(fresh, _WORK_TREE, dst_dir_fd=root)
        scratch.rmdir()

    await trio.to_thread.run_sync(exchange)


async def move_tree(
    shadow: Shadow, thread: ThreadFolder, record: WorktreeRecord, *, base: str, move: Move
) -> WorktreeRecord:
    """Give the worktree another base, and the files of another tree; what is ignored stays.

    The record says first what is about to happen, so that `finish_move` can end a move that a crash has cut short.
    """
    record = attrs.evolve(record.with_base(base, move=move), used=now())
    await trio.to_thread.run_sync(thread.save, record)
    return await finish_move(shadow, thread, record)


async def finish_move(shadow: Shadow, thread: ThreadFolder, record: WorktreeRecord) -> WorktreeRecord:
    """Do what remains of a move."""
    if record.move is None:
        return record
    old, new = record.move.old, record.move.new
    replacements = await shadow.replacements(old, new)
    async with shadow.contents(replacements) as contents:
        await trio.to_thread.run_sync(force, thread.tree, replacements, contents)
    await make_repository(shadow, thread, record.base)
    record = attrs.evolve(record, move=None)
    await trio.to_thread.run_sync(thread.save, record)
    return record


def remove_withheld(tree: Path, withheld: Withheld) -> list[str]:
    """Remove what a program has put under a withheld name in a worktree, ignored folders included; return the paths.

    Raises:
        WorkspaceTooLarge: the worktree has more than 250,000 names.
    """
    withheld_paths = list[str]()
    with opened_root(tree) as root:
        for parts, entry in _everything(root, ()):
            path = "/".join((*parts, entry))
            if withheld.has(path) and not withheld.has("/".join(parts)):  # not what lies in a withheld folder
                withheld_paths.append(path)
        for path in withheld_paths:
            remove_all(root, tuple(path.split("/")))
    return withheld_paths


def copy_folder(source: Path, target: Path, parts: Parts, withheld: Withheld) -> None:
    """Copy a folder of the user's into a worktree: files, and links that stay inside; nothing that is withheld.

    A folder that is not there is left out.

    Raises:
        WorkspaceTooLarge: it has more than 250,000 names or 2 GiB.
    """
    size = 0
    with opened_root(source) as old, opened_root(target) as new:
        for folder, name in _everything(old, parts):
            if withheld.has("/".join((*folder, name))) or not is_usable(name):
                continue
            size += _copy_one(old, new, folder, name)
            if size > MOST_BYTES:
                raise WorkspaceTooLarge(f"copy={'/'.join(parts)!r} has more than {MOST_BYTES:,} bytes, the limit")


def _copy_one(old: int, new: int, parts: Parts, name: str) -> int:
    """Copy one file or link, unless it is there already; return its size."""
    path = "/".join((*parts, name))
    with opened_folder(old, parts) as source:
        facts = look(source, name)
        if facts is None or stat.S_ISDIR(facts.st_mode):
            return 0
        with opened_folder(new, parts, make=True) as target, mapped(path):
            if look(target, name) is not None:
                return 0
            if stat.S_ISLNK(facts.st_mode):
                text = os.readlink(name, dir_fd=source)
                if is_inside(text, parts):
                    new_link(target, name, text)
            elif stat.S_ISREG(facts.st_mode):
                with (
                    opened_file(source, name, path) as content,
                    new_file(target, name, mode=stat.S_IMODE(facts.st_mode), executable=False) as copy,
                ):
                    shutil.copyfileobj(content, copy, 1 << 20)
    return facts.st_size


def _everything(root: int, start: Parts) -> Iterable[tuple[Parts, str]]:
    """Yield (folder, name) of all that is below a folder, a folder before what it has; no link is followed."""
    names, todo = 0, [start]
    while todo:
        parts = todo.pop()
        try:
            with opened_folder(root, parts) as folder, os.scandir(folder) as entries:
                members = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        except OutsideWorkspace:
            continue
        names += len(members)
        if names > MOST_NAMES:
            raise WorkspaceTooLarge(f"a folder has more than {MOST_NAMES:,} names, the limit of a walk")
        for name, is_folder in members:
            if not is_repository(name):
                yield parts, name
                if is_folder and len(parts) < DEEPEST:
                    todo.append((*parts, name))


def _split(sizes: Mapping[str, int]) -> tuple[list[str], list[str]]:
    """Return which contents are read into memory, the smallest first, and which become files."""
    texts, large, total = list[str](), list[str](), 0
    for digest, size in sorted(sizes.items(), key=lambda item: item[1]):
        total += size
        (texts if size < LARGE and total <= MOST_IN_MEMORY else large).append(digest)
    return texts, large
