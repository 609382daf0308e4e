"""A secret in all that an MCP server says: nothing that leaves a run shows it, and the server gets its state back."""

import logging
import sys
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.testing import FunctionModel, call

from ..support.nasty_servers import Nasty

PLAIN = "kanarienvogel-0123456789-abcdefghijklmn"
"""In no known form: masked because the server gets it in its environment, or in a header."""
TOKEN = "ghp_canary7kQ2mZ8xW4vB1nR6tY3uP9sD5fG0hJ"
"""In the form of a token, so that a process that was told no secret masks it, too."""
STEPS = ("result", "failure", "error", "state")

pytestmark = pytest.mark.slow


def leaking(server: gr.mcp.Server) -> gr.Agent[Any]:
    """An agent that lets the server give the canary away in each way."""

    def answer(request: gr.ModelRequest) -> Any:
        done = sum(message.role == "tool" for message in request.messages)
        if done < len(STEPS):
            return call("mcp__nasty__leaks", {"text": STEPS[done]}, id=STEPS[done])
        return "\n".join(message.content for message in request.messages if message.role == "tool")

    return gr.Agent("a", model=FunctionModel(answer), toolsets=[server])


async def shown_by(runtime: gr.Runtime, agent: str) -> tuple[gr.Completed[Any], list[str]]:
    """Let a run come to its end, all approved, and return what leaves it."""
    run = await runtime.start(agent, "go", run_id="r")
    shown: list[str] = []
    with trio.fail_after(30):
        while isinstance(outcome := await run.wait(), gr.Waiting):
            for ticket in outcome.tickets:
                shown.append(repr(ticket))
                await run.decide(ticket.approve({"name": "Ada"} if ticket.response_schema else None))
    frames = await runtime.store.events("r", limit=10_000)
    shown += [frame if isinstance(frame, str) else bytes(frame).decode() for frame in frames]
    shown.append(repr(await runtime.evidence("r")))
    assert isinstance(outcome, gr.Completed), shown
    return outcome, shown


@pytest.mark.rule("MC-1", "MC-6")
@pytest.mark.parametrize("way", ["streams", "port"])
@pytest.mark.parametrize("canary", [PLAIN, TOKEN], ids=["named", "token"])
async def test_nothing_that_leaves_a_run_shows_a_secret_of_a_server(canary, way, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("NASTY_CANARY", canary)
    caplog.set_level(logging.DEBUG)
    nasty, store = Nasty(tmp_path, "modern", way), tmp_path / "runs.db"
    options: dict[str, Any] = (
        {"pass_env": ["NASTY_CANARY"]} if way == "streams" else {"headers": {"Authorization": f"Bearer {canary}"}}
    )
    with nasty.running():
        agent = leaking(nasty.toolset(gr.mcp.Rule(), **options))
        async with gr.open_runtime(store, agents=[agent]) as runtime:
            outcome, shown = await shown_by(runtime, "a")
    text = str(outcome.output)
    assert "the error has" in text
    assert "failed with" in text
    assert "state True" in text  # the server got its state as it was
    if way == "port":
        assert {headers.get("authorization") for headers in nasty.headers} == {f"Bearer {canary}"}
    shown += [record.getMessage() + str(record.exc_info) for record in caplog.records]
    assert [line[:300] for line in shown if canary in line] == []
    if canary == TOKEN:
        for command in (["show", "r"], ["evidence", "r"]):
            words = [sys.executable, "-m", "greenroom", *command, "--db", str(store)]
            done = await trio.run_process(words, capture_stdout=True, capture_stderr=True, check=False)
            assert canary.encode() not in done.stdout + done.stderr, command


@pytest.mark.rule("MC-1")
async def test_a_redirect_to_another_host_takes_no_header_there(tmp_path):
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    here, there = (Nasty(tmp_path / name, "modern", "port") for name in ("here", "there"))
    with here.running(), there.running(), trio.fail_after(20):
        (here.folder / "location").write_text(there.url())
        server = gr.mcp.Server("nasty", url=here.url("/elsewhere"), headers={"X-Token": PLAIN})
        async with gr.open_runtime(agents=[leaking(server)]) as runtime:
            outcome = await (await runtime.start("a", "go")).wait()
    assert isinstance(outcome, gr.Completed)
    assert here.headers[0]["x-token"] == PLAIN
    assert not (there.folder / "headers").exists()
