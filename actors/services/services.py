"""The services that every actor of a runtime shares, and the runtime as its actors see it (`Directory`).

Theory of operation. Actors get one frozen object instead of the runtime, so they cannot start or stop runs, and tests
replace single services. A service may be used by many runs concurrently and outlives them all. Reads of an unavailable
store are repeated without bound (`retry_until_available`): an outage is not the fault of a run, and must not end it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final, ParamSpec, Protocol, TypeVar

import attrs
import trio

from greenroom.supervision.reporting import report
from greenroom.supervision.spec import Backoff

from ..abc import Store
from ..contract.claims import Claim
from ..contract.decisions import Command, CommandResult, Decision, InboxItem
from ..contract.rows import RunRecord, RunRow
from ..contract.secrets.redaction import Redactor
from ..engine.effects import CancelChild
from ..errors import NewerRelease, StoreUnavailable
from ..processes import Ability, ReadyRun
from .agents import Agents
from .change_signals import ChangeSignals
from .child_call import ChildCall
from .children import Child
from .clock import Clock, ClockWatch
from .error_log import ErrorLog
from .open_models import OpenModels
from .passivation import Passivation
from .stream_redaction import StreamRedactor
from .wakeup_timer import WakeupTimer

T = TypeVar("T")
P = ParamSpec("P")

RETRY: Final = 0.5
"""Seconds between two tries of a read while the store is unavailable."""

ASK_AGAIN: Final = Backoff(initial=1.0, factor=2.0, maximum=60.0, jitter=0.25)
"""Back-off for a failed provider of deps. Each run has its own, with jitter, so the calls are spread."""

logger = logging.getLogger("greenroom.run")


class ChildWork(Protocol):
    """The child runs of a runtime, as the calls that they work for see them."""

    async def watch(self, call: ChildCall, child: Child) -> None:
        """Start the child run of a call, or find it, and report its changes until its end."""

    async def forward(self, call: ChildCall, decision: Decision, child: Child) -> None:
        """Post a decision to the child run of a call until it is answered."""

    async def cancel(self, call: ChildCall, watcher: Child | None, effect: CancelChild, child: Child) -> None:
        """Cancel the child run of a call, and report its end if no other task does."""


class Owners(Protocol):
    """The runs that have an owner here, as the store and the run actors see them."""

    def posted(self, run_id: str, item: InboxItem) -> None:
        """Hint a durable command to the run's actor."""

    def thread_freed(self, run_id: str) -> None:
        """Queue a run whose thread became free."""

    def resting(self, run_id: str, resting: bool, *, slot: bool = True) -> None:
        """Record that the run came to rest, or works again. `slot`: its work takes a slot."""

    def child_moved(self, parent_run: str) -> None:
        """Wake a parent run that is not in memory: a child run has come to rest, continues or is done."""

    def wake(self, run_id: str, *, degraded: bool = False) -> bool:
        """Give a run that is not in memory an owner."""

    def take(self, ready: ReadyRun) -> bool:
        """Give a claimed run an owner."""

    def hold(self, run_id: str) -> None:
        """Hold a live run for its thread."""

    def voided(self) -> None:
        """End every incarnation without another write."""


class RunOwnership(Protocol):
    """The decisions of a run's owner that depend on whether other processes may have the store open."""

    @property
    def fence(self) -> Callable[[], bool] | None:
        """Returns True while the claims of this process are good, also in a worker thread; None: they always are."""

    async def early_rows(self, run_id: str) -> RunRecord | None:
        """Return a run's rows before the claim; None: they are read after the claim, or there are none."""

    async def release(self, claim: Claim) -> bool:
        """Let another owner have a run at rest. Returns False if the run has unread commands."""

    def stays(self, row: RunRow) -> bool:
        """Return whether a run at rest stays in memory."""


@attrs.define(eq=False)
class Directory:
    """The parts of a runtime that its services need and that need the services: set before the first run exists.

    Attributes:
        registry: the runs that have an owner here.
        post: judges and journals a command (`RunCommands.post`).
        child_runs: starts and watches child runs.
        work: looks for runs to claim.
        ability: returns the runs that this process can work on.
        on_move: A callback for a run that another process moved: its id and its newest sequence.
    """

    registry: Owners = attrs.field(init=False)
    post: Callable[[str, Command], Awaitable[CommandResult]] = attrs.field(init=False)
    child_runs: ChildWork = attrs.field(init=False)
    work: Callable[[], None] = attrs.field(init=False)
    ability: Callable[[], Ability] = attrs.field(init=False)
    on_move: Callable[[str, int], None] = attrs.field(init=False)

    def retry(self, run_id: str) -> bool:
        """Give a run that is degraded here an owner, to try again. False if it has one."""
        return self.registry.wake(run_id, degraded=True)

    def take(self, ready: ReadyRun) -> bool:
        """Give a claimed run an owner. False if it has one, or is degraded here."""
        return self.registry.take(ready)


@attrs.frozen(kw_only=True)
class Services:
    """Shared by all runs of one runtime.

    Attributes:
        store, clock, redactor, log: one each.
        clock_watch: wakes waiters of wall time when the clock jumps.
        holdback: says how much of an unfinished text may be shown.
        signals: signals of changed runs.
        threads: slots for sync tools.
        tasks: the nursery of all runs' tasks; see `owners.py`.
        models: those with a name, and those that are open.
        alarm: wakes runs that are not in memory.
        passivation: says when resting runs leave memory.
        jitter: draws a random number in [0.5, 1.5), a factor of the back-off.
        agents: agents, models and deps.
        directory: the registry and the commands.
        record: commits carry the machine's inputs.
        ownership: the decisions that depend on other processes.
    """

    store: Store
    clock: Clock
    clock_watch: ClockWatch
    redactor: Redactor
    log: ErrorLog
    holdback: StreamRedactor
    signals: ChangeSignals
    threads: trio.CapacityLimiter
    tasks: trio.Nursery
    models: OpenModels
    alarm: WakeupTimer
    passivation: Passivation
    jitter: Callable[[], float]
    agents: Agents
    directory: Directory
    record: bool
    ownership: RunOwnership


async def retry_until_available(ask: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """Repeat a read until the store answers. An outage is not the run's fault and must not end it.

    A cancel ends the wait.

    Logged once in `greenroom.run`.

    Raises:
        StoreDown: the store has failed for good.
        NewerRelease: a newer release has written the data.
        StoreError: the stored data is damaged.
    """
    is_logged = False
    while True:
        try:
            return await ask(*args, **kwargs)
        except NewerRelease:
            raise
        except StoreUnavailable:
            if not is_logged:  # without the error's text, which may contain a secret
                text = f"the store cannot be read; it is asked again every {RETRY:g} s until it answers"
                report(logger, logging.WARNING, text)
            is_logged = True
            await trio.sleep(RETRY)
