"""`Passivation`: says when the runs that rest leave memory.

One task for all of them. A timer in each run that waits would be a cancel scope, which is 1 KB of it. All have the same
patience, so they leave in the order in which they came to rest.
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
    """Nudges each resting run once, when it has rested long enough; whether it can leave then is its own business."""

    def __init__(self, patience: float | None) -> None:
        """`patience`: seconds; None: runs stay as long as the runtime is open."""
        self._patience = patience
        # by mailbox, when; a plain dict would look for its first behind all that have been taken away
        self._resting: OrderedDict[Mailbox[object], float] = OrderedDict()
        self._some = trio.Event()

    def __repr__(self) -> str:
        return f"<Passivation of {len(self._resting)} resting runs>"

    def rests(self, mailbox: Mailbox[Any]) -> float:
        """The run of this mailbox, which did not rest, does now; returns when it is nudged, in trio time."""
        if self._patience is None:
            return math.inf
        at = self._resting[mailbox] = trio.current_time() + self._patience
        self._some.set()
        return at

    def forget(self, mailbox: Mailbox[Any]) -> None:
        """The run works again, or has no owner here any more; harmless for one that did not rest."""
        self._resting.pop(mailbox, None)

    async def body(self, ctx: ActorContext[object]) -> None:
        """Nudge whose time has come, for ever."""
        ctx.ready()
        while True:
            while self._resting:
                mailbox, at = next(iter(self._resting.items()))
                if trio.current_time() >= at:
                    self.forget(mailbox)
                    mailbox.nudge()
                else:
                    await trio.sleep_until(at)  # whoever comes to rest meanwhile leaves later
            self._some = trio.Event()
            await self._some.wait()
