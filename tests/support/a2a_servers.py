"""Servers of A2A in processes of their own, all with the same agent: the official ones, and Greenroom's."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

import greenroom as gr

from .judges import FOLDER, need_node_modules, need_program
from .ports import free_port
from .wait_for_port import wait_for_port

TOKEN = "a-token-for-the-remote-agent"
OWN = Path(__file__).parents[1] / "e2e" / "remote_server.py"


@attrs.frozen
class RemoteServer:
    """A server that runs.

    Attributes:
        kind: "python", "js" or "own".
        url: The address of the agent.
        count: The file with a line for each message that the agent has worked on.
        process: The process.
    """

    kind: str
    url: str
    count: Path
    process: "subprocess.Popen[bytes]"

    def backend(self, agent: str = "work", **options: Any) -> gr.backends.A2A:
        """The backend; of the agent that has data, "prices", only on Greenroom's."""
        if self.kind != "own":
            return gr.backends.A2A(self.url, **options)
        url = self.url.removesuffix("work") + agent
        return gr.backends.A2A(url, headers={"Authorization": f"Bearer {TOKEN}"}, **options)

    @property
    def executed(self) -> list[str]:
        """The ids of the executed messages."""
        lines = self.count.read_text().splitlines() if self.count.exists() else []
        return [line.split()[0] for line in lines if not line.startswith("cancel ")]


@contextmanager
def remote_server(
    kind: str, folder: Path, binding: str = "HTTP+JSON", port: int | None = None
) -> Iterator[RemoteServer]:
    """Run a server until the end of the block; Greenroom's keeps its runs in the folder."""
    port, count = port or free_port(), folder / f"count-{kind}"
    arguments = [str(port), str(count), binding]
    if kind == "js":
        command = [need_program("node"), str(need_node_modules("a2a") / "js_server.mjs"), *arguments]
    else:
        script = FOLDER / "a2a" / "python_server.py" if kind == "python" else OWN
        command = [sys.executable, str(script), *arguments]
    with subprocess.Popen(command) as process:
        try:
            wait_for_port(port)
            place = "/v1/a2a/work" if kind == "own" else ""
            yield RemoteServer(kind, f"http://127.0.0.1:{port}{place}", count, process)
        finally:
            process.kill()
            process.wait()
