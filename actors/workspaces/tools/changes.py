"""Tools for what a worktree has changed: propose it, and apply the proposal once a person has agreed."""

from __future__ import annotations

from typing import Any, Final

from ...tools.context import ToolContext
from ...tools.definition import Tool, tool
from ..proposals import Proposal
from ..records import ApplyResult
from .context import worktree_of

MOST_FILES: Final = 200
"""Files of a proposal that the model reads about."""


def change_tools() -> list[Tool[..., Any]]:
    """Return propose_changes and apply_changes. The rules of the agent's `Permission` say whether the latter asks."""

    @tool(replay="safe", effect="read", concurrency="exclusive")
    async def propose_changes(ctx: ToolContext) -> str:
        """Propose what is changed in the workspace. The answer has the id with which `apply_changes` applies it."""
        proposal = await worktree_of(ctx).propose()
        return "nothing is changed" if proposal is None else _described(proposal)

    # Safe to repeat: the apply is done once, and a repeated one returns the same result.
    @tool(replay="safe", effect="patch", concurrency="exclusive", grace=30.0)
    async def apply_changes(ctx: ToolContext, proposal: str, summary: str, paths: list[str] | None = None) -> str:
        """Bring a proposal into the folder of the user, or only the files at `paths`. `summary` says what it does."""
        return _ended(await worktree_of(ctx).apply(proposal, paths))

    return [propose_changes, apply_changes]


def _described(proposal: Proposal) -> str:
    count = len(proposal.files)
    lines = [f"proposal {proposal.id}: {count:,} file{'s' * (count > 1)}"]
    for file in proposal.files[:MOST_FILES]:
        counts = "binary" if file.binary else f"+{file.added} -{file.removed}"
        origin = f" from {file.from_path}" if file.from_path else ""
        lines.append(f"{file.change} {file.path}{origin} ({counts})")
    if count > MOST_FILES:
        lines.append(f"[{count - MOST_FILES:,} more]")
    lines += [f"left out: {one.path} ({one.reason})" for one in proposal.left_out[:MOST_FILES]]
    return "\n".join(lines)


def _ended(result: ApplyResult) -> str:
    if result.status == "applied":
        return f"applied: {', '.join(result.files[:MOST_FILES]) or 'the folder has these changes already'}"
    return (
        f"the workspace has moved, nothing is applied: {', '.join(result.conflicts[:MOST_FILES])}. Resolve the conflict"
        " markers in these files, then propose the changes again"
    )
