"""`SharedOwnership`: other processes may have the store open, too.

Theory of operation. An actor begins with a claim, or asks for one and leaves quietly if another process has the run;
what cannot be worked on here is given back. So no run waits here for a slot if another process may have one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial

import attrs

from greenroom.supervision import ActorContext

from ...abc import Store
from ...contract.claims import Claim
from ...contract.rows import RunRecord, RunRow
from ...errors import NewerRelease, StoreDown, StoreUnavailable
from ...run.forced_end import GAVE_UP
from ...run.run_actor import NEWER_SCHEMA, Begin, ClaimIfNeeded, Errand, RunActor
from ...run.run_loop import Hint
from ...services.children import ClaimLost
from ...services.clock import Clock
from ...services.services import ASK_AGAIN, retry_until_available
from ..owned_run import OwnedRun


@attrs.define(eq=False)
class SharedOwnership:
    """Each of several processes may have any run (`Ownership`)."""

    _store: Store
    _clock: Clock
    _jitter: Callable[[], float]
    waking: Begin = attrs.field(init=False, default=ClaimIfNeeded("wake"))
    dead_letters: bool = attrs.field(init=False, default=True)
    passes_on: bool = attrs.field(init=False, default=True)
    wakes_parents: bool = attrs.field(init=False, default=False)
    holds_unowned: bool = attrs.field(init=False, default=False)
    expects_all: bool = attrs.field(init=False, default=False)

    def fence(self) -> bool:
        """Return True while no other process can have the claims of this one; also in a worker thread."""
        return self._store.good_until > self._clock.trio_now()

    async def early_rows(self, run_id: str) -> RunRecord | None:
        """Return None: until the claim, another process may write the rows."""
        return None

    async def release(self, claim: Claim) -> bool:
        """Give up the claim. Returns False if the run has unread commands: the run stays."""
        return not await retry_until_available(self._store.release, (claim,))

    def stays(self, row: RunRow) -> bool:
        """Return True for a run with mirrors: a child run may move in another process, and the owner watches."""
        return bool(row.mirrored)

    def body(self, actor: RunActor) -> Callable[[ActorContext[Hint]], Awaitable[None]]:
        """Return a body that gives the claim back."""
        return partial(self.incarnation, actor)

    async def incarnation(self, actor: RunActor, ctx: ActorContext[Hint]) -> None:
        """Run one incarnation of an actor, and give its claim back unless the run is done, released or given up."""
        try:
            await actor.body(ctx)
        except NewerRelease as error:  # another process can read the row, so this is no crash
            actor.degraded, actor.passing = (NEWER_SCHEMA, str(error)), False
        except ClaimLost:  # of a new run: another owner had the run meanwhile, and gave it back
            pass
        if actor.degraded is not None and actor.degraded[0] == GAVE_UP:
            return  # the claim of a run that was given up stays here until the end: others would crash of it, too
        if actor.claim is None or actor.void:
            actor.degraded = None  # another process has the run by now, and needs nothing from here
            return
        claim, actor.claim, ready_at = actor.claim, None, None
        if actor.degraded is not None:
            pause = ASK_AGAIN.delay(actor.refusals + 1, self._jitter() - 0.5)
            ready_at = self._clock.now() + timedelta(seconds=pause)
        with suppress(StoreUnavailable, StoreDown):  # the store gives back the claims that no actor of this process has
            await self._store.give_back((claim,), ready_at=ready_at)

    def may_take(self, run: OwnedRun | None) -> bool:
        """Return True: a run that was given back is ready again only after a pause."""
        return True

    def for_command(self, run: OwnedRun | None, errand: Errand) -> Begin:
        """Begin if the command needs an owner; a degraded run that has not begun is back in its queue."""
        return ClaimIfNeeded(errand)

    def for_child(self, run: OwnedRun | None) -> Begin | None:
        """Begin here unless the child run waits for people: no slot may come free while the parent run works."""
        return ClaimIfNeeded("child")

    def note_refused(self, run: OwnedRun, actor: RunActor) -> None:
        """Do nothing: the run is given back after a pause, for any process. A timer here would always be the first."""
