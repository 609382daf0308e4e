"""`PartExits`: restart the parts of a runtime after a crash; the owners of runs are the registry's.

Theory of operation. Each part has a separate restart window and is never given up: it begins again after a pause that
grows, its crash is logged, and `RecentCrashes` names the part for a minute. Only the store can end the runtime.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any, Final

from greenroom.supervision import ActorContext, ChildSpec, Crashed, Exit, GaveUp, RecentCrashes, Ref
from greenroom.supervision.spec import Backoff

from ..services.error_log import RUN, ErrorLog

STORE: Final = ":store"
"""Id of the child that serves the store; no run id begins with a colon."""
PAUSES: Final = Backoff(initial=0.1, factor=2.0, maximum=30.0, jitter=0.1)
"""Before each restart of a part: short for a first crash, and no load on the machine if the cause stays."""
WINDOW: Final = 60.0
"""Seconds after which a restart no longer makes the next pause longer."""


def part_spec(name: str, body: Callable[[ActorContext[Any]], Awaitable[object]], *, shutdown: float) -> ChildSpec[Any]:
    """Return the specification of a part that is never given up."""
    return ChildSpec(id=name, start=body, shutdown=shutdown, max_restarts=math.inf, within=WINDOW, backoff=PAUSES)


class PartExits:
    """Callbacks of the runtime's supervisor.

    Attributes:
        failure: The failure of the store, or None.
        open: the store is open. Before that, a failure is raised by `open_runtime` itself.
        crashes: names parts that have crashed of late.
        ended: Callbacks for the final end of a part, by the id of the part.
    """

    def __init__(self, log: ErrorLog) -> None:
        self._log = log
        self.failure: BaseException | None = None
        self.open = False
        self.crashes = RecentCrashes()
        self.ended: dict[str, Callable[[], None]] = {}

    def note_exit(self, ref: Ref[object], exit_: Exit) -> None:
        """Handle the final exit of a child of the supervisor."""
        error = exit_.error if isinstance(exit_, Crashed | GaveUp) else None
        if error is not None and self.open:
            how = "for good" if isinstance(exit_, GaveUp) else "while the runtime closed"
            self._log.bug(RUN, f"{ref.name} crashed {how}", error, child=ref.name)
        if ref.id == STORE and (isinstance(exit_, GaveUp) or (error is not None and self.open)):
            self.failure = self.failure or error or RuntimeError(f"{ref.name} has returned")
        self.ended.get(ref.id, lambda: None)()

    def note_restart(self, ref: Ref[object], exit_: Exit, attempt: int) -> None:
        """Log the crash of a part that begins again."""
        self.crashes.note(ref.name)
        if isinstance(exit_, Crashed):
            what = f"{ref.name} crashed; restart {attempt} follows"
            self._log.bug(RUN, what, exit_.error, child=ref.name, attempt=attempt)
