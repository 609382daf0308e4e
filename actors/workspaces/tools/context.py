"""The worktree in which the call of a tool works."""

from __future__ import annotations

from typing import Any

from ...errors import ToolError
from ...plugins.contexts import GateContext
from ...tools.context import ToolContext
from ..worktree import Worktree


def worktree_of(ctx: ToolContext[Any] | GateContext[Any]) -> Worktree:
    """Return the worktree of a call's run.

    Raises:
        ToolError: the run works in no workspace.
    """
    if not isinstance(ctx.workspace, Worktree):
        raise ToolError("this run works in no workspace; start it with workspace=, the name of one")
    return ctx.workspace
