"""The errors of workspaces. A tool lets them pass: the model reads their texts."""

from __future__ import annotations

from typing import ClassVar, Literal

from ..errors import ToolError


class WorkspaceError(ToolError):
    """A workspace cannot do what is asked; the text names the value and the way out.

    Attributes:
        code: The code with which a run fails that cannot begin because of the error.
        reason: One word for programs; empty if the code says all.
    """

    code: ClassVar[str] = "runtime_unavailable"
    reason: str = ""

    def __init__(self, text: str) -> None:
        super().__init__(text, run_code=self.code)


class OutsideWorkspace(WorkspaceError):
    """A path leads to nothing that a run may use. The text is the same for a missing and for a forbidden file."""

    code: ClassVar[str] = "workspace_outside_allowlist"

    def __init__(self, path: str) -> None:
        super().__init__(
            f"workspace_outside_allowlist: {path!r:.300} is not a file or folder that a run may use;"
            " give the path of one relative to the workspace"
        )
        self.path = path


class GitUnavailable(WorkspaceError):
    """There is no git that workspaces can use.

    Attributes:
        reason: "missing" (there is no program named git), or "incompatible" (the version is below `git.LEAST`).
    """

    def __init__(self, reason: Literal["missing", "incompatible"], detail: str) -> None:
        super().__init__(f"runtime_unavailable ({reason}): {detail}")
        self.reason = reason


class GitFailed(WorkspaceError):
    """A git command failed; the text has the command and the end of what git printed."""


class WorkspaceTooLarge(WorkspaceError):
    """A folder, or a file of one, is over a limit; the text names both sizes."""

    reason = "too_large"


class WorkspaceBusy(WorkspaceError):
    """Another process works on the same workspace for longer than the caller waits."""

    reason = "busy"


class UnknownProposal(WorkspaceError):
    """No proposal of the thread has this id, or this proposal has no such path."""


class StepFilesGone(WorkspaceError):
    """A fork cannot begin with the files of its step: the worktree of the run was removed, or was never here."""
