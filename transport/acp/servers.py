"""The MCP servers that an editor names: kept for their threads, and a toolset that asks them for their tools."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import attrs
import trio
from typing_extensions import override

import greenroom as gr
from greenroom.actors.contract.rows import RunInfo
from greenroom.supervision import Raised, acapture
from greenroom.supervision.nursery import open_collapsing_nursery

from .requests import MCPServer

NAME: Final = "editor"
"""The name of the toolset."""
_LONGEST: Final = 24
"""Most characters of a server's name in the names of its tools; the rest of 32 is for a number."""

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

    def __repr__(self) -> str:
        return f"<EditorServers of {len(self._servers)} threads>"

    def keep(self, thread_id: str, servers: tuple[MCPServer, ...]) -> str | None:
        """Keep the servers of a thread in place of earlier ones; return why they are not used, or None."""
        self.forget(thread_id)
        try:
            made = tuple(self._make(name, server) for name, server in _named(servers))
        except gr.GreenroomError as error:
            return f"The MCP servers of this editor are not used: {error}"
        if made:
            self._servers[thread_id] = made
        return None

    def forget(self, thread_id: str) -> None:
        """Forget the servers of a thread."""
        self._servers.pop(thread_id, None)

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
            yield _RunServers(self, nursery)
            nursery.cancel_scope.cancel()


class _RunServers(gr.Toolset):
    """The servers of one run, each opened in a task when it is first asked."""

    name = NAME

    def __init__(self, kept: EditorServers, nursery: trio.Nursery) -> None:
        self._kept, self._nursery = kept, nursery
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
            _log.warning("MCP server %s is not available: %s", server.name, failure)
        if servers and len(failures) == len(servers):
            raise failures[servers[0]]
        kept = [answers[server] for server in servers if server not in failures]
        return [tool for answer in kept if not isinstance(answer, BaseException) for tool in answer]

    async def _tools(self, server: gr.Toolset, ctx: gr.PhaseContext[Any]) -> Sequence[gr.Tool[..., object]]:
        return await (await self._opened(server)).tools(ctx)

    @override
    async def find(self, info: RunInfo, name: str) -> gr.Tool[..., object] | None:
        for server in self._kept.of(info.thread_id):
            if name.startswith(f"mcp__{server.name}__"):
                return await (await self._opened(server)).find(info, name)
        return None

    async def _opened(self, server: gr.Toolset) -> gr.Toolset:
        async with self._opening:
            if server not in self._open:
                self._open[server] = await self._nursery.start(_hold, server)
            return self._open[server]


async def _hold(server: gr.Toolset, task_status: trio.TaskStatus[gr.Toolset]) -> None:
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
        hosted: Returns True while the gateway is one of this process.
        kept: The toolset of the agents here.
    """

    def __init__(self, hosted: Callable[[], bool], kept: EditorServers) -> None:
        self._hosted, self._kept = hosted, kept

    def __repr__(self) -> str:
        return f"<BridgedServers: {self._kept!r}>"

    def keep(self, thread_id: str, servers: tuple[MCPServer, ...]) -> str | None:
        """Keep the servers of a thread in place of earlier ones; return why they are not used, or None."""
        refusal = self._kept.keep(thread_id, servers)
        if not servers or self._hosted():
            return refusal
        names = ", ".join(server.name for server in servers)
        return f"The MCP servers of this editor are not used: {names}. Another process has the agents."

    def forget(self, thread_id: str) -> None:
        """Forget the servers of a thread."""
        self._kept.forget(thread_id)


def with_servers(agent: gr.Agent[Any], servers: EditorServers) -> gr.Agent[Any]:
    """Return an agent that also offers the tools of the editor's servers."""
    return attrs.evolve(  # type: ignore[misc]  # mypy knows no class of attrs whose constructor is overloaded
        agent, toolsets=(*agent.toolsets, servers)
    )
