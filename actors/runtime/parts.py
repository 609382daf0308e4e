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

from ..abc import Store
from ..agents.agent import Agent
from ..contract.secrets.redaction import Redactor
from ..models import ModelFactory
from ..services.agents import Agents
from ..services.callbacks import StoreReports
from ..services.clock import Clock, ClockWatch
from ..services.error_log import ErrorLog
from ..services.open_models import OpenModels
from ..services.passivation import Passivation
from ..services.services import Directory, Services
from ..services.stream_redaction import StreamRedactor
from ..services.wakeup_timer import SPREAD, WakeupTimer
from .child_runs import ChildRuns
from .commands import RunCommands
from .handle import Run
from .owners import RunOwners
from .reader import RunReader
from .run_registry import RunRegistry
from .shared.moved_runs import MovedRuns
from .shared.work_taker import WorkTaker
from .starting import Starter

THREADS: Final = 32
"""Sync tools that may run at once in one runtime."""


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
        starter: writes new runs.
        taker: takes up the runs that need an owner. Waiting runs are woken by a command or by the wakeup timer.
        moved: reads what other processes do to runs.
        handle: (run id, thread id) -> the address of a run.
    """

    services: Services
    registry: RunRegistry
    owners: RunOwners
    agents: Agents
    reports: StoreReports
    reader: RunReader
    commands: RunCommands
    starter: Starter
    taker: WorkTaker
    moved: MovedRuns
    handle: Callable[[str, str], Run[object]]

    def close(self) -> None:
        """Wake everything that waits for a run; later reads raise RuntimeClosed."""
        self.services.signals.close()


def assemble(
    store: Store,
    tasks: trio.Nursery,
    *,
    clock: Clock,
    secrets: tuple[str, ...],
    agents: dict[str, Agent[object]],
    deps: object,
    max_running: int | None,
    max_depth: int | None,
    passivate_after: float | None,
    record: bool,
    providers: Mapping[str, ModelFactory],
) -> RuntimeParts:
    """Return the parts of a runtime on a store; nothing runs yet. See `open_runtime` for the arguments."""
    directory, redactor, clock_watch = Directory(), Redactor(secrets), ClockWatch(clock)
    log = ErrorLog(redactor)
    reports = StoreReports(directory, log)
    models = OpenModels(log, providers, tasks)
    table = Agents(agents, deps, redactor, log, models.named)

    services = Services(
        store=store,
        clock=clock,
        clock_watch=clock_watch,
        redactor=redactor,
        log=log,
        holdback=StreamRedactor(Redactor(secrets)),
        signals=reports,
        threads=trio.CapacityLimiter(THREADS),
        tasks=tasks,
        models=models,
        alarm=WakeupTimer(store, clock, clock_watch, directory, spread=SPREAD if store.shared else 0.0),
        passivation=Passivation(passivate_after),
        jitter=lambda: 0.5 + random_ids.randbelow(1000) / 1000,
        agents=table,
        directory=directory,
        record=record,
        shared=store.shared,
    )
    owners = RunOwners(log)
    registry = RunRegistry(services, owners, max_running)
    owners.ended, owners.opened = registry.ended, registry.place
    commands = RunCommands(services, registry, table)
    directory.registry, directory.post = registry, commands.post
    taker, moved = WorkTaker(services, registry, table), MovedRuns(services, registry, reports)
    directory.work, directory.ability, directory.moved = taker.nudge, taker.ability, moved.note
    reader = RunReader(services, registry, table, reports)

    def handle(run_id: str, thread_id: str) -> Run[object]:
        return Run(run_id, thread_id, reader, commands)

    starter = Starter(services, registry, handle)
    directory.child_runs = ChildRuns(services, registry, table, starter, max_depth)
    return RuntimeParts(
        services=services, registry=registry, owners=owners, agents=table, reports=reports, reader=reader,
        commands=commands, starter=starter, taker=taker, moved=moved, handle=handle,
    )  # fmt: skip
