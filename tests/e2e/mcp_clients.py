"""Four clients of MCP as programs that a test drives, and a server for them that can be killed."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from ..support.judges import FOLDER, need_node_modules, need_program
from ..support.ports import free_port
from .cli_kit import COMMAND, PATIENCE, Cli
from .serving_kit import Server, serving

AGENTS = Path(__file__).with_name("mcp_agents.py")
CLIENTS: dict[str, tuple[str, ...]] = {
    "sdk 1.x": ("node", "sdk1.mjs"),
    "client 2.x": ("node", "client2.mjs"),
    "python legacy": (sys.executable, "python_client.py", "legacy"),
    "python auto": (sys.executable, "python_client.py", "auto"),
}
"""Name -> program."""
MODERN = frozenset({"client 2.x", "python auto"})
"""Those that speak the modern era."""
APPROVED = {"action": "accept", "content": {"decision": "approve"}}


class Service:
    """`greenroom serve` on one database and one port, as often as it is started."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port, self.effects_file = folder, free_port(), folder / "effects"
        self.cli = Cli(folder, folder / "state")
        self.cli.env["EFFECTS"] = str(self.effects_file)
        self._stack = ExitStack()

    def start(self) -> Server:
        self.server = self._stack.enter_context(serving(self.cli, AGENTS, "--db", "runs.db", port=self.port))
        return self.server

    def kill(self) -> None:
        """As `kill -9` does."""
        self.server.process.kill()
        self.server.process.wait(PATIENCE)

    def close(self) -> None:
        self._stack.close()

    @property
    def effects(self) -> list[str]:
        return self.effects_file.read_text().splitlines() if self.effects_file.exists() else []

    @property
    def token(self) -> str:
        return (self.folder / "runs.db.token").read_text().strip()

    @property
    def target(self) -> dict[str, Any]:
        """Where a client finds the gateway."""
        return {"url": f"http://127.0.0.1:{self.port}/v1/mcp", "token": self.token}

    @property
    def bridge(self) -> dict[str, Any]:
        """Where a client finds a bridge to the gateway."""
        return {"command": [*COMMAND, "mcp", "--db", str(self.folder / "runs.db")], "token": ""}


class ClientProgram:
    """A client in a process of its own: a JSON line for each task, and for each thing that happens."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.progress: list[dict[str, Any]] = []
        self.version = ""

    def does(self, task: str, **more: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": task, **more}) + "\n")
        self.process.stdin.flush()

    def calls(self, name: str, /, *, meta: dict[str, Any] | None = None, **arguments: Any) -> None:
        self.does("call", name=name, arguments=arguments, **({} if meta is None else {"meta": meta}))

    def answers(self, result: dict[str, Any]) -> None:
        self.does("answer", result=result)

    def sees(self) -> tuple[str, Any]:
        """The next thing that happens, progress aside."""
        assert self.process.stdout is not None
        while True:
            line = self.process.stdout.readline()
            assert line, "the client has gone"
            ((kind, value),) = json.loads(line).items()
            if kind != "progress":
                return kind, value
            self.progress.append(value)

    def gets(self, kind: str) -> Any:
        """The next thing, which has to be of a kind."""
        seen, value = self.sees()
        assert seen == kind, (seen, value)
        return value


@contextmanager
def client(name: str, target: dict[str, Any], *, asks: bool = True) -> Iterator[ClientProgram]:
    """A connected client; its process has ended at the end."""
    program, *words = CLIENTS[name]
    folder = need_node_modules("mcp") if program == "node" else FOLDER / "mcp"
    command = [need_program(program) if program == "node" else program, *words, json.dumps({**target, "asks": asks})]
    with subprocess.Popen(
        command, cwd=folder, env=os.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            driven = ClientProgram(process)
            driven.version = driven.gets("connected")
            yield driven
            with suppress(BrokenPipeError):  # the client may have gone
                process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
