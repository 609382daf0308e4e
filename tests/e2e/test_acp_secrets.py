"""The variables and headers of an editor's MCP servers are opaque words here; only their values can be recognised."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import greenroom as gr
from greenroom.testing import FunctionModel, call
from greenroom.transport.acp.requests import MCPServer, NamedValue
from greenroom.transport.acp.servers import BridgedServers, EditorServers, with_servers

from ..support.acp_editor import Editor, editing
from ..support.gateway import gateway
from ..support.mcp_servers import program

pytestmark = [pytest.mark.trio, pytest.mark.slow]

CANARY = "plumtree-quartz-walnut"
TOOL = "mcp__vault__secret"


def model(request: Any) -> Any:
    """Call the tool, call it with what it has answered, then say all."""
    offered = [tool for tool in request.tools if tool.name == TOOL]
    results = [message.content for message in request.messages if message.role == "tool"]
    if len(results) < 2:
        assert CANARY in offered[0].description
        return call(TOOL, {"fail": bool(results), "note": results}, id=f"c{len(results)}")
    assert CANARY in results[0]
    assert CANARY in results[1]
    return f"It said: {results} about {offered[0].description}"


@asynccontextmanager
async def opened(place: Path | None) -> AsyncIterator[tuple[gr.Runtime, Editor]]:
    kept = EditorServers()
    helper = with_servers(gr.Agent("helper", model=FunctionModel(model)), kept)
    async with gr.open_runtime(place, agents=[helper]) as runtime, gateway(runtime) as address:
        async with editing(address, servers=BridgedServers(lambda: runtime, kept)) as editor:
            yield runtime, editor


def vault() -> dict[str, Any]:
    command, *args = program().command or ()
    return {"name": "vault", "command": command, "args": args, "env": [{"name": "CANARY", "value": CANARY}]}


@pytest.mark.rule("ACP-11")
async def test_what_a_server_of_the_editor_echoes_is_in_no_event_ticket_log_and_line(caplog, tmp_path):
    caplog.set_level(logging.DEBUG)
    async with opened(tmp_path / "runs.db") as (runtime, editor):
        session = await editor.new(servers=[vault()])
        prompt = await editor.prompt(session, "go")
        for _ in range(2):
            question = await editor.question()
            (line,) = (await runtime.runs()).runs
            tickets = (await runtime.view(line.info.run_id)).tickets
            assert "[redacted]" in repr(tickets) or not editor.of("tool_call_update")
            assert CANARY not in repr(tickets)
            await editor.select(question, "allow_once")
        assert (await editor.answer_to(prompt))["stopReason"] == "end_turn"
        assert "the result has [redacted]" in editor.said(session)
        assert CANARY not in repr(editor.lines)
        async with (await runtime.get(line.info.run_id)).events() as events:
            stored = repr([event async for event in events])
        assert "the error has [redacted]" in stored
        assert CANARY not in stored
        assert "stderr has [redacted]" in caplog.text
        assert CANARY not in caplog.text


@pytest.mark.rule("ACP-11")
async def test_a_ticket_of_an_earlier_process_hides_what_a_load_names(tmp_path):
    async with opened(tmp_path / "runs.db") as (_, editor):
        session = await editor.new(servers=[vault()])
        await editor.prompt(session, "go")
        await editor.select(await editor.question(), "allow_once")
        await editor.until(lambda: editor.asked)
    async with opened(tmp_path / "runs.db") as (runtime, editor):
        await editor.call("session/load", sessionId=session, cwd="/work", mcpServers=[vault()])
        question = await editor.question()
        assert "the result has [redacted]" in repr(question)
        (line,) = (await runtime.runs()).runs
        assert "the result has [redacted]" in repr((await runtime.view(line.info.run_id)).tickets)
        assert CANARY not in repr(editor.lines)


@pytest.mark.rule("ACP-11")
async def test_more_values_than_can_be_hidden_are_refused_with_their_servers():
    async with opened(None) as (_, editor):
        env = [{"name": f"V{number}", "value": f"opaque-value-{number:04}"} for number in range(129)]
        await editor.new(servers=[{**vault(), "env": env}])
        await editor.until(lambda: editor.of("notice"))
        (notice,) = editor.of("notice")
        assert "129 secrets" in repr(notice)
        assert "opaque-value" not in repr(editor.lines)


async def test_variables_and_headers_of_all_threads_are_the_secrets_of_the_toolset():
    kept = EditorServers()
    header = NamedValue(name="Authorization", value="Custom plumtree-token")
    assert (
        kept.keep("t1", (MCPServer(name="web", type="http", url="http://127.0.0.1:1/mcp", headers=(header,)),)) is None
    )
    env = (NamedValue(name="A", value=CANARY), NamedValue(name="B", value="short"))
    assert kept.keep("t2", (MCPServer(name="vault", command="/bin/vault", env=env),)) is None
    assert {*kept.secrets} == {"Custom plumtree-token", "plumtree-token", CANARY}
    kept.forget("t1")
    assert kept.secrets == (CANARY,)
