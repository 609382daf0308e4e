"""kill -9 and SIGSTOP of a process whose run lets a remote agent work: no message is executed twice.

A process is killed at a random moment, or frozen for longer than its lease; another one takes the run over. Each run
ends, or asks a person what happened.
"""

import math
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

import greenroom as gr

from ..support.a2a_servers import TOKEN, RemoteServer, remote_server
from ..support.ports import free_port
from .remote_life import LEASE

LIFE = Path(__file__).with_name("remote_life.py")
TEXTS = {"slow 0.6": "0 1 2 3 4 5 ", "ask": "done: order 7", "hello": "done: hello"}
FULL = os.environ.get("GREENROOM_CHAOS") == "full"
KILLS = 200 if FULL else 6
FREEZES = 20 if FULL else 1

pytestmark = [pytest.mark.slow, pytest.mark.no_cover, pytest.mark.timeout(1_800 if FULL else 120)]


@contextmanager
def life(server: RemoteServer, place: str, run: str, text: str) -> Iterator["subprocess.Popen[str]"]:
    """A process, which is killed at the end of the block."""
    token = TOKEN if server.kind == "own" else ""
    command = [sys.executable, str(LIFE), place, server.url, token, run, text]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()
            if process.stdout is not None:
                process.stdout.close()


def last_word(process: "subprocess.Popen[str]") -> str:
    """The last line of a process that comes to its end."""
    assert process.stdout is not None
    lines = process.stdout.read().strip().splitlines()
    assert process.wait(timeout=30) == 0
    return lines[-1]


def until_ready(process: "subprocess.Popen[str]") -> None:
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "ready"


def pause(seconds: float) -> None:
    time.sleep(seconds)  # noqa: TID251 - another process works


def expected(text: str, end: str, kind: str) -> bool:
    """Whether a run came to its result, or asks."""
    output = TEXTS[text].strip() if not (kind == "own" and text.startswith("slow")) else "5"
    return end == "asks outcome_unknown" or (end.startswith("end Completed") and end.rstrip().endswith(output))


@pytest.mark.parametrize("kind", ["python", "js", "own"])
def test_a_process_that_is_killed_at_any_moment_leaves_a_run_that_ends_or_asks(
    tmp_path: Path, rng: random.Random, kind: str
) -> None:
    ends = Counter[str]()
    with remote_server(kind, tmp_path) as server:
        for number in range(math.ceil(KILLS / 3)):
            text = [*TEXTS][number % len(TEXTS)]
            place, run = str(tmp_path / f"{number}.db"), f"r{number}"
            with life(server, place, run, text) as process:
                until_ready(process)
                pause(rng.uniform(0.0, 0.8 if text.startswith("slow") else 0.15))
                process.kill()
                process.wait()
            with life(server, place, run, text) as process:
                end = last_word(process)
            assert expected(text, end, kind), (text, end)
            ends[end.split()[0]] += 1
        executed = server.executed
    assert len(executed) == len(set(executed)), executed
    assert ends["asks"] <= max(1, KILLS // 50)


@pytest.mark.parametrize("kind", ["python", "own"])
def test_a_process_that_is_frozen_past_its_lease_executes_nothing_twice(
    tmp_path: Path, postgres_url: str, rng: random.Random, kind: str
) -> None:
    with remote_server(kind, tmp_path) as server:
        for number in range(FREEZES):
            text = ["slow 0.6", "hello"][number % 2]
            with life(server, postgres_url, f"r{number}", text) as frozen:
                until_ready(frozen)
                pause(rng.uniform(0.0, 0.5))
                frozen.send_signal(signal.SIGSTOP)
                with life(server, postgres_url, f"r{number}", text) as other:
                    end = last_word(other)
                    frozen.send_signal(signal.SIGCONT)
                    pause(2 * LEASE["turn"])
            assert expected(text, end, kind), (text, end)
        executed = server.executed
    assert len(executed) == len(set(executed)), executed


async def test_a_server_that_is_killed_and_comes_back_gets_the_answer_of_a_person(tmp_path: Path) -> None:
    port = free_port()
    with remote_server("own", tmp_path, port=port) as server:
        agent = gr.backends.agent("far", server.backend())
    async with gr.open_runtime(agents=[agent]) as runtime:
        with remote_server("own", tmp_path, port=port):
            run = await runtime.start(agent, "ask")
            (ticket,) = (await run.wait()).tickets
        await run.decide(ticket.approve({"action": "approve", "result": "order 7"}, by="ada"))
        await trio.sleep(2)
        with remote_server("own", tmp_path, port=port) as server:
            assert (await run.result()).output == "done: order 7"
            assert len(server.executed) == len(set(server.executed)) == 2


@pytest.mark.parametrize("kind", ["python", "own"])
async def test_a_server_that_does_not_come_back_is_offline(tmp_path: Path, kind: str) -> None:
    with remote_server(kind, tmp_path) as server:
        agent = gr.backends.agent("far", server.backend(offline=2))
        async with gr.open_runtime(agents=[agent]) as runtime:
            run = await runtime.start(agent, "slow 30")
            async with run.events() as events:
                async for event in events:
                    if event.type == "run.message.delta":
                        break
            server.process.kill()
            outcome = await run.result()
            assert (type(outcome), outcome.code) == (gr.Failed, "target_offline")
            assert "goes on there" in outcome.message
            late = await (await runtime.start(agent, "hello")).result()
            assert (type(late), late.code) == (gr.Failed, "target_offline")
