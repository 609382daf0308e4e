"""The attacks that are drawn by lot run, find nothing in a small sample, and can fail."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.no_cover]

FAMILIES = (
    *("doors", "texts", "secrets", "disks", "clocks", "routes", "odds", "roles", "sizes", "principals", "growth"),
    "streams",
)
BROKEN = """
import sys
from scripts import attack
from scripts.attacks.core import must

attack.FAMILIES["clocks"] = lambda dice: must(dice.random() < 0, "as it should be")
sys.exit(attack.main())
"""


def played(root: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *words], cwd=root, capture_output=True, text=True, timeout=280, check=False, encoding="utf-8"
    )


def test_a_sample_of_all_families_finds_nothing(root: Path) -> None:
    done = played(root, "-m", "scripts.attack", "--seconds", "60", "--tries", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [f"{name}: tries 1, violations 0" for name in FAMILIES]


def test_a_violation_is_printed_with_what_repeats_it(root: Path) -> None:
    done = played(root, "-c", BROKEN, "clocks", "--tries", "2", "--seed", "7")
    assert done.returncode == 1, done.stderr
    assert "--- clocks --seed 7 --only 0\n" in done.stdout
    assert "Violation: as it should be" in done.stdout
    assert done.stdout.splitlines()[-1] == "clocks: tries 2, violations 2"


def test_a_family_that_is_not_there_is_named(root: Path) -> None:
    done = played(root, "-m", "scripts.attack", "clock")
    assert done.returncode == 2
    assert "there is no family 'clock'; use some of doors" in done.stderr
