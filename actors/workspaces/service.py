"""The workspaces of a process: `open_workspaces`, and the worktree of a thread in one of them."""

from __future__ import annotations

import hashlib
import os
import shutil
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import trio

from ..contract.secrets.redaction import Redactor
from ..contract.stepwise import drained
from ..errors import UsageError
from .allowlist import check_name, find_workspace, parts_of
from .apply import apply, recover
from .errors import OutsideWorkspace, WorkspaceError
from .files import Files
from .git import find_git, init_shadow
from .paths import Parts, replace_text
from .proposals import Proposal, keep, propose
from .records import ApplyResult, Move, ThreadFolder, WorktreeRecord, key_of, locked, now
from .walk import LeftOut
from .withheld import withhold
from .worktrees import Shadow, finish_move, make_tree, move_tree, remove_withheld

KEPT_FOR: Final = 7 * 24 * 3_600.0
"""Seconds for which the worktree of a thread is kept after its last use."""
KEPT_BYTES: Final = 5 * 1024**3
"""Bytes of the worktrees of a workspace; beyond them the oldest are removed."""
_MOST_COPIES: Final = 20


@attrs.frozen
class Workspace:
    """A folder that a runtime allows runs to work in, under a name.

    Attributes:
        name: 1 to 64 of a-z, 0-9, `.`, `_`, `-`, beginning with a letter or digit.
        folder: The folder; `~` is the home of the user.
        copy: Paths in it that git ignores and each worktree gets all the same, such as `node_modules`; at most 20.
        withhold: Patterns of secrets, in place of `SECRETS` (see `Withheld`); None for these.
        trusted: The settings of coding agents in the folder (`SETTINGS`) are not withheld.

    Raises:
        UsageError: the name or a pattern is invalid.
        OutsideWorkspace: a path of `copy` is invalid.
    """

    name: str
    folder: Path = attrs.field(converter=Path)
    copy: tuple[str, ...] = attrs.field(default=(), converter=tuple, kw_only=True)
    withhold: tuple[str, ...] | None = attrs.field(
        default=None, converter=attrs.converters.optional(tuple), kw_only=True
    )
    trusted: bool = attrs.field(default=False, kw_only=True)

    def __attrs_post_init__(self) -> None:
        check_name(self.name)
        withhold(self.withhold, trusted=self.trusted)
        if len(self.copy) > _MOST_COPIES or not all(parts_of(path) for path in self.copy):
            raise UsageError(f"workspace {self.name!r}: copy= takes up to {_MOST_COPIES} paths of folders in it")


@attrs.frozen(kw_only=True)
class WorktreeState:
    """The state of a worktree when a run begins.

    Attributes:
        base: The commit from which the difference is counted.
        pending: The worktree has changes that are not applied; otherwise it has the files of the folder of now.
        files: How many files it has.
        withheld: What the folder has, and the worktree does not get.
        removed: Paths of withheld names that were in the worktree.
    """

    base: str
    pending: bool
    files: int
    withheld: tuple[LeftOut, ...] = ()
    removed: tuple[str, ...] = ()


@attrs.define(eq=False)
class Workspaces:
    """The workspaces of a process, by name; made by `open_workspaces`.

    Attributes:
        place: A name for this machine and state folder: worktrees are here and nowhere else.
    """

    place: str
    _shadows: dict[str, Shadow]
    _redact: Callable[[str], str]

    def __repr__(self) -> str:
        return f"<Workspaces: {', '.join(sorted(self._shadows))}>"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the workspaces."""
        return tuple(sorted(self._shadows))

    async def worktree(self, where: str, thread_id: str, *, at: str | None = None) -> Worktree:
        """Return the worktree of a thread, ready for a run: begun, or with what is pending.

        A worktree with nothing pending gets the files of the folder of now. Withheld names are removed from it.

        Args:
            where: The name of a workspace, or a folder in it such as "shop/packages/web".
            thread_id: The thread.
            at: The target of a proposal, for a new thread: the worktree begins with its files (a fork).

        Raises:
            OutsideWorkspace: no workspace or folder has this name.
            WorkspaceTooLarge: the folder is over a limit.
            WorkspaceBusy: another process works on the workspace for a minute.
            GitFailed: git refuses.
        """
        name, inside = find_workspace(where, self._shadows)
        shadow = self._shadows[name]
        thread = ThreadFolder(shadow.state / "threads" / key_of(thread_id))
        worktree = Worktree(shadow, thread, thread_id, inside, self._redact)
        await worktree.begin(at=at)
        if not await worktree.files.has_folder("."):
            raise OutsideWorkspace(where)
        return worktree

    async def expire(
        self, busy: Collection[str] = (), *, age: float = KEPT_FOR, most: int = KEPT_BYTES
    ) -> tuple[str, ...]:
        """Remove worktrees that were not used for `age` seconds, and the oldest beyond `most` bytes per workspace.

        Args:
            busy: Threads with an open run or proposal; theirs stay.
            age: Seconds.
            most: Bytes.

        Returns:
            The threads whose worktrees are gone.
        """
        gone = list[str]()
        for shadow in self._shadows.values():
            async with locked(shadow.state / "lock"):
                removed = await trio.to_thread.run_sync(_expire, shadow, frozenset(busy), age, most)
                for key, _ in removed:
                    await _forget(shadow, key)
                gone += [thread_id for _, thread_id in removed]
        return tuple(gone)


@attrs.define(eq=False)
class Worktree:
    """The copy of a workspace in which the runs of one thread work; made by `Workspaces.worktree`.

    Attributes:
        thread_id: The thread.
        state: What it had when the run began.
    """

    _shadow: Shadow
    _thread: ThreadFolder
    thread_id: str
    _inside: Parts
    _redact: Callable[[str], str]
    state: WorktreeState = attrs.field(init=False)

    def __repr__(self) -> str:
        return f"<Worktree of {self._shadow.root.name!r} for thread {self.thread_id!r}>"

    @property
    def path(self) -> Path:
        """The folder in which programs start."""
        return self._thread.tree.joinpath(*self._inside)

    @property
    def files(self) -> Files:
        """The files of the worktree, for tools: paths are relative to `path`."""
        return Files(self._thread.tree, self._inside, self._shadow.withheld, self._list)

    async def begin(self, *, at: str | None = None) -> None:
        """Make the worktree ready for a run, as `Workspaces.worktree` says."""
        async with self._locked() as record:
            if record is None:
                self.state = await self._make(at)
            else:
                self.state = await self._continue(record)

    async def propose(self) -> Proposal | None:
        """Return what the worktree has changed, as a proposal; None if it has changed nothing.

        Raises:
            WorkspaceTooLarge: the worktree is over a limit.
            GitFailed: git refuses.
        """
        async with self._locked() as record:
            return await propose(self._shadow, self._thread, _begun(record), self._redact)

    async def apply(self, proposal: str, paths: Sequence[str] | None = None) -> ApplyResult:
        """Bring a proposal into the folder of the user, or some of its files: all or nothing.

        Delivery: exactly once. After a crash the same call goes on, or returns the result of before. With
        "conflicted" the folder is unchanged, and the worktree has the merge with conflict markers. Of files that were
        applied the worktree's next proposal has no change; the others stay pending.

        Cancellation: a checkpoint; while files are replaced a cancel waits.

        Args:
            proposal: The id. The difference that was proposed is applied, also if the worktree has changed since.
            paths: Paths of its `files`; None for all.

        Raises:
            UnknownProposal: no proposal of this id is open, or it has no such path.
            WorkspaceBusy: another process works on the workspace for a minute.
            WorkspaceError: the folder cannot be read or written, and is unchanged.
        """
        if paths is not None and not paths:
            raise WorkspaceError("paths=[] applies nothing; name files of the proposal, or leave paths out for all")
        chosen = None if paths is None else tuple(paths)
        async with self._locked() as record:
            return await apply(self._shadow, self._thread, _begun(record), proposal, chosen)

    async def _list(self) -> list[str]:
        return await self._shadow.files_of_tree(self._thread, self.state.base)

    async def reset(self) -> None:
        """Drop all that is pending: the worktree gets the files of the folder of now. What is ignored stays."""
        async with self._locked() as record:
            await self._follow(_begun(record))

    @asynccontextmanager
    async def _locked(self) -> AsyncIterator[WorktreeRecord | None]:
        """Hold the lock of the workspace, with everything ended that a crash has cut short."""
        async with locked(self._shadow.state / "lock"):
            await self._shadow.refresh()
            await recover(self._shadow)
            record = await trio.to_thread.run_sync(self._thread.load)
            yield record and await finish_move(self._shadow, self._thread, record)

    async def _make(self, at: str | None) -> WorktreeState:
        shadow, thread = self._shadow, self._thread
        lent = shadow.lent
        current = await shadow.of_folder(parent=lent.commit if lent else None)
        base = current.commit
        if at is not None:
            base = await shadow.git.line("rev-parse", "--verify", f"{at}^1^{{commit}}")
        await trio.to_thread.run_sync(_make_room, thread)
        for commit in {base, at or base}:
            await keep(shadow, thread, commit)
        await make_tree(shadow, thread, base, at)
        record = WorktreeRecord(thread_id=self.thread_id, base=base, used=now())
        await trio.to_thread.run_sync(thread.save, record)
        left_out = tuple(one for one in current.left_out if one.reason == "withheld")
        return WorktreeState(base=base, pending=at is not None, files=current.files, withheld=left_out)

    async def _continue(self, record: WorktreeRecord) -> WorktreeState:
        shadow, thread = self._shadow, self._thread
        removed = await trio.to_thread.run_sync(remove_withheld, thread.tree, shadow.withheld)
        present = await shadow.of_tree(thread, record.base)
        pending = present.tree != await shadow.git.line("rev-parse", f"{record.base}^{{tree}}")
        base, files = record.base, present.files
        if pending:
            await trio.to_thread.run_sync(thread.save, attrs.evolve(record, used=now()))
        else:
            base, files = await self._follow(record)
        return WorktreeState(base=base, pending=pending, files=files, removed=tuple(removed))

    async def _follow(self, record: WorktreeRecord) -> tuple[str, int]:
        """Give the worktree the files of the folder of now; return the new base and the number of files."""
        shadow, thread = self._shadow, self._thread
        current = await shadow.of_folder(parent=shadow.lent.commit if shadow.lent else None)
        present = await shadow.of_tree(thread, record.base)
        await keep(shadow, thread, current.commit)
        move = Move(old=present.tree, new=current.tree)
        await move_tree(shadow, thread, record, base=current.commit, move=move)
        return current.commit, current.files


async def open_workspaces(
    workspaces: Iterable[Workspace], *, state: Path | str, redact: Callable[[str], str] | None = None
) -> Workspaces:
    """Open folders in which runs may work.

    Args:
        workspaces: The folders, each under a name. What is not named is not allowed.
        state: A folder for copies and versions, outside of every workspace; made if it is missing.
        redact: Hides secrets in texts of differences; default: what `Redactor` knows.

    Raises:
        UsageError: two workspaces have one name, or the state folder lies in a workspace or the reverse.
        OutsideWorkspace: a folder is missing, or no folder.
        GitUnavailable: there is no git, or it is older than 2.38.
    """
    place = await trio.to_thread.run_sync(_resolved_state, Path(state))
    git = await find_git(place)
    shadows = dict[str, Shadow]()
    for workspace in workspaces:
        if workspace.name in shadows:
            raise UsageError(f"two workspaces have the name {workspace.name!r}; give each its own")
        root, folder = await trio.to_thread.run_sync(_resolved, workspace, place)
        shadow = Shadow(
            root=root,
            state=folder,
            git=attrs.evolve(git, folder=folder / "shadow.git"),
            withheld=withhold(workspace.withhold, trusted=workspace.trusted),
            copied=tuple(parts_of(path) for path in workspace.copy),
        )
        async with locked(folder / "lock"):
            await init_shadow(shadow.git)
        shadows[workspace.name] = shadow
    name = await trio.to_thread.run_sync(_place, place)
    return Workspaces(name, shadows, redact or partial(_redacted, Redactor()))


def _redacted(redactor: Redactor, text: str) -> str:
    """Redact in steps, because one search in a whole difference would hold the interpreter lock for too long."""
    return drained(redactor.text_steps(text))


def _begun(record: WorktreeRecord | None) -> WorktreeRecord:
    if record is None:
        raise WorkspaceError("the worktree of this thread was removed; begin it again with workspaces.worktree(...)")
    return record


def _resolved_state(state: Path) -> Path:
    state.expanduser().mkdir(parents=True, exist_ok=True, mode=0o700)
    return Path(os.path.realpath(state.expanduser()))


def _resolved(workspace: Workspace, state: Path) -> tuple[Path, Path]:
    """Return the resolved folder of a workspace, and its folder in the state folder, made."""
    root = Path(os.path.realpath(workspace.folder.expanduser()))
    if not root.is_dir():
        raise OutsideWorkspace(workspace.name)
    if state.is_relative_to(root) or root.is_relative_to(state):
        raise UsageError(f"workspace {workspace.name!r}: state={str(state)!r} and the folder must not hold each other")
    digest = hashlib.sha256(os.fsencode(root)).hexdigest()[:12]
    folder = state / f"{workspace.name}-{digest}"
    (folder / "shadow.git").mkdir(parents=True, exist_ok=True)
    (folder / "threads").mkdir(exist_ok=True)
    return root, folder


def _place(state: Path) -> str:
    path = state / "place"
    if not path.exists():
        replace_text(path, uuid.uuid4().hex)
    return path.read_text(encoding="utf-8")


def _make_room(thread: ThreadFolder) -> None:
    """Remove what a worktree that was never finished has left, or one whose record is gone."""
    shutil.rmtree(thread.tree, ignore_errors=True)
    thread.folder.mkdir(parents=True, exist_ok=True)


def _expire(shadow: Shadow, busy: frozenset[str], age: float, most: int) -> list[tuple[str, str]]:
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


async def _forget(shadow: Shadow, key: str) -> None:
    """Drop the versions that only a removed worktree needed."""
    _, output = await shadow.git.run("for-each-ref", "--format=delete %(refname)", f"refs/greenroom/{key}")
    await shadow.git.run("update-ref", "--stdin", data=output)
    await shadow.git.run("prune", "--expire=1.hour.ago")
