"""`greenroom acp` as a user meets it: what it needs, what is wrong with it, and how it ends."""

import json
import signal
import subprocess
from pathlib import Path
from typing import Any, Self

import pytest

from .cli_kit import PATIENCE, Cli

pytestmark = pytest.mark.slow

AGENTS = Path(__file__).parent / "acp_agents.py"
HELLO: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    for name in ("GREENROOM_URL", "GREENROOM_TOKEN", "GREENROOM_STORE"):
        monkeypatch.delenv(name, raising=False)
    return Cli(tmp_path, tmp_path / "state")


class Bridge:
    """The command with pipes."""

    def __init__(self, cli: Cli, *words: str | Path) -> None:
        pipe = subprocess.PIPE
        self.process = cli._process("acp", *words, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            pipe.close()

    def ask(self, message: Any) -> Any:
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@pytest.mark.rule("ACP-2")
def test_it_hosts_a_gateway_and_ends_with_its_input(cli: Cli) -> None:
    with Bridge(cli, AGENTS, "--db", "runs.db") as bridge:
        assert bridge.ask(HELLO)["result"]["protocolVersion"] == 1
        listed = cli("runs", "--db", "runs.db", "--json")
        assert listed.returncode == 0
        out, err = bridge.process.communicate(timeout=PATIENCE)
        assert (out, bridge.process.returncode) == ("", 0)
        assert "serving at http://127.0.0.1:" in err


@pytest.mark.rule("ACP-2")
def test_two_editors_share_the_gateway_of_the_first(cli: Cli) -> None:
    with Bridge(cli, AGENTS, "--db", "runs.db") as first:
        first.ask(HELLO)
        with Bridge(cli, AGENTS, "--db", "runs.db") as second:
            second.ask(HELLO)
            _, err = second.process.communicate(timeout=PATIENCE)
            assert "serving" not in err


@pytest.mark.rule("ACP-2")
@pytest.mark.parametrize(
    ("words", "text", "code"),
    [
        (("--db", "none.db"), "there is no database", 5),
        (("nobody.py",), "there is no file nobody.py", 2),
        ((AGENTS, "--agent", "nobody"), "--agent nobody: the gateway has no such agent; it has helper", 2),
        ((AGENTS, "--url", "http://127.0.0.1:1"), "--url is for a gateway that runs already", 2),
        (("--url", "http://127.0.0.1:1"), "no gateway answers at http://127.0.0.1:1", 1),
        ((AGENTS, "--db", "no/such/folder.db"), "does not exist; make it first", 5),
    ],
)
def test_what_is_wrong_is_said_in_one_line(cli: Cli, words: Any, text: str, code: int) -> None:
    done = cli("acp", *words)
    assert (done.stdout, done.returncode) == ("", code)
    lines = [line for line in done.stderr.splitlines() if "serving at" not in line]
    assert len(lines) == 1
    assert text in lines[0]


def test_a_wrong_token_is_said_in_one_line(cli: Cli) -> None:
    with cli.started("serve", AGENTS, "--db", "runs.db", "--port", "0", "--json") as server:
        assert server.stdout is not None
        url = json.loads(server.stdout.readline())["url"]
        done = cli("acp", "--url", url, "--token", "not-the-token-of-this-gateway")
        assert (done.stdout, done.returncode) == ("", 1)
        assert len(done.stderr.splitlines()) == 1
        assert "token" in done.stderr


@pytest.mark.rule("ACP-12")
def test_an_interrupt_ends_it_in_order(cli: Cli) -> None:
    with Bridge(cli, AGENTS, "--db", "runs.db") as bridge:
        bridge.ask(HELLO)
        bridge.process.send_signal(signal.SIGINT)
        _, err = bridge.process.communicate(timeout=PATIENCE)
        assert bridge.process.returncode == 130
        assert "interrupted" in err


def test_an_editor_that_has_gone_ends_it(cli: Cli) -> None:
    with Bridge(cli, AGENTS, "--db", "runs.db") as bridge:
        bridge.ask(HELLO)
        bridge.process.stdout.close()
        bridge.process.stdin.write(json.dumps({**HELLO, "id": 2}) + "\n")
        bridge.process.stdin.flush()
        assert bridge.process.wait(PATIENCE) == 141
