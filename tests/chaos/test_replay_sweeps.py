"""Processes that are killed at any write: what they leave is taken up by the next one, and replays byte-equal.

Two sweeps. The named programs (`support/programs.py`) are played in this process, on memory and on SQLite; together
they meet every kind of entry that a record can have and every type of event, which the first test holds them to. The
scenes are all tests of `tests/conformance`: a session of its own plays them again (`support/killed_scenes.py`). A scene
that opens its runtime otherwise than by `runs.home` or `Play` is not killed: some of the gateway, of real time and of
threads, those of the stores themselves, and those that damage rows.

`GREENROOM_CHAOS=full` kills at every write (the programs both before and after the write is durable, the scenes at one
of the two, by lot); else at a seeded sample.
"""

import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, get_args

import pytest
import trio
from trio.testing import MockClock

from greenroom.actors.contract.catalogue import CATALOGUE
from greenroom.actors.engine.recording import Entry

from ..support import runs
from ..support.killing import POINTS, Death, Killed
from ..support.programs import PROGRAMS
from ..support.recording_stores import WatchedShelf
from ..support.runs import KINDS
from ..support.scenes import Play

FULL = os.environ.get("GREENROOM_CHAOS") == "full"
ROOT = Path(__file__).resolve().parents[2]
DAMAGED = "test_runtime_given_up.py"
"""Its scenes damage rows and write runs of their own, which no replay can read."""

pytestmark = pytest.mark.slow


def played(name: str, kind: str, folder: Path, death: Death, monkeypatch: Any) -> Death:
    """A program, to its end or to the death of its process."""
    mode, program = PROGRAMS[name]
    place = Path(tempfile.mkdtemp(dir=folder))
    monkeypatch.setattr(runs, "opener", death.open)

    async def main() -> None:
        try:
            await program(Play(WatchedShelf(kind, place), mode))
        except Killed:
            assert death.store is not None

    trio.run(main, clock=MockClock(autojump_threshold=0))
    return death


def test_the_programs_meet_every_entry_and_every_event(folder, monkeypatch):
    """And each of their runs replays equal when no process dies."""
    entries, types, differences = set[type](), set[str](), list[str]()
    for name in PROGRAMS:
        life = played(name, "memory", folder, Death(judging=True), monkeypatch)
        entries |= life.entries
        types |= life.types
        differences += [f"{name}: {text}" for text in life.differences]
    assert not differences, "\n".join(differences)
    assert set(get_args(Entry)) <= entries
    assert set(CATALOGUE) <= types


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_killed_at_any_write_and_replays_equal(name, kind, folder, monkeypatch, sampled, seed):
    writes = played(name, kind, folder, Death(), monkeypatch).writes
    differences, looked_at = list[str](), 0
    for at, point in sampled([(at, point) for at in range(1, writes + 1) for point in POINTS], 2):
        death = Death(at, point, random.Random(f"{seed} {at} {point}"))
        differences += played(name, kind, folder, death, monkeypatch).differences
        looked_at += death.replayed + len(death.skipped)
    assert not differences, "\n".join(differences)
    assert looked_at > 0


def test_a_scene_is_killed_at_any_write_and_replays_equal(sampled, seed):
    paths = sorted(ROOT.glob("tests/conformance/test_*.py"))
    files = sampled([str(path.relative_to(ROOT)) for path in paths if path.name != DAMAGED], 5)
    kills, scenes = (0, 0) if FULL else (2, 40)
    command = [
        "-m",
        "pytest",
        "-q",
        "-n",
        "0",
        "-p",
        "tests.support.killed_scenes",
        "-p",
        "no:cacheprovider",
        "--tb=short",
    ]
    environment = {**os.environ, "GREENROOM_KILLS": str(kills), "GREENROOM_SCENES": str(scenes)}
    environment.pop("GREENROOM_CHAOS", None)
    done = subprocess.run(
        [sys.executable, *command, "--timeout", "0", "--seed", str(seed), *files],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    summary = next((line for line in done.stdout.splitlines() if line.startswith("killed scenes:")), "")
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
    print(f"\n{summary}")  # noqa: T201
    assert int(summary.split()[2]) > 0, summary
