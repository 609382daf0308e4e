"""Exit codes for shells and CI jobs."""

from __future__ import annotations

from typing import Final

COMPLETED: Final = 0
FAILED: Final = 1
USAGE: Final = 2
WAITING: Final = 3
CANCELLED: Final = 4
STORE: Final = 5
UNREAD: Final = 141
INTERRUPTED: Final = 130
"""128 + SIGINT, as in shells. UNREAD: 128 + SIGPIPE."""

MEANINGS: Final = {
    COMPLETED: "completed; for serve: stopped in order; for a command to a run: accepted",
    FAILED: "failed; for a command to a run: not accepted",
    USAGE: "wrong usage: an invalid option, file, agent or run id",
    WAITING: "the run waits for a decision that cannot be asked for here, or for a process that works on it",
    CANCELLED: "cancelled",
    STORE: "the database cannot be used",
    UNREAD: "the reader closed the output, as in `| head`",
    INTERRUPTED: "interrupted; a run in a database can be resumed",
}
"""Exit code -> description."""


def described() -> str:
    """Return the exit codes as text for --help."""
    lines = [f"  {code:>3}  {meaning}" for code, meaning in MEANINGS.items()]
    return "\n".join(["exit codes:", *lines])
