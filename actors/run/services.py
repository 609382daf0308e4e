"""The services that every actor of a runtime shares."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, ParamSpec, Protocol, TypeVar

import attrs
import trio

from greenroom.supervision.reporting import report

from ..abc import Model, Store
from ..agent import Agent
from ..contract.decisions import Command, CommandResult
from ..contract.redaction import Redactor
from ..contract.rows import RunInfo
from ..errors import StoreUnavailable
from .change_signals import ChangeSignals
from .clock import Clock, ClockWatch
from .error_log import ErrorLog
from .open_models import OpenModels
from .passivation import Passivation
from .stream_redaction import StreamRedactor
from .task_nursery import TaskNursery
from .wakeup_timer import WakeupTimer

T = TypeVar("T")
P = ParamSpec("P")

RETRY: Final = 0.5
"""Seconds between two tries of a read while the store is unavailable."""

MISFIT: Final = "state_mismatch"
"""Degraded code of a run whose stored state keys differ from the agent's declarations."""

logger = logging.getLogger("greenroom.run")


class Directory(Protocol):
    """The runtime as run actors see it."""

    async def agent_for(self, info: RunInfo) -> Agent[object]:
        """Return the run's agent.

        Raises:
            RunUnavailable: no agent has the key.
        """

    async def deps_for(self, info: RunInfo) -> Any:
        """Return the run's dependencies.

        Raises:
            RunUnavailable: the dependencies are unavailable.
        """

    def model_for(self, agent: Agent[object]) -> Model:
        """Return the agent's model.

        Raises:
            AgentDefinitionError: the agent has none.
        """

    async def post(self, run_id: str, command: Command) -> CommandResult:
        """Judge and journal a command."""

    def can_revive(self, info: RunInfo) -> bool:
        """Return True if the run's agent and deps can be had again once it has left memory."""

    def thread_freed(self, run_id: str) -> None:
        """Report that the run's thread is free."""

    def resting(self, run_id: str, resting: bool) -> None:
        """Report that the run came to rest, or works again."""


class RunUnavailable(Exception):
    """A run cannot be worked on now.

    Attributes:
        reason: deps_missing, agent_unknown or state_mismatch.
        passing: trying again may help without any action here.
    """

    def __init__(self, reason: str, detail: str, *, passing: bool = False) -> None:
        super().__init__(detail)
        self.reason = reason
        self.passing = passing


@attrs.frozen(kw_only=True)
class Services:
    """Shared by all runs of one runtime.

    Attributes:
        store, clock, redactor, journal: one each.
        clock_watch: wakes waiters of wall time when the clock jumps.
        holdback: says how much of an unfinished text may be shown.
        board: signals of changed runs.
        threads: slots for sync tools.
        workplace: the nursery of all runs' tasks.
        models: those with a name, and those that are open.
        alarm: wakes runs that are not in memory.
        passivation: says when resting runs leave memory.
        jitter: draws a random number in [0.5, 1.5), a factor of the back-off.
        directory: the runtime.
        record: commits carry the machine's inputs.
    """

    store: Store
    clock: Clock
    clock_watch: ClockWatch
    redactor: Redactor
    journal: ErrorLog
    holdback: StreamRedactor
    board: ChangeSignals
    threads: trio.CapacityLimiter
    workplace: TaskNursery
    models: OpenModels
    alarm: WakeupTimer
    passivation: Passivation
    jitter: Callable[[], float]
    directory: Directory
    record: bool


async def retry_until_available(ask: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """Repeat a read until the store answers. An outage is not the run's fault and must not end it.

    A cancel ends the wait.

    Logged once in `greenroom.run`.

    Raises:
        StoreDown: the store has failed for good.
        StoreError: the stored data is damaged.
    """
    logged = False
    while True:
        try:
            return await ask(*args, **kwargs)
        except StoreUnavailable:
            if not logged:  # without the error's text, which may contain a secret
                text = f"the store cannot be read; it is asked again every {RETRY:g} s until it answers"
                report(logger, logging.WARNING, text)
            logged = True
            await trio.sleep(RETRY)
