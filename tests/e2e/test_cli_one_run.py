"""`greenroom run --store`: the process works on its own run only, and gives it back when it is interrupted."""

import json
import runpy
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
import trio
from psycopg.rows import dict_row

import greenroom as gr

from .cli_kit import PATIENCE, Cli
from .serving_kit import AGENTS

pytestmark = [pytest.mark.slow, pytest.mark.no_cover]

CANARY = "canary-of-a-password"
READY = 8


def rows(url: str, statement: str) -> list[dict[str, Any]]:
    base, _, schema = url.partition("?schema=")
    with psycopg.connect(base, autocommit=True, row_factory=dict_row) as connection:
        connection.execute(f'SET search_path = "{schema}"'.encode())
        return connection.execute(statement.encode()).fetchall()


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)  # noqa: TID251 - another process changes it


def agents(folder: Path) -> dict[str, Any]:
    path = folder / "agents.py"
    path.write_text(AGENTS)
    return runpy.run_path(str(path))


async def leave_work(url: str, endless: gr.Agent[Any], support: gr.Agent[Any]) -> None:
    """Ready runs and a waiting one, all without an owner."""
    async with gr.open_runtime(url, agents=[endless, support], drain=0.0) as runtime:
        await (await runtime.start(support, "help", run_id="waits")).wait()
        await runtime.store.set_queue("later", paused=True)
        for number in range(READY):
            await runtime.start(endless, "go", run_id=f"ready-{number}", queue="later")
    async with gr.open_runtime(url) as runtime:
        await runtime.store.set_queue("later")


async def approve(url: str) -> None:
    async with gr.open_runtime(url) as runtime:
        run = await runtime.get("waits")
        assert (await run.decide((await run.view()).tickets[0].approve())).ok


@pytest.mark.parametrize("signals", [1, 2])
def test_it_takes_up_no_other_work_and_gives_its_run_back(tmp_path: Path, postgres_url: str, signals: int) -> None:
    found = agents(tmp_path)
    url = postgres_url.replace("greenroom@", f"greenroom:{CANARY}@")
    trio.run(leave_work, postgres_url, found["endless"], found["support"])
    cli = Cli(tmp_path, tmp_path / "state")
    with cli.started(
        "--debug", "run", "agents.py:endless", "go", "--run-id", "mine", "--json", "--store", url
    ) as process:
        until(lambda: rows(postgres_url, "SELECT 1 FROM runs WHERE run_id = 'mine' AND last_seq > 20"))
        trio.run(approve, postgres_url)  # a command makes a waiting run ready
        end = time.monotonic() + 4  # more than a turn, and several polls
        while time.monotonic() < end:
            owned = rows(postgres_url, "SELECT run_id FROM runs WHERE owner IS NOT NULL ORDER BY run_id")
            assert [row["run_id"] for row in owned] == ["mine"]
            time.sleep(0.05)  # noqa: TID251 - another process is watched
        for _ in range(signals):
            process.send_signal(signal.SIGINT)
            time.sleep(0.2)  # noqa: TID251 - two signals at once may be one
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    assert CANARY not in out + err
    assert json.loads(out.splitlines()[-1])["status"] == "interrupted"
    (mine,) = rows(postgres_url, "SELECT owner, crashes, ended_at, dead FROM runs WHERE run_id = 'mine'")
    assert mine == {"owner": None, "crashes": 0, "ended_at": None, "dead": None}
    assert rows(postgres_url, "SELECT 1 FROM processes") == []
    assert rows(postgres_url, "SELECT 1 FROM agents") == []
    left = rows(postgres_url, "SELECT run_id, crashes, commits FROM runs WHERE run_id LIKE 'ready%'")
    assert [(row["crashes"], row["commits"]) for row in left] == [(0, 0)] * READY


def test_a_run_that_ends_leaves_nothing_of_the_process_behind(tmp_path: Path, postgres_url: str) -> None:
    found = agents(tmp_path)
    trio.run(leave_work, postgres_url, found["endless"], found["support"])
    done = Cli(tmp_path, tmp_path / "state")("run", "agents.py:support", "help", "--yes", "--store", postgres_url)
    assert done.returncode == 0, done.stderr
    assert rows(postgres_url, "SELECT 1 FROM processes") == []
    assert rows(postgres_url, "SELECT 1 FROM runs WHERE owner IS NOT NULL AND ended_at IS NULL") == []
    assert len(rows(postgres_url, "SELECT 1 FROM runs WHERE ended_at IS NULL")) == READY + 1


def test_arguments_are_edited_where_a_live_process_has_the_agent(tmp_path: Path, postgres_url: str) -> None:
    found = agents(tmp_path)
    url = postgres_url.replace("greenroom@", f"greenroom:{CANARY}@")
    trio.run(leave_work, postgres_url, found["endless"], found["support"])
    cli = Cli(tmp_path, tmp_path / "state")
    edit = ("approve", "waits", "--store", url, "--edit")
    nowhere = cli(*edit, '{"order": "7", "cents": 400}')
    assert nowhere.returncode == 1
    assert "was not decided (unknown_agent): no live process has the agent 'support'" in nowhere.stderr
    with cli.started("serve", "agents.py:support", "--port=0", "--store", url) as worker:
        until(lambda: rows(postgres_url, "SELECT 1 FROM agents WHERE agent = 'support'"))
        wrong = cli(*edit, '{"order": "7"}')
        assert (wrong.returncode, "invalid_arguments" in wrong.stderr) == (1, True)
        done = cli(*edit, '{"order": "7", "cents": 400}')
        assert done.returncode == 0, done.stderr
        until(lambda: rows(postgres_url, "SELECT 1 FROM runs WHERE run_id = 'waits' AND ended_at IS NOT NULL"))
        worker.send_signal(signal.SIGINT)
        worker.communicate(timeout=PATIENCE)
    assert "paid back 400 of 7" in cli("show", "waits", "--store", url).stdout
    assert CANARY not in nowhere.stdout + nowhere.stderr + wrong.stdout + wrong.stderr + done.stdout + done.stderr
