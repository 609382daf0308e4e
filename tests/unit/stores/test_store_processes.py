"""Real failures in processes of their own: SIGKILL in the middle of the work, and a disk that is full."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.no_cover

KILLS = 20


def run(*words: object) -> dict:
    script = Path(__file__).with_name("doomed_writer.py")
    command = [sys.executable, script, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_what_was_acknowledged_survives_every_kill(tmp_path: Path, seed: int) -> None:
    """One file, killed again and again: no acknowledged event is lost, and the sequence has no gap."""
    found = run("kill", tmp_path, KILLS, seed)
    assert found["events"] >= found["acknowledged"] > KILLS


@pytest.mark.slow
def test_a_full_disk_is_waited_out(tmp_path: Path) -> None:
    """The commits that did not fit stay pending, are reported as an outage, and are written when there is room."""
    found = run("full", tmp_path)
    assert found["waiting"] > 0
    assert found["kinds"] == ["committed"]
    assert found["events"] == 5001
    assert found["outages"] == ["OperationalError", None]
