"""`Ownership`: the decisions of a runtime that differ in a shared store. Chosen once, at opening.

Theory of operation. A process that has its store alone (`SoleOwnership`) owns every run that is not done: a run waits
here for a slot and for its thread, also without an owner, and a timer here tries a refused run again. Of several
processes (`shared/ownership.py`) each may have any run, so a run waits in the store, for all of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import attrs

from greenroom.supervision import ActorContext

from ..abc import Store
from ..contract.claims import Claim
from ..contract.rows import RunRecord, RunRow
from ..run.run_actor import CLAIM_ANYWAY, Begin, ClaimIfNeeded, Errand, RunActor
from ..run.run_loop import Hint
from ..services.services import ASK_AGAIN, RunOwnership, retry_until_available
from ..services.wakeup_timer import WakeupTimer
from .owned_run import OwnedRun


class Ownership(RunOwnership, Protocol):
    """The decisions of the registry that depend on other processes, beside those of a run (`RunOwnership`).

    Attributes:
        waking: how the owner begins whom a timer or a changed tool wakes.
        dead_letters: a run may be a dead letter.
        passes_on: without room here a run waits in the store, for any process.
        wakes_parents: a parent run that has mirrors may be without an owner, and is woken for news of a child run.
        holds_unowned: a refused run still waits here for its thread.
        expects_all: each run whose thread becomes free gets its owner here.
    """

    waking: Begin
    dead_letters: bool
    passes_on: bool
    wakes_parents: bool
    holds_unowned: bool
    expects_all: bool

    def body(self, actor: RunActor) -> Callable[[ActorContext[Hint]], Awaitable[None]]:
        """Return the body of a run's actor."""

    def may_take(self, run: OwnedRun | None) -> bool:
        """Return whether a claimed run without an owner gets one."""

    def for_command(self, run: OwnedRun | None, errand: Errand) -> Begin:
        """Return how the owner begins that a command asks for."""

    def for_child(self, run: OwnedRun | None) -> Begin | None:
        """Return how the owner of a child run begins whose parent run works here; None: the child run needs none."""

    def note_refused(self, run: OwnedRun, actor: RunActor) -> None:
        """Arrange that a run that could not be worked on here is tried again."""


@attrs.define(eq=False)
class SoleOwnership:
    """No other process has the store open (`Ownership`)."""

    _store: Store
    _timer: WakeupTimer
    _jitter: Callable[[], float]
    fence: None = attrs.field(init=False, default=None)
    waking: Begin = attrs.field(init=False, default=CLAIM_ANYWAY)
    dead_letters: bool = attrs.field(init=False, default=False)
    passes_on: bool = attrs.field(init=False, default=False)
    wakes_parents: bool = attrs.field(init=False, default=True)
    holds_unowned: bool = attrs.field(init=False, default=True)
    expects_all: bool = attrs.field(init=False, default=True)

    async def early_rows(self, run_id: str) -> RunRecord | None:
        """Load the rows: such a store takes no claim back, and no other process writes the rows."""
        return await retry_until_available(self._store.load, run_id)

    async def release(self, claim: Claim) -> bool:
        """Keep the claim: the next owner is of this process."""
        return True

    def stays(self, row: RunRow) -> bool:
        """Return False: a child run that moves wakes its parent."""
        return False

    def body(self, actor: RunActor) -> Callable[[ActorContext[Hint]], Awaitable[None]]:
        """Return the actor's own body."""
        return actor.body

    def may_take(self, run: OwnedRun | None) -> bool:
        """Return True unless the run is degraded: the store reports such a run again and again."""
        return run is None or run.degraded is None

    def for_command(self, run: OwnedRun | None, errand: Errand) -> Begin:
        """Try a degraded run again, which has left its queue; any other run if the command needs an owner."""
        return ClaimIfNeeded(errand) if self.may_take(run) else CLAIM_ANYWAY

    def for_child(self, run: OwnedRun | None) -> Begin | None:
        """Try a degraded child run again: every other one has an owner, or waits for people."""
        return None if self.may_take(run) else CLAIM_ANYWAY

    def note_refused(self, run: OwnedRun, actor: RunActor) -> None:
        """Try the run again after a pause, if the missing requirement may come by itself."""
        if actor.passing:
            self._timer.after(run.run_id, ASK_AGAIN.delay(run.refusals, self._jitter() - 0.5))
