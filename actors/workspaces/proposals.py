"""Proposals: what a worktree has changed, as one immutable difference with an id."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import attrs
import trio

from .difference import ChangedFile, parse_difference, proposal_id
from .errors import UnknownProposal
from .records import OpenProposal, ThreadFolder, WorktreeRecord, now
from .shadow import Shadow
from .snapshots import commit_of
from .walk import LeftOut

MOST_TEXT: Final = 1024 * 1024
"""Bytes of a difference as text; the counts and the apply are of the whole."""
_PLAIN: Final = ("--no-ext-diff", "--no-textconv", "--no-color", "--find-renames", "-l400")


@attrs.frozen(kw_only=True)
class Proposal:
    """What a worktree has changed since its base.

    Attributes:
        id: A digest of both trees and of what is left out: the same id is the same difference.
        base, target: The commits between which it is the difference.
        files: What it changes, by path.
        left_out: What the worktree has, and the proposal has not.
        text: The difference as git prints it, redacted, at most 1 MiB.
        truncated: The text is cut.
    """

    id: str
    base: str
    target: str
    files: tuple[ChangedFile, ...]
    left_out: tuple[LeftOut, ...] = ()
    text: str = ""
    truncated: bool = False


async def propose(
    shadow: Shadow, thread: ThreadFolder, record: WorktreeRecord, redact: Callable[[str], str]
) -> Proposal | None:
    """Make a proposal of what a worktree has changed; None if it has changed nothing."""
    present = await shadow.of_tree(thread, record.base)
    if present.tree == await shadow.git.line("rev-parse", f"{record.base}^{{tree}}"):
        return None
    left_out = [(one.path, one.reason) for one in present.left_out]
    base_tree = await shadow.git.line("rev-parse", f"{record.base}^{{tree}}")
    name = proposal_id(base_tree, present.tree, left_out)
    text, truncated = await shadow.git.head(
        "diff-tree", "-r", "-p", *_PLAIN, record.base, present.commit, most=MOST_TEXT
    )
    files = await changed_files(shadow, record.base, present.commit)
    shown = await trio.to_thread.run_sync(lambda: redact(text.decode("utf-8", "replace")))
    await keep(shadow, thread, present.commit)
    opened = {**record.proposals, name: OpenProposal(base=record.base, target=present.commit)}
    await trio.to_thread.run_sync(thread.save, attrs.evolve(record, proposals=opened, used=now()))
    return Proposal(
        id=name,
        base=record.base,
        target=present.commit,
        files=tuple(files),
        left_out=present.left_out,
        text=shown,
        truncated=truncated,
    )


async def changed_files(shadow: Shadow, base: str, target: str) -> list[ChangedFile]:
    """Return what differs between two commits, renames present."""
    words = ("diff-tree", "-r", "-z", "--raw", "--numstat", *_PLAIN, base, target)
    _, output = await shadow.git.run(*words)
    return await trio.to_thread.run_sync(parse_difference, output)


def check_paths(files: Iterable[ChangedFile], paths: Iterable[str]) -> dict[str, ChangedFile]:
    """Return the files of a difference by path.

    Raises:
        UnknownProposal: the difference has no file of such a path.
    """
    by_path = {file.path: file for file in files}
    for path in paths:
        if path not in by_path:
            raise UnknownProposal(f"the proposal changes no file {path!r:.300}; it changes {', '.join(by_path):.1000}")
    return by_path


async def keep(shadow: Shadow, thread: ThreadFolder, commit: str) -> None:
    """Keep a commit for as long as the thread's worktree: the clean-up of the shadow repository passes it over."""
    await shadow.git.run("update-ref", f"refs/greenroom/{thread.folder.name}/{commit}", commit)


async def part_of(shadow: Shadow, proposal: OpenProposal, paths: tuple[str, ...]) -> str:
    """Return the commit that has only some files of a proposal changed; a renamed file takes its former path along.

    Raises:
        UnknownProposal: the proposal changes no file of such a path.
    """
    files = check_paths(await changed_files(shadow, proposal.base, proposal.target), paths)
    names = {name for path in paths for name in (path, files[path].from_path)}
    lines = [
        f"{one.new.mode} {one.new.digest}\t{one.path}\0" if one.new else f"0 {'0' * 40}\t{one.path}\0"
        for one in await shadow.replacements(proposal.base, proposal.target)
        if one.path in names
    ]
    tree = await shadow.tree_with(proposal.base, lines)
    return await commit_of(shadow.git, tree, proposal.base)
