"""What the tools of a workspace tell the followers of a run: reads, proposals, and what became of these."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from ...contract.envelope import timestamp
from ...contract.plain import JSONObject
from ...errors import ToolError
from ...tools.context import ToolContext
from ..difference import ChangedFile
from ..proposals import Proposal
from ..records import ApplyResult, now
from .context import worktree_of

MOST_FILES: Final = 200
"""Files of a proposal that a model reads about, and that events of its apply name."""
_EVENT_BYTES: Final = 40_000
"""Bytes of the paths that the event of a difference names, about: a note has at most 64 KiB."""
_LEFT_OUT_BYTES: Final = 10_000


async def propose(ctx: ToolContext[Any]) -> Proposal | None:
    """Propose what the worktree of a call has changed, and show the difference to the followers of the run.

    Raises:
        ToolError: the run works in no workspace, or nothing is reported of the call any more.
        WorkspaceError: as `Worktree.propose`.
    """
    proposal = await worktree_of(ctx).propose()
    if proposal is None:
        return None
    artifact = None
    if proposal.text and ctx.task_id is None:
        with suppress(ToolError):  # the run has as many artifacts as a run may have; the event has the counts
            artifact = (await ctx.artifact(f"{proposal.id}.diff", proposal.text, kind="diff")).artifact_id or None
    files, is_whole = _shown_files(proposal.files)
    left_out = [{"path": one.path, "reason": one.reason} for one in proposal.left_out]
    await _note(
        ctx,
        "run.diff.ready",
        proposal=proposal.id,
        base=proposal.base,
        target=proposal.target,
        files=files,
        summary=summary_of(proposal.files),
        truncated=proposal.truncated or not is_whole,
        left_out=_within(left_out, _LEFT_OUT_BYTES),
        artifact=artifact,
    )
    paths = [file.path for file in proposal.files]
    await _note(ctx, "run.patch.proposed", proposal=proposal.id, files=_named(paths), status="proposed")
    return proposal


async def report_apply(ctx: ToolContext[Any], result: ApplyResult, *, some: bool) -> None:
    """Report the end of an apply; `some`: of some files of the proposal."""
    kind = "run.patch.applied" if result.status == "applied" else "run.patch.conflicted"
    status = "partly_applied" if some and result.status == "applied" else result.status
    await _note(
        ctx,
        kind,
        proposal=result.proposal,
        files=_named(result.files),
        status=status,
        conflicts=_named(result.conflicts),
    )
    for proposal in result.discarded:
        await _note(ctx, "run.patch.discarded", proposal=proposal, files=[], status="discarded")


async def report_read(ctx: ToolContext[Any], path: str, *, size: int, lines: int) -> None:
    """Report that a call has read a file, and how many lines of it."""
    path = "/".join(worktree_of(ctx).files.parts(path))
    read_at = timestamp(datetime.fromtimestamp(now(), UTC))
    await _note(ctx, "run.file.read", path=path, read_at=read_at, bytes=size, lines=lines)


async def _note(ctx: ToolContext[Any], kind: str, **fields: object) -> None:
    """Note an event, unless the call is a background task, of which a run tells its end only."""
    if ctx.task_id is None:
        await ctx.reports.note(kind, **fields)


def summary_of(files: Sequence[ChangedFile]) -> str:
    """Return the counts of a difference, such as "2 files: +3 -1"."""
    added, removed = sum(file.added for file in files), sum(file.removed for file in files)
    return f"{len(files):,} file{'s' * (len(files) != 1)}: +{added} -{removed}"


def _shown_files(files: Sequence[ChangedFile]) -> tuple[list[JSONObject], bool]:
    """Return the first files as an event has them, and whether these are all."""
    facts = _within([_file_facts(file) for file in files], _EVENT_BYTES)
    return facts, len(facts) == len(files)


def _file_facts(file: ChangedFile) -> JSONObject:
    facts = {
        "path": file.path,
        "change": file.change,
        "fromPath": file.from_path,
        "mode": file.mode,
        "added": file.added,
        "removed": file.removed,
        "binary": file.binary or None,
    }
    return {name: value for name, value in facts.items() if value is not None}


def _within(facts: Iterable[JSONObject], most: int) -> list[JSONObject]:
    """Return the first facts that have at most `most` characters together; each counts 80 beside its texts."""
    shown = list[JSONObject]()
    for one in facts:
        most -= 80 + sum(len(value.encode()) for value in one.values() if isinstance(value, str))
        if most < 0:
            break
        shown.append(one)
    return shown


def _named(paths: Sequence[str]) -> list[str]:
    return [str(one["path"]) for one in _within([{"path": path} for path in paths[:MOST_FILES]], _EVENT_BYTES // 2)]
