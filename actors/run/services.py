"""What every actor of a runtime shares."""

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
from .passivation import Passivation
from .stream_redaction import StreamRedactor
from .task_nursery import TaskNursery
from .wakeup_timer import WakeupTimer

T = TypeVar("T")
P = ParamSpec("P")

RETRY: Final = 0.5
"""Seconds between two tries of what a run needs of a store that does not answer."""

MISFIT: Final = "state_mismatch"
"""Why a run is degraded whose stored state keys the agent's release declares otherwise."""

logger = logging.getLogger("greenroom.run")


class Directory(Protocol):
    """What a run actor asks the runtime for."""

    async def agent_for(self, info: RunInfo) -> Agent[object]:
        """The run's agent.

        Raises:
            Degraded: there is none.
        """

    async def deps_for(self, info: RunInfo) -> Any:
        """The run's dependencies.

        Raises:
            Degraded: they can not be had.
        """

    def model_for(self, agent: Agent[object]) -> Model:
        """The model that the agent is to use.

        Raises:
            AgentDefinitionError: it has none.
        """

    async def post(self, run_id: str, command: Command) -> CommandResult:
        """Judge and journal a command."""

    def can_revive(self, info: RunInfo) -> bool:
        """True if the run's live objects can be had again once it has left memory."""

    def released(self, run_id: str) -> None:
        """The run's thread is free."""

    def resting(self, run_id: str, resting: bool) -> None:
        """The run came to rest, or works again."""


class RunUnavailable(Exception):
    """A run can not be worked on now.

    Attributes:
        reason: deps_missing, agent_unknown or state_mismatch.
        passing: asking again may help, though nobody has done anything about it here.
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
        clock_watch: wakes who waits for a moment when the clock jumps.
        holdback: what may be shown of a text that is still coming.
        board: says what is new about runs.
        threads: slots for sync tools.
        workplace: where the tasks of all runs live.
        alarm: wakes runs that are not in memory.
        passivation: says when runs that rest leave memory.
        jitter: a random number in [0.5, 1.5): a factor of the back-off.
        directory: the runtime.
        record: commits carry what the machines took.
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
    alarm: WakeupTimer
    passivation: Passivation
    jitter: Callable[[], float]
    directory: Directory
    record: bool


async def retry_until_available(ask: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """Ask the store until it answers: that it does not is no fault of the run, and must not end it. A cancel ends it.

    The log `greenroom.run` is told of it, once.

    Raises:
        StoreDown: it has failed for good. StoreError: it is damaged.
    """
    logged = False
    while True:
        try:
            return await ask(*args, **kwargs)
        except StoreUnavailable:
            if not logged:  # without its error, which may name what is a secret
                text = f"the store can not be read; it is asked again every {RETRY:g} s until it answers"
                report(logger, logging.WARNING, text)
            logged = True
            await trio.sleep(RETRY)
