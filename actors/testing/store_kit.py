"""The conformance suite of the Store port: the contract as scenarios that every store's author can run.

A store's author provides a factory, `open_store`. Each call returns a store over the same storage, not yet running, so
that a scenario can close one and open the next. A store that keeps nothing between two openings leaves out the
scenarios that need that (`reopens`).

    @pytest.mark.parametrize("scenario", STORE_SCENARIOS, ids=str)
    async def test_my_store(scenario: Scenario, tmp_path: Path) -> None:
        await scenario(lambda: MyStore(tmp_path / "db"))

`await check_store(open_store)` runs them all, one after the other, over one storage. A scenario fails with an
AssertionError whose sentence states the broken promise. No scenario sleeps or reads a clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from . import (
    _store_commands,
    _store_commits,
    _store_holds,
    _store_input,
    _store_lists,
    _store_random,
    _store_record,
    _store_state,
    _store_threads,
    _store_tools,
)
from ._store_random import play_random
from ._store_tools import Author, HookLog, OpenStore, Scenario, SubmittedCommit, create, new_run, opened

__all__ = [
    "STORE_SCENARIOS",
    "Author",
    "HookLog",
    "OpenStore",
    "Scenario",
    "SubmittedCommit",
    "check_store",
    "create",
    "new_run",
    "opened",
    "play_random",
]

_DECLARING: Final = (
    _store_commits,
    _store_commands,
    _store_holds,
    _store_input,
    _store_lists,
    _store_state,
    _store_threads,
    _store_record,
    _store_random,
)
"""The modules that declare scenarios, by being imported."""

STORE_SCENARIOS: Final[Sequence[Scenario]] = tuple(_store_tools.SCENARIOS)
"""Every promise of the port."""


async def check_store(open_store: OpenStore, *, reopens: bool = True) -> None:
    """Run every scenario over one storage.

    Args:
        open_store: returns a store over the same storage at each call.
        reopens: the storage outlives the store; without that, those scenarios are left out.

    Raises:
        AssertionError: the store breaks a promise; a note names the scenario.
    """
    for scenario in STORE_SCENARIOS:
        if scenario.reopens and not reopens:
            continue
        try:
            await scenario(open_store)
        except AssertionError as error:
            error.add_note(f"scenario {scenario.name}: {scenario.sentence}")
            raise
