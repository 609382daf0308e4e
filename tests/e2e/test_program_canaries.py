"""A secret and a path in all that a program touches: nothing that leaves shows them, no command line has a prompt."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.actors.backends.process import MARK

from .program_life import PROGRAM

SECRET = "ghp_canary7kQ2mZ8xW4vB1nR6tY3uP9sD5fG0hJ"
"""In the form of a token, so that a process that was told no secret masks it, too."""
PLAIN = "kanarienvogel-0123456789-abcdefghijklmn"
"""In no known form: masked because the program gets it in its environment."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc"),
]


def script(text: str) -> str:
    """What the program does: each way out of it has the text."""
    steps: list[list[Any]] = [
        ["errors", f"a warning with {text}\n"],
        ["noise", f"{text} is not of the protocol"],
        ["where"],
        ["say", f"I have {text}"],
        ["ask", f"curl -H {text}"],
        ["run", f"echo {text}"],
        ["write", f"{text}.txt", f"a line with {text}\n"],
        ["say", f"Done with {text}"],
    ]
    return json.dumps(steps)


def command_lines() -> list[str]:
    """The command lines of the programs that run."""
    lines = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if f"{MARK}=".encode() in Path("/proc", name, "environ").read_bytes():
                lines.append(Path("/proc", name, "cmdline").read_text())
        except OSError:
            continue
    return lines


async def work(place: Path, form: str, text: str) -> tuple[str, list[str]]:
    """Let a program work on a folder, approve all; return what leaves, and the command lines meanwhile."""
    folder = place / "shop"
    folder.mkdir()
    (folder / "README").write_text("A shop.\n")
    make: Any = {"acp": gr.backends.Acp, "claude": gr.backends.Claude}[form]
    program = make(command=(sys.executable, "-SE", PROGRAM, form), pass_env=("CANARY",), env={"API_TOKEN": SECRET})
    coder = gr.backends.agent("coder", program)
    workspaces = await gr.ext.open_workspaces([gr.ext.Workspace("shop", folder)], state=place / "state")
    shown: list[str] = []
    lines: list[str] = []
    async with gr.open_runtime(place / "runs.db", agents=[coder], workspaces=workspaces) as runtime:
        run = await runtime.start("coder", script(text), run_id="r", workspace="shop")
        with trio.fail_after(60):
            while isinstance(outcome := await run.wait(), gr.Waiting):
                lines += command_lines()
                for ticket in outcome.tickets:
                    shown.append(repr(ticket))
                    await run.decide(ticket.approve(by="ada"))
        view = await run.view()
        for artifact in view.artifacts:
            content = await run.artifact(artifact.artifact_id)
            shown += [repr(artifact), content.decode()]
        frames = await runtime.store.events("r", limit=10_000)
        shown += [frame if isinstance(frame, str) else bytes(frame).decode() for frame in frames]
        shown.append(repr(await runtime.evidence("r")))
    assert isinstance(outcome, gr.Completed), shown
    assert (folder / f"{text}.txt").read_text() == f"a line with {text}\n"  # the work itself keeps what it is
    return "\n".join(shown), lines


@pytest.mark.parametrize("form", ["acp", "claude"])
@pytest.mark.parametrize("text", [SECRET, PLAIN], ids=["token", "environment"])
def test_nothing_that_leaves_a_run_of_a_program_shows_a_secret_or_a_path(
    tmp_path: Path, form: str, text: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CANARY", PLAIN)
    caplog.set_level(logging.DEBUG, logger="greenroom")
    shown, lines = trio.run(work, tmp_path, form, text)
    shown += "\n".join(record.getMessage() for record in caplog.records)
    assert text not in shown
    assert str(tmp_path / "state") not in shown
    assert str(tmp_path / "shop") not in shown
    assert lines
    assert not any(word in line for line in lines for word in (SECRET, PLAIN, "not of the protocol"))
    if text == SECRET:
        for command in (["show", "r"], ["evidence", "r"], ["follow", "r", "--json"], ["artifacts", "r"], ["diff", "r"]):
            words = [sys.executable, "-m", "greenroom", *command, "--db", str(tmp_path / "runs.db")]
            done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
            assert text not in done.stdout + done.stderr, command
            assert str(tmp_path / "state") not in done.stdout, command
