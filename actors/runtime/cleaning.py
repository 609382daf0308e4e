"""`Cleaning`: lets the surroundings of a runtime remove what runs have left behind."""

from __future__ import annotations

from typing import Final

import trio

from greenroom.supervision import ActorContext, Raised, acapture

from ..abc import Surroundings
from ..contract.lifecycle import RunStatus
from ..contract.run_lists import RunQuery
from ..services.error_log import RUN, ErrorLog
from .reader import RunReader

CLEANING: Final = ":cleaning"
"""Id of the child; no run id begins with a colon."""
PERIOD: Final = 3_600.0
"""Seconds from one cleaning to the next: what is removed was not used for days."""
_OPEN: Final = (RunStatus.CREATED, RunStatus.RUNNING, RunStatus.WAITING)


class Cleaning:
    """The part of a runtime with workspaces that calls `Surroundings.expire`, when it begins and each hour."""

    def __init__(self, surroundings: Surroundings, reader: RunReader, log: ErrorLog) -> None:
        self._surroundings, self._reader, self._log = surroundings, reader, log

    def __repr__(self) -> str:
        return f"<Cleaning of {self._surroundings!r}>"

    async def body(self, ctx: ActorContext[object]) -> None:
        """Run until cancelled. A failure is logged, and the next cleaning tries again."""
        ctx.ready()
        while True:
            outcome = await acapture(self._surroundings.expire, self._is_busy)
            if isinstance(outcome, Raised):
                self._log.fault(
                    RUN, "the workspaces could not remove what is old", outcome.error, code="internal_error"
                )
            await trio.sleep(PERIOD)

    async def _is_busy(self, thread_id: str) -> bool:
        """Return True if a run of the thread is not done."""
        for status in _OPEN:
            if (await self._reader.page(RunQuery(status=status, thread_id=thread_id, limit=1))).runs:
                return True
        return False
