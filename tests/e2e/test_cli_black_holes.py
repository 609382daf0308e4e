"""Commands about a shared store whose server does not answer: Ctrl-C ends each at once, and so does a short time."""

import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..support.black_holes import silent
from .cli_kit import Cli, Inside
from .serving_kit import AGENTS

pytestmark = [pytest.mark.slow, pytest.mark.no_cover]

CANARY = "canary-of-a-password"
AT_ONCE = 3.0
"""Seconds that count as at once on a loaded machine; an attempt to connect would take 5."""

COMMANDS = (
    ["db", "show"],
    ["db", "migrate"],
    ["db", "level"],
    ["runs"],
    ["show", "r"],
    ["queues", "list"],
    ["approve", "r", "--yes"],
    ["cancel", "r"],
    ["follow", "r"],
    ["run", "agents.py:support", "help"],
    ["serve", "--port=0"],
    ["serve", "agents.py", "--port=0", "--workers=2"],
)


def place(port: int, **fields: str) -> str:
    query = "&".join(f"{name}={value}" for name, value in fields.items())
    return f"postgresql://u:{CANARY}@127.0.0.1:{port}/d?{query}"


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        yield server


@pytest.mark.parametrize("debug", [[], ["--debug"]], ids=["", "debug"])
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_ctrl_c_ends_a_command_that_waits_for_a_connection(
    tmp_path: Path, listener: socket.socket, words: list[str], debug: list[str]
) -> None:
    cli = Cli(tmp_path, tmp_path / "state")
    (tmp_path / "agents.py").write_text(AGENTS)
    with cli.started(*debug, *words, "--store", place(listener.getsockname()[1], connect_timeout="60")) as process:
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(60)
            assert connection.recv(8)  # it asks, and waits for the answer
            begun = time.monotonic()
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
            taken = time.monotonic() - begun
    assert taken < AT_ONCE, err
    assert process.returncode == 130, out + err
    assert CANARY not in out + err
    assert "bug in Greenroom" not in err
    assert "Traceback" not in err


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_sentence_names_host_and_port_and_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    cli = Inside(tmp_path, tmp_path / "state", monkeypatch)
    (tmp_path / "agents.py").write_text(AGENTS)
    monkeypatch.setattr("greenroom.actors.stores.postgres.store._OPENING", 1.0)
    with silent() as port:
        done = cli(*words, "--store", place(port, connect_timeout="2"))
    assert done.returncode == 5, done.stdout + done.stderr
    assert CANARY not in done.stdout + done.stderr
    (line,) = done.stderr.splitlines()
    assert f"127.0.0.1:{port} gives no answer within 2 s; check the host and the port" in line
