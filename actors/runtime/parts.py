"""`RuntimeParts`: assemble a runtime. `Runtime` is its public face; `open_runtime.py` runs it.

Theory of operation. All parts are made here, in the order of their needs, before anything runs; no part creates another
one. One circle remains and is closed by assignment: the directory, which run actors call, gets the registry, the
commands and the child runs, which need the services that contain the directory. Assembly has no await and no effect
outside memory.
"""

from __future__ import annotations

import secrets as random_ids
from collections.abc import Callable, Mapping
from typing import Final

import attrs
import trio

from ..abc import Store, Surroundings
from ..agents.agent import Agent
from ..contract.secrets.redaction import Redactor
from ..models import ModelFactory
from ..services.agents import Agents
from ..services.callbacks import StoreReports
from ..services.clock import Clock, ClockWatch, SharedClock
from ..services.error_log import ErrorLog
from ..services.open_models import OpenModels
from ..services.passivation import Passivation
from ..services.services import Directory, Services
from ..services.stream_redaction import StreamRedactor
from ..services.wakeup_timer import SPREAD, WakeupTimer
from .child_runs import ChildRuns
from .cleaning import Cleaning
from .commands import RunCommands
from .handle import Run
from .owners import RunOwners
from .ownership import Ownership, SoleOwnership
from .placing import Placing
from .reader import RunReader
from .run_registry import RunRegistry
from .shared.agent_elsewhere import AgentsElsewhere, NoAgents, PublishedAgents
from .shared.moved_runs import MovedRuns
from .shared.ownership import SharedOwnership
from .shared.shared_reader import SharedReader
from .shared.shared_taker import SharedTaker
from .starting import Starter
from .work_taker import WorkTaker

THREADS: Final = 32
"""Sync tools that may run concurrently in one runtime."""


@attrs.frozen(eq=False, kw_only=True)
class RuntimeParts:
    """The parts of one runtime.

    Attributes:
        services: shared by all runs.
        registry: the runs with an owner here.
        owners: the supervisor of those owners.
        agents: agents, models and deps.
        reports: called by the store.
        reader, commands: the public parts.
        elsewhere: the agents of other processes.
        starter: writes new runs.
        placing: chooses the places of new runs.
        taker: takes up the runs that need an owner. Waiting runs are woken by a command or by the wakeup timer.
        moved: The reader of runs that other processes move; None in a store that is not shared.
        cleaning: Removes what old runs have left in workspaces; None in a runtime without workspaces.
        handle: (run id, thread id) -> the address of a run.
    """

    services: Services
    registry: RunRegistry
    owners: RunOwners
    agents: Agents
    reports: StoreReports
    reader: RunReader
    commands: RunCommands
    elsewhere: AgentsElsewhere
    starter: Starter
    placing: Placing
    taker: WorkTaker
    moved: MovedRuns | None
    cleaning: Cleaning | None
    handle: Callable[[str, str], Run[object]]

    def close(self) -> None:
        """Wake everything that waits for a run; later reads raise RuntimeClosed."""
        self.services.signals.close()


def jitter() -> float:
    """Draw a factor of a back-off; see `Services`."""
    return 0.5 + random_ids.randbelow(1000) / 1000


@attrs.frozen(kw_only=True)
class _StoreKind:
    """The parts that differ if other processes may have the store open, too.

    Attributes:
        clock: returns the clock of a store, unless `open_runtime` was given one.
        spread: The spread of the wakeup timer, in seconds.
        moved: The reader of runs that other processes move; None in a store that is not shared.
    """

    clock: Callable[[Store], Clock]
    spread: float
    ownership: Callable[[Store, Clock, WakeupTimer], Ownership]
    elsewhere: Callable[[Store], AgentsElsewhere]
    reader: type[RunReader]
    taker: type[WorkTaker]
    moved: type[MovedRuns] | None


SOLE: Final = _StoreKind(
    clock=lambda _: Clock(),
    spread=0.0,
    ownership=lambda store, _, alarm: SoleOwnership(store, alarm, jitter),
    elsewhere=lambda _: NoAgents(),
    reader=RunReader,
    taker=WorkTaker,
    moved=None,
)
SHARED: Final = _StoreKind(
    clock=lambda store: Clock(SharedClock(Clock(), store)),
    spread=SPREAD,
    ownership=lambda store, clock, _: SharedOwnership(store, clock, jitter),
    elsewhere=PublishedAgents,
    reader=SharedReader,
    taker=SharedTaker,
    moved=MovedRuns,
)


def assemble(
    store: Store,
    tasks: trio.Nursery,
    *,
    clock: Clock | None,
    redactor: Redactor,
    agents: dict[str, Agent[object]],
    deps: object,
    max_running: int | None,
    max_depth: int | None,
    passivate_after: float | None,
    record: bool,
    providers: Mapping[str, ModelFactory],
    surroundings: Surroundings | None,
    places: Mapping[str, str],
) -> RuntimeParts:
    """Return the parts of a runtime on a store; nothing runs yet. See `open_runtime` for the arguments."""
    kind = SHARED if store.shared else SOLE
    clock = clock or kind.clock(store)
    directory, clock_watch = Directory(), ClockWatch(clock)
    log = ErrorLog(redactor)
    reports = StoreReports(directory, log)
    models = OpenModels(log, redactor, providers, tasks)
    table = Agents(agents, deps, redactor, log, models.named, surroundings, places)
    alarm = WakeupTimer(store, clock, clock_watch, directory, spread=kind.spread)
    ownership = kind.ownership(store, clock, alarm)

    services = Services(
        store=store, clock=clock, clock_watch=clock_watch, redactor=redactor, log=log,
        holdback=StreamRedactor(redactor), signals=reports, threads=trio.CapacityLimiter(THREADS), tasks=tasks,
        models=models, alarm=alarm, passivation=Passivation(passivate_after), jitter=jitter, agents=table,
        directory=directory, record=record, ownership=ownership,
    )  # fmt: skip
    owners = RunOwners(log)
    registry = RunRegistry(services, ownership, owners, max_running)
    owners.ended, owners.opened = registry.ended, registry.start_again
    elsewhere = kind.elsewhere(store)
    commands = RunCommands(services, registry, table, elsewhere)
    directory.registry, directory.post = registry, commands.post
    taker = kind.taker(services, registry, table)
    moved_runs = None if kind.moved is None else kind.moved(services, registry, reports)
    directory.work, directory.ability = taker.nudge, taker.ability
    if moved_runs is not None:
        directory.on_move = moved_runs.note
    reader = kind.reader(services, registry, table, reports)

    def handle(run_id: str, thread_id: str) -> Run[object]:
        return Run(run_id, thread_id, reader, commands)

    starter = Starter(services, registry, handle)
    directory.child_runs = ChildRuns(services, registry, table, starter, max_depth)
    return RuntimeParts(
        services=services, registry=registry, owners=owners, agents=table, reports=reports, reader=reader,
        commands=commands, elsewhere=elsewhere, starter=starter, taker=taker, moved=moved_runs,
        cleaning=None if surroundings is None else Cleaning(surroundings, reader, log),
        handle=handle, placing=Placing(table, reader, elsewhere),
    )  # fmt: skip
