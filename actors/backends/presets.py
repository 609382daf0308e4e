"""The programs that are known: Claude Code, Codex, what speaks ACP, and what reads and writes text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final

import attrs
import trio

from ..errors import PreparationError
from .dialect import Dialect
from .dialects.acp import ACPDialect
from .dialects.claude import ClaudeDialect
from .dialects.codex import CodexDialect
from .dialects.plain import PlainDialect
from .probes import Releases, ask_program
from .programs import Program, words_of
from .switches import CLAUDE, CODEX, PLAIN, Switches

_CODEX_KEYS: Final = ("OPENAI_API_KEY", "CODEX_API_KEY", "CODEX_ACCESS_TOKEN")
_PROVIDER: Final = re.compile(r"^\s*model_providers?\b", re.MULTILINE)
_MOST_CONFIG: Final = 256 * 1024


def _not_logged_in(name: str, way: str) -> PreparationError:
    return PreparationError("runtime_unavailable", f"{name} is not logged in: {way}", reason="not_logged_in")


@attrs.frozen(kw_only=True, eq=False)
class Claude(Program):
    """Claude Code. It asks before each call, reads and the calls of its sub-agents included.

    Settings of the folder are not read (`--setting-sources user`), because they make the program run commands unasked;
    CLAUDE.md and AGENTS.md come with the instructions.
    """

    switches: ClassVar[Switches] = CLAUDE
    # the hooks of the control channel, which hold each call, are older than 2.0; how much older was not tried
    releases: ClassVar[Releases | None] = Releases(least=(2, 0), tried=((2, 1, 330), (2, 1, 332)))
    reads: ClassVar[tuple[str, ...]] = ("CLAUDE.md", "AGENTS.md")
    command: tuple[str, ...] = attrs.field(default=("claude",), converter=words_of)
    name: str = "claude"

    def dialect(self) -> Dialect:
        """Return a new conversation."""
        return ClaudeDialect((*self.command, *self.args))

    async def check_login(self, argv: tuple[str, ...], variables: dict[str, str]) -> None:
        """Ask `claude auth status`, which knows keys in the environment, too."""
        _, output = await ask_program((*argv, "auth", "status"), variables)
        try:
            status = json.loads(output)
        except (ValueError, RecursionError):
            return  # another release says it in other words; then the program itself says so when it works
        if isinstance(status, dict) and status.get("loggedIn") is False:
            raise _not_logged_in(self.name, "execute `claude auth login`, or pass_env=['ANTHROPIC_API_KEY']")


@attrs.frozen(kw_only=True, eq=False)
class Codex(Program):
    """Codex. It asks before each command and each patch."""

    switches: ClassVar[Switches] = CODEX
    # older ones speak the app-server's protocol, too; how much older was not tried
    releases: ClassVar[Releases | None] = Releases(least=(0, 100), tried=((0, 169, 0), (0, 169, 0)))
    keeps_unfinished: ClassVar[bool] = True
    command: tuple[str, ...] = attrs.field(default=("codex",), converter=words_of)
    name: str = "codex"

    def dialect(self) -> Dialect:
        """Return a new conversation."""
        return CodexDialect((*self.command, *self.args))

    async def check_login(self, argv: tuple[str, ...], variables: dict[str, str]) -> None:
        """Ask `codex login status`, which knows neither keys in the environment nor other providers."""
        if any(variables.get(name) for name in _CODEX_KEYS) or any("model_provider" in word for word in self.args):
            return
        home = variables.get("CODEX_HOME") or f"{variables.get('HOME', '')}/.codex"
        if _PROVIDER.search(await trio.to_thread.run_sync(_beginning, Path(home, "config.toml"))):
            return
        end, output = await ask_program((*argv, "login", "status"), variables)
        if end.code and "not logged in" in f"{output} {end.errors}".lower():
            raise _not_logged_in(self.name, "execute `codex login`, or pass_env=['CODEX_API_KEY']")


@attrs.frozen(eq=False)
class Acp(Program):
    """A program that speaks the Agent Client Protocol, version 1. Programs differ in what they ask.

    Attributes:
        command: The words that start the program, such as ["qwen", "--acp"].
    """

    command: tuple[str, ...] = attrs.field(converter=words_of, kw_only=False)
    name: str = attrs.field(default="acp", kw_only=True)

    def dialect(self) -> Dialect:
        """Return a new conversation."""
        return ACPDialect((*self.command, *self.args))


@attrs.frozen(eq=False)
class GeminiCLI(Acp):
    """Gemini CLI. It asks before edits and commands, not before reads."""

    releases: ClassVar[Releases | None] = Releases(least=(0, 30), tried=((0, 61, 0), (0, 61, 0)))
    command: tuple[str, ...] = attrs.field(default=("gemini", "--acp"), converter=words_of, kw_only=False)
    name: str = attrs.field(default="gemini", kw_only=True)


@attrs.frozen(eq=False)
class OpenCode(Acp):
    """OpenCode. By itself it asks about almost nothing; its environment here tells it to ask about everything."""

    releases: ClassVar[Releases | None] = Releases(least=(1, 0), tried=((1, 18, 34), (1, 18, 34)))
    command: tuple[str, ...] = attrs.field(default=("opencode", "acp"), converter=words_of, kw_only=False)
    name: str = attrs.field(default="opencode", kw_only=True)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        name = "OPENCODE_CONFIG_CONTENT"
        try:
            config = json.loads(self.env.get(name, "{}"))
        except (ValueError, RecursionError) as error:
            raise self._fault(f"env={{{name!r}: ...}}): this is not JSON ({error})") from None
        if not isinstance(config, dict) or config.get("permission", "ask") != "ask":
            raise self._fault(f"env={{{name!r}: ...}}): its permission is 'ask', so that rules decide; leave it out")
        object.__setattr__(self, "env", {**self.env, name: json.dumps({**config, "permission": "ask"})})


@attrs.frozen(eq=False)
class Plain(Program):
    """A program that reads a prompt on its standard input and writes a text. It asks nothing.

    Attributes:
        command: The words that start the program.
        unattended: True says that the program may do in its folder what it likes, without a question.

    Raises:
        AgentDefinitionError: `unattended` is not True.
    """

    switches: ClassVar[Switches] = PLAIN
    command: tuple[str, ...] = attrs.field(converter=words_of, kw_only=False)
    name: str = attrs.field(default="plain", kw_only=True)
    unattended: bool = attrs.field(default=False, kw_only=True)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if self.unattended is not True:
            raise self._fault("...): this program asks nothing before it acts; if it may, say so with unattended=True")

    def dialect(self) -> Dialect:
        """Return a new conversation."""
        return PlainDialect((*self.command, *self.args))

    def doubts(self) -> Mapping[str, str]:
        """Return that nobody is asked and little is known."""
        return {
            "not_asked": f"{self.name} asks nothing before it acts",
            "little_evidence": f"{self.name} does not say what it does: its text and what it has changed are known",
        }


def _beginning(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(_MOST_CONFIG)
    except OSError:
        return ""
