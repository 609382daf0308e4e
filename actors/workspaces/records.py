"""What the state folder keeps of a workspace, and the lock under which it changes.

STATE/NAME-DIGEST/                  one workspace
    lock                            held while anything below changes
    shadow.git/                     all versions
    journal.json                    an apply that has not ended
    threads/KEY/record.json, tree/  one thread: what is known, and its worktree
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Literal

import attrs
import msgspec
import trio

from .errors import WorkspaceBusy, WorkspaceError
from .paths import replace_text

PATIENCE: Final = 60.0
"""Seconds to wait for another process that works on the same workspace."""
_POLL: Final = 0.02
MOST_RESULTS: Final = 64
"""Results of applies that a record keeps for repetitions."""


@attrs.frozen(kw_only=True)
class ApplyResult:
    """The end of an apply.

    Attributes:
        proposal: The id.
        status: "applied"; or "conflicted": the workspace is unchanged, and the worktree has the merge with its
            conflict markers.
        files: The paths that were replaced.
        conflicts: The paths that a person has changed meanwhile in another way.
        discarded: The other proposals of the thread, which had the same base and can be applied no more.
    """

    proposal: str
    status: Literal["applied", "conflicted"]
    files: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    discarded: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class OpenProposal:
    """A proposal as the record keeps it: the commits between which it is the difference."""

    base: str
    target: str


@attrs.frozen(kw_only=True)
class Move:
    """A change of a worktree that has begun: from the files of one tree to those of another."""

    old: str
    new: str


@attrs.frozen(kw_only=True)
class WorktreeRecord:
    """What is known of a thread's worktree.

    Attributes:
        thread_id: The thread.
        base: The commit from which the worktree's difference is counted.
        proposals: By id, those that can be applied; all start from `base`.
        results: By request, the newest last.
        move: A move that has not ended.
        run_id: The newest run that has begun in it; None: it was used without a run.
        used: Wall time in seconds of the newest use.
    """

    thread_id: str
    base: str
    proposals: dict[str, OpenProposal] = attrs.field(factory=dict)
    results: dict[str, ApplyResult] = attrs.field(factory=dict)
    move: Move | None = None
    run_id: str | None = None
    used: float = 0.0

    def with_base(self, base: str, *, move: Move | None = None) -> WorktreeRecord:
        """Return the record with another base. Proposals from the former one can no longer be applied."""
        return attrs.evolve(self, base=base, proposals={}, move=move)

    def others(self, proposal: str) -> tuple[str, ...]:
        """Return the ids of the other proposals."""
        return tuple(name for name in self.proposals if name != proposal)

    def with_result(self, request: str, result: ApplyResult) -> WorktreeRecord:
        """Return the record with the result of a request, of the newest 64."""
        results = {**{key: value for key, value in self.results.items() if key != request}, request: result}
        return attrs.evolve(self, results=dict(list(results.items())[-MOST_RESULTS:]))


@attrs.frozen
class ThreadFolder:
    """The folder of a thread in the state folder."""

    folder: Path

    @property
    def tree(self) -> Path:
        """The worktree. Its path stays the same, because programs find their sessions by it."""
        return self.folder / "tree"

    def load(self) -> WorktreeRecord | None:
        """Return the record; None if there is none.

        Raises:
            WorkspaceError: the file is damaged.
        """
        path = self.folder / "record.json"
        try:
            return msgspec.json.decode(path.read_bytes(), type=WorktreeRecord)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise WorkspaceError(f"{path.name} of a worktree is damaged ({error}); remove its folder") from error

    def save(self, record: WorktreeRecord) -> None:
        """Write the record: durable when this returns."""
        self.folder.mkdir(parents=True, exist_ok=True)
        replace_text(self.folder / "record.json", msgspec.json.encode(record).decode())


def key_of(thread_id: str) -> str:
    """Return the name of a thread's folder."""
    return hashlib.sha256(thread_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def request_of(proposal: str, paths: tuple[str, ...] | None) -> str:
    """Return a digest of what an apply was asked for."""
    return hashlib.sha256(msgspec.json.encode([proposal, paths and sorted(paths)])).hexdigest()[:32]


def now() -> float:
    """Return the wall time in seconds, to compare with the times that other processes have written."""
    return time.time()  # noqa: TID251 - the age of a folder counts while no process lives


@asynccontextmanager
async def scratch_folder(parent: Path, prefix: str) -> AsyncIterator[Path]:
    """Make a folder for as long as the block runs."""
    name = await trio.to_thread.run_sync(lambda: tempfile.mkdtemp(dir=parent, prefix=prefix))
    try:
        yield Path(name)
    finally:
        with trio.CancelScope(shield=True):  # bounded: the files that the block has made
            await trio.to_thread.run_sync(lambda: shutil.rmtree(name, ignore_errors=True))


@asynccontextmanager
async def locked(path: Path, *, patience: float = PATIENCE) -> AsyncIterator[None]:
    """Hold the lock of a workspace, which excludes tasks of this process and of others.

    The lock ends with the process, so a killed one leaves none.

    Raises:
        WorkspaceBusy: another one holds it for longer than `patience` seconds.
        WorkspaceError: the state folder is gone, or cannot be written.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise WorkspaceError(f"the state folder of the workspaces cannot be used: {error.strerror}") from error
    try:
        with trio.move_on_after(patience) as scope:
            while not _try_lock(descriptor):  # noqa: ASYNC110 - a lock of other processes sets no event here
                await trio.sleep(_POLL)
        if scope.cancelled_caught:
            raise WorkspaceBusy(f"another process has worked on this workspace for {patience:.0f} s; try again later")
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
