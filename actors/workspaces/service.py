"""The workspaces of a process: `open_workspaces`, and what a runtime asks of them."""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import trio
from typing_extensions import override

from ..abc import Surroundings
from ..contract.plain import JSONObject
from ..contract.preparation import Preparation
from ..contract.rows import RunInfo
from ..contract.secrets.redaction import Redactor
from ..contract.stepwise import drained
from ..errors import PreparationError, UsageError
from .allowlist import find_workspace, parts_of
from .errors import OutsideWorkspace, StepFilesGone, WorkspaceError
from .git import Git
from .paths import replace_text
from .records import ThreadFolder, key_of
from .retention import KEPT_BYTES, KEPT_FOR, forget, idle_threads, remove_unused
from .shadow import Shadow
from .withheld import withhold
from .workspace import Workspace
from .worktree import Worktree, WorktreeState

MOST_NAMED: Final = 20
"""Paths of withheld and of removed files that `run.started` names."""


@attrs.define(eq=False)
class Workspaces(Surroundings):
    """The workspaces of a process, by name; made by `open_workspaces`, for `open_runtime(workspaces=...)`.

    Attributes:
        place: A name for this machine and state folder: worktrees are here and nowhere else.
    """

    place: str
    _shadows: dict[str, Shadow]
    _roots: tuple[str, ...]
    _redact: Callable[[str], str]

    def __repr__(self) -> str:
        return f"<Workspaces: {', '.join(sorted(self._shadows))}>"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the workspaces."""
        return tuple(sorted(self._shadows))

    @override
    async def open(self) -> Mapping[str, str]:
        return dict.fromkeys(self._shadows, self.place)

    @override
    def check(self, workspace: str) -> str | None:
        try:
            find_workspace(workspace, self._shadows)
        except OutsideWorkspace as error:
            return str(error)
        return None

    @override
    async def prepare(self, info: RunInfo) -> Preparation:
        doubts = dict[str, str]()
        fork_of = None if info.forked_from is None else (info.forked_from, info.forked_step or 0)
        try:
            worktree = self.find(info.workspace or "", info.thread_id)
            try:
                state = await worktree.begin(run_id=info.run_id, fork_of=fork_of)
            except StepFilesGone as error:
                doubts["files_gone"] = str(error)
                state = await worktree.begin(run_id=info.run_id)
        except WorkspaceError as error:
            raise PreparationError(error.code, str(error), reason=error.reason) from error
        return Preparation(facts=_facts(worktree, state), doubts=doubts)

    @override
    async def keep_step(self, info: RunInfo, step: int) -> None:
        worktree = self.of(info)
        if worktree is not None:
            await worktree.keep_step(info.run_id, step)

    @override
    def of(self, info: RunInfo) -> Worktree | None:
        try:
            return self.find(info.workspace or "", info.thread_id)
        except OutsideWorkspace:  # the runtime was opened with other names since
            return None

    @override
    def roots(self) -> Sequence[str]:
        return [*self._roots, *(str(shadow.root) for shadow in self._shadows.values())]

    async def worktree(self, where: str, thread_id: str, *, at: str | None = None) -> Worktree:
        """Return the worktree of a thread, ready for a run: begun, or with what is pending.

        A worktree with nothing pending gets the files of the folder of now. Withheld names are removed from it.

        Args:
            where: The name of a workspace, or a folder in it such as "shop/packages/web".
            thread_id: The thread.
            at: The target of a proposal, for a new thread: the worktree begins with its files.

        Raises:
            OutsideWorkspace: no workspace or folder has this name.
            GitUnavailable: there is no git, or it is older than 2.38.
            WorkspaceTooLarge: the folder is over a limit.
            WorkspaceBusy: another process works on the workspace for a minute.
            GitFailed: git refuses.
        """
        worktree = self.find(where, thread_id)
        await worktree.begin(at=at)
        return worktree

    def find(self, where: str, thread_id: str) -> Worktree:
        """Return the worktree of a thread as it is; no file is looked at.

        Raises:
            OutsideWorkspace: no workspace has this name.
        """
        name, inside = find_workspace(where, self._shadows)
        shadow = self._shadows[name]
        thread = ThreadFolder(shadow.state / "threads" / key_of(thread_id))
        return Worktree(shadow, thread, where, thread_id, inside, self._redact)

    @override
    async def expire(
        self, is_busy: Callable[[str], Awaitable[bool]], *, age: float = KEPT_FOR, most: int = KEPT_BYTES
    ) -> tuple[str, ...]:
        """Remove worktrees that were not used for `age` seconds, and the oldest beyond `most` bytes per workspace.

        Args:
            is_busy: Says whether a thread has a run that is not done; the worktree of such a thread stays.
            age: Seconds.
            most: Bytes.

        Returns:
            The threads whose worktrees are gone.
        """
        gone = list[str]()
        for shadow in self._shadows.values():
            for thread, record in await trio.to_thread.run_sync(idle_threads, shadow, age, most):
                if await is_busy(record.thread_id):
                    continue
                async with shadow.locked():
                    if await trio.to_thread.run_sync(remove_unused, thread, record):
                        shadow.kept.pop(thread.folder.name, None)
                        await forget(shadow, thread.folder.name)
                        gone.append(record.thread_id)
        return tuple(gone)


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
    """
    place = await trio.to_thread.run_sync(_resolved_state, Path(state))
    shadows, named = dict[str, Shadow](), tuple(workspaces)
    for workspace in named:
        if workspace.name in shadows:
            raise UsageError(f"two workspaces have the name {workspace.name!r}; give each its own")
        root, folder = await trio.to_thread.run_sync(_resolved, workspace, place)
        shadows[workspace.name] = Shadow(
            root=root,
            state=folder,
            git=Git(program="git", folder=folder / "shadow.git"),
            withheld=withhold(workspace.withhold, trusted=workspace.trusted),
            rules=workspace.rules,
            trusted=workspace.trusted,
            copied=tuple(parts_of(path) for path in workspace.copy),
        )
    name = await trio.to_thread.run_sync(_place, place)
    roots = (str(place), *(str(workspace.folder.expanduser()) for workspace in named))
    return Workspaces(name, shadows, roots, redact or partial(_redacted, Redactor()))


def _redacted(redactor: Redactor, text: str) -> str:
    """Redact in steps, because one search in a whole difference would hold the interpreter lock for too long."""
    return drained(redactor.text_steps(text))


def _facts(worktree: Worktree, state: WorktreeState) -> JSONObject:
    """Return what `run.started` says about a worktree."""
    return {
        "workspace": worktree.workspace,
        "base": state.base,
        "files": state.files,
        "pending": state.pending,
        "withheld": [one.path for one in state.withheld[:MOST_NAMED]],
        "removed": list(state.removed[:MOST_NAMED]),
        "copied": list(worktree.copied),
        "trusted": worktree.trusted,
    }


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
