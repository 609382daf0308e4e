"""`greenroom mcp` as a process: its ends, each with one sentence and an exit code."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..support.ports import free_port
from .cli_kit import PATIENCE, Cli, one_line
from .serving_kit import AGENTS, Server, serving

PING = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}) + "\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mcp")
    (folder / "agents.py").write_text(AGENTS)
    return folder


@pytest.fixture(scope="module")
def cli(folder: Path) -> Cli:
    return Cli(folder, folder / "state")


@pytest.fixture(scope="module")
def server(cli: Cli) -> Iterator[Server]:
    with serving(cli, "agents.py:support", "--db", "served.db", port=free_port()) as server:
        yield server
        assert server.stops() == 0


@pytest.mark.rule("MB-6")
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--agent", "nobody", "--db", "served.db"], 2, "has no such agent; its agents are: support"),
        (["--agent", "suport", "--db", "served.db"], 2, "did you mean 'support'?"),
        (["agents.py:painter", "--db", "served.db"], 2, "has the database open, and no agent 'painter' (but: support)"),
        (["--url", "{url}", "--token", "wrong-token-wrong-token"], 1, "does not take this token"),
        (["--url", "{url}"], 1, "does not take this token"),
        (["--url", "http://127.0.0.1:9"], 1, "no gateway answers at http://127.0.0.1:9"),
        (["--url", "nonsense"], 2, "is not the URL of a gateway"),
        (["--db", "none.db"], 5, "there is no database none.db"),
        (["agents.py", "--url", "{url}"], 2, "--url is for a gateway that runs already"),
        (["nothing.py"], 2, "there is no file nothing.py"),
        (["agents.py:nobody"], 2, "has no 'nobody'"),
        (["agents.py", "--db", "missing/runs.db"], 5, "does not exist; make it first"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_cannot_work_is_said_in_one_sentence(
    cli: Cli, server: Server, words: list[str], code: int, said: str
) -> None:
    done = cli("mcp", *(word.format(url=server.url) for word in words))
    assert (done.returncode, done.stdout) == (code, "")
    assert said in one_line(done.stderr)


def begun(process: "subprocess.Popen[str]") -> None:
    """Wait until the bridge serves."""
    assert process.stderr is not None
    line = process.stderr.readline()
    assert line.startswith("greenroom: serving at http://127.0.0.1:"), line
    assert "runs in memory only, token in /" in line


@pytest.mark.rule("MB-6")
def test_the_end_of_the_input_is_the_end(cli: Cli) -> None:
    done = cli("mcp", "agents.py:support", "--db", "own.db")
    assert (done.returncode, done.stdout) == (0, "")
    assert "serving at" in one_line(done.stderr)


@pytest.mark.rule("MB-6")
def test_ctrl_c_ends_the_bridge_in_order(cli: Cli) -> None:
    process = cli._process(
        "mcp", "agents.py:support", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        try:
            begun(process)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert (process.returncode, out, one_line(err)) == (130, "", "interrupted")


@pytest.mark.rule("MB-6")
def test_a_closed_output_ends_the_bridge(cli: Cli) -> None:
    process = cli._process(
        "mcp", "agents.py:support", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        try:
            begun(process)
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdout.close()
            process.stdin.write(PING)
            process.stdin.flush()
            assert process.wait(PATIENCE) == 141
        finally:
            process.kill()


@pytest.mark.rule("MB-1")
def test_on_a_shared_store_each_bridge_hosts_a_gateway(cli: Cli, postgres_url: str) -> None:
    url = postgres_url.replace("greenroom@", "greenroom:canary-of-a-password@")
    process = cli._process(
        "mcp",
        "agents.py:support",
        "--store",
        url,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    call = {"name": "support", "arguments": {"input": "help"}}
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    with process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            for number, (method, fields) in enumerate((("initialize", params), ("tools/call", call))):
                message = {"jsonrpc": "2.0", "id": number, "method": method, "params": fields}
                process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["result"]["protocolVersion"] == "2025-11-25"
            result = json.loads(process.stdout.readline())["result"]
            assert "waits for a decision" in result["content"][0]["text"]
            process.stdin.close()
            assert process.wait(PATIENCE) == 0
            assert process.stderr is not None
            said = process.stderr.read()
        finally:
            process.kill()
    assert "serving at" in one_line(said)
    assert "canary" not in said
    assert result["_meta"]["greenroom/run"] in cli("runs", "--store", url).stdout
