"""The MCP servers of an editor as a toolset: which run gets which tools, and what becomes of a server that fails."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.testing import FunctionModel, call
from greenroom.transport.acp.requests import MCPServer, NamedValue
from greenroom.transport.acp.servers import BridgedServers, EditorServers, mcp_server, with_servers

pytestmark = pytest.mark.trio


class OneTool(gr.Toolset):
    """A server with one tool; notes when it is open."""

    def __init__(self, name: str, server: MCPServer, log: list[str]) -> None:
        self.name, self._server, self._log = name, server, log

    @asynccontextmanager
    async def open(self) -> AsyncIterator[gr.Toolset | None]:
        if self._server.command == "broken":
            raise RuntimeError("it does not start")
        self._log.append(f"+{self.name}")
        try:
            yield None
        finally:
            self._log.append(f"-{self.name}")

    def _tool(self) -> gr.Tool[..., object]:
        async def body(_: Any, arguments: Any) -> str:
            return f"{self.name} got {arguments['n']}{''.join(f' and {one.value}' for one in self._server.env)}"

        schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
        return gr.Tool.from_schema(body, schema=schema, name=f"mcp__{self.name}__do", description="Do it.")

    async def tools(self, ctx: Any) -> list[gr.Tool[..., object]]:
        return [self._tool()]

    async def find(self, info: Any, name: str) -> gr.Tool[..., object] | None:
        return self._tool()


def answer(request: Any) -> Any:
    if request.messages[-1].role == "user" and request.tools:
        return call(request.tools[-1].name, n=7)
    return f"{request.messages[-1].content} of {[tool.name for tool in request.tools]}"


def servers(*pairs: tuple[str, str]) -> tuple[MCPServer, ...]:
    return tuple(MCPServer(name=name, command=command) for name, command in pairs)


@asynccontextmanager
async def opened(log: list[str]) -> AsyncIterator[tuple[gr.Runtime, EditorServers]]:
    kept = EditorServers(lambda name, server: OneTool(name, server, log))
    helper = with_servers(gr.Agent("helper", model=FunctionModel(answer)), kept)
    async with gr.open_runtime(agents=[helper]) as runtime:
        yield runtime, kept


async def output(runtime: gr.Runtime, thread: str) -> str:
    with trio.fail_after(60):
        return str((await (await runtime.start("helper", "go", thread_id=thread)).result()).output)


@pytest.mark.rule("ACP-11")
async def test_a_run_has_the_tools_of_the_servers_of_its_thread(autojump_clock):
    log: list[str] = []
    async with opened(log) as (runtime, kept):
        assert kept.keep("t1", servers(("My Files", "/x"), ("my files", "/y"), ("7", "/z"))) is None
        assert await output(runtime, "t1") == (
            "server-7 got 7 of ['mcp__my-files__do', 'mcp__my-files-2__do', 'mcp__server-7__do']"
        )
        assert await output(runtime, "t2") == "go of []"
        assert sorted(log)[:3] == ["+my-files", "+my-files-2", "+server-7"]
        kept.forget("t1")
        assert await output(runtime, "t1") == "go of []"
    assert len(log) == 6


@pytest.mark.rule("ACP-11")
async def test_values_that_are_named_while_the_runtime_opens_are_hidden_before_a_server_is_asked(autojump_clock):
    async with opened([]) as (runtime, kept):
        variable = NamedValue(name="A", value="plumtree-quartz")
        kept.keep("t1", (MCPServer(name="a", command="/x", env=(variable,)),))
        run = await runtime.start("helper", "go", thread_id="t1")
        assert "a got 7 and plumtree-quartz" in str((await run.result()).output)
        async with run.events() as events:
            stored = repr([event async for event in events])
    assert "a got 7 and [redacted]" in stored
    assert "plumtree-quartz" not in stored


@pytest.mark.rule("ACP-11")
async def test_a_server_that_fails_is_left_out_and_if_all_fail_the_run_says_so(autojump_clock):
    async with opened([]) as (runtime, kept):
        kept.keep("t1", servers(("bad", "broken"), ("good", "/x")))
        assert await output(runtime, "t1") == "good got 7 of ['mcp__good__do']"
        kept.keep("t2", servers(("bad", "broken")))
        run = await runtime.start("helper", "go", thread_id="t2")
        async with run.events() as events:
            (degraded,) = [event async for event in events if event.type == "run.degraded"]
        assert degraded.payload["reason"] == "toolset_unavailable"
        assert "it does not start" in degraded.payload["detail"]


@pytest.mark.rule("ACP-11")
async def test_servers_that_cannot_be_are_named():
    def refuse(name: str, _: MCPServer) -> gr.Toolset:
        raise gr.UsageError(f"no {name}")

    kept = EditorServers(refuse)
    assert kept.keep("t1", servers(("a", "/x"))) == "The MCP servers of this editor are not used: no a"
    assert kept.of("t1") == ()
    elsewhere = BridgedServers(lambda: None, EditorServers(lambda name, server: OneTool(name, server, [])))
    assert await elsewhere.keep("t1", ()) is None
    assert "Another process" in (await elsewhere.keep("t1", servers(("a", "/x"))) or "")
    elsewhere.forget("t1")


@pytest.mark.slow
@pytest.mark.rule("ACP-11")
async def test_a_server_of_the_editor_becomes_one_of_ours():
    program = MCPServer(name="Files", command="/bin/files", args=("-v",))
    made: Any = mcp_server("files", program)
    assert (made.name, made.command) == ("files", ("/bin/files", "-v"))
    address: Any = mcp_server("web", MCPServer(name="Web", type="http", url="http://127.0.0.1:1/mcp"))
    assert address.url == "http://127.0.0.1:1/mcp"
    with pytest.raises(gr.AgentDefinitionError):
        mcp_server("web", MCPServer(name="Web", type="http", url="ftp://x"))
