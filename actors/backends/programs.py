"""`Program`: a backend that is a program on this machine, its preparation, and its tool."""

from __future__ import annotations

import abc
import math
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

import attrs
import trio

from ..contract.codec import shortened
from ..contract.failures import FAILURES
from ..contract.parts import Part
from ..contract.preparation import Preparation
from ..contract.secrets.hidden_values import hides_key
from ..errors import AgentDefinitionError, PreparationError, ToolError
from ..state.keys import ReservedKey
from ..tools.context import ToolContext
from ..tools.definition import Tool
from ..tools.preparing import PreparationContext
from ..workspaces.errors import OutsideWorkspace, WorkspaceTooLarge
from ..workspaces.tools.reports import propose
from ..workspaces.worktree import Worktree
from .backend import Backend
from .body import Job, work
from .clocks import ProgramLimits
from .dialect import SESSION_GONE, Dialect, ProgramVerdict, Prompt
from .driver import new_parts
from .probes import Releases, Version, ask_program, refuse_failure, shown, version_in
from .process import STOPPING, ProgramCommand, ProgramGroup, end_group, environment
from .switches import ACP, Switches

SESSION: Final = ReservedKey("greenroom.program_session", dict[str, str], default={}, scope="thread")
"""The newest finished prompt of a thread: `asked`, `answered`, the program's `name`, the `folder`, and the `session`,
which is "" for a program without sessions."""
RECAP_LIMIT: Final = 8_000
"""Most characters of each text of the newest exchange."""
INSTRUCTIONS_LIMIT: Final = 64 * 1024
"""Bytes of a file of instructions that a program gets."""
CUT_OFF: Final = (
    "An earlier attempt at this was cut off when its process ended, and the folder may have some of its changes. Look"
    " first, then do what is still to be done:\n\n"
)
"""Begins the prompt of a repeated call."""
NO_FOLDER: Final = (
    "there is no folder to work in; start the run with workspace=, or give the program a folder= that exists"
)
_NOWHERE: Final = Path("/nonexistent")
_RUNNERS: Final = frozenset(("npx", "bunx", "pnpx", "uvx"))
_SCHEMA: Final = {
    "type": "object",
    "properties": {"prompt": {"type": "string"}, "instructions": {"type": "string"}},
    "required": ["prompt"],
    "additionalProperties": False,
}


def words_of(value: Iterable[str]) -> tuple[str, ...]:
    """Return words; a text is one word."""
    return (value,) if isinstance(value, str) else tuple(value)


def own_words(command: Sequence[str]) -> Sequence[str]:
    """Return the words of a command that its program reads: not the options of a runner, as in `npx -y PACKAGE`."""
    words = command[1:]
    if Path(command[0]).name not in _RUNNERS:
        return words
    return words[next((at for at, word in enumerate(words) if not word.startswith("-")), len(words)) :]


@attrs.frozen(kw_only=True, eq=False)
class Program(Backend):
    """A program on this machine that works in a folder and asks before it acts.

    In a run that works in a workspace, the folder is the worktree, and the result comes with a proposal of what the
    program has changed.

    Attributes:
        command: The words that start the program.
        args: More words; none of them may switch the program's checks off.
        name: The name of the tool.
        folder: For runs without a workspace, the folder in which the program works, with its files themselves.
        model: The program's name of a model; None for its default.
        env: Variables of its environment. They are in no argument, and no event shows them.
        pass_env: Names of variables of this process that the program gets, besides PATH, HOME, LANG, LC_*, TERM,
            TMPDIR, TZ and USER. A runtime masks their values in all that people see.
        start: Seconds until its first output.
        idle: Seconds without output, while no question is open and no allowed call runs.
        timeout: Seconds of work for one prompt; waits for answers do not count. None: no limit.

    Raises:
        AgentDefinitionError: an argument switches checks off, or a value is invalid; names the value.
    """

    proposes: ClassVar[bool] = True
    switches: ClassVar[Switches] = ACP
    releases: ClassVar[Releases | None] = None
    """The versions; None: the program is not asked for its version."""
    reads: ClassVar[tuple[str, ...]] = ()
    """Files of instructions in the folder that the program does not read itself, as it is started."""
    keeps_unfinished: ClassVar[bool] = False
    """A session can be continued whose first prompt is not finished."""

    command: tuple[str, ...] = attrs.field(converter=words_of)
    args: tuple[str, ...] = attrs.field(default=(), converter=words_of)
    name: str = "program"
    folder: Path | None = attrs.field(default=None, converter=attrs.converters.optional(Path))
    model: str | None = None
    env: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    pass_env: tuple[str, ...] = attrs.field(default=(), converter=words_of)
    start: float = 60.0
    idle: float = 300.0
    timeout: float | None = None
    _versions: dict[tuple[str, int, int], Version | None] = attrs.field(factory=dict, init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        words = (*self.command, *self.args)
        if not self.command or not all(isinstance(word, str) and word and "\0" not in word for word in words):
            raise self._fault(f"command={self.command!r:.200}, args={self.args!r:.200}: give words, none of them empty")
        switch = self.switches.fault((*own_words(self.command), *self.args))
        if switch is not None:
            raise self._fault(
                f"args with {switch!r:.100}: this argument decides what the program asks or speaks, or switches its"
                " checks off, and is never passed; let rules allow what need not be asked"
            )
        if self.folder is not None and not self.folder.is_absolute():
            raise self._fault(f"folder={str(self.folder)!r:.200}: give an absolute path, as Path(...).resolve()")
        for option in ("start", "idle", "timeout"):
            value = getattr(self, option)
            if value is not None and not (isinstance(value, int | float) and 0 < value < math.inf):
                raise self._fault(f"{option}={value!r:.100}: give seconds, more than 0")

    def _fault(self, what: str) -> AgentDefinitionError:
        return AgentDefinitionError(f"{type(self).__name__}({what})")

    @abc.abstractmethod
    def dialect(self) -> Dialect:
        """Return a new conversation."""

    async def check_login(self, argv: tuple[str, ...], variables: dict[str, str]) -> None:
        """Check that the program is logged in, as far as it says so before it works.

        Args:
            argv: The words that start the program, the first one resolved.
            variables: Its environment.

        Raises:
            PreparationError: it is not, with the way out.
        """

    def tool(self) -> Tool[..., Any]:
        """Return the tool whose calls let the program work."""
        tool = Tool.from_schema(
            self._body,
            schema=_SCHEMA,
            name=self.name,
            description=f"Let {self.name} work on a prompt.",
            effect="delegate",
            on_error="raise",
            grace=STOPPING,
        )
        values = (*(os.environ.get(name, "") for name in self.pass_env), *self._secret_values())
        return attrs.evolve(tool, secrets=tuple(value for value in values if value))

    def _secret_values(self) -> Iterator[str]:
        """Yield the values of variables whose names say that they are secret."""
        return (value for name, value in self.env.items() if hides_key(name))

    # --- the preparation ---------------------------------------------------------------------------------------------

    async def prepare(self, ctx: PreparationContext[Any]) -> Preparation:
        """Check that the program can work: its folder, its file, its version, its login.

        Raises:
            PreparationError: it cannot, with the way out.
        """
        if not self._folder_of(ctx.workspace).is_dir():
            raise PreparationError("workspace_outside_allowlist", f"{self.name}: {NO_FOLDER}")
        variables = environment(self.pass_env, **self.env)
        path = await trio.to_thread.run_sync(partial(shutil.which, self.command[0], path=variables.get("PATH")))
        if path is None:
            what = f"there is no program {self.command[0]!r} in PATH; install it, or name its path with command="
            raise PreparationError("runtime_unavailable", f"{self.name}: {what}", reason="missing")
        argv = (path, *self.command[1:])
        facts: dict[str, str] = {"program": Path(path).name}
        doubts = dict(self.doubts())
        if self.releases is not None:
            version = await self._version(argv, variables)
            facts["version"] = shown(version) if version else "unknown"
            doubt = self.releases.doubt(self.name, version) if version else f"{self.name} does not say its version"
            doubts |= {} if doubt is None else {"untested_version": doubt}
        await self.check_login(argv, variables)
        return Preparation(facts={self.name: facts}, doubts=doubts)

    def doubts(self) -> Mapping[str, str]:
        """Return what is doubtful about the work of the program: reason -> sentence."""
        return {}

    async def _version(self, argv: tuple[str, ...], variables: dict[str, str]) -> Version | None:
        """Return the version, asked for once for each file: some programs take seconds to say it."""
        facts = await trio.to_thread.run_sync(os.stat, argv[0])
        key = (argv[0], facts.st_mtime_ns, facts.st_size)
        if key not in self._versions:
            end, output = await ask_program((*argv, "--version"), variables)
            refuse_failure(self.name, end)
            self._versions.clear()
            self._versions[key] = version_in(output)
        return self._versions[key]

    def _folder_of(self, workspace: object) -> Path:
        if isinstance(workspace, Worktree):
            return workspace.path
        return self.folder or _NOWHERE

    # --- the work ----------------------------------------------------------------------------------------------------

    async def _body(self, ctx: ToolContext[Any], arguments: dict[str, Any]) -> dict[str, Any]:
        worktree = ctx.workspace if isinstance(ctx.workspace, Worktree) else None
        folder, memo, newest = self._folder_of(worktree), ctx.memo or {}, ctx.state[SESSION]
        if not folder.is_dir():
            raise ToolError(f"{self.name}: {NO_FOLDER}", run_code="workspace_outside_allowlist")
        if memo:
            await self._end_former(memo)
        if worktree is not None:
            await worktree.remove_withheld()
        text = f"{CUT_OFF}{arguments['prompt']}" if memo else arguments["prompt"]
        parts = self._taken(new_parts(await ctx.messages(), self.name))
        prompt = Prompt(
            text=text,
            folder=str(folder),
            instructions=await self._instructions(ctx, folder, arguments.get("instructions", "")),
            session=self._session(newest, memo, str(folder)),
            recap=_recap(newest),
            model=self.model,
            parts=parts,
        )
        if prompt.session is None:
            prompt = attrs.evolve(prompt, text="\n\n".join(part for part in (prompt.recap, text) if part))
        verdict, session = await self._work(ctx, prompt)
        if verdict.code == SESSION_GONE:
            verdict, session = await self._work(
                ctx, attrs.evolve(prompt, session=None, text=f"{prompt.recap}\n\n{text}")
            )
        answer = _text(verdict)
        facts = {"name": self.name, "folder": str(folder), "session": session}
        exchange = {"asked": shortened(arguments["prompt"], RECAP_LIMIT), "answered": shortened(answer, RECAP_LIMIT)}
        ctx.state.set(SESSION, {**facts, **exchange})
        proposal = await propose(ctx) if worktree is not None else None
        return {"text": answer, "proposal": None if proposal is None else proposal.id}

    async def _work(self, ctx: ToolContext[Any], prompt: Prompt) -> tuple[ProgramVerdict, str]:
        mark = secrets.token_hex(16)
        job = Job(
            name=self.name,
            dialect=self.dialect(),
            prompt=prompt,
            command=partial(self._command, Path(prompt.folder)),
            limits=ProgramLimits(start=self.start, idle=self.idle, work=self.timeout),
            mark=mark,
        )
        await ctx.save({"mark": mark})  # before the program is there, so that none is unknown to the next owner
        return await work(ctx, job)

    def _taken(self, parts: Sequence[Part]) -> tuple[Part, ...]:
        """Return the images and files of a prompt.

        Raises:
            ToolError: the program cannot get one of them.
        """
        dialect = self.dialect()
        for part in parts:
            if not dialect.takes(part):
                way = "put the file where the program can read it, and name its path in the text"
                raise ToolError(f"{self.name} does not take this {part.type} ({part.line()}); {way}")
        return tuple(parts)

    async def _end_former(self, memo: Mapping[str, str]) -> None:
        """End the program of an attempt whose owner is gone or frozen: two programs would work in one folder."""
        survivors = await end_group(ProgramGroup(pid=0, mark=memo["mark"]))
        if survivors:
            raise ToolError(f"the program of an earlier attempt does not end: processes {survivors}; end them first")

    def _session(self, newest: Mapping[str, str], memo: Mapping[str, str], folder: str) -> str | None:
        """Return the session to continue; a program finds its sessions by the folder."""
        if self.keeps_unfinished and memo.get("session"):
            return memo["session"]
        is_ours = newest.get("name") == self.name and newest.get("folder") == folder
        return (newest["session"] or None) if is_ours else None

    async def _instructions(self, ctx: ToolContext[Any], folder: Path, instructions: str) -> str:
        texts = [instructions] if instructions else []
        for name in self.reads:
            try:
                if isinstance(ctx.workspace, Worktree):
                    data = await ctx.workspace.files.read(name, most=INSTRUCTIONS_LIMIT)
                else:
                    data = await trio.to_thread.run_sync(_read_file, folder / name)
            except (OSError, OutsideWorkspace):
                continue
            except WorkspaceTooLarge as error:
                await ctx.output(f"[{self.name}: warning] {error}; the program is not told what it says\n")
                continue
            texts.append(f"From {name} in the folder:\n\n{data.decode(errors='replace')}")
        return "\n\n".join(texts)

    def _command(self, folder: Path, argv: tuple[str, ...]) -> ProgramCommand:
        variables = environment(self.pass_env, **self.env)
        program = shutil.which(argv[0], path=variables.get("PATH")) or argv[0]
        return ProgramCommand(argv=(program, *argv[1:]), folder=folder, environment=variables)


def _read_file(path: Path) -> bytes:
    """Return a file of instructions.

    Raises:
        OSError: there is no such file.
        WorkspaceTooLarge: it is too large.
    """
    if not path.is_file():  # a pipe would never end
        raise FileNotFoundError(path.name)
    with path.open("rb") as file:
        data = file.read(INSTRUCTIONS_LIMIT + 1)
    if len(data) > INSTRUCTIONS_LIMIT:
        raise WorkspaceTooLarge(f"{path.name} has more than {INSTRUCTIONS_LIMIT:,} bytes")
    return data


def _recap(newest: Mapping[str, str]) -> str:
    """Return the newest exchange of the thread, for a program that begins without its session."""
    if not newest:
        return ""
    return f"Before this, you were asked:\n\n{newest['asked']}\n\nand answered:\n\n{newest['answered']}\n\nNow:"


def _text(verdict: ProgramVerdict) -> str:
    match verdict.outcome:
        case "completed":
            return verdict.text
        case "failed":
            raise ToolError(verdict.detail, run_code=verdict.code if verdict.code in FAILURES else "runtime_failed")
        case "cancelled":
            raise ToolError("the program has stopped its work by itself", run_code="runtime_failed")
