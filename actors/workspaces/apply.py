"""Bring a proposal into the folder of the user: all or nothing, once, and merged with what people did meanwhile.

Theory of operation. B is the base of the proposal, T its target, C the folder as it is now. `git merge-tree` makes M,
the merge of C and T on B, without touching a file. If C and T conflict, the folder stays as it is, and the merge with
its conflict markers becomes the worktree, with C as its base: the agent resolves it and proposes again. Otherwise the
differences of C and M are replaced under a journal. A process that ends meanwhile leaves the journal, and whoever
takes the lock next goes on with it. The result is kept in the record of the thread, so a repeated apply returns it.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Final

import attrs
import trio

from .allowlist import is_usable
from .difference import Replacement
from .errors import UnknownProposal, WorkspaceError
from .journal import Contents, Journal, load_journal, perform, save_journal, with_permissions
from .proposals import keep, part_of
from .records import ApplyResult, Move, OpenProposal, ThreadFolder, WorktreeRecord, now, request_of
from .shadow import Shadow, move_tree

_ATTEMPTS: Final = 3
"""How often the merge is made again because a file has changed between the merge and its replacement."""


async def apply(
    shadow: Shadow, thread: ThreadFolder, record: WorktreeRecord, proposal: str, paths: tuple[str, ...] | None
) -> ApplyResult:
    """Apply a proposal, or some of its files; the caller holds the lock, and `recover` has ended what was open.

    A cancel has no effect while files are replaced.

    Raises:
        UnknownProposal: no proposal of this id can be applied, or it has no such path.
        WorkspaceError: the folder cannot be read or written; it is unchanged.
    """
    request = request_of(proposal, paths)
    if request in record.results:
        return record.results[request]
    open_proposal = find_open(record, proposal)
    if paths is not None:
        open_proposal = attrs.evolve(open_proposal, target=await part_of(shadow, open_proposal, paths))
    moved: tuple[str, ...] = ()
    for _ in range(_ATTEMPTS):
        current = await shadow.of_folder(parent=open_proposal.base, tracked=await _paths(shadow, open_proposal))
        merged, conflicts = await merge(shadow, current.commit, open_proposal.target)
        if conflicts:
            others = record.others(proposal)
            result = ApplyResult(proposal=proposal, status="conflicted", conflicts=conflicts, discarded=others)
            await _hand_back(shadow, thread, record.with_result(request, result), current.commit)
            return result
        moved = await _replace(shadow, thread, current.commit, merged, (request, proposal, open_proposal.target))
        if not moved:
            return _ended(thread, request)
    return ApplyResult(proposal=proposal, status="conflicted", conflicts=moved)


def find_open(record: WorktreeRecord, proposal: str) -> OpenProposal:
    """Return a proposal that can be applied.

    Raises:
        UnknownProposal: no proposal of this id can be applied.
    """
    if proposal not in record.proposals:
        raise UnknownProposal(f"no proposal {proposal!r:.80} is open in this thread; propose the changes again")
    return record.proposals[proposal]


async def recover(shadow: Shadow) -> None:
    """Go on with an apply that a crash has cut short; the caller holds the lock."""
    path = shadow.state / "journal.json"
    journal = await trio.to_thread.run_sync(load_journal, path)
    if journal is not None:
        async with shadow.contents(journal.replacements) as contents:
            await trio.to_thread.run_sync(partial(_perform, shadow, journal, contents, again=True))


async def merge(shadow: Shadow, ours: str, theirs: str) -> tuple[str, tuple[str, ...]]:
    """Return the tree of a merge, and the paths that conflict; with some, the tree has conflict markers."""
    # branches, because git writes the names of what it merges into the markers
    branches = f"update refs/heads/workspace {ours}\nupdate refs/heads/worktree {theirs}\n"
    await shadow.git.run("update-ref", "--stdin", data=branches.encode())
    words = ("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", "workspace", "worktree")
    code, output = await shadow.git.run(*words, accept=(0, 1))
    tree, *paths = os.fsdecode(output).rstrip("\0").split("\0")
    return tree, tuple(sorted(set(paths))) if code else ()


async def _paths(shadow: Shadow, proposal: OpenProposal) -> frozenset[str]:
    """The paths that a proposal changes: the folder has them, whatever its .gitignore says by now."""
    changes = await shadow.replacements(proposal.base, proposal.target)
    return frozenset(one.path for one in changes) | await shadow.names(proposal.base)


async def _hand_back(shadow: Shadow, thread: ThreadFolder, record: WorktreeRecord, current: str) -> None:
    """Make the merge with its markers the worktree, later changes in the worktree included."""
    present = await shadow.of_tree(thread, record.base)
    merged, _ = await merge(shadow, current, present.commit)
    await keep(shadow, thread, current)
    await move_tree(shadow, thread, record, base=current, move=Move(old=present.tree, new=merged))


async def _replace(
    shadow: Shadow, thread: ThreadFolder, current: str, merged: str, request: tuple[str, str, str]
) -> tuple[str, ...]:
    """Replace what differs; return the paths that have changed since, of which there are none if all is done."""
    replacements = await shadow.replacements(current, merged)
    await trio.to_thread.run_sync(_check, shadow, replacements)
    entries = await trio.to_thread.run_sync(with_permissions, shadow.root, replacements)
    await keep(shadow, thread, request[2])
    key, (name, proposal, base) = thread.folder.name, request
    journal = Journal(key=key, request=name, proposal=proposal, base=base, replacements=entries)
    async with shadow.contents(entries) as contents:
        return await trio.to_thread.run_sync(_begin, shadow, journal, contents)


def _begin(shadow: Shadow, journal: Journal, contents: Contents) -> tuple[str, ...]:
    save_journal(shadow.state / "journal.json", journal)
    return _perform(shadow, journal, contents, again=False)


def _perform(shadow: Shadow, journal: Journal, contents: Contents, *, again: bool) -> tuple[str, ...]:
    """Perform a journal, write the result into the record of the thread, and remove the journal."""
    moved = perform(shadow.root, journal.replacements, contents, again=again)
    thread = ThreadFolder(shadow.state / "threads" / journal.key)
    record = thread.load()
    if record is not None and not moved:
        files = tuple(one.path for one in journal.replacements)
        others = record.others(journal.proposal)
        result = ApplyResult(proposal=journal.proposal, status="applied", files=files, discarded=others)
        record = attrs.evolve(record.with_base(journal.base), used=now())
        thread.save(record.with_result(journal.request, result))
    os.sync()  # the files are durable before the journal goes
    (shadow.state / "journal.json").unlink()
    return moved


def _ended(thread: ThreadFolder, request: str) -> ApplyResult:
    record = thread.load()
    if record is None:
        raise WorkspaceError("the record of the worktree was removed while its proposal was applied")
    return record.results[request]


def _check(shadow: Shadow, replacements: list[Replacement]) -> None:
    """Refuse what no proposal has, whatever the objects say.

    Raises:
        WorkspaceError: a path or a link leads out of the workspace, or the file is withheld.
    """
    for one in replacements:
        parts = one.path.split("/")
        if not all(map(is_usable, parts)) or shadow.withheld.has(one.path):
            raise WorkspaceError(f"workspace_outside_allowlist: {one.path!r:.300} cannot be applied")
