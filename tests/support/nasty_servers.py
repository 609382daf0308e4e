"""Starts `nasty_mcp.py` as a toolset, on standard streams or on a port, and reads what it has counted."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

import greenroom as gr

PROGRAM = Path(__file__).with_name("nasty_mcp.py")
UNASKED = gr.mcp.Rule(needs_approval=False)


@attrs.frozen
class Nasty:
    """One server, which may be started several times: a folder with its counts, and how it is reached."""

    folder: Path
    era: str
    way: str

    @property
    def words(self) -> list[str]:
        return [sys.executable, str(PROGRAM), str(self.folder), "--era", self.era]

    def toolset(self, rule: gr.mcp.Rule = UNASKED, *, many: int = 0, **options: Any) -> gr.mcp.Server:
        """The server as a toolset. On a port it must be running."""
        rules = {"tools": {"*": rule}, **options}
        if self.way == "port":
            return gr.mcp.Server("nasty", url=self.url(), **rules)
        return gr.mcp.Server("nasty", command=[*self.words, "--many", str(many)], **rules)

    def url(self, path: str = "/mcp") -> str:
        return f"http://127.0.0.1:{(self.folder / 'port').read_text()}{path}"

    @property
    def executed(self) -> Counter[str]:
        """How often each tool has run, as the server has counted."""
        path = self.folder / "executed"
        return Counter(path.read_text().split() if path.exists() else ())

    @property
    def headers(self) -> list[dict[str, str]]:
        """The headers of each request, but for the usual ones."""
        return [json.loads(line) for line in (self.folder / "headers").read_text().splitlines()]

    def describe(self, text: str) -> None:
        """Change the description of the tool `shifting`."""
        (self.folder / "description").write_text(text)

    @contextmanager
    def running(self, **environment: str) -> Iterator[None]:
        """Let the server run on a port, if that is its way. Returns when the port is open."""
        if self.way != "port":
            yield
            return
        process = subprocess.Popen([*self.words, "--http"], env={**os.environ, **environment}, stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None
            (self.folder / "port").write_bytes(process.stdout.readline().strip())
            yield
        finally:
            process.kill()
            process.communicate()
