"""Withheld files: secrets, and settings that make a program run code. No worktree gets them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

SECRETS: Final = (
    ".env*",
    "*.pem",
    "*.key",
    "id_*",
    ".netrc",
    ".npmrc",
    ".pypirc",
    "*credentials*",
)
"""Names of secret files, as patterns: `*` stands for any characters of one name."""
SETTINGS: Final = (
    ".claude/settings*.json",
    ".claude/hooks/",
    ".mcp.json",
    ".codex/",
    ".opencode/",
    "opencode.json*",
    ".kilo*/",
    ".gemini/",
    ".qwen/",
    ".cursor/mcp.json",
    ".cursor/hooks.json",
)
"""Settings with which a folder makes a coding agent run hooks, plugins and MCP servers; a slash ends a folder."""
WITHHELD: Final = SECRETS + SETTINGS


class WithheldFiles:
    """The withheld files of a workspace. A pattern holds at every depth, and for everything below a name it matches.

    Upper and lower case are the same, because they are to some file systems.

    Args:
        patterns: names and relative paths, as in `WITHHELD`.
    """

    def __init__(self, patterns: Iterable[str] = WITHHELD) -> None:
        self.patterns = tuple(patterns)
        names = "|".join(_expression(pattern.lower().rstrip("/")) for pattern in self.patterns)
        self._search = re.compile(rf"(?:\A|/)(?:{names})(?:/|\Z)", re.DOTALL).search if names else None

    def __repr__(self) -> str:
        return f"WithheldFiles({list(self.patterns)!r})"

    def __contains__(self, path: str) -> bool:
        """Return True if the path, relative or absolute with slashes, is withheld."""
        return self._search is not None and self._search(path.lower()) is not None


def _expression(pattern: str) -> str:
    return "[^/]*".join(map(re.escape, pattern.split("*")))
