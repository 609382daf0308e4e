"""The wrapper around an actor's body: incarnations, restarts in place, and one synchronous step at the end.

One task per actor, one cancel scope per incarnation, no nursery. The scope is shielded: it is a segment of the
supervisor's ring, so an outer cancellation reaches the supervisor's body alone and an actor is only ever cancelled
on purpose.
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
    """What the wrapper asks of the supervisor; both are synchronous and are called by the child's own task."""

    def decide(self, cell: AnyCell, exit_: Exit) -> Decision:
        """What happens after this incarnation's exit."""

    def child_ended(self, cell: AnyCell, exit_: Exit, dead_letters: int) -> None:
        """The child has ended for good; called last in its exit step."""


@define(eq=False)
class ChildRecord(Generic[M]):
    """A child as its supervisor and its wrapper see it. Private to the package.

    Attributes:
        request: Set once, when it is asked to end: the exit it then has, unless it crashes or finishes first.
        booting: Resolved by `ready`; a child that ends while it is set is not restarted.
        was_ready: It has called `ready` at least once.
        window: Its own restarts, once there are any; None before that, and if it shares the supervisor's window.
        last_failure: The exit of the incarnation before.
        stubborn: Set when it has overrun its budget.
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
        """Cancel the incarnation and refuse further ones; the first request names the exit."""
        if self.request is None:
            self.request = request
            self.scope.cancel("stopped by its supervisor" if isinstance(request, Shutdown) else request.reason)

    def is_ready(self) -> None:
        """The body has called `ready`: end the wait of `start_child_ready`, if there is one."""
        self.was_ready = True
        booting, self.booting = self.booting, None
        if booting is not None:
            booting.send(None)

    def await_stack(self) -> tuple[str, ...]:
        """Where the actor stands, outermost frame first, `file:line:function`."""
        if self.task is None:
            return ()
        return tuple(
            f"{frame.f_code.co_filename}:{line}:{frame.f_code.co_name}" for frame, line in self.task.iter_await_frames()
        )

    def renew(self, failure: Exit) -> None:
        """Prepare the next incarnation: everything fresh but ref and mailbox."""
        self.last_failure = failure
        self.attempt += 1
        self.scope = trio.CancelScope(shield=True)

    def conclude(self, exit_: Exit) -> None:
        """The last synchronous step: everything that others must see, and no await."""
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
    """The task of an actor: from the first incarnation to the published exit.

    Raises:
        BaseException: Only what no actor may keep (`border.passes_through`, an outer Cancelled). The exit is published
            first.
    """
    cell.task = trio.lowlevel.current_task()
    if cell.spec.shutdown == "brutal":
        brutally_stopped.set(lambda: cell.request is not None)
    pause: float | None = None
    while True:
        try:
            exit_ = await _incarnate(cell, pause)
            decision = cell.host.decide(cell, exit_)
        except BaseException as error:
            cell.conclude(Shutdown() if isinstance(error, trio.Cancelled) else Crashed(error=error))
            raise
        match decision:
            case Restart(after=pause):
                cell.renew(exit_)
            case Stop(exit=final) | Escalate(exit=final):
                cell.conclude(final)
                return


async def _incarnate(cell: AnyCell, pause: float | None) -> Exit:
    """One incarnation; from the body's end to the return there is no checkpoint."""
    if cell.request is not None:  # asked to end before it began: its body must not act
        return cell.request
    scope, failure = cell.scope, None
    with scope:
        try:
            if pause is not None:
                await trio.sleep(pause)  # a checkpoint even for 0.0: a crash loop must not starve the others
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
