"""The blocks of docs/frontends.md as files, and the gateways of that page in processes of their own."""

import http.client
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .judges import need_node_modules, need_program
from .ports import free_port

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILES = {
    "desk.py",
    "team.py",
    "Chat.jsx",
    "conversation.js",
    "copilot.js",
    "Copilot.jsx",
    "runs.js",
    "socket.js",
    "history.js",
}
ANN, LEA = "the-token-of-ann-in-tests", "the-token-of-lea-in-tests"
PATIENCE = 120


def files_of(text: str) -> tuple[dict[str, str], list[str]]:
    """Name -> text of each block that is a file, and the commands. Every block is one or the other."""
    files, commands = dict[str, str](), list[str]()
    for language, block in BLOCK.findall(text):
        named = re.match(r"(?:#|//) ([\w.]+)\n", block)
        if language == "console":
            commands += re.findall(r"^\$ (.*)$", block, re.MULTILINE)
        else:
            assert named, f"a {language} block without the name of its file: {block[:60]}"
            files[named[1]] = block
    return files, commands


def page_of(root: Path) -> str:
    return (root / "docs" / "frontends.md").read_text(encoding="utf-8")


def page_files(root: Path, folder: Path, judge: str) -> Path:
    """Fill a folder with the blocks of the page, and with the npm packages of this judge."""
    need_program("node")
    modules = need_node_modules(judge) / "node_modules"
    files, _ = files_of(page_of(root))
    assert set(files) == FILES
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    (folder / "node_modules").symlink_to(modules)
    return folder


class Gateway:
    """Where it is, and a request to its own API."""

    def __init__(self, port: int, token: str) -> None:
        self.port, self.token, self.url = port, token, f"http://127.0.0.1:{port}"

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        sent = {"authorization": f"Bearer {self.token}", **headers}
        connection.request(method, path, None if body is None else json.dumps(body).encode(), sent)
        reply = connection.getresponse()
        data = reply.read()
        connection.close()
        return reply.status, json.loads(data) if data else None

    def runs(self, thread: str) -> list[dict[str, Any]]:
        """Of a chat, the newest first."""
        found: list[dict[str, Any]] = self.ask("GET", f"/v1/runs?thread={thread}")[1]["runs"]
        return found


@contextmanager
def running(command: list[str], folder: Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        command, cwd=folder, env=os.environ | environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def served(root: Path, folder: Path) -> Iterator[Gateway]:
    """The gateway that the command of the page serves, but on a free port."""
    _, (command,) = files_of(page_of(root))
    program, *words = shlex.split(command)
    assert program == "greenroom"
    with running([str(Path(sys.executable).parent / program), *words, "--port", "0", "--json"], folder) as process:
        assert process.stdout is not None
        report = json.loads(process.stdout.readline())
        token = Path(report["tokenFile"]).read_text(encoding="utf-8").strip()
        yield Gateway(int(report["url"].rpartition(":")[2]), token)


@contextmanager
def team_served(folder: Path) -> Iterator[Gateway]:
    """The program of the page with a principal for each person."""
    port, text = free_port(), (folder / "team.py").read_text(encoding="utf-8")
    assert "port=8766" in text
    (folder / "team_here.py").write_text(text.replace("port=8766", f"port={port}"), encoding="utf-8")
    with running([sys.executable, "team_here.py"], folder, ANN_TOKEN=ANN, LEA_TOKEN=LEA) as process:
        found = Gateway(port, ANN)
        while not serves(found):
            assert process.poll() is None
        yield found


def serves(gateway: Gateway) -> bool:
    try:
        return gateway.ask("GET", "/healthz")[0] == 200
    except ConnectionRefusedError:
        return False
