"""The arguments that switch a program's own checks off, or take its questions away: no backend passes one.

A program that does not ask leaves nothing to decide. The words are those of the programs' documentation; a word that
looks like one (bypass, yolo, full access) is refused for every program.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import attrs

_ANY: Final = re.compile(
    r"yolo|dangerous|bypass|full[-_]?auto|full[-_]?access|skip[-_]perm|allow[-_]?all|auto[-_]?(?:approve|edit|accept)"
    r"|accept[-_]?edits|dont[-_]?ask|trust[-_]?all|no[-_]?sandbox|yes[-_]?always",
    re.IGNORECASE,
)
"""What no argument of any program may contain, unless it is a path."""


@attrs.frozen(kw_only=True)
class Switches:
    """What the arguments of one program may not be.

    Attributes:
        options: Options, long and short, whatever their value: they decide what the program asks, or what it speaks.
        keys: Names of settings that `-c NAME=VALUE` would set.
    """

    options: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()

    def fault(self, args: Sequence[str]) -> str | None:
        """Return the first argument that is not allowed, or None."""
        for number, word in enumerate(args):
            name = word.partition("=")[0]
            before = args[number - 1] if number else ""
            setting = word if before in ("-c", "--config") else word.partition("=")[2] if name == "--config" else ""
            setting = setting or (word[2:] if word.startswith("-c") and not word.startswith("--") else "")
            if ("/" not in word and _ANY.search(word)) or name in self.options or self._sets(setting):
                return word
            if any(len(one) == 2 and word.startswith(one) and not word.startswith("--") for one in self.options):
                return word  # a short option with its value behind it
        return None

    def _sets(self, setting: str) -> bool:
        key = "".join(letter for letter in setting.partition("=")[0] if letter not in "\"' \t")
        return bool(key) and any(key == one or key.startswith(f"{one}.") for one in self.keys)


CLAUDE: Final = Switches(
    options=frozenset(
        (
            *("-p", "--print", "--input-format", "--output-format", "--verbose", "--include-partial-messages"),
            *("--permission-mode", "--permission-prompt-tool", "--permission-prompts", "--setting-sources"),
            *("--settings", "--strict-mcp-config", "--mcp-config", "--plugin-dir", "--plugin-url", "--agents"),
            *("--allowedTools", "--allowed-tools", "--tools", "--add-dir", "--bare", "--file", "--json-schema"),
            *("-c", "--continue", "-r", "--resume", "--session-id", "--fork-session", "--from-pr", "--teleport"),
            *("--ide", "--chrome", "--bg", "--background", "--cloud", "--desktop", "--environment", "--tmux"),
            *("--remote-control", "-w", "--worktree", "--replay-user-messages", "--include-hook-events"),
        )
    )
)
CODEX: Final = Switches(
    options=frozenset(("-a", "--ask-for-approval", "-s", "--sandbox", "-p", "--profile", "--add-dir", "-C", "--cd")),
    keys=frozenset(
        ("approval_policy", "sandbox_mode", "sandbox_workspace_write", "mcp_servers", "profile", "profiles", "notify")
    ),
)
ACP: Final = Switches(
    options=frozenset(("-y", "--approval-mode", "--allowed-tools", "--allow-tool", "--allowed-mcp-server-names"))
)
PLAIN: Final = Switches()
