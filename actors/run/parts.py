"""`Parts`: what a runtime is made of, put together. `Runtime` is the public face of it; `opening.py` runs it."""

from __future__ import annotations

import secrets as random_ids
from collections.abc import Callable
from typing import Any, Final

import attrs
import trio

from greenroom.supervision import Supervisor

from ..abc import Store
from ..agent import Agent
from ..contract.redaction import Redactor
from .agents import Agents
from .alarm import Alarm
from .board import Board
from .callbacks import LocalDirectory, StoreReports
from .clock import Clock, ClockWatch
from .commands import RunCommands
from .handle import Run
from .holdback import HoldBack
from .journal import Journal
from .passivation import Passivation
from .reader import RunReader
from .roster import Roster
from .services import Services, patiently
from .starting import Starter
from .workplace import Workplace

THREADS: Final = 32
"""Sync tools that may run at once in one runtime."""


@attrs.frozen(eq=False, kw_only=True)
class Parts:
    """The parts of one runtime.

    Attributes:
        services: what all runs share. roster: the runs that have an owner here. agents: who may work on what.
        reports: what the store calls. reader, commands: what callers ask. starter: writes new runs.
        handle: (run id, thread id) -> the address of a run.
    """

    services: Services
    roster: Roster
    agents: Agents
    reports: StoreReports
    reader: RunReader
    commands: RunCommands
    starter: Starter
    handle: Callable[[str, str], Run[Any]]

    async def recover(self) -> None:
        """Take up every run that is not at rest; those that wait are woken by a command, or by the alarm."""
        for run_id, held in await patiently(self.services.store.to_do):
            self.roster.spawn(run_id, held=held)

    def close(self) -> None:
        """Wake everything that waits for a run: nothing can be looked up any more."""
        self.services.board.close()


def assemble(
    store: Store,
    supervisor: Supervisor,
    *,
    clock: Clock,
    secrets: tuple[str, ...],
    agents: dict[str, Agent[Any]],
    deps: Any,
    max_running: int | None,
    passivate_after: float | None,
    record: bool,
) -> Parts:
    """The parts of a runtime on a store; nothing runs yet. See `open_runtime` for the arguments."""
    board, redactor = Board(), Redactor(secrets)
    journal, clock_watch = Journal(redactor), ClockWatch(clock)
    table = Agents(agents, deps, redactor, journal)
    directory = LocalDirectory(table)
    services = Services(
        store=store,
        clock=clock,
        clock_watch=clock_watch,
        redactor=redactor,
        journal=journal,
        holdback=HoldBack(Redactor(secrets)),
        board=board,
        threads=trio.CapacityLimiter(THREADS),
        workplace=Workplace(),
        alarm=Alarm(store, clock, clock_watch, directory.wake),
        passivation=Passivation(passivate_after),
        jitter=lambda: 0.5 + random_ids.randbelow(1000) / 1000,
        directory=directory,
        record=record,
    )
    roster = Roster(services, supervisor, max_running)
    commands = RunCommands(services, roster, table)
    directory.roster, directory.commands = roster, commands
    reports = StoreReports(board, journal, roster)
    reader = RunReader(services, roster, table, reports)

    def handle(run_id: str, thread_id: str) -> Run[Any]:
        return Run(run_id, thread_id, reader, commands)

    return Parts(
        services=services,
        roster=roster,
        agents=table,
        reports=reports,
        reader=reader,
        commands=commands,
        starter=Starter(services, roster, handle),
        handle=handle,
    )
