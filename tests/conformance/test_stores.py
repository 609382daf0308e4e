"""Every store keeps every promise of the port: the suite that is shipped, run on what is shipped."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import hypothesis
import pytest
import trio.testing
from hypothesis import strategies

from greenroom.actors.stores.memory import MemoryStore
from greenroom.actors.stores.postgres import PostgresStore
from greenroom.actors.stores.sqlite import SQLiteStore
from greenroom.actors.testing.store_kit import STORE_SCENARIOS, OpenStore, Scenario, check_store, play_random


def memory(_: Path) -> OpenStore:
    store = MemoryStore()
    return lambda: store


def inline(folder: Path) -> OpenStore:
    return lambda: SQLiteStore(folder / "runs.db", writer="inline")


def thread(folder: Path) -> OpenStore:
    return lambda: SQLiteStore(folder / "runs.db", writer="thread")


@pytest.mark.parametrize("scenario", STORE_SCENARIOS, ids=str)
@pytest.mark.parametrize("make", [memory, inline, thread])
async def test_a_store_keeps_its_promise(make: Callable[[Path], OpenStore], scenario: Scenario, tmp_path: Path) -> None:
    await scenario(make(tmp_path))


@pytest.mark.parametrize("scenario", STORE_SCENARIOS, ids=str)
async def test_a_store_in_postgres_keeps_its_promise(scenario: Scenario, postgres_url: str) -> None:
    await scenario(lambda: PostgresStore(postgres_url))


@pytest.mark.parametrize("make", [memory, inline])
async def test_all_scenarios_can_share_one_storage_under_virtual_time(
    make: Callable[[Path], OpenStore], tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """check_store is what a third party calls; neither store needs threads or real time."""
    await check_store(make(tmp_path))
    assert autojump_clock.current_time() == 0


@hypothesis.given(seed=strategies.integers(0, 2**32), steps=strategies.integers(1, 120))
@hypothesis.settings(max_examples=15, deadline=None)
def test_a_file_holds_what_memory_holds_after_any_operations(seed: int, steps: int) -> None:
    with TemporaryDirectory() as folder:
        trio.run(partial(play_random, inline(Path(folder)), "x", seed, steps=steps))


def test_every_scenario_says_what_it_shows() -> None:
    """Names are unique, and each scenario has its sentence."""
    names = [scenario.name for scenario in STORE_SCENARIOS]
    assert len(set(names)) == len(names) > 30
    assert all(scenario.sentence.endswith(".") for scenario in STORE_SCENARIOS)
