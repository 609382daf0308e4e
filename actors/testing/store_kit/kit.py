"""The conformance suite of the Store port: the contract as scenarios that every store's author can run.

A store's author provides a factory, `open_store`. Each call returns a store over the same storage, not yet running, so
that a scenario can close one and open the next. A store that keeps nothing between two openings leaves out the
scenarios that need that (`reopens`), and a store without stored values those of `ValueStore` (`values`).

    @pytest.mark.parametrize("scenario", STORE_SCENARIOS, ids=str)
    async def test_my_store(scenario: Scenario, tmp_path: Path) -> None:
        await scenario(lambda: MyStore(tmp_path / "db"))

`await check_store(open_store)` runs them all, one after the other, over one storage. A scenario fails with an
AssertionError whose sentence states the broken promise. No scenario of `STORE_SCENARIOS` sleeps or reads a clock.

A shared store (`Store.shared`) also keeps the promises of `SHARED_SCENARIOS`: each has two or more stores open
together, which play the processes of one storage, and waits for turns and leases. The author provides a `Steering`, by
which the scenarios lose hints and answers and freeze a process; scenarios that need a method not named in
`Steering.can` can be left out. Give the stores of the factory short leases (a second), or use virtual time as the
memory store can:

    @pytest.mark.parametrize("scenario", SHARED_SCENARIOS, ids=str)
    async def test_peers(scenario: Scenario, autojump_clock: MockClock) -> None:
        steering = MemorySteering(MemoryStore())
        await scenario(steering.open_store, steering)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...abc import ValueStore
from ...errors import UsageError
from . import _commands as _store_commands
from . import _commits as _store_commits
from . import _histories as _store_histories
from . import _holds as _store_holds
from . import _input as _store_input
from . import _leases as _store_leases
from . import _lists as _store_lists
from . import _random as _store_random
from . import _record as _store_record
from . import _shared as _store_shared
from . import _state as _store_state
from . import _threads as _store_threads
from . import _tools as _store_tools
from . import _values as _store_values
from . import _work as _store_work
from ._memory_steering import MemorySteering
from ._random import play_random
from ._tools import Author, OpenStore, ReportLog, Scenario, Steering, SubmittedCommit, create, new_run, opened

__all__ = [
    "SHARED_SCENARIOS",
    "STORE_SCENARIOS",
    "Author",
    "MemorySteering",
    "OpenStore",
    "ReportLog",
    "Scenario",
    "Steering",
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
    _store_histories,
    _store_record,
    _store_work,
    _store_values,
    _store_random,
    _store_shared,
    _store_leases,
)
"""The modules that declare scenarios, by being imported."""

STORE_SCENARIOS: Final[Sequence[Scenario]] = tuple(one for one in _store_tools.SCENARIOS if not one.shared)
"""Every promise of the port that each store keeps."""
SHARED_SCENARIOS: Final[Sequence[Scenario]] = tuple(one for one in _store_tools.SCENARIOS if one.shared)
"""The promises of shared stores (`Store.shared`), between two processes."""


async def check_store(open_store: OpenStore, *, reopens: bool = True, steering: Steering | None = None) -> None:
    """Run every scenario over one storage; the shared ones if the store is shared, those of values if it keeps some.

    Args:
        open_store: returns a store over the same storage at each call.
        reopens: the storage outlives the store; without that, those scenarios are left out.
        steering: The steering of a shared storage. Scenarios that need what it cannot do are left out.

    Raises:
        AssertionError: the store breaks a promise; a note names the scenario.
        UsageError: the store is shared, and the steering is missing.
    """
    scenarios = [*STORE_SCENARIOS]
    store = open_store()
    if store.shared:
        if steering is None:
            raise UsageError("the store is shared; give a steering, with which the scenarios hamper its processes")
        scenarios += [one for one in SHARED_SCENARIOS if one.needs <= set(steering.can)]
    for scenario in scenarios:
        if (scenario.reopens and not reopens) or (scenario.values and not isinstance(store, ValueStore)):
            continue
        try:
            await scenario(open_store, steering)
        except AssertionError as error:
            error.add_note(f"scenario {scenario.name}: {scenario.sentence}")
            raise
