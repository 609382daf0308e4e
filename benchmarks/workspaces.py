"""What a worktree, a proposal and its apply cost: seconds for a folder of 1,000 files of which all change."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory

import trio

import greenroom as gr

from .harness import Benchmark, Case, Figure

FILES = 1_000


def _write(folder: Path, files: int, end: str) -> None:
    for number in range(files):
        place = folder / f"src{number % 20}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"f{number}.txt").write_text(f"line {number}\n" * 19 + end)


async def _work(place: Path, files: int) -> dict[str, float]:
    """Make a worktree, change all files, propose and apply; seconds of each."""
    _write(place / "shop", files, "last\n")
    workspaces = await gr.ext.open_workspaces([gr.ext.Workspace("shop", place / "shop")], state=place / "state")
    began = time.perf_counter()
    worktree = await workspaces.worktree("shop", "t")
    worktree_at = time.perf_counter()
    _write(worktree.path, files, "changed\n")
    change_at = time.perf_counter()
    proposal = await worktree.propose()
    proposal_at = time.perf_counter()
    if proposal is None or len(proposal.files) != files:
        raise RuntimeError("the proposal lacks files")
    result = await worktree.apply(proposal.id)
    apply_at = time.perf_counter()
    if len(result.files) != files:
        raise RuntimeError("the apply lacks files")
    await worktree.keep_step("r", 1)
    kept_at = time.perf_counter()
    return {
        "begin": worktree_at - began,
        "propose": proposal_at - change_at,
        "apply": apply_at - proposal_at,
        "step": kept_at - apply_at,
    }


def _case() -> Case:
    def case(quick: bool) -> dict[str, float]:
        with TemporaryDirectory(prefix="greenroom-bench-") as folder:
            return trio.run(_work, Path(folder).resolve(), 10 if quick else FILES)

    return case


BENCHMARK = Benchmark(
    name="workspaces",
    about=f"a folder of {FILES:,} files of 20 lines, each changed in the worktree",
    cases={"all": _case()},
    figures=(
        Figure(key="begin", what="a worktree of a new thread", unit="s", digits=2),
        Figure(key="propose", what="snapshot and difference", unit="s", at_most=2, digits=2),
        Figure(key="apply", what="apply to the folder", unit="s", at_most=2, digits=2),
        Figure(key="step", what="files of a step, kept for forks", unit="s", at_most=2, digits=2),
    ),
)
