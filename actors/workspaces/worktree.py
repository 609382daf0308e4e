"""`Worktree`: the copy of a workspace in which the runs of one thread work."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import trio

from .apply import apply, find_open, recover
from .checkpoints import END, find_step, has_step, keep_step
from .errors import OutsideWorkspace, StepFilesGone, WorkspaceError
from .files import Files
from .paths import Parts
from .proposals import Proposal, changed_files, check_paths, keep, propose
from .records import ApplyResult, Move, ThreadFolder, WorktreeRecord, now, request_of
from .shadow import Shadow, finish_move, make_tree, move_tree, remove_withheld
from .snapshots import commit_of
from .walk import LeftOut
from .withheld import Withheld
from .workspace import WorkspaceRule


@attrs.frozen(kw_only=True)
class WorktreeState:
    """The state of a worktree when a run begins.

    Attributes:
        base: The commit from which the difference is counted.
        commit: The files that it has, as a commit below the base.
        pending: The worktree has changes that are not applied; otherwise it has the files of the folder of now.
        files: How many files it has.
        withheld: What the folder has, and the worktree does not get.
        removed: Paths of withheld names that were in the worktree.
    """

    base: str
    commit: str
    pending: bool
    files: int
    withheld: tuple[LeftOut, ...] = ()
    removed: tuple[str, ...] = ()


@attrs.define(eq=False)
class Worktree:
    """The copy of a workspace in which the runs of one thread work; a run has it as `ctx.workspace`.

    Attributes:
        workspace: The name of the workspace, and the folder in it.
        thread_id: The thread.
    """

    _shadow: Shadow
    _thread: ThreadFolder
    workspace: str
    thread_id: str
    _inside: Parts
    _redact: Callable[[str], str]

    def __repr__(self) -> str:
        return f"<Worktree of {self.workspace!r} for thread {self.thread_id!r}>"

    @property
    def name(self) -> str:
        """The name of the workspace, without the folder in it."""
        return self.workspace.split("/", maxsplit=1)[0]

    @property
    def path(self) -> Path:
        """The folder in which programs start."""
        return self._thread.tree.joinpath(*self._inside)

    @property
    def withheld(self) -> Withheld:
        """The names that no call may touch."""
        return self._shadow.withheld

    @property
    def rules(self) -> tuple[WorkspaceRule, ...] | None:
        """The rules about calls of runs that work in the folder; None for none."""
        return self._shadow.rules

    @property
    def copied(self) -> tuple[str, ...]:
        """The ignored folders of the workspace that the worktree has all the same."""
        return tuple("/".join(parts) for parts in self._shadow.copied)

    @property
    def trusted(self) -> bool:
        """The settings of coding agents in the folder are not withheld."""
        return self._shadow.trusted

    @property
    def files(self) -> Files:
        """The files of the worktree, for tools: paths are relative to `path`."""
        return Files(self._thread.tree, self._inside, self._shadow.withheld, self._list)

    async def begin(
        self, *, at: str | None = None, run_id: str | None = None, fork_of: tuple[str, int] | None = None
    ) -> WorktreeState:
        """Make the worktree ready for a run, as `Workspaces.worktree` says, with the errors named there.

        Args:
            at: As in `Workspaces.worktree`.
            run_id: The run, whose steps can be forked then.
            fork_of: A run and one of its steps, for a new thread: the worktree begins with the files of that step.

        Raises:
            StepFilesGone: the files of the step are gone; without `fork_of` the worktree begins with those of now.
        """
        await self._shadow.open()
        async with self._locked() as record:
            if record is None and fork_of is not None:
                at = await self._files_of(*fork_of)
            state = await (self._make(at) if record is None else self._continue(record, run_id))
            if run_id is not None:
                await self._note_run(run_id, state.commit)
        if not await self.files.has_folder("."):
            raise OutsideWorkspace(self.workspace)
        return state

    async def keep_step(self, run_id: str, step: int) -> None:
        """Keep the files as they are now as those of the end of a run's step, unless its files are kept already.

        Call it before the files change in the next step, so that a fork of the step can begin with them. Costs nothing
        if it was called for the step before.

        Raises:
            WorkspaceTooLarge: the worktree is over a limit.
            GitFailed: git refuses.
        """
        if self._shadow.kept.get(self._thread.folder.name) == (run_id, step):
            return
        async with self._locked() as record:
            if not await has_step(self._shadow, self._thread, run_id, step):
                present = await self._shadow.of_tree(self._thread, _begun(record).base)
                await keep_step(self._shadow, self._thread, run_id, step, present.commit)
            self._shadow.kept[self._thread.folder.name] = run_id, step

    async def remove_withheld(self) -> tuple[str, ...]:
        """Remove what a program has put under a withheld name, before the next program starts; return the paths.

        Raises:
            WorkspaceTooLarge: the worktree has too many names.
        """
        async with self._locked():
            return tuple(await trio.to_thread.run_sync(remove_withheld, self._thread.tree, self._shadow.withheld))

    async def propose(self) -> Proposal | None:
        """Return what the worktree has changed, as a proposal; None if it has changed nothing.

        Raises:
            WorkspaceTooLarge: the worktree is over a limit.
            GitFailed: git refuses.
        """
        async with self._locked() as record:
            return await propose(self._shadow, self._thread, _begun(record), self._redact)

    async def check_proposal(self, proposal: str, paths: Sequence[str] | None = None) -> None:
        """Check that a proposal, or some of its files, can be applied, or was applied: before people are asked.

        Raises:
            UnknownProposal: no proposal of this id is open, or it has no such path.
        """
        record = _begun(await trio.to_thread.run_sync(self._thread.load))
        if request_of(proposal, None if paths is None else tuple(paths)) in record.results:
            return
        opened = find_open(record, proposal)
        if paths is not None:
            check_paths(await changed_files(self._shadow, opened.base, opened.target), paths)

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
        record = _begun(await trio.to_thread.run_sync(self._thread.load))
        return await self._shadow.files_of_tree(self._thread, record.base)

    async def reset(self) -> None:
        """Drop all that is pending: the worktree gets the files of the folder of now. What is ignored stays."""
        async with self._locked() as record:
            present = await self._shadow.of_tree(self._thread, _begun(record).base)
            await self._follow(_begun(record), present.tree)

    @asynccontextmanager
    async def _locked(self) -> AsyncIterator[WorktreeRecord | None]:
        """Hold the lock of the workspace, with everything ended that a crash has cut short."""
        async with self._shadow.locked():
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
        commit = at or await commit_of(shadow.git, f"{base}^{{tree}}", base)
        return WorktreeState(base=base, commit=commit, pending=at is not None, files=current.files, withheld=left_out)

    async def _continue(self, record: WorktreeRecord, run_id: str | None) -> WorktreeState:
        shadow, thread = self._shadow, self._thread
        removed = await trio.to_thread.run_sync(remove_withheld, thread.tree, shadow.withheld)
        present = await shadow.of_tree(thread, record.base)
        if record.run_id not in (None, run_id):
            await keep_step(shadow, thread, record.run_id, END, present.commit)
        if present.tree != await shadow.git.line("rev-parse", f"{record.base}^{{tree}}"):
            await trio.to_thread.run_sync(thread.save, attrs.evolve(record, used=now()))
            pending, base, commit, files = True, record.base, present.commit, present.files
        else:
            pending, (base, files) = False, await self._follow(record, present.tree)
            commit = await commit_of(shadow.git, f"{base}^{{tree}}", base)
        return WorktreeState(base=base, commit=commit, pending=pending, files=files, removed=tuple(removed))

    async def _note_run(self, run_id: str, commit: str) -> None:
        """Note that a run begins, with the files that are those of its step 0."""
        record = _begun(await trio.to_thread.run_sync(self._thread.load))
        if record.run_id != run_id:
            await keep_step(self._shadow, self._thread, run_id, 0, commit)
            await trio.to_thread.run_sync(self._thread.save, attrs.evolve(record, run_id=run_id))

    async def _files_of(self, run_id: str, step: int) -> str:
        """Return the commit of the files of a run's step."""
        place = await find_step(self._shadow, run_id, step)
        if place is None:
            raise StepFilesGone(f"the files of step {step} of run {run_id} are gone; a worktree is kept for 7 days")
        if place.commit is not None:
            return place.commit
        thread = ThreadFolder(self._shadow.state / "threads" / place.key)
        record = await finish_move(self._shadow, thread, _begun(await trio.to_thread.run_sync(thread.load)))
        return (await self._shadow.of_tree(thread, record.base)).commit

    async def _follow(self, record: WorktreeRecord, present: str) -> tuple[str, int]:
        """Give the worktree the files of the folder of now; return the new base and the number of files.

        `present`: the tree that it has.
        """
        shadow, thread = self._shadow, self._thread
        current = await shadow.of_folder(parent=shadow.lent.commit if shadow.lent else None)
        await keep(shadow, thread, current.commit)
        move = Move(old=present, new=current.tree)
        await move_tree(shadow, thread, record, base=current.commit, move=move)
        return current.commit, current.files


def _begun(record: WorktreeRecord | None) -> WorktreeRecord:
    if record is None:
        raise WorkspaceError("the worktree of this thread was removed; begin it again with workspaces.worktree(...)")
    return record


def _make_room(thread: ThreadFolder) -> None:
    """Remove what a worktree that was never finished has left, or one whose record is gone."""
    shutil.rmtree(thread.tree, ignore_errors=True)
    thread.folder.mkdir(parents=True, exist_ok=True)
