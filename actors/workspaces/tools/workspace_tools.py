"""`workspace_tools`: the tools of an agent that works in a worktree."""

from __future__ import annotations

from typing import Any

from ...tools.definition import Tool
from .changes import WorktreeOf, change_tools
from .files import reading_tools, writing_tools


def workspace_tools(
    worktree_of: WorktreeOf, *, read: bool = True, write: bool = True, ask: bool = True
) -> list[Tool[..., Any]]:
    """Return tools that work in the worktree of a run.

    | tool | effect | what it does |
    |---|---|---|
    | list_files, read_file, search_files | read | look at files that are neither ignored nor withheld |
    | write_file, edit_file | write | change one file of the worktree |
    | apply_patch | patch | change files by a patch, all or none if one does not fit |
    | propose_changes | read | make a proposal of what is changed |
    | apply_changes | patch | bring a proposal into the user's folder |

    Paths are relative to the folder of the run; `..`, links, devices, withheld names and all that lies outside get one
    answer, `workspace_outside_allowlist`.

    Args:
        worktree_of: Returns the worktree of a call, such as `lambda ctx: ctx.deps`. The worktree has begun.
        read: With the tools that look.
        write: With the tools that change, propose and apply.
        ask: apply_changes needs an approval. False leaves that to the rules of a `Permission`, which asks, too, unless
            a rule allows the call.
    """
    looking = reading_tools(lambda ctx: worktree_of(ctx).files) if read else []
    changing = (
        [*writing_tools(lambda ctx: worktree_of(ctx).files), *change_tools(worktree_of, ask=ask)] if write else []
    )
    return [*looking, *changing]
