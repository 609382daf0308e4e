"""The wrapper around an actor's body: incarnations, restarts in place, and one synchronous exit step.

An actor is one task with one cancel scope per incarnation and no nursery. The scope is shielded: the scope belongs to
the supervisor's ring (see `supervisor`), so an outer cancellation reaches only the supervisor's body, and an actor is
cancelled only on request.

    incarnation ends -> Host.decide -> Restart: a new incarnation in the same task, with the same ref and mailbox
                                    -> Stop, Escalate: conclude() publishes the exit; the task returns
"""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import trio
from attrs import define, evolve, field

from .border import failure_of, passes_through
from .cleanup import brutally_stopped
from .context import ActorContext
from .exits import ActorCancelled, Crashed, Exit, Normal, Shutdown, Unresponsive
from .intensity import Window
from .mailbox import Mailbox
from .ref import Ref
from .reply import Reply
from .spec import ChildSpec
from .strategy import Decision, Escalate, Restart, Stop

M = TypeVar("M")


class Host(Protocol):
    """The part of a supervisor that the wrapper calls. Both methods are synchronous and run in the child's task."""

    def decide(self, cell: AnyCell, exit_: Exit) -> Decision:
        """Return the decision that follows the exit of an incarnation."""

    def child_ended(self, cell: AnyCell, exit_: Exit, dead_letters: int) -> None:
        """Record the final exit of a child; the last call of the child's exit step."""


@define(eq=False)
class ChildRecord(Generic[M]):
    """The state that a supervisor and a wrapper share about one child. Private to the package.

    Attributes:
        request: The first request to end; names the exit of the child unless the child crashes or finishes first.
        booting: Resolved by `ready`. A child that ends while `booting` is set is not restarted.
        was_ready: True once `ready` has been called.
        window: Restarts of this child; None before the first restart and for a child that shares the supervisor's
            window.
        last_failure: Exit of the previous incarnation.
        stubborn: Set when the child has overrun its budget.
    """

    spec: ChildSpec[M]
    ref: Ref[M]
    mailbox: Mailbox[M]
    host: Host
    static: bool
    booting: Reply[None] | None = None
    window: Window | None = field(init=False, default=None)
    scope: trio.CancelScope = field(init=False)
    attempt: int = field(init=False, default=0)
    request: Shutdown | ActorCancelled | None = field(init=False, default=None)
    last_failure: Exit | None = field(init=False, default=None)
    stubborn: Unresponsive | None = field(init=False, default=None)
    task: trio.lowlevel.Task | None = field(init=False, default=None)
    was_ready: bool = field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self.scope = trio.CancelScope(shield=True)

    def ask_to_end(self, request: Shutdown | ActorCancelled) -> None:
        """Cancel the incarnation and prevent further ones. The first request names the exit."""
        if self.request is None:
            self.request = request
            self.scope.cancel("stopped by its supervisor" if isinstance(request, Shutdown) else request.reason)

    def is_ready(self) -> None:
        """Record that the body has called `ready`, and end the wait of `start_child_ready`, if there is one."""
        self.was_ready = True
        booting, self.booting = self.booting, None
        if booting is not None:
            booting.send(None)

    def await_stack(self) -> tuple[str, ...]:
        """Return the await stack of the actor, outermost frame first, as `file:line:function`."""
        if self.task is None:
            return ()
        return tuple(
            f"{frame.f_code.co_filename}:{line}:{frame.f_code.co_name}" for frame, line in self.task.iter_await_frames()
        )

    def renew(self, failure: Exit) -> None:
        """Prepare the next incarnation. Only ref and mailbox are kept."""
        self.last_failure = failure
        self.attempt += 1
        self.scope = trio.CancelScope(shield=True)

    def conclude(self, exit_: Exit) -> None:
        """Publish the final exit in one synchronous step.

        There is no await in this method: the exit, the free name, the failed asks and the supervisor's bookkeeping
        become visible to other tasks at the same time, and a racing cancellation cannot separate them.
        """
        if self.stubborn is not None and not isinstance(exit_, Unresponsive):
            self.stubborn = exit_ = evolve(self.stubborn, late=exit_)
        booting, self.booting = self.booting, None
        dead_letters = self.ref.conclude(exit_)
        self.host.child_ended(self, exit_, dead_letters)
        if booting is not None:
            booting.send(None)


AnyCell: TypeAlias = ChildRecord[Any]
"""A child whose messages are not known here."""


async def run_actor(cell: AnyCell) -> None:
    """Run an actor from the first incarnation to the published exit.

    Raises:
        BaseException: Only an exception that no actor may keep (`border.passes_through`, an outer Cancelled). The exit
            is published first.
    """
    cell.task = trio.lowlevel.current_task()
    if cell.spec.shutdown == "brutal":
        # a context variable, so that clean-up helpers in child tasks of the body see it, too
        brutally_stopped.set(lambda: cell.request is not None)
    pause: float | None = None
    while True:
        try:
            exit_ = await _incarnate(cell, pause)
            decision = cell.host.decide(cell, exit_)
        except BaseException as error:
            # the exit is published even then: an asker or watcher must not wait for a task that has ended
            cell.conclude(Shutdown() if isinstance(error, trio.Cancelled) else Crashed(error=error))
            raise
        match decision:
            case Restart(after=pause):
                cell.renew(exit_)
            case Stop(exit=final) | Escalate(exit=final):
                cell.conclude(final)
                return


async def _incarnate(cell: AnyCell, pause: float | None) -> Exit:
    """Run one incarnation and return its exit. There is no checkpoint between the end of the body and the return."""
    if cell.request is not None:  # cancelled before the first step: the body must not run at all
        return cell.request
    scope, failure = cell.scope, None
    with scope:
        try:
            if pause is not None:
                await trio.sleep(pause)  # a checkpoint even for 0.0: a crash loop must not starve other tasks
            await cell.spec.start(
                ActorContext(
                    ref=cell.ref,
                    mailbox=cell.mailbox,
                    attempt=cell.attempt,
                    scope=scope,
                    previous=cell.last_failure,
                    on_ready=cell.is_ready,
                )
            )
        except BaseException as error:  # noqa: ASYNC103 - the supervision boundary
            if passes_through(error):
                raise
            failure = failure_of(error)
    if failure is not None:
        return Crashed(error=failure)
    if not scope.cancelled_caught:
        return Normal()
    return cell.request or ActorCancelled(reason="its own scope was cancelled", by=cell.ref.name)
