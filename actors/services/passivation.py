"""`Passivation`: decides when resting runs leave memory.

Theory of operation. One task serves all runs, because a timer per waiting run would be a cancel scope of 1 KB. All runs
have the same patience, so they leave in the order in which they came to rest: the first entry of an ordered dict is
always the next. A nudge is only a hint; the run loop itself checks whether it can leave.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Any, Final

import trio

from greenroom.supervision import ActorContext, Mailbox

PASSIVATION: Final = ":passivation"
"""Id of the child; no run id begins with a colon."""


class Passivation:
    """Nudges each resting run once, after its patience; the run loop decides whether it can leave."""

    def __init__(self, patience: float | None) -> None:
        """`patience`: seconds; None: runs stay as long as the runtime is open."""
        self._patience = patience
        # mailbox -> moment. A plain dict finds its first entry by scanning over all deleted ones.
        self._resting: OrderedDict[Mailbox[object], float] = OrderedDict()
        self._some = trio.Event()

    def __repr__(self) -> str:
        return f"<Passivation of {len(self._resting)} resting runs>"

    def rests(self, mailbox: Mailbox[Any]) -> float:
        """Note that the run of this mailbox came to rest; returns when it is nudged, in trio time."""
        if self._patience is None:
            return math.inf
        at = self._resting[mailbox] = trio.current_time() + self._patience
        self._some.set()
        return at

    def forget(self, mailbox: Mailbox[Any]) -> None:
        """Note that the run works again or has no owner here any more; no effect for a run that did not rest."""
        self._resting.pop(mailbox, None)

    async def body(self, ctx: ActorContext[object]) -> None:
        """Nudge the runs that are due, until cancelled."""
        ctx.ready()
        while True:
            while self._resting:
                mailbox, at = next(iter(self._resting.items()))
                if trio.current_time() >= at:
                    self.forget(mailbox)
                    mailbox.nudge()
                else:
                    await trio.sleep_until(at)  # runs that come to rest meanwhile leave later
            self._some = trio.Event()
            await self._some.wait()
