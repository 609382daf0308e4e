"""Withheld files: secrets, and settings that make a program run code. No copy gets them, no proposal has them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import attrs

from ..errors import UsageError

SECRETS: Final = (
    ".env*", "*.pem", "*.key", "id_*", ".netrc", ".npmrc", ".pypirc", "*credentials*",
)  # fmt: skip
"""Files that commonly hold keys."""
SETTINGS: Final = (
    ".claude/settings*.json", ".claude/hooks/", ".mcp.json", ".codex/", ".opencode/", "opencode.json*", ".kilo*/",
    ".gemini/", ".qwen/", ".cursor/mcp.json", ".cursor/hooks.json",
)  # fmt: skip
"""Settings from which coding agents start hooks, plugins and MCP servers unasked."""
_MOST_PATTERNS: Final = 200
_LONGEST_PATTERN: Final = 200


@attrs.frozen
class Withheld:
    """Patterns of withheld files.

    A pattern is compared with the components of a path, from any folder on: `.env*` is a name at any depth,
    `.claude/hooks/` two names in a row. `*` and `?` do not cross a slash, and letters of both cases are equal. All that
    lies below a matching folder is withheld, too.

    Attributes:
        patterns: The patterns, at most 200 of at most 200 characters.

    Raises:
        UsageError: a pattern is empty, absolute or too long, or there are too many.
    """

    patterns: tuple[str, ...] = attrs.field(default=SECRETS + SETTINGS)

    def __attrs_post_init__(self) -> None:
        if len(self.patterns) > _MOST_PATTERNS:
            raise UsageError(f"withhold: {len(self.patterns)} patterns; the limit is {_MOST_PATTERNS}")
        for pattern in self.patterns:
            if not isinstance(pattern, str) or not pattern.strip("/") or pattern.startswith("/"):
                raise UsageError(f"withhold: {pattern!r:.80}: give a relative path such as '.env*' or '.codex/'")
            if len(pattern) > _LONGEST_PATTERN:
                raise UsageError(f"withhold: {pattern!r:.80}...: a pattern has at most {_LONGEST_PATTERN} characters")

    def has(self, path: str) -> bool:
        """Return True if the file or folder at a path is withheld, or lies in a withheld folder."""
        return _expression(self.patterns).search(f"/{path.casefold()}/") is not None

    def __repr__(self) -> str:
        return f"<Withheld: {len(self.patterns)} patterns>"


def withhold(secrets: Iterable[str] | None, *, trusted: bool) -> Withheld:
    """Return the patterns of a workspace: its own in place of `SECRETS` if given, and `SETTINGS` unless trusted."""
    return Withheld((*(SECRETS if secrets is None else secrets), *(() if trusted else SETTINGS)))


@lru_cache(maxsize=64)
def _expression(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """One expression for all patterns; it starts at a slash, so that a search tries the components only."""
    return re.compile("/(?:" + "|".join(map(_written, patterns)) + ")/") if patterns else re.compile(r"(?!)")


def _written(pattern: str) -> str:
    names = [part for part in pattern.casefold().split("/") if part not in {"", "."}]
    return "/".join(map(_glob, names))


def _glob(name: str) -> str:
    """Write the glob of one component. The texts between two stars are atomic groups: each is searched once."""
    first, *others = [re.escape(text).replace(r"\?", "[^/]") for text in name.split("*")]
    if not others:
        return first
    *inner, last = others
    return first + "".join(f"(?>[^/]*?{text})" for text in inner if text) + f"[^/]*{last}"
