"""The author of a store checks it with the installed package alone: here a program checks the store in PostgreSQL.

The program has no way to the tests of this repository. It steers its storage by public means, the faults of the store.
"""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = '''
"""Checks the store in PostgreSQL as its author would: by greenroom.actors.testing.check_store."""

import importlib.util
import sys
from contextlib import contextmanager

import trio

from greenroom.actors.stores.common.faults import FOLLOW_UP, HINT, Outage
from greenroom.actors.stores.postgres.store import PostgresStore
from greenroom.actors.testing import SHARED_SCENARIOS, STORE_SCENARIOS, Steering, check_store

URL, BREAKS = sys.argv[1], sys.argv[2]


class ByFaults:
    """Loses hints, follow-ups and answers of all stores on one schema; leaves out what needs a frozen process."""

    can = ("lose_hints", "lose_follow_ups", "lose_answer")
    lease, turn, patience = 3.0, 0.25, 5.0

    def __init__(self) -> None:
        self.lost: set[str] = set()
        self.last: dict[object, list[bool]] = {}

    def open_store(self) -> PostgresStore:
        losing = [False]

        def fault(point: str) -> None:
            if point == "after_commit" and losing[0]:
                losing[0] = False
                raise Outage(ConnectionError("the answer is lost"))
            if point in self.lost:
                raise Outage(ConnectionError("lost by the check"))

        kind = Forgetful if BREAKS == "forgets commands" else PostgresStore
        store = kind(URL, lease=self.lease, turn=self.turn, margin=0.6, answer=1.5, faults=fault)
        self.last[store] = losing
        return store

    def lose_answer(self, store: object) -> None:
        self.last[store][0] = True

    @contextmanager
    def lose_hints(self):
        self.lost.add(HINT)
        yield
        self.lost.discard(HINT)

    @contextmanager
    def lose_follow_ups(self):
        self.lost.add(FOLLOW_UP)
        yield
        self.lost.discard(FOLLOW_UP)


class Forgetful(PostgresStore):
    """A store with a mistake."""

    async def commands(self, run_id):
        return ()


for name in ("tests", "greenroom_tests", "conftest"):
    assert importlib.util.find_spec(name) is None, f"{name} can be imported"
steering = ByFaults()
trio.run(lambda: check_store(steering.open_store, steering=steering))
played = [one for one in SHARED_SCENARIOS if one.needs <= set(steering.can)]
print(f"{len(STORE_SCENARIOS)} scenarios, {len(played)} of {len(SHARED_SCENARIOS)} between processes")
'''


def checked(folder: Path, url: str, breaks: str = "nothing") -> subprocess.CompletedProcess[str]:
    """Run the program in a folder of its own; `-I` keeps the folder, the environment and this repository out."""
    program = folder / "check_my_store.py"
    program.write_text(PROGRAM)
    return subprocess.run(
        [sys.executable, "-I", program, url, breaks],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.slow
def test_a_store_in_postgres_is_checked_from_outside_of_the_package(postgres_url: str, tmp_path: Path) -> None:
    done = checked(tmp_path, postgres_url)
    assert done.returncode == 0, done.stderr
    numbers = [int(word) for word in done.stdout.split() if word.isdigit()]
    assert numbers[0] > 80, done.stdout
    assert numbers[2] > numbers[1] > 15, done.stdout


def test_a_mistake_is_named_by_its_scenario(postgres_url: str, tmp_path: Path) -> None:
    done = checked(tmp_path, postgres_url, "forgets commands")
    assert done.returncode == 1
    assert "AssertionError" in done.stderr
    assert "scenario " in done.stderr
