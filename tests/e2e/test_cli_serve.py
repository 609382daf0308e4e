"""`greenroom serve` as people use it: found, stopped, killed, started again."""

import json
import os
import resource
import signal
import socket
import stat
from pathlib import Path

import httpx
import pytest

from greenroom.actors.stores.sqlite.store import Owner, owner_of

from ..support.mcp_client import META, MODERN
from ..support.ports import free_port
from .cli_kit import PATIENCE, Cli, Inside, lines_of, one_line, wait_for
from .serving_kit import AGENTS, Server, serving

pytestmark = pytest.mark.slow

SLOW = """
import trio
import greenroom as gr
from greenroom.testing import ScriptedModel, delay

agent = gr.Agent("slow", model=ScriptedModel([delay(60), "done"]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "agents.py").write_text(AGENTS)
    (folder / "slow.py").write_text(SLOW)
    return folder


@pytest.fixture
def cli(folder: Path, tmp_path: Path) -> Cli:
    return Cli(folder, tmp_path / "state")


@pytest.fixture
def inside(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inside:
    return Inside(folder, tmp_path / "state", monkeypatch)


def test_it_says_where_it_is_and_keeps_its_token_for_its_user_only(cli: Cli, folder: Path) -> None:
    with serving(cli, "agents.py:support", "agents.py:painter", "--db", "s.db") as server:
        assert server.report == {
            "type": "serving",
            "url": server.url,
            "console": f"{server.url}/",
            "tokenFile": str(folder / "s.db.token"),
            "pid": server.process.pid,
            "agents": ["painter", "support"],
        }
        assert stat.S_IMODE((folder / "s.db.token").stat().st_mode) == 0o600
        owner = Owner(pid=server.process.pid, url=server.url, token_file=str(folder / "s.db.token"))
        assert owner_of(folder / "s.db") == owner
        assert server.asks(lambda client: client.start("support", "help")).run_id.startswith("run_")
        assert server.stops() == 0
    assert owner_of(folder / "s.db") is None


def test_it_asks_for_as_many_open_files_as_it_may_have(cli: Cli) -> None:
    """Each client holds one, and the usual soft limit is lower than the gateway's own limit of connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    low = 512
    resource.setrlimit(resource.RLIMIT_NOFILE, (low, hard))
    try:
        with serving(cli, "agents.py:support", "--db", "s.db") as server:
            limits = Path(f"/proc/{server.process.pid}/limits").read_text()
            (line,) = (line for line in limits.splitlines() if line.startswith("Max open files"))
            assert int(line.split()[3]) > low
            assert server.stops() == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_an_error_for_people_has_a_few_lines(cli: Cli) -> None:
    with cli.started("serve", "agents.py:support", "--port", "0") as process:
        assert process.stdout is not None
        first, console, token, memory, stop = (process.stdout.readline().rstrip() for _ in range(5))
        assert first.startswith("Serving support at http://127.0.0.1:")
        assert console.startswith("console:  http://127.0.0.1:")
        file = Path(token.removeprefix("token:").strip())
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert file.read_text().strip() not in "".join([first, console, token, memory, stop]), (
            "a journal keeps all of it"
        )
        assert memory == "runs:     in memory only; --db FILE keeps them"
        assert stop == "Ctrl-C stops it."
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (0, "")
    assert out.splitlines()[-1] == "Stopped."
    assert not file.exists()


def test_a_second_interrupt_stops_it_at_once_and_loses_nothing(cli: Cli, inside: Inside) -> None:
    with cli.started("serve", "slow.py", "--db", "s.db", "--port", "0") as process:
        assert process.stdout is not None
        url, _, file = (process.stdout.readline().split()[-1] for _ in range(3))
        Server(process, {"url": url, "tokenFile": file}).starts("slow", "r1", until="run.inference.started")
        process.send_signal(signal.SIGINT)
        while "Stopping in order" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (130, "")
    assert out == "Stopped at once; unfinished work continues at the next start.\n"
    shown = json.loads(inside("show", "r1", "--db", "s.db", "--json").stdout)
    assert shown["status"] == "running"


def test_after_kill_nine_it_comes_back_and_a_follower_misses_nothing(cli: Cli, folder: Path) -> None:
    """On the same port, with the same token: the caller that follows need not even notice."""
    arguments = ("agents.py:streamer", "--db", "s.db")
    with serving(cli, *arguments, port=free_port()) as server:
        server.starts("streamer", "r1", until="run.tool.started")
        port = server.port
        with cli.started("follow", "r1", "--db", "s.db", "--json") as follower:
            seen = wait_for(follower, "run.tool.output.delta", 3)
            server.process.kill()
            server.process.wait()
            with serving(cli, *arguments, port=port) as again:
                seen += list(lines_of(follower))
                assert follower.wait(PATIENCE) == 0
                assert again.console == server.console
    *events, outcome = seen
    assert [event["sequence"] for event in events] == list(range(1, len(events) + 1))
    assert sum(event["type"] == "run.completed" for event in events) == 1
    assert (outcome["type"], outcome["status"], outcome["output"]) == ("outcome", "completed", "streamed")


def test_runs_that_are_not_done_continue_when_it_starts(cli: Cli, inside: Inside) -> None:
    with serving(cli, "agents.py:support", "--db", "s.db") as server:
        server.starts("support", "r1")
    with cli.started("serve", "agents.py:support", "--db", "s.db", "--port", "0") as process:
        assert process.stdout is not None
        reported = [process.stdout.readline().rstrip() for _ in range(5)]
        assert reported[3] == "runs:     s.db, 1 run not finished"
        assert inside("approve", "r1", "--db", "s.db").returncode == 0
        followed = inside("follow", "r1", "--db", "s.db")
        assert followed.returncode == 0
        assert "paid back 500 of 7" in followed.stdout


def test_a_token_file_of_ones_own_is_used_or_made(cli: Cli, inside: Inside, folder: Path) -> None:
    (folder / "mine").write_text("a token that I have chosen\n")
    with serving(cli, "agents.py:support", "--db", "s.db", "--token-file", "mine") as server:
        assert server.console.endswith("#token=a token that I have chosen")
        server.starts("support", "r1")
        assert inside("approve", "r1", "--db", "s.db").returncode == 0
        assert inside("follow", "r1", "--url", server.url, "--token-file", "mine").returncode == 0
    with serving(cli, "agents.py:support", "--token-file", "made") as server:
        assert server.console.endswith((folder / "made").read_text().strip())
        assert stat.S_IMODE((folder / "made").stat().st_mode) == 0o600


def test_several_files_have_their_agents_side_by_side(cli: Cli, folder: Path) -> None:
    with serving(cli, "agents.py:support", "slow.py") as server:
        assert server.report["agents"] == ["slow", "support"]
        assert server.report["tokenFile"] is not None


def test_a_file_with_several_agents_serves_all_of_them(cli: Cli, folder: Path) -> None:
    with serving(cli, "agents.py") as server:
        assert {"painter", "support"} < set(server.report["agents"])


def test_the_agents_for_mcp_hosts_can_be_chosen(cli: Cli, folder: Path) -> None:
    meta = {f"{META}protocolVersion": MODERN, f"{META}clientCapabilities": {}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
    headers = {"mcp-protocol-version": MODERN, "mcp-method": "tools/list"}
    for options, names in (((), ["run_result", "slow", "support"]), (("--mcp", "slow"), ["run_result", "slow"])):
        with serving(cli, "agents.py:support", "slow.py", *options) as server:
            headers["authorization"] = f"Bearer {Path(server.report['tokenFile']).read_text().strip()}"
            tools = httpx.post(f"{server.url}/v1/mcp", json=body, headers=headers).json()["result"]["tools"]
        assert [tool["name"] for tool in tools] == names


def test_the_agents_and_cards_for_a2a_clients_can_be_chosen(cli: Cli, folder: Path) -> None:
    options = ("--a2a", "slow", "--a2a-default", "slow", "--a2a-cards", "public")
    with serving(cli, "agents.py:support", "slow.py", *options) as server:
        assert httpx.get(f"{server.url}/.well-known/agent-card.json").json()["name"] == "slow"
        assert httpx.get(f"{server.url}/v1/a2a/slow/.well-known/agent-card.json").status_code == 200
        assert httpx.get(f"{server.url}/v1/a2a/support/.well-known/agent-card.json").status_code == 404
    with serving(cli, "agents.py:support", "slow.py") as server:
        assert httpx.get(f"{server.url}/v1/a2a/slow/.well-known/agent-card.json").status_code == 401


@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        (["nowhere.py"], "there is no file nowhere.py", 2),
        (
            ["agents.py:support", "agents.py:support", "--db", "nowhere/s.db"],
            "nowhere does not exist; make it first",
            5,
        ),
        (["slow.py", "--db", "."], "is a folder", 5),
        (["slow.py", "--port", "70000"], "is not between 0 and 65535", 2),
        (["slow.py", "--port", "x"], "is not between 0 and 65535", 2),
        (["slow.py", "--port", "0", "--mcp", "fast"], "no agent here has the key 'fast'", 2),
        (["slow.py", "--port", "0", "--a2a", "fast"], "a2a: no agent has the key 'fast'", 2),
        (["slow.py", "--port", "0", "--a2a-default", "fast"], "a2a_default: no agent has the key 'fast'", 2),
        (["slow.py", "--a2a-cards", "all"], "invalid choice: 'all'", 2),
        (["slow.py", "--max-running", "0"], "is not between 1 and 1000", 2),
        (["slow.py", "--token-file", "short"], "the token file", 2),
        (["slow.py", "--token-file", "nowhere/token"], "cannot be written", 2),
        (["slow.py", "--host", "192.0.2.1"], "192.0.2.1:8765 cannot be bound", 1),
        ([], "name an agent", 2),
    ],
)
def test_wrong_usage_is_one_line(inside: Inside, folder: Path, arguments: list[str], words: str, code: int) -> None:
    (folder / "short").write_text("short\n")
    done = inside("serve", *arguments)
    assert words in one_line(done.stderr)
    assert done.returncode == code


def test_a_port_that_is_taken_is_said_so(inside: Inside) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = inside("serve", "slow.py", "--port", str(port))
    assert done.returncode == 1
    assert f"127.0.0.1:{port} is taken by another program; choose one with --port" in one_line(done.stderr)


def test_a_database_that_is_served_is_not_served_twice(cli: Cli, inside: Inside) -> None:
    with serving(cli, "agents.py:support", "--db", "s.db") as server:
        done = inside("serve", "agents.py:support", "--db", "s.db", "--port", "0")
        assert done.returncode == 5
        assert f"talk to it at {server.url}" in one_line(done.stderr)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed for root")
def test_a_token_that_cannot_be_read_is_said_so(inside: Inside, folder: Path) -> None:
    (folder / "mine").write_text("a token that I have chosen\n")
    (folder / "mine").chmod(0)
    done = inside("serve", "slow.py", "--token-file", "mine")
    assert done.returncode == 2
    assert "cannot be read: Permission denied" in one_line(done.stderr)


def test_the_command_line_starts_where_no_fork_can_be_waited_for(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' own way to start processes, on systems without pidfd."""
    monkeypatch.delattr(os, "pidfd_open")
    assert cli("--version").stdout.startswith("greenroom ")
    with cli.terminal("--version") as terminal:
        terminal.sees("greenroom ")
        assert terminal.ends() == 0
