"""Every command, typed beside a `greenroom serve` that has the file open: it works, or says what to do instead."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from greenroom.transport.cli import _COMMANDS

from ..support.ports import free_port
from .cli_kit import Cli, Inside
from .serving_kit import AGENTS, Server, serving

pytestmark = pytest.mark.slow

DB = ("--db", "s.db")
OPEN = "process"
"""What a command says that needs the file for itself."""

# command -> words, the exit code, and what is in the output; commands that end a run come last
BESIDE = [
    ("runs", ["runs", *DB], 0, "support"),
    ("show", ["show", "r1", *DB], 0, "refund"),
    ("replay", ["replay", "r0", *DB, "--agent", "agents.py"], 0, "each of them as it is stored"),
    ("evidence", ["evidence", "r0", *DB], 0, "started by"),
    ("artifacts", ["artifacts", "r0", *DB], 0, "no artifacts"),
    ("diff", ["diff", "r1", *DB], 2, "has published no difference"),
    ("apply", ["apply", "r1", "--yes", *DB], 2, "no proposal of run r1 waits"),
    ("rules", ["rules", "list", *DB], 0, "rules"),
    ("queues", ["queues", "list", *DB], 0, "mails"),
    ("queues", ["queues", "limit", "mails", "3", *DB], 0, "at most 3 at once, paused"),
    ("queues", ["queues", "resume", "mails", *DB], 0, "at most 3 at once"),
    ("queues", ["queues", "pause", "mails", *DB], 0, "at most 3 at once, paused"),
    ("runs revive", ["runs", "revive", "r1", *DB], 1, "is no dead letter"),
    ("runs revive", ["runs", "revive", "nothing", *DB], 2, "no run has the id"),
    ("follow", ["follow", "r0", *DB], 0, "streamed"),
    ("send", ["send", "r1", "hurry", *DB], 0, "accepted"),
    ("pause", ["pause", "r1", *DB], 0, "accepted"),
    ("deny", ["deny", "r2", "--yes", *DB], 0, "r2"),
    ("approve", ["approve", "r3", "--yes", *DB], 0, "r3"),
    ("cancel", ["cancel", "r1", *DB], 0, "accepted"),
    ("backup", ["backup", "copy.db", *DB], 0, "to copy.db, "),
    ("runs", ["runs", "--db", "copy.db"], 0, "r0"),
    ("backup", ["backup", "copy.db", *DB], 5, "copy.db: File exists; name a new file"),
    ("prune", ["prune", "--older-than", "1w", "--dry-run", *DB], 0, "no run ended so long ago"),
    ("prune", ["prune", "--older-than", "0m", *DB], 0, "deleted"),
    ("run", ["run", "agents.py:support", "hi", "--no-approve", *DB], 5, OPEN),
    ("demo", ["demo", ".", "--no-approve", *DB], 5, OPEN),
    ("work", ["work", "hi", "--with", "demo", "--workspace", "work", "--no-approve", *DB], 5, OPEN),
    ("serve", ["serve", "agents.py:support", *DB, "--port", "0"], 5, OPEN),
    ("acp", ["acp", "--agent", "nobody", *DB], 2, "nobody"),
    ("mcp", ["mcp", "agents.py:support", "--agent", "nobody", *DB], 2, "its agents are: streamer, support"),
    ("token", ["token", "list", "--tokens", "tokens"], 2, "make it with `greenroom token add`"),
    ("db", ["db", "show"], 2, "needs a shared store"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("beside")
    (folder / "agents.py").write_text(AGENTS)
    (folder / "work").mkdir()
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    cli = Cli(folder, folder / "state")
    names = ("support", "streamer")
    with serving(cli, *(f"agents.py:{name}" for name in names), *DB, port=free_port()) as server:
        server.starts("streamer", "r0", until="run.completed")
        for name in ("r1", "r2", "r3"):
            server.starts("support", name)
        server.asks(lambda client: client.set_queue("mails", paused=True))
        server.asks(lambda client: client.start("support", "hi", run_id="queued", queue="mails"))
        yield server
        assert server.stops() == 0


@pytest.fixture
def inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Inside:
    for name in ("GREENROOM_URL", "GREENROOM_TOKEN", "GREENROOM_STORE"):
        monkeypatch.delenv(name, raising=False)
    return Inside(folder, folder / "state", monkeypatch)


def test_every_command_is_in_the_table() -> None:
    assert {name for name, *_ in BESIDE} == set(_COMMANDS)


def test_each_command_works_beside_a_server_or_says_what_to_do(server: Server, inside: Inside) -> None:
    """In one test: the commands follow each other, and act on the same runs."""
    for name, words, code, said in BESIDE:
        done = inside(*words)
        assert (done.returncode, done.stderr if code == 0 else "") == (code, ""), (words, done.stdout, done.stderr)
        assert said in done.stdout + done.stderr, (name, words, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr


def test_a_run_in_a_paused_queue_says_so_in_every_place(server: Server, inside: Inside) -> None:
    view = server.asks(lambda client: client.view("queued"))
    assert view.waiting_for is not None
    assert view.waiting_for.detail == "it waits in the queue 'mails', which is paused"
    assert "which is paused" in inside("show", "queued", *DB).stdout
    (line,) = [
        json.loads(text) for text in inside("queues", "list", *DB, "--json").stdout.splitlines() if "mails" in text
    ]
    assert (line["paused"], line["ready"], line["scheduled"]) == (True, 1, 0)


def test_a_variable_that_names_a_server_does_not_redirect_what_names_a_database(
    server: Server, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`prune` deletes: a variable of another terminal must not choose the place."""
    monkeypatch.setenv("GREENROOM_URL", server.console)
    done = inside("prune", "--older-than", "0m")
    assert done.returncode == 5
    assert "there is no database" in done.stderr
