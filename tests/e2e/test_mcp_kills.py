"""kill -9 of a process in the middle of a call of an MCP server: the server ends with it, and nothing happens twice."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

import greenroom as gr
from greenroom.actors.backends.process import MARK

from ..support.mcp_servers import executed, seen, until
from .mcp_life import caller

LIFE = Path(__file__).with_name("mcp_life.py")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.no_cover,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc"),
]


@contextmanager
def life(*words: object) -> Iterator["subprocess.Popen[bytes]"]:
    """A process, which is killed at the end of the block."""
    with subprocess.Popen([sys.executable, str(LIFE), *map(str, words)], stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def servers(log: Path) -> list[int]:
    """The living servers that write this log."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path("/proc", name, "cmdline").read_bytes().split(b"\0")
            marked = f"{MARK}=".encode() in Path("/proc", name, "environ").read_bytes()
        except OSError:
            continue
        if str(log).encode() in words and marked:
            found.append(int(name))
    return found


@pytest.mark.rule("MC-1", "MC-8")
@pytest.mark.parametrize("era", ["modern", "handshake"])
async def test_a_call_that_was_at_work_is_asked_about_and_its_server_has_ended(era, tmp_path):
    store, log = tmp_path / "runs.db", tmp_path / "log"
    with life(store, log, era, "slow") as process:
        await until(lambda: "slow" in executed(log))
        assert servers(log)
        process.kill()
    await until(lambda: not servers(log))
    agent = caller(log, era, "slow")
    async with gr.open_runtime(store, agents=[agent]) as runtime:
        run = await runtime.get("r")
        with trio.fail_after(20):
            (ticket,) = (await run.wait()).tickets
            assert (ticket.reason, executed(log).count("slow")) == ("outcome_unknown", 1)
            await run.decide(ticket.approve(result="it was done"))
            found = await seen(run, agent, await run.result())
    assert found.texts == {"A": "it was done"}
    assert executed(log).count("slow") == 1


@pytest.mark.rule("MC-6")
async def test_a_question_of_a_modern_server_outlives_the_process_and_is_answered_by_one_without_agents(tmp_path):
    store, log = tmp_path / "runs.db", tmp_path / "log"
    with life(store, log, "modern", "ask") as process:
        assert process.stdout is not None
        assert await trio.to_thread.run_sync(process.stdout.readline) == b"rests\n"
    async with gr.open_runtime(store, agents=[]) as runtime:
        run = await runtime.get("r")
        (ticket,) = (await run.view()).tickets
        assert (ticket.message, ticket.live) == ("t asks: Who are you?", False)
        await run.decide(ticket.approve({"name": "Ada"}))
    agent = caller(log, "modern", "ask")
    async with gr.open_runtime(store, agents=[agent]) as runtime:
        run = await runtime.get("r")
        with trio.fail_after(20):
            found = await seen(run, agent, await run.result())
    assert json.loads(found.texts["A"]) == {"action": "accept", "content": {"name": "Ada"}}
    assert executed(log).count("ask") == 2  # the question, and the call with the answer


@pytest.mark.rule("MC-7")
async def test_a_question_of_a_session_ends_with_its_process(tmp_path):
    store, log = tmp_path / "runs.db", tmp_path / "log"
    with life(store, log, "handshake", "ask") as process:
        assert process.stdout is not None
        assert await trio.to_thread.run_sync(process.stdout.readline) == b"rests\n"
    agent = caller(log, "handshake", "ask")
    async with gr.open_runtime(store, agents=[agent]) as runtime:
        run = await runtime.get("r")
        with trio.fail_after(20):
            async with run.events() as events:
                async for event in events:
                    if event.type == "run.approval.resolved":
                        break
            (ticket,) = (await run.wait()).tickets
    assert event.payload["reason"].startswith("owner_lost")
    assert (ticket.reason, executed(log).count("ask")) == ("outcome_unknown", 1)
