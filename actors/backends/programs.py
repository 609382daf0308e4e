"""The programs that can do the work of calls: Claude Code, Codex, what speaks ACP, and what reads and writes text."""

from __future__ import annotations

import abc
import math
import shutil
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

import attrs

from ..errors import AgentDefinitionError, ToolError
from ..tools.context import ToolContext
from ..tools.definition import Tool
from .backend import Backend
from .body import Job, work
from .clocks import ProgramLimits
from .dialect import Dialect, ProgramVerdict, Prompt
from .dialects.acp import ACPDialect
from .dialects.claude import ClaudeDialect
from .dialects.codex import CodexDialect
from .dialects.plain import PlainDialect
from .process import STOPPING, ProgramCommand, environment
from .switches import ACP, CLAUDE, CODEX, PLAIN, Switches

_SCHEMA: Final = {
    "type": "object",
    "properties": {"prompt": {"type": "string"}, "instructions": {"type": "string"}},
    "required": ["prompt"],
    "additionalProperties": False,
}


def _words(value: Iterable[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


@attrs.frozen(kw_only=True, eq=False)
class Program(Backend):
    """A program on this machine that works in a folder and asks before it acts.

    Attributes:
        command: The words that start the program.
        args: More words; none of them may switch the program's checks off.
        folder: The folder in which the program works, with its files themselves.
        model: The program's name of a model; None for its default.
        env: Variables of its environment. They are in no argument, and no event shows them.
        pass_env: Names of variables of this process that the program gets, besides PATH, HOME, LANG, LC_*, TERM,
            TMPDIR, TZ and USER.
        start: Seconds until its first output.
        idle: Seconds without output, while no question is open and no allowed call runs.
        timeout: Seconds of work for one prompt; waits for answers do not count. None: no limit.

    Raises:
        AgentDefinitionError: an argument switches checks off, or a value is invalid; names the value.
    """

    switches: ClassVar[Switches] = ACP

    command: tuple[str, ...] = attrs.field(converter=_words)
    args: tuple[str, ...] = attrs.field(default=(), converter=_words)
    folder: Path | None = attrs.field(default=None, converter=attrs.converters.optional(Path))
    model: str | None = None
    env: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    pass_env: tuple[str, ...] = attrs.field(default=(), converter=_words)
    start: float = 60.0
    idle: float = 300.0
    timeout: float | None = None
    name: str = "program"

    def __attrs_post_init__(self) -> None:
        words = (*self.command, *self.args)
        if not self.command or not all(isinstance(word, str) and word and "\0" not in word for word in words):
            raise self._fault(f"command={self.command!r:.200}, args={self.args!r:.200}: give words, none of them empty")
        switch = self.switches.fault((*self.command[1:], *self.args))
        if switch is not None:
            raise self._fault(
                f"args with {switch!r:.100}: this argument decides what the program asks or speaks, or switches its"
                " checks off, and is never passed; let rules allow what need not be asked"
            )
        for option in ("start", "idle", "timeout"):
            value = getattr(self, option)
            if value is not None and not (isinstance(value, int | float) and 0 < value < math.inf):
                raise self._fault(f"{option}={value!r:.100}: give seconds, more than 0")

    def _fault(self, what: str) -> AgentDefinitionError:
        return AgentDefinitionError(f"{type(self).__name__}({what})")

    @abc.abstractmethod
    def dialect(self) -> Dialect:
        """Return a new conversation."""

    def tool(self) -> Tool[..., Any]:
        """Return the tool whose calls let the program work."""
        return Tool.from_schema(
            self._body,
            schema=_SCHEMA,
            name=self.name,
            description=f"Let {self.name} work on a prompt.",
            effect="delegate",
            on_error="raise",
            grace=STOPPING,
        )

    async def _body(self, ctx: ToolContext[Any], arguments: dict[str, Any]) -> str:
        if self.folder is None:
            raise ToolError(f"workspace_outside_allowlist: {self.name} has no folder to work in")
        prompt = Prompt(
            text=arguments["prompt"],
            folder=str(self.folder),
            instructions=arguments.get("instructions", ""),
            model=self.model,
        )
        limits = ProgramLimits(start=self.start, idle=self.idle, work=self.timeout)
        job = Job(dialect=self.dialect(), prompt=prompt, command=partial(self._command, self.folder), limits=limits)
        return _result(await work(ctx, job))

    def _command(self, folder: Path, argv: tuple[str, ...]) -> ProgramCommand:
        variables = environment(self.pass_env, **self.env)
        program = shutil.which(argv[0], path=variables.get("PATH")) or argv[0]
        return ProgramCommand(argv=(program, *argv[1:]), folder=folder, environment=variables)


def _result(verdict: ProgramVerdict) -> str:
    match verdict.outcome:
        case "completed":
            return verdict.text
        case "failed":
            raise ToolError(f"{verdict.code}: {verdict.detail}")
        case "cancelled":
            raise ToolError("runtime_failed: the program has stopped its work by itself")


@attrs.frozen(kw_only=True, eq=False)
class Claude(Program):
    """Claude Code. It asks before each call, reads and the calls of its sub-agents included.

    Settings of the folder are not read (`--setting-sources user`): they make the program run commands unasked.
    """

    switches = CLAUDE
    command: tuple[str, ...] = attrs.field(default=("claude",), converter=_words)
    name: str = "claude"

    def dialect(self) -> Dialect:
        """Return a new conversation."""
        return ClaudeDialect((*self.command, *self.args))


@attrs.frozen(kw_only=True, eq=False)
class Codex(Program):
    """Codex. It asks before each command and each patch."""

    switches = CODEX
    command: tuple[str, ...] = attrs.field(default=("codex",), converter=_words)
    name: str = "codex"

    def dialect(self) -> Dialect:
        """Return a new conversation."""
        return CodexDialect((*self.command, *self.args))


@attrs.frozen(eq=False)
class Acp(Program):
    """A program that speaks the Agent Client Protocol, version 1. Programs differ in what they ask."""

    command: tuple[str, ...] = attrs.field(converter=_words, kw_only=False)
    name: str = attrs.field(default="acp", kw_only=True)

    def dialect(self) -> Dialect:
        """Return a new conversation."""
        return ACPDialect((*self.command, *self.args))


@attrs.frozen(eq=False)
class Plain(Program):
    """A program that reads a prompt on its standard input and writes a text. It asks nothing.

    Attributes:
        unattended: True says that the program may do in its folder what it likes, without a question.

    Raises:
        AgentDefinitionError: `unattended` is not True.
    """

    switches = PLAIN
    command: tuple[str, ...] = attrs.field(converter=_words, kw_only=False)
    name: str = attrs.field(default="plain", kw_only=True)
    unattended: bool = attrs.field(default=False, kw_only=True)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if self.unattended is not True:
            raise self._fault("...): this program asks nothing before it acts; if it may, say so with unattended=True")

    def dialect(self) -> Dialect:
        """Return a new conversation."""
        return PlainDialect((*self.command, *self.args))
