"""A service on PostgreSQL as docs/postgres.md describes it: the page's commands, the example, killed workers."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
from tests.support.ports import free_port

from greenroom.actors.stores.postgres.store import PostgresStore
from greenroom.actors.testing.store_kit._tools import create, new_run, opened
from greenroom.transport.server.workers import Workers

from .cli_kit import PATIENCE, Cli
from .serving_kit import AGENTS, Server
from .test_docs import blocks, play, save

pytestmark = [pytest.mark.slow, pytest.mark.no_cover]


@pytest.fixture
def cli(tmp_path: Path, postgres_url: str) -> Cli:
    """The command line in a folder with agents, with a store in its environment."""
    (tmp_path / "agents.py").write_text(AGENTS)
    cli = Cli(tmp_path, tmp_path / "state")
    cli.env["GREENROOM_STORE"] = postgres_url
    cli.env.pop("COVERAGE_PROCESS_CONFIG", None)
    return cli


def test_the_page_is_true(root: Path, tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GREENROOM_STORE", postgres_url)
    for where, language, text in blocks(root / "docs/postgres.md"):
        if language == "python":
            save(tmp_path, where, text)
        elif language == "console":
            play(tmp_path, where, text)


def test_the_example_runs(root: Path, postgres_url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(root / "examples/postgres_service.py"), postgres_url],
        capture_output=True,
        check=False,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "3 workers, 2 gateways"
    assert lines[-1] == "completed"
    sequences = [int(line.split()[0]) for line in lines[1:-1] if not line.startswith("    ")]
    assert sequences == [*range(1, len(sequences) + 1)]


# --- workers ---------------------------------------------------------------------------------------------------------


class Service(Server):
    """A parent with workers."""

    def __init__(self, process: "subprocess.Popen[str]", report: dict[str, Any]) -> None:
        super().__init__(process, report)
        self.workers: list[int] = report["workers"]
        self.metrics_port = 0


def two_free_ports() -> int:
    """The first of two ports that are free."""
    while True:
        first = free_port()
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", first + 1))
            except OSError:
                continue
        return first


@pytest.fixture
def service(cli: Cli, tmp_path: Path) -> Iterator[Service]:
    """Two workers with all agents."""
    token, first = str(tmp_path / "token"), two_free_ports()
    options = ["--workers", "2", "--port", "0", "--token-file", token, "--json", "--metrics-port", str(first)]
    with cli.started("serve", "agents.py", *options) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            assert process.stderr is not None
            raise AssertionError(process.stderr.read())
        one = Service(process, json.loads(line))
        one.metrics_port = first
        yield one
        if process.poll() is None:
            one.stops()


def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition is true; other processes make it true."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        threading.Event().wait(0.05)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def owner_of(cli: Cli, run_id: str) -> str | None:
    return json.loads(cli("show", run_id, "--json").stdout)["owner"]


def pid_of(cli: Cli, name: str) -> int:
    facts = json.loads(cli("db", "show", "--json").stdout)
    return next(one["pid"] for one in facts["processes"] if one["name"] == name)


def test_workers_share_a_port_and_stop_in_order(service: Service) -> None:
    assert len(set(service.workers)) == 2
    assert all(map(alive, service.workers))
    service.starts("support", "r1")
    authorization = {"authorization": f"Bearer {service.console.partition('=')[2]}"}
    frames = 0.0
    for port in (service.metrics_port, service.metrics_port + 1):  # each worker has one
        reply = httpx.get(f"http://127.0.0.1:{port}/metrics", headers=authorization, trust_env=False)
        assert reply.status_code == 200, reply.text
        numbers = [float(line.split()[1]) for line in reply.text.splitlines() if line.startswith("greenroom_store_up ")]
        assert numbers == [1.0]
        for line in reply.text.splitlines():
            frames += float(line.split()[1]) if line.startswith("greenroom_frames_received_total") else 0.0
    assert frames >= 1, "the start was a frame to one of them"
    assert service.stops() == 0
    assert not any(map(alive, service.workers))


def test_the_runs_of_a_killed_worker_continue_at_once(cli: Cli, service: Service) -> None:
    service.starts("endless", "long", until="run.tool.started")
    owner = owner_of(cli, "long")
    assert owner is not None
    os.kill(pid_of(cli, owner), signal.SIGKILL)
    killed = time.monotonic()
    until(lambda: owner_of(cli, "long") not in (None, owner))
    assert time.monotonic() - killed < 15.0  # half a lease; the commands that look take most of this time
    assert cli("cancel", "long").returncode == 0


def test_a_killed_worker_is_replaced(cli: Cli, service: Service) -> None:
    def live() -> list[int]:
        facts = json.loads(cli("db", "show", "--json").stdout)
        return [one["pid"] for one in facts["processes"] if not one["dead"] and one["pid"] != service.process.pid]

    before = live()
    assert sorted(before) == sorted(service.workers)
    os.kill(before[0], signal.SIGKILL)
    until(lambda: len(live()) == 2 and before[0] not in live())


def test_the_workers_of_a_killed_parent_stop(service: Service) -> None:
    service.process.kill()
    service.process.wait(PATIENCE)
    until(lambda: not any(map(alive, service.workers)))


def test_a_file_without_agents_is_reported_once(cli: Cli) -> None:
    (cli.folder / "broken.py").write_text("raise ValueError('no agent here')\n")
    done = cli("serve", "broken.py", "--workers", "2", "--port", "0")
    assert done.returncode == 2
    assert "no agent here" in done.stderr


# --- commands on runs of other processes -----------------------------------------------------------------------------


def test_commands_reach_the_runs_of_workers(cli: Cli, service: Service) -> None:
    service.starts("support", "r1")
    assert "asks for approval: refund" in cli("runs", "--status", "waiting").stdout
    approved = cli("approve", "r1", "--yes")
    assert "approved refund" in approved.stdout
    assert "No process works" not in approved.stdout
    followed = cli("follow", "r1", "--json")
    assert followed.returncode == 0
    events = [json.loads(line) for line in followed.stdout.splitlines()]
    sequences = [event["sequence"] for event in events if "sequence" in event]
    assert sequences == [*range(1, len(sequences) + 1)]
    assert "completed" in cli("show", "r1").stdout


def test_a_run_is_cancelled_from_outside(cli: Cli, service: Service) -> None:
    service.starts("endless", "long", until="run.tool.started")
    assert cli("cancel", "long", "--reason", "enough").returncode == 0
    assert cli("follow", "long", "--json").returncode == 4


def test_queues_are_limited_and_paused_for_all_processes(cli: Cli, service: Service) -> None:
    service.starts("support", "r1")
    assert json.loads(cli("queues", "limit", "support", "3", "--json").stdout)["maxRunning"] == 3
    assert json.loads(cli("queues", "pause", "support", "--json").stdout)["paused"] is True
    (line,) = [json.loads(text) for text in cli("queues", "list", "--json").stdout.splitlines()]
    assert (line["name"], line["maxRunning"], line["paused"]) == ("support", 3, True)
    assert json.loads(cli("queues", "resume", "support", "--json").stdout)["paused"] is False
    assert json.loads(cli("queues", "limit", "support", "none", "--json").stdout)["maxRunning"] is None
    assert cli("runs", "revive", "r1").returncode == 1


async def test_a_worker_that_was_declared_dead_before_is_buried_under_its_new_name(postgres_url: str) -> None:
    """As after a long SIGSTOP: it goes on as another process of the store, whose name begins with the old one."""
    times: dict[str, Any] = {"lease": 60.0, "turn": 0.2}
    parent, worker = PostgresStore(postgres_url, **times), PostgresStore(postgres_url, name="worker", **times)
    workers = Workers(parent, (), {}, 1, (), lambda *_: None)
    async with opened(parent), opened(worker):
        assert await parent.bury("worker")
        with trio.fail_after(10):
            # The new name is known from the row on; claims are good a moment later, once the turn has the answer.
            while worker.process == "worker" or worker.unready:  # noqa: ASYNC110 - a turn changes both
                await trio.sleep(0.02)
        await create(worker, new_run("r", "t"))
        await workers._bury("worker")
        lines = (await parent.summaries(["r"])).runs
        assert [line.owner for line in lines] == [None]
