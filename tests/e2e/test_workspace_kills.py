"""kill -9 of a process whose run waits for the apply of a proposal, or is in the middle of that apply."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import trio
from tests.support.workspaces import Shop

import greenroom as gr

LIFE = Path(__file__).with_name("workspace_life.py")
FILES = [f"f{number}" for number in range(5)]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.no_cover]


def life(folder: Path, kill_at: str, text: str = "go") -> tuple[int, list[str]]:
    """Let a process live; "wait" and "shell" kill it once it has said a line. Returns its exit code, and its lines."""
    command = [sys.executable, str(LIFE), str(folder), kill_at, text]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        if kill_at in ("wait", "shell"):
            first = process.stdout.readline().strip()
            os.kill(process.pid, signal.SIGKILL)
            return process.wait(), [first]
        said = process.stdout.read().split("\n")
        return process.wait(), [line for line in said if line]


def events(folder: Path) -> list[tuple[str, Any]]:
    """The log of the run."""

    async def read() -> list[tuple[str, Any]]:
        async with gr.open_runtime(folder / "runs.db") as runtime, (await runtime.get("r")).events() as log:
            return [(event.type, event.payload) async for event in log]

    return trio.run(read)


def test_a_run_that_waits_for_the_apply_survives_kills_and_applies_once(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.write("a", "a\n")
    tickets = [life(tmp_path, "wait") for _ in range(3)]
    assert tickets == [(-signal.SIGKILL, [tickets[0][1][0]])] * 3
    assert sorted(shop.contents()) == ["a"]
    code, (ticket, output) = life(tmp_path, "-1")
    assert (code, ticket) == (0, tickets[0][1][0])
    assert output == f"applied: {', '.join(FILES)}"
    assert sorted(shop.contents()) == ["a", *FILES]


@pytest.mark.parametrize("at", range(5))
def test_a_process_killed_between_two_files_of_an_apply_leaves_the_rest_to_the_next_one(
    tmp_path: Path, at: int
) -> None:
    shop = Shop(tmp_path)
    shop.write("a", "a\n")
    code, said = life(tmp_path, str(at))
    assert (code, len(said)) == (-signal.SIGKILL, 1)
    assert sorted(shop.contents()) == ["a", *FILES[:at]]
    code, said = life(tmp_path, "-1")
    assert (code, said) == (0, [f"applied: {', '.join(FILES)}"])
    assert shop.contents() == {"a": (0o644, b"a\n"), **dict.fromkeys(FILES, (420, b"new\n"))}
    log = events(tmp_path)
    assert [kind for kind, _ in log].count("run.approval.requested") == 1
    assert log[-1][0] == "run.completed"


def test_no_command_is_left_of_a_killed_process_and_people_are_asked_about_its_outcome(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.write("a", "a\n")
    _, (pid,) = life(tmp_path, "shell", "sleep")
    deadline = time.monotonic() + 4.0
    while Path("/proc", pid).exists() and time.monotonic() < deadline:
        time.sleep(0.05)  # noqa: TID251 - another process is watched
    assert not Path("/proc", pid).exists()
    assert life(tmp_path, "wait", "sleep") == (-signal.SIGKILL, ["outcome_unknown"])
