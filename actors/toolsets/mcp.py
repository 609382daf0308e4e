"""`Server`: the tools of an MCP server as a toolset."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import attrs
import msgspec
import trio
from typing_extensions import override

from greenroom.supervision import (
    ActorExited,
    ChildSpec,
    MailboxFull,
    Raised,
    ask,
    capture,
    open_supervisor,
)

from ..backends.process import ProgramCommand, environment
from ..contract.plain import JSONObject
from ..contract.rows import RunInfo
from ..contract.secrets.hidden_values import hides_key
from ..environment import EnvironmentValue, text_of_variable
from ..errors import AgentDefinitionError, ToolDefinitionError
from ..models.codecs.settings import is_header
from ..options import checks_fields
from ..plugins.contexts import PhaseContext
from ..tools.context import ToolContext
from ..tools.definition import Tool
from ..tools.toolset import Toolset
from .mcp_actor import BACKOFF, WITHIN, ServerActor
from .mcp_call import ServerLink, work
from .mcp_http import connect_address
from .mcp_messages import ListTools, Message, ServerConnection, ServerTool, ToolListing
from .mcp_rules import Rule, Rules, is_offered, shown_name
from .mcp_sdk import LINE_SHOWN, LOG, log_line
from .mcp_stdio import connect_program

SHUTDOWN: Final = 12.0
"""Seconds for a connection to close: a program may need 2 s, and then the signals of `ProgramProcess.stop`."""


_LARGE: Final = 4_096
"""Bytes of a definition that is checked in a thread: each thousand takes about two milliseconds."""
_MAKING: Final = trio.CapacityLimiter(2)

Text = str | EnvironmentValue


def _words(value: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Return words; a text is one word."""
    return value if value is None else (value,) if isinstance(value, str) else tuple(value)


def _listed(value: str | Sequence[str]) -> tuple[str, ...]:
    return _words(value) or ()


@checks_fields(AgentDefinitionError)
@attrs.frozen(eq=False)
class Server(Toolset):
    """An MCP server, whose tools an agent gets with `toolsets=[...]`.

    The server is a program that speaks on its standard streams (`command`), or it is at an address (`url`, Streamable
    HTTP). It is started, or asked, when a step first needs its tools, and ends with the runtime.

    Attributes:
        name: `[a-z][a-z0-9_-]{0,31}`; models see the tools as `mcp__<name>__<tool>`.
        command: The words that start the program; or None.
        url: The address, http or https; or None.
        folder: The working directory of the program; None: that of this process.
        env: Variables of the program, each a text or `gr.env(...)`.
        pass_env: Names of variables of this process that the program gets, besides PATH, HOME, LANG, LC_*, TERM,
            TMPDIR, TZ and USER. A runtime masks their values, and those of `headers`, in all that people see.
        headers: Headers of each request to the address, each a text or `gr.env(...)`. A redirect to another origin is
            not followed.
        include, exclude: Globs of the server's names of tools: what is offered, and what of that is not.
        tools: Glob -> `Rule` (the attribute `rules`); the first glob that fits counts. A tool without a rule has the
            effect "external", needs approval, and is never sent twice.
        trust_hints: A tool without a rule is judged by the server's hints instead: readOnlyHint (a read, no approval)
            and idempotentHint (may be sent again).
        scope: "runtime": one connection for all runs of the runtime; "run": one for each run.
        on_unavailable: as of `Toolset`.
        idle: Seconds without a word about a call after which the call fails, questions to people not counted; None: no
            limit.

    Raises:
        AgentDefinitionError: an argument is invalid; names the value.
    """

    name: str
    command: tuple[str, ...] | None = attrs.field(default=None, kw_only=True, converter=_words)
    url: str | None = attrs.field(default=None, kw_only=True)
    folder: Path | None = attrs.field(default=None, kw_only=True, converter=attrs.converters.optional(Path))
    env: Mapping[str, Text] = attrs.field(factory=dict, kw_only=True, repr=False)
    pass_env: tuple[str, ...] = attrs.field(default=(), kw_only=True, converter=_listed)
    headers: Mapping[str, Text] = attrs.field(factory=dict, kw_only=True, repr=False)
    include: tuple[str, ...] = attrs.field(default=("*",), kw_only=True, converter=_listed)
    exclude: tuple[str, ...] = attrs.field(default=(), kw_only=True, converter=_listed)
    rules: Mapping[str, Rule] = attrs.field(factory=dict, kw_only=True, alias="tools")
    trust_hints: bool = attrs.field(default=False, kw_only=True)
    scope: Literal["runtime", "run"] = attrs.field(default="runtime", kw_only=True)
    on_unavailable: Literal["skip", "fail"] = attrs.field(default="skip", kw_only=True)
    idle: float | None = attrs.field(default=300.0, kw_only=True)

    def __attrs_post_init__(self) -> None:
        fault = _fault(self)
        if fault is not None:
            raise AgentDefinitionError(f"Server({self.name!r:.100}, {fault}")

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values that no event may show."""
        return tuple(dict.fromkeys(value for value in self._secret_values() if value))

    def _secret_values(self) -> Iterator[str]:
        yield from (os.environ.get(name, "") for name in self.pass_env)
        for name, text in (*self.headers.items(), *self.env.items()):
            if isinstance(text, EnvironmentValue):
                yield os.environ.get(text.name, "")
            elif name in self.headers or hides_key(name):
                yield text
                yield text.rpartition(" ")[2]

    @override
    async def tools(self, ctx: PhaseContext[Any]) -> Sequence[Tool[..., object]]:
        raise RuntimeError(f"{self!r} is not open; a runtime asks what open() yields")

    @override
    @asynccontextmanager
    async def open(self) -> AsyncIterator[Toolset | None]:
        actor = ServerActor(self.name, self._connect, log=self._log, idle=self.idle, version=_version())
        spec: ChildSpec[Message] = ChildSpec(
            id=self.name, start=actor.body, shutdown=SHUTDOWN, max_restarts=math.inf, within=WITHIN, backoff=BACKOFF
        )
        async with open_supervisor(name="mcp", stop_budget=SHUTDOWN, tracebacks=False) as supervisor:
            yield OpenServer(self, ServerLink(name=self.name, ref=supervisor.start_child(spec), actor=actor))

    @asynccontextmanager
    async def _connect(self) -> AsyncIterator[ServerConnection]:
        if self.url is not None:
            headers = {name: text_of_variable(text) for name, text in self.headers.items()}
            connecting: AbstractAsyncContextManager[ServerConnection] = connect_address(self.url, headers)
        else:
            variables = {name: text_of_variable(text) for name, text in self.env.items()}
            command = ProgramCommand(
                argv=self.command or (),
                folder=self.folder or Path.cwd(),
                environment=environment(self.pass_env, **variables),
            )
            connecting = connect_program(
                command, heed_errors=_Lines(self._log).heed, report=partial(self._log, logging.WARNING)
            )
        async with connecting as connection:
            yield connection

    def _log(self, level: int, text: str) -> None:
        """Write a line to the log, redacted as the runtime does."""
        if LOG.isEnabledFor(level):
            log_line(level, f"MCP server {self.name}: {text}")


@attrs.define(eq=False, repr=False)
class _Lines:
    """Writes the standard error of a server to the log, line by line."""

    _log: Any
    _rest: bytearray = attrs.field(factory=bytearray)

    def heed(self, data: bytes) -> None:
        *lines, rest = bytes(self._rest + data).split(b"\n")
        self._rest = bytearray(rest[:LINE_SHOWN])
        for line in lines:
            if line.strip():
                self._log(logging.DEBUG, line[:LINE_SHOWN].decode(errors="replace"))


@attrs.define(eq=False, repr=False)
class OpenServer(Toolset):
    """A server in one runtime, or one run."""

    _server: Server
    _link: ServerLink
    _offered: tuple[Tool[..., object], ...] = ()
    _until: float = -math.inf
    _changes: int = -1
    _made: dict[bytes, Tool[..., object] | None] = attrs.field(factory=dict)
    _asking: trio.Lock = attrs.field(factory=trio.Lock)

    def __repr__(self) -> str:
        return f"<OpenServer {self._server.name!r}>"

    @property
    def name(self) -> str:  # type: ignore[override]  # an attribute of toolsets that users write
        """The server's name."""
        return self._server.name

    @override
    async def tools(self, ctx: PhaseContext[Any]) -> Sequence[Tool[..., object]]:
        return await self._tools()

    @override
    async def find(self, info: RunInfo, name: str) -> Tool[..., object] | None:
        return next((tool for tool in await self._tools() if tool.name == name), None)

    async def _tools(self) -> Sequence[Tool[..., object]]:
        """Return the tools as they were listed last; ask the server if that was too long ago, or they have changed."""
        async with self._asking:
            changes = self._link.actor.changes
            if trio.current_time() >= self._until or changes != self._changes:
                self._link.check()
                try:
                    listing: ToolListing = await ask(self._link.ref, lambda reply: ListTools(reply=reply))
                except (ActorExited, MailboxFull) as error:
                    raise self._link.lost(error) from error
                self._offered = await self._made_of(listing.tools)
                self._until, self._changes = listing.until, changes
            return self._offered

    async def _made_of(self, tools: Sequence[ServerTool]) -> tuple[Tool[..., object], ...]:
        """Return tools for those that the server lists. One that is listed as before is the same object as before."""
        tools_by_key: dict[bytes, Tool[..., object] | None] = {}
        for tool in tools:
            if is_offered(tool.name, self._server.include, self._server.exclude):
                key = msgspec.json.encode([tool.name, tool.description, tool.schema, tool.output_schema, tool.hints])
                if key not in self._made:
                    self._made[key] = await self._new(tool, len(key))
                tools_by_key[key] = self._made[key]
        self._made = tools_by_key
        return tuple(tool for tool in tools_by_key.values() if tool is not None)

    async def _new(self, tool: ServerTool, size: int) -> Tool[..., object] | None:
        """Make a tool; in a thread if its schema is large, because the check of a schema takes long."""
        await trio.lowlevel.checkpoint()
        return self._tool(tool) if size < _LARGE else await trio.to_thread.run_sync(self._tool, tool, limiter=_MAKING)

    def _tool(self, tool: ServerTool) -> Tool[..., object] | None:
        """Return a tool for one of the server; None, and a line in the log, if its schema or its text is unusable."""
        rule = Rules(by_glob=self._server.rules, trust_hints=self._server.trust_hints).rule_of(tool.name, tool.hints)
        body = partial(_body, self._link, tool, rule.replay == "safe")
        name = shown_name(self._server.name, tool.name)
        try:
            return Tool.from_schema(body, schema=tool.schema, name=name, description=tool.description, **rule.options)
        except ToolDefinitionError as error:
            self._server._log(logging.WARNING, f"its tool {tool.name!r:.200} is left out: {error}")
            return None


def _version() -> str:
    try:
        return version("greenroom")
    except PackageNotFoundError:  # the sources are in the path, and nothing is installed
        return "0"


async def _body(link: ServerLink, tool: ServerTool, safe: bool, ctx: ToolContext[Any], arguments: JSONObject) -> object:
    return await work(link, tool, ctx, arguments, safe=safe)


def _fault(server: Server) -> str | None:
    """Return what is wrong with the arguments of a server, as the end of a sentence; None if nothing."""
    if (server.command is None) == (server.url is None):
        return "...): give command=[...], or url=, one of the two"
    words = server.command if server.command is not None else ("-",)
    if not words or not all(isinstance(word, str) and word and "\0" not in word for word in words):
        return f"command={words!r:.200}): give words, none of them empty"
    if server.url is not None and not _is_address(server.url):
        return f"url={server.url!r:.200}): give an http or https address without a user and a password"
    alien = ("headers",) if server.url is None else ("env", "pass_env", "folder")
    for option in alien:
        if getattr(server, option):
            return f"{option}=...): a server {'at an address' if server.url else 'that is a program'} has none"
    if server.folder is not None and not server.folder.is_absolute():
        return f"folder={str(server.folder)!r:.200}): give an absolute path, as Path(...).resolve()"
    return _fault_of_texts(server) or _fault_of_rest(server)


def _fault_of_texts(server: Server) -> str | None:
    for option, texts in (("headers", server.headers), ("env", server.env)):
        for name, text in _items(texts):
            if not isinstance(name, str) or not isinstance(text, str | EnvironmentValue):
                return f"{option}={{{name!r:.100}: ...}}): give a dict of names and texts or gr.env(...)"
            if option == "headers" and not is_header((name, text if isinstance(text, str) else "-")):
                return f"headers={{{name!r:.100}: ...}}): that is no header of HTTP"
    return None


def _fault_of_rest(server: Server) -> str | None:
    for glob, rule in _items(server.rules):
        if not isinstance(glob, str) or not isinstance(rule, Rule):
            return f"tools={{{glob!r:.100}: {rule!r:.100}}}): give a dict of globs and gr.mcp.Rule(...)"
    if server.scope not in ("runtime", "run"):
        return f"scope={server.scope!r:.100}): use 'runtime' or 'run'"
    idle = server.idle
    if idle is not None and not (isinstance(idle, int | float) and 0 < idle < math.inf):
        return f"idle={idle!r:.100}): give seconds, more than 0, or None"
    return None


def _items(value: Any) -> Iterable[tuple[Any, Any]]:
    """Return the items of a dict; of anything else, a pair that is none."""
    return value.items() if isinstance(value, Mapping) else ((value, value),)


def _is_address(url: str) -> bool:
    parts = capture(lambda: urlsplit(url))
    if isinstance(parts, Raised) or not url.isprintable():
        return False
    return parts.value.scheme in ("http", "https") and bool(parts.value.hostname) and "@" not in parts.value.netloc
