"""Tools for what a worktree has changed: propose it, and apply the proposal once a person has agreed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from ...contract.decisions import Reject
from ...errors import ToolError
from ...plugins.contexts import GateContext
from ...plugins.guardrails import tool_input_guardrail
from ...tools.context import ToolContext
from ...tools.definition import Tool, tool
from ..proposals import Proposal
from ..records import ApplyResult
from .context import worktree_of
from .reports import MOST_FILES, propose, report_apply


def change_tools() -> list[Tool[..., Any]]:
    """Return propose_changes and apply_changes. The rules of the agent's `Permission` say whether the latter asks."""

    @tool(replay="safe", effect="read", concurrency="exclusive")
    async def propose_changes(ctx: ToolContext) -> str:
        """Propose what is changed in the workspace. The answer has the id with which `apply_changes` applies it."""
        proposal = await propose(ctx)
        return "nothing is changed" if proposal is None else _described(proposal)

    @tool_input_guardrail
    async def is_open(ctx: GateContext[Any], arguments: Mapping[str, Any]) -> Reject | None:
        """Refuse a proposal that cannot be applied before a person is asked about it."""
        try:
            await worktree_of(ctx).check_proposal(arguments["proposal"], arguments["paths"])
        except ToolError as error:
            return Reject(str(error))
        return None

    # Safe to repeat: the apply is done once, and a repeated one returns the same result.
    @tool(replay="safe", effect="patch", concurrency="exclusive", grace=30.0, input_guardrails=[is_open])
    async def apply_changes(ctx: ToolContext, proposal: str, summary: str, paths: list[str] | None = None) -> str:
        """Bring a proposal into the folder of the user, or only the files at `paths`. `summary` says what it does."""
        result = await worktree_of(ctx).apply(proposal, paths)
        await report_apply(ctx, result, some=paths is not None)
        return _ended(result)

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


_APPLIED: Final = "applied: "
_CONFLICTED: Final = "the workspace has moved, nothing is applied: "


def apply_end(text: str) -> Literal["applied", "conflicted", "refused"]:
    """Return what the text of an ended call of apply_changes says; a denial, and any other text, is "refused"."""
    return "applied" if text.startswith(_APPLIED) else "conflicted" if text.startswith(_CONFLICTED) else "refused"


def _ended(result: ApplyResult) -> str:
    if result.status == "applied":
        return f"{_APPLIED}{', '.join(result.files[:MOST_FILES]) or 'the folder has these changes already'}"
    return (
        f"{_CONFLICTED}{', '.join(result.conflicts[:MOST_FILES])}. Resolve the conflict"
        " markers in these files, then propose the changes again"
    )
