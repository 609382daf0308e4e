"""The MCP servers that an editor names: kept for their threads, and a toolset that asks them for their tools."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import attrs
import trio
from typing_extensions import override

import greenroom as gr
from greenroom.actors.contract.rows import RunInfo
from greenroom.actors.contract.secrets.current import REDACTOR
from greenroom.actors.contract.secrets.named_secrets import check_learnable, searchable
from greenroom.actors.contract.secrets.redaction import Redactor
from greenroom.actors.contract.titles import shown_line
from greenroom.actors.services.stepping import in_steps
from greenroom.supervision import Raised, acapture
from greenroom.supervision.nursery import open_collapsing_nursery

from .requests import MCPServer

NAME: Final = "editor"
"""The name of the toolset."""
_LONGEST: Final = 24
"""Most characters of a server's name in the names of its tools; the rest of 32 is for a number."""

_NOT_USED: Final = "The MCP servers of this editor are not used"

_log = logging.getLogger("greenroom.acp")

MakeServer = Callable[[str, MCPServer], gr.Toolset]
"""Makes the toolset of a server: its name among the servers of the session, what the editor has named."""


class EditorServers(gr.Toolset):
    """The tools of the MCP servers that an editor has named for the thread of a run.

    A server is started when a step of a run first asks for its tools, and ends with the run. A server that is not
    available is left out and logged; if none is, the toolset is not available.
    """

    name = NAME
    scope = "run"

    def __init__(self, make: MakeServer | None = None) -> None:
        self._make = make or mcp_server
        self._servers: dict[str, tuple[gr.Toolset, ...]] = {}
        self._secrets: dict[str, frozenset[str]] = {}

    def __repr__(self) -> str:
        return f"<EditorServers of {len(self._servers)} threads>"

    @property
    def secrets(self) -> tuple[str, ...]:
        """The variables and headers of all threads, for a runtime that is opened later."""
        return tuple(frozenset[str]().union(*self._secrets.values()))

    def secrets_of(self, thread_id: str) -> frozenset[str]:
        """Return the variables and headers of the servers of a thread: an editor cannot say which are secret."""
        return self._secrets.get(thread_id, frozenset())

    def keep(self, thread_id: str, servers: tuple[MCPServer, ...]) -> str | None:
        """Keep the servers of a thread in place of earlier ones; return why they are not used, or None."""
        self.forget(thread_id)
        secrets = frozenset(filter(searchable, _values(servers)))
        try:
            check_learnable(secrets.union(self.secrets))
            made = tuple(self._make(name, server) for name, server in _named(servers))
        except gr.GreenroomError as error:
            return f"{_NOT_USED}: {error}"
        if made:
            self._servers[thread_id], self._secrets[thread_id] = made, secrets
        return None

    def forget(self, thread_id: str) -> None:
        """Forget the servers of a thread."""
        self._servers.pop(thread_id, None)
        self._secrets.pop(thread_id, None)

    def of(self, thread_id: str) -> tuple[gr.Toolset, ...]:
        """Return the servers of a thread."""
        return self._servers.get(thread_id, ())

    @override
    async def tools(self, ctx: gr.PhaseContext[Any]) -> Sequence[gr.Tool[..., object]]:
        raise RuntimeError(f"{self!r} is not open; a runtime asks what open() yields")

    @override
    @asynccontextmanager
    async def open(self) -> AsyncIterator[gr.Toolset | None]:
        async with open_collapsing_nursery() as nursery:
            yield _RunServers(self, nursery, REDACTOR.get(Redactor()))
            nursery.cancel_scope.cancel()


class _RunServers(gr.Toolset):
    """The servers of one run, each opened in a task when it is first asked.

    The redactor learns the values of the servers before one of them is opened.
    """

    name = NAME

    def __init__(self, kept: EditorServers, nursery: trio.Nursery, redactor: Redactor) -> None:
        self._kept, self._nursery, self._redactor = kept, nursery, redactor
        self._open: dict[gr.Toolset, gr.Toolset] = {}
        self._opening = trio.Lock()

    def __repr__(self) -> str:
        return f"<RunServers: {len(self._open)} servers>"

    @override
    async def tools(self, ctx: gr.PhaseContext[Any]) -> Sequence[gr.Tool[..., object]]:
        servers = self._kept.of(ctx.thread_id)
        answers: dict[gr.Toolset, Sequence[gr.Tool[..., object]] | BaseException] = {}

        async def ask(server: gr.Toolset) -> None:
            answer = await acapture(self._tools, server, ctx)
            answers[server] = answer.error if isinstance(answer, Raised) else answer.value

        async with open_collapsing_nursery() as nursery:
            for server in servers:
                nursery.start_soon(ask, server)
        failures = {server: answer for server, answer in answers.items() if isinstance(answer, BaseException)}
        for server, failure in failures.items():
            why = shown_line(str(failure), self._redactor)
            _log.warning("MCP server %s is not available: %s", server.name, why)
        if servers and len(failures) == len(servers):
            raise failures[servers[0]]
        kept = [answers[server] for server in servers if server not in failures]
        return [tool for answer in kept if not isinstance(answer, BaseException) for tool in answer]

    async def _tools(self, server: gr.Toolset, ctx: gr.PhaseContext[Any]) -> Sequence[gr.Tool[..., object]]:
        return await (await self._opened(server, ctx.thread_id)).tools(ctx)

    @override
    async def find(self, info: RunInfo, name: str) -> gr.Tool[..., object] | None:
        for server in self._kept.of(info.thread_id):
            if name.startswith(f"mcp__{server.name}__"):
                return await (await self._opened(server, info.thread_id)).find(info, name)
        return None

    async def _opened(self, server: gr.Toolset, thread_id: str) -> gr.Toolset:
        async with self._opening:
            if server not in self._open:
                await in_steps(self._redactor.learn_steps(self._kept.secrets_of(thread_id)))
                self._open[server] = await self._nursery.start(_hold, server, self._redactor)
            return self._open[server]


async def _hold(server: gr.Toolset, redactor: Redactor, task_status: trio.TaskStatus[gr.Toolset]) -> None:
    REDACTOR.set(redactor)  # a task of a run asks for the server, and has none
    async with server.open() as source:
        task_status.started(source or server)
        await trio.sleep_forever()


def _named(servers: tuple[MCPServer, ...]) -> list[tuple[str, MCPServer]]:
    """Return servers with names that tools may have; an editor's names are for people."""
    named: dict[str, MCPServer] = {}
    for number, server in enumerate(servers, 1):
        slug = re.sub(r"[^a-z0-9]+", "-", server.name.lower()).strip("-")
        name = (slug if slug[:1].isalpha() else f"server-{slug}")[:_LONGEST].rstrip("-")
        named[name if name not in named else f"{name}-{number}"] = server
    return list(named.items())


def _values(servers: tuple[MCPServer, ...]) -> Iterator[str]:
    for server in servers:
        yield from (variable.value for variable in server.env)
        for header in server.headers:
            yield header.value
            yield header.value.rpartition(" ")[2]  # behind the scheme


def mcp_server(name: str, server: MCPServer) -> gr.Toolset:
    """Return the toolset of an MCP server.

    Raises:
        UsageError: The SDK of MCP is not installed.
        AgentDefinitionError: The server cannot be one.
    """
    if server.type == "http":
        return gr.mcp.Server(name, url=server.url, headers={one.name: one.value for one in server.headers})
    variables = {one.name: one.value for one in server.env}
    return gr.mcp.Server(name, command=[server.command, *server.args], env=variables)


class BridgedServers:
    """The MCP servers of an editor at the gateway of a bridge: its agents get their tools if it is hosted here.

    Args:
        runtime: Returns the runtime of the gateway while this process hosts it; else None.
        kept: The toolset of the agents here.
    """

    def __init__(self, runtime: Callable[[], gr.Runtime | None], kept: EditorServers) -> None:
        self._runtime, self._kept = runtime, kept

    def __repr__(self) -> str:
        return f"<BridgedServers: {self._kept!r}>"

    async def keep(self, thread_id: str, servers: tuple[MCPServer, ...]) -> str | None:
        """Keep the servers of a thread in place of earlier ones; return why they are not used, or None.

        The runtime hides the values of the servers afterwards, also in tickets of earlier runs.
        """
        refusal = self._kept.keep(thread_id, servers)
        if not servers:
            return refusal
        runtime = self._runtime()
        if runtime is None:
            names = ", ".join(server.name for server in servers)
            return f"{_NOT_USED}: {names}. Another process has the agents."
        try:
            await in_steps(runtime.reader.redactor.learn_steps(self._kept.secrets_of(thread_id)))
        except gr.UsageError as error:
            self.forget(thread_id)
            return f"{_NOT_USED}: {error}"
        return refusal

    def forget(self, thread_id: str) -> None:
        """Forget the servers of a thread."""
        self._kept.forget(thread_id)


def with_servers(agent: gr.Agent[Any], servers: EditorServers) -> gr.Agent[Any]:
    """Return an agent that also offers the tools of the editor's servers."""
    return attrs.evolve(  # type: ignore[misc]  # mypy knows no class of attrs whose constructor is overloaded
        agent, toolsets=(*agent.toolsets, servers)
    )
