"""The files of a worktree as they were at the end of a step, so that a fork can begin with them.

Theory of operation. A commit is made before the first call of a step that may change files, and stands for the end of
the step before. A step that changes nothing costs nothing: the files at the end of step n are those of the first
commit for a step >= n, and without one the files of now. When another run begins in the thread, a commit for the step
`END` closes the former run.
"""

from __future__ import annotations

import os
from typing import Final

import attrs

from .records import ThreadFolder, key_of
from .shadow import Shadow

END: Final = 99_999_999
"""The step of the commit with the files at the end of a run."""


@attrs.frozen(kw_only=True)
class StepFiles:
    """Where the files of a run's step are.

    Attributes:
        key: The folder of the thread in which the run has worked.
        commit: The files; None: nothing has changed them since, so the worktree has them.
    """

    key: str
    commit: str | None


async def keep_step(shadow: Shadow, thread: ThreadFolder, run_id: str, step: int, commit: str) -> None:
    """Keep a commit as the files of a step, for as long as the thread's worktree."""
    await shadow.git.run("update-ref", f"{_prefix(thread.folder.name, run_id)}/{step:08}", commit)


async def has_step(shadow: Shadow, thread: ThreadFolder, run_id: str, step: int) -> bool:
    """Return True if the files of a step are kept."""
    ref = f"{_prefix(thread.folder.name, run_id)}/{step:08}"
    code, _ = await shadow.git.run("rev-parse", "--verify", "--quiet", ref, accept=(0, 1))
    return code == 0


async def find_step(shadow: Shadow, run_id: str, step: int) -> StepFiles | None:
    """Return where the files of a step are; None if the worktree of the run is gone, or was never here."""
    words = ("for-each-ref", "--sort=refname", "--format=%(refname) %(objectname)", f"{_prefix('*', run_id)}/*")
    _, output = await shadow.git.run(*words)
    key = None
    for line in os.fsdecode(output).splitlines():
        name, commit = line.split(" ")
        *_, key, _, _, number = name.split("/")
        if int(number) >= step:
            return StepFiles(key=key, commit=commit)
    return None if key is None else StepFiles(key=key, commit=None)


def _prefix(key: str, run_id: str) -> str:
    return f"refs/greenroom/{key}/steps/{key_of(run_id)}"
