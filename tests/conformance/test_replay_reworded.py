"""The engine's sentences are for people: replaced by random words, they change no test of replay."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.no_cover

ROOT = Path(__file__).resolve().parents[2]
TESTS = (
    "tests/conformance/test_replay.py",
    "tests/conformance/test_replay_plugins.py",
    "tests/unit/engine/test_replays.py",
)
LONG = "tests/unit/engine/test_replays.py::test_every_life_of_a_run_is_replayed"
SWEPT = ("tests/conformance/test_replay_forged.py", "tests/chaos/test_replay_sweeps.py")
FULL = os.environ.get("GREENROOM_CHAOS") == "full"
PROBE = """
import tests.support.reworded as reworded
from greenroom.actors.engine import recovery
assert "lost its owner" not in recovery.UNKNOWN.message, recovery.UNKNOWN.message
assert len(reworded.REWORDED) > 20, reworded.REWORDED
"""


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A process of its own, for the engine is imported here already."""
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_plugin_of_this_test_rewords_the_engine() -> None:
    done = python("-c", PROBE)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_no_test_of_replay_reads_what_the_engine_says() -> None:
    which = (*TESTS, *SWEPT, "-k", "not scene") if FULL else (*TESTS, SWEPT[0], "--deselect", LONG)
    done = python("-m", "pytest", "-q", "-n", "0", "-p", "tests.support.reworded", "-p", "no:cacheprovider", *which)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
