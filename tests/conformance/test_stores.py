"""Every store keeps every promise of the port: the suite that is shipped, run on what is shipped."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import hypothesis
import pytest
import trio.testing
from hypothesis import strategies
from tests.support.postgres_steering import PostgresSteering

from greenroom.actors.errors import UsageError
from greenroom.actors.stores.memory.store import MemoryStore
from greenroom.actors.stores.postgres.store import PostgresStore
from greenroom.actors.stores.sqlite.store import SQLiteStore
from greenroom.actors.testing.store_kit.kit import (
    SHARED_SCENARIOS,
    STORE_SCENARIOS,
    MemorySteering,
    OpenStore,
    Scenario,
    check_store,
    play_random,
)


def memory(_: Path) -> OpenStore:
    store = MemoryStore()
    return lambda: store


def peers(_: Path) -> OpenStore:
    """Handles on one memory store: a shared store keeps the promises of any store, too."""
    return MemorySteering(MemoryStore()).open_store


def inline(folder: Path) -> OpenStore:
    return lambda: SQLiteStore(folder / "runs.db", writer="inline")


def thread(folder: Path) -> OpenStore:
    return lambda: SQLiteStore(folder / "runs.db", writer="thread")


@pytest.mark.parametrize("scenario", STORE_SCENARIOS, ids=str)
@pytest.mark.parametrize("make", [memory, peers, inline, thread])
async def test_a_store_keeps_its_promise(make: Callable[[Path], OpenStore], scenario: Scenario, tmp_path: Path) -> None:
    await scenario(make(tmp_path))


@pytest.mark.parametrize("scenario", STORE_SCENARIOS, ids=str)
async def test_a_store_in_postgres_keeps_its_promise(scenario: Scenario, postgres_url: str) -> None:
    await scenario(lambda: PostgresStore(postgres_url))


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.parametrize("scenario", SHARED_SCENARIOS, ids=str)
async def test_processes_on_postgres_keep_the_promises_of_a_shared_store(scenario: Scenario, postgres_url: str) -> None:
    """In real time, with short leases."""
    with PostgresSteering(postgres_url) as steering:
        await scenario(steering.open_store, steering)


@pytest.mark.parametrize("scenario", SHARED_SCENARIOS, ids=str)
async def test_peers_keep_the_promises_of_a_shared_store(
    scenario: Scenario, autojump_clock: trio.testing.MockClock
) -> None:
    steering = MemorySteering(MemoryStore())
    await scenario(steering.open_store, steering)


async def test_all_scenarios_can_share_one_storage_of_peers(autojump_clock: trio.testing.MockClock) -> None:
    steering = MemorySteering(MemoryStore())
    await check_store(steering.open_store, steering=steering)


async def test_a_shared_store_is_not_checked_without_a_steering() -> None:
    """Half of its promises would be left out in silence."""
    with pytest.raises(UsageError, match="steering"):
        await check_store(MemorySteering(MemoryStore()).open_store)


async def test_scenarios_that_need_what_a_storage_cannot_do_are_left_out(
    autojump_clock: trio.testing.MockClock,
) -> None:
    steering = MemorySteering(MemoryStore())
    steering.can = ()
    await check_store(steering.open_store, steering=steering)
    assert {need for scenario in SHARED_SCENARIOS for need in scenario.needs} == set(MemorySteering.can)


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
    scenarios = [*STORE_SCENARIOS, *SHARED_SCENARIOS]
    names = [scenario.name for scenario in scenarios]
    assert len(set(names)) == len(names) > 30
    assert all(scenario.sentence.endswith(".") for scenario in scenarios)
