"""`workspace_tools`: the tools of an agent that works in a worktree."""

from __future__ import annotations

from typing import Any

import attrs

from ..permission.plugin import Permission
from ..tools.definition import Tool
from ..workspaces.tools.changes import change_tools
from ..workspaces.tools.files import reading_tools, writing_tools
from .shell import shell_tool


def workspace_tools(*, read: bool = True, write: bool = True, shell: bool = True) -> list[Tool[..., Any]]:
    """Return tools that work in the worktree of a run, for agents with a `Permission` among their plugins.

    An agent without one is refused when it is made, because nobody would decide what it may do.

    | tool | effect | what it does |
    |---|---|---|
    | list_files, read_file, search_files | read | look at files that are neither ignored nor withheld |
    | write_file, edit_file | write | change one file of the worktree |
    | apply_patch | patch | change files by a patch, all or none if one does not fit |
    | shell | shell | run a command, for up to 120 seconds |
    | propose_changes | read | make a proposal of what is changed |
    | apply_changes | patch | bring a proposal into the user's folder |

    Paths are relative to the folder of the run; `..`, links, devices, withheld names and all that lies outside get one
    answer, `workspace_outside_allowlist`.

    Args:
        read: With the tools that look.
        write: With the tools that change, propose and apply.
        shell: With the tool that runs commands, with the rights of this process.
    """
    looking = reading_tools() if read else []
    changing = [*writing_tools(), *change_tools()] if write else []
    running = [shell_tool()] if shell else []
    return [attrs.evolve(tool, plugin=Permission.name) for tool in (*looking, *changing, *running)]
