"""`RunOwners`: the supervisor of the actors that own runs; a static child of the runtime's supervisor.

Theory of operation. The owners have a separate supervisor, so a crash here ends them and no other part. Each owner
cancels its run's tasks, and its exit tells the registry; the registry gives the run its next owner, which begins as
after a crash of the owner itself. Until the next incarnation is open, `start` has no place for an owner: the registry
keeps the owner and starts it when `opened` is called.

The tasks of runs (models, calls, hooks) are not in a nursery of this actor but in that of the runtime's supervisor
(`Services.tasks`), whose block ends after them. trio cannot kill a task, and a body may ignore its cancel behind a
shield: here it would keep the actor from ending, and so from being restarted.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any, Final, TypeVar

import trio

from greenroom.supervision import (
    ActorContext,
    ChildSpec,
    Crashed,
    Exit,
    GaveUp,
    Ref,
    Supervisor,
    SupervisorStopping,
    open_supervisor,
)

from ..contract.ids import error_id
from ..services.error_log import RUN, ErrorLog

WORKPLACE: Final = ":work"
"""Id of the child; no run id begins with a colon."""
GRACE: Final = 6.0
"""Seconds for runs to unwind once their work is cancelled: a little more than the default grace of a tool."""

M = TypeVar("M")


class RunOwners:
    """Starts and stops the actors of runs.

    Attributes:
        ended: A callback that gets the exit of an actor, in the last step of the actor.
        opened: A callback for the moment from which actors can be started again.
    """

    def __init__(self, log: ErrorLog) -> None:
        self._log = log
        self._supervisor: Supervisor | None = None
        self._context: Context = copy_context()
        self.ended: Callable[[Ref[Any], Exit], None] = lambda _ref, _exit: None
        self.opened: Callable[[], None] = lambda: None

    def __repr__(self) -> str:
        return f"<RunOwners {self._supervisor!r}>"

    @property
    def stopping(self) -> bool:
        """True while actors end because their supervisor does."""
        return self._supervisor is None or self._supervisor.stopping

    def start(self, spec: ChildSpec[M]) -> Ref[M] | None:
        """Start an actor, in the context of the runtime and not of the task that wakes the run; None: not open now."""
        if self._supervisor is None:
            return None
        try:
            return self._context.run(self._supervisor.start_child, spec)
        except SupervisorStopping:
            return None

    async def join(self) -> None:
        """Wait until no actor is left."""
        if self._supervisor is not None:
            await self._supervisor.join()
        else:
            await trio.lowlevel.checkpoint()

    async def body(self, ctx: ActorContext[object]) -> None:
        """Keep the actors alive until cancelled."""
        async with open_supervisor(
            name="runtime",
            stop_budget=GRACE,
            on_exit=self.note_exit,
            on_restart=self.note_restart,
            tracebacks=False,
        ) as self._supervisor:
            self.opened()
            ctx.ready()
            await trio.sleep_forever()

    def note_exit(self, ref: Ref[object], exit_: Exit) -> None:
        """Log the crash of an owner that is not restarted, and report the exit."""
        if isinstance(exit_, Crashed | GaveUp) and exit_.error is not None:
            more = "it is given up" if isinstance(exit_, GaveUp) else "it was being stopped"
            self._bug(ref, f"the owner of run {ref.id} crashed, and {more}", exit_.error)
        self.ended(ref, exit_)

    def note_restart(self, ref: Ref[object], exit_: Exit, attempt: int) -> None:
        """Log the crash of an owner that begins again."""
        if isinstance(exit_, Crashed):
            what = f"the owner of run {ref.id} crashed; incarnation {attempt} follows"
            self._bug(ref, what, exit_.error, attempt=attempt)

    def _bug(self, ref: Ref[object], what: str, error: BaseException, **fields: object) -> None:
        name = error_id(ref.id, "owner")
        self._log.bug(RUN, what, error, code="internal_error", run_id=ref.id, error_id=name, **fields)
