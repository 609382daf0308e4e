"""The supervisor: children behind one ring of shields, restarted by a pure decision, stopped in order.

    async with open_supervisor(name="runtime") as sup:
        writer = await sup.start_child_ready(ChildSpec(id="writer", start=write))   # static
        run = sup.start_child(ChildSpec(id="run-1", start=run_body))                # dynamic

The ring. A plain nursery passes an outer cancellation to all children in the same tick; an ordered stop is then
impossible. Here the scope of every incarnation is shielded, so an outer cancellation reaches only the body of the
`async with` block. When the block ends, for any reason, the supervisor refuses new children and stops the existing
ones, shielded: dynamic children first, concurrently, in slices, under one budget; then static children in reverse start
order, each within its own budget. The block then raises what it would have raised: the body's exception, bare; the
outer `Cancelled`; or `SupervisorGaveUp`. A cancellation never replaces an error.

An interruption of the stop itself (a KeyboardInterrupt) ends the order: all children are asked to end together, and the
block raises the interrupt when all children have ended.

Trio cannot kill a task. A child that has not ended within its budget (a thread, a shield without end) is recorded as
stubborn with its await stack, `on_stubborn` is called, and the ordered stop continues. The block, however, ends only
when that child has ended, because a nursery has no orphans. A program that must not wait that long ends the process
from `on_stubborn`.
"""

from __future__ import annotations

import logging
import random
import signal
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import trio
from attrs import asdict, define, field
from trio.lowlevel import checkpoint

from .actor import AnyCell, ChildRecord, run_actor
from .border import note_handler
from .errors import (
    DuplicateChild,
    NameTaken,
    StartFailed,
    SupervisorGaveUp,
    SupervisorStopping,
    TooManyChildren,
    UnknownChild,
)
from .exits import ActorCancelled, Crashed, Exit, GaveUp, Shutdown, Unresponsive, sole_cancellation
from .intensity import Intensity, Window
from .mailbox import Mailbox
from .nursery import raise_bare, unwrap
from .ref import AnyRef, Ref, call_watcher
from .registry import Registry
from .reply import Reply
from .reporting import report, traceback_text
from .spec import ChildSpec, OnGiveUp
from .strategy import Decision, Escalate, Restart, Stop, decide, wants_restart
from .views import (
    ChildCount,
    ChildInfo,
    ChildState,
    OnExit,
    OnRestart,
    OnStubborn,
    Options,
    SupervisorStatistics,
)

M = TypeVar("M")

logger = logging.getLogger("greenroom.supervision")

SLICE = 50
"""Children cancelled between two checkpoints.

Cancelling 10,000 together blocks all tasks for 0.23 s, slices of 50 for 0.06 s.
"""

STOP_BUDGET = 5.0
"""Seconds for all dynamic children together to end; OTP's default for one worker."""

BRUTAL_GRACE = 1.0
"""Seconds for a brutally stopped child to unwind: clean-up helpers get no time, but the frames must still be left."""


@define(eq=False)
class _Counters:
    started: int = 0
    ended: int = 0
    crashes: int = 0
    restarts: int = 0
    gave_up: int = 0
    overruns: int = 0
    dead_letters: int = 0


@define(eq=False)
class Supervisor:
    """A running supervisor, created by `open_supervisor`. Any task of the trio thread may call its methods.

    Attributes:
        name: Prefix of the children's names.
    """

    name: str
    _options: Options
    _nursery: trio.Nursery
    _body: trio.CancelScope = field(init=False, factory=trio.CancelScope)
    _static: dict[str, AnyCell] = field(init=False, factory=dict)
    _dynamic: dict[str, AnyCell] = field(init=False, factory=dict)
    _window: Window = field(init=False)
    _counters: _Counters = field(init=False, factory=_Counters)
    _idle: trio.Event | None = field(init=False, default=None)
    _stopping: bool = field(init=False, default=False)
    _failure: tuple[AnyCell, GaveUp] | None = field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        self._window = Window(intensity=self._options.intensity)

    def __repr__(self) -> str:
        state = "stopping" if self._stopping else "running"
        return f"<Supervisor {self.name!r} {state}, {len(self._static)} static, {len(self._dynamic)} dynamic>"

    # --- children ---------------------------------------------------------------------------------

    def start_child(self, spec: ChildSpec[M]) -> Ref[M]:
        """Start a dynamic child and return its address immediately; its body first runs in the next tick.

        Messages may be sent before the body runs. Each dynamic child has its own restart window. Dynamic children
        are stopped before the static ones, all together, and by default end with `GaveUp` without affecting the
        supervisor.

        Raises:
            SupervisorStopping: The supervisor is stopping.
            DuplicateChild: A live child has that id.
            TooManyChildren: `max_children` children are alive.
            NameTaken: The registry has a live actor with that name.
        """
        return self._start(spec, static=False, booting=None).ref

    async def start_child_ready(self, spec: ChildSpec[M]) -> Ref[M]:
        """Start a static child and wait until it has called `ctx.ready()`.

        Static children share the supervisor's restart window unless they have their own, are stopped in reverse
        start order after all dynamic children, and by default escalate when the window is exceeded. A child that ends
        before it is ready is not restarted.

        Raises:
            StartFailed: The child ended before it was ready; raised from the crash, if there was a crash.
            SupervisorStopping: The supervisor is stopping.
            DuplicateChild: A live child has that id.
            TooManyChildren: `max_children` children are alive.
            NameTaken: The registry has a live actor with that name.

        Cancellation: the child is stopped within its budget before `Cancelled` is raised; no child is left running.
        """
        booting: Reply[None] = Reply()
        cell = self._start(spec, static=True, booting=booting)
        try:
            await booting.wait()
        except BaseException:
            with trio.CancelScope(shield=True):  # the ring: bounded by the child's own budget
                await self._stop_cell(cell, Shutdown())
            raise
        exit_ = cell.ref.exit
        if exit_ is not None and not cell.was_ready:
            raise StartFailed(spec.id, exit_) from (exit_.error if isinstance(exit_, Crashed) else None)
        return cell.ref

    async def start_children(self, specs: Iterable[ChildSpec[Any]]) -> tuple[AnyRef, ...]:
        """Call `start_child_ready` for each spec, in order.

        If one fails, the children already started are stopped in reverse order.

        Raises:
            StartFailed: A child ended before it was ready; none of `specs` is running.
            SupervisorStopping: The supervisor is stopping.
            DuplicateChild: A live child has that id.
            TooManyChildren: `max_children` children are alive.
            NameTaken: The registry has a live actor with that name.

        Cancellation: handled as a failure.
        """
        cells: list[ChildRecord[object]] = []
        try:
            for spec in specs:
                await self.start_child_ready(spec)
                cells.append(self._static[spec.id])
        except BaseException:
            with trio.CancelScope(shield=True):  # the ring: bounded by the children's own budgets
                for cell in reversed(cells):
                    await self._stop_cell(cell, Shutdown())
            raise
        return tuple(cell.ref for cell in cells)

    def cancel_child(self, child_id: str, *, reason: str, by: str) -> bool:
        """Cancel a child without restart.

        The exit is `ActorCancelled(reason, by)` unless the child crashes or finishes first. Synchronous; await
        `ref.exited` for the end. A later request does not change the reason of an earlier one.

        Returns:
            False if there is no live child with that id; the child may have ended already.
        """
        cell = self._find(child_id)
        if cell is None:
            return False
        cell.ask_to_end(ActorCancelled(reason=reason, by=by))
        return True

    async def stop_child(self, child_id: str) -> Exit:
        """Ask a child to end and wait for its exit within the child's budget.

        Returns:
            The child's exit; `Unresponsive` if the child has overrun its budget (the child may still end later).

        Raises:
            UnknownChild: There is no live child with that id.

        Cancellation: the request remains in effect; only the waiting ends.
        """
        cell = self._find(child_id)
        if cell is None:
            raise UnknownChild(self.name, child_id)
        return await self._stop_cell(cell, Shutdown())

    async def join(self) -> None:
        """Wait until there is no dynamic child.

        Cancellation: has no effect on children.
        """
        await self._dynamic_gone()
        await checkpoint()

    # --- views ------------------------------------------------------------------------------------

    @property
    def nursery(self) -> trio.Nursery:
        """The nursery of the children, for tasks that are not children: nothing stops, restarts or counts them.

        The block ends after them, when all children have ended. Give such a task a shielded scope and cancel it when
        its user ends; an error of the task ends the whole block.
        """
        return self._nursery

    @property
    def stopping(self) -> bool:
        """True once the supervisor refuses new children and stops the existing ones."""
        return self._stopping

    def get(self, child_id: str) -> AnyRef | None:
        """Return the live child with that id, or None."""
        cell = self._find(child_id)
        return None if cell is None else cell.ref

    def which_children(self) -> tuple[ChildInfo, ...]:
        """Return all live children, static ones first, each kind in start order."""
        return tuple(_info(cell) for children in (self._static, self._dynamic) for cell in children.values())

    def count_children(self) -> ChildCount:
        """Return the numbers of live children; O(1), except for stubborn children of a stopping supervisor."""
        stubborn = len(self._stubborn()) if self._counters.overruns else 0
        return ChildCount(static=len(self._static), dynamic=len(self._dynamic), stubborn=stubborn)

    def await_stack(self, child_id: str) -> tuple[str, ...]:
        """Return the await stack of a child, outermost frame first; empty before the child's first step.

        Raises:
            UnknownChild: There is no live child with that id.
        """
        cell = self._find(child_id)
        if cell is None:
            raise UnknownChild(self.name, child_id)
        return cell.await_stack()

    def statistics(self) -> SupervisorStatistics:
        """Return the counters and the live children, as frozen values."""
        return SupervisorStatistics(
            **asdict(self._counters), live=self.count_children(), stubborn=self._stubborn(), stopping=self._stopping
        )

    # --- called by the wrapper of a child, in the child's task ------------------------------------

    def decide(self, cell: AnyCell, exit_: Exit) -> Decision:
        """Decide what follows the exit of an incarnation (`Host`)."""
        crashed = isinstance(exit_, Crashed)
        self._counters.crashes += crashed
        by_request = self._stopping or cell.request is not None or cell.booting is not None
        if by_request or not wants_restart(cell.spec, exit_):
            if isinstance(exit_, Crashed) and cell.booting is None:  # `StartFailed` has the crash of a start
                what = f"{cell.ref.name} crashed ({_kind(exit_.error)}) and is not restarted"
                self._log(logging.ERROR, cell, what, exit_.error)
            return Stop(exit=exit_)
        options = self._options
        chance = 0.5 if cell.spec.backoff is None else options.rng.random()
        shared = cell.static and not cell.spec.has_own_intensity
        window = self._window if shared else cell.window or Window(intensity=cell.spec.intensity(options.intensity))
        decision = decide(cell.spec, exit_, window, trio.current_time(), restarts=cell.attempt, chance=chance)
        if isinstance(decision, Restart):
            self._counters.restarts += 1
            self._log_restart(cell, exit_)
            if shared:
                self._window = decision.window
            else:
                cell.window = decision.window
            if options.on_restart is not None:
                call_watcher(options.on_restart, cell.ref, exit_, cell.attempt + 1)
        elif isinstance(decision, Escalate):
            self._gave_up(cell, decision.exit)
        return decision

    def child_ended(self, cell: AnyCell, exit_: Exit, dead_letters: int) -> None:
        """Remove an ended child (`Host`)."""
        children = self._static if cell.static else self._dynamic
        del children[cell.spec.id]
        self._counters.ended += 1
        self._counters.dead_letters += dead_letters
        if self._idle is not None and not self._dynamic:
            self._idle.set()
            self._idle = None
        if self._options.on_exit is not None:
            call_watcher(self._options.on_exit, cell.ref, exit_)

    # --- inside -----------------------------------------------------------------------------------

    def _start(self, spec: ChildSpec[M], *, static: bool, booting: Reply[None] | None) -> ChildRecord[M]:
        options = self._options
        if self._stopping:
            raise SupervisorStopping(self.name)
        if spec.id in self._static or spec.id in self._dynamic:
            raise DuplicateChild(self.name, spec.id)
        if options.max_children is not None and len(self._static) + len(self._dynamic) >= options.max_children:
            raise TooManyChildren(self.name, options.max_children)
        name = spec.name or f"{self.name}/{spec.id}"
        if options.registry is not None and name in options.registry:
            raise NameTaken(name)
        mailbox: Mailbox[M] = Mailbox(name, spec.capacity)
        ref: Ref[M] = Ref(spec.id, name, mailbox)
        cell = ChildRecord(spec, ref, mailbox, self, static, booting)
        self._nursery.start_soon(run_actor, cell, name=name)
        if options.registry is not None:
            options.registry.register(name, ref)
        (self._static if static else self._dynamic)[spec.id] = cell
        self._counters.started += 1
        return cell

    def _find(self, child_id: str) -> ChildRecord[object] | None:
        return self._dynamic.get(child_id) or self._static.get(child_id)

    def _stubborn(self) -> tuple[str, ...]:
        return tuple(
            cell.spec.id
            for children in (self._static, self._dynamic)
            for cell in children.values()
            if cell.stubborn is not None
        )

    def _gave_up(self, cell: AnyCell, exit_: GaveUp) -> None:
        """Report a child that has exceeded its intensity, and end the supervisor if the policy is to escalate."""
        text = f"{cell.ref.name} has ended for good after {exit_.restarts} restarts ({_kind(exit_.error)})"
        self._log(logging.ERROR, cell, text, exit_.error, restarts=exit_.restarts)
        self._counters.gave_up += 1
        policy = cell.spec.on_give_up or self._options.on_give_up or ("escalate" if cell.static else "report")
        if policy == "escalate" and self._failure is None:
            self._failure = (cell, exit_)
            self._stopping = True
            self._body.cancel(f"{self.name} gave up because of its child {cell.spec.id}")

    def _log_restart(self, cell: AnyCell, exit_: Exit) -> None:
        number, error = cell.attempt + 1, exit_.error if isinstance(exit_, Crashed) else None
        why = "ended" if error is None else f"crashed ({_kind(error)})"
        self._log(logging.WARNING, cell, f"{cell.ref.name} {why}; restart {number} follows", error, attempt=number)

    def _log(self, level: int, cell: AnyCell, text: str, error: BaseException | None, **fields: object) -> None:
        """Log the end of an incarnation with its traceback, unless the owner of the supervisor logs tracebacks.

        The line itself never has the text of the error, which may contain secrets.
        """
        traceback = traceback_text(error) if error is not None and self._options.tracebacks else None
        report(logger, level, text, traceback=traceback, child=cell.ref.name, **fields)

    async def _stop_all(self) -> None:
        """Stop dynamic children, then static ones in reverse start order. The caller is shielded."""
        self._stopping = True
        await self._stop_dynamic()
        for cell in reversed(list(self._static.values())):
            await self._stop_cell(cell, Shutdown())

    async def _stop_dynamic(self) -> None:
        """Stop all dynamic children together, newest first, a slice per tick, under one budget."""
        cells = list(reversed(self._dynamic.values()))
        size = self._options.slice_size
        with trio.move_on_after(self._options.stop_budget):
            for first in range(0, len(cells), size):
                for cell in cells[first : first + size]:
                    cell.ask_to_end(Shutdown())
                await checkpoint()
            await self._dynamic_gone()
        # the budget may have run out before the last slice was asked to end
        for cell in list(self._dynamic.values()):
            cell.ask_to_end(Shutdown())
            self._mark_stubborn(cell)

    def _stop_at_once(self) -> None:
        """Ask all children to end, after an interrupted stop: an outer cancellation does not pass their shields."""
        for children in (self._dynamic, self._static):
            for cell in children.values():
                cell.ask_to_end(Shutdown())

    async def _dynamic_gone(self) -> None:
        while self._dynamic:
            if self._idle is None:
                self._idle = trio.Event()
            await self._idle.wait()

    async def _stop_cell(self, cell: AnyCell, request: Shutdown) -> Exit:
        """Ask one child to end and wait within its budget."""
        cell.ask_to_end(request)
        budget = BRUTAL_GRACE if cell.spec.shutdown == "brutal" else cell.spec.shutdown
        with trio.move_on_after(budget):
            await cell.ref.exited.wait()
        return cell.ref.exit or self._mark_stubborn(cell)

    def _mark_stubborn(self, cell: AnyCell) -> Unresponsive:
        if cell.stubborn is None:
            cell.stubborn = Unresponsive(stack=cell.await_stack())
            self._counters.overruns += 1
            if self._options.on_stubborn is not None:
                call_watcher(self._options.on_stubborn, cell.ref, cell.stubborn)
        return cell.stubborn

    def _failed(self) -> SupervisorGaveUp | None:
        """Return the error of the supervisor if a child has escalated, otherwise None."""
        if self._failure is None:
            return None
        cell, exit_ = self._failure
        error = SupervisorGaveUp(self.name, cell.spec.id, exit_)
        error.__cause__ = exit_.error
        return error


def _kind(error: BaseException | None) -> str:
    return "it returned" if error is None else type(error).__name__


def _following(error: BaseException, before: BaseException | None) -> BaseException:
    """Return `error` with the body's error as its context, so that the body's error is not lost."""
    if before is not None and error.__context__ is None and sole_cancellation(before) is None:
        error.__context__ = before
    return error


def _info(cell: AnyCell) -> ChildInfo:
    if cell.stubborn is not None:
        state: ChildState = "stubborn"
    elif cell.request is not None:
        state = "stopping"
    else:
        state = "running" if cell.booting is None else "booting"
    return ChildInfo(
        id=cell.spec.id,
        ref=cell.ref,
        kind="static" if cell.static else "dynamic",
        state=state,
        restarts=cell.attempt,
        depth=cell.ref.depth,
        oldest_age=cell.ref.oldest_age,
        last_exit=cell.last_failure,
    )


def _note_interrupts() -> None:
    """Register the program's SIGINT handler with the border, so that its interrupts are recognised."""
    handler = signal.getsignal(signal.SIGINT)
    in_main = threading.current_thread() is threading.main_thread()
    note_handler(handler, bare=in_main and handler is signal.default_int_handler)


@asynccontextmanager
async def open_supervisor(
    *,
    name: str,
    max_restarts: float = 3,
    within: float = 60.0,
    stop_budget: float = STOP_BUDGET,
    slice_size: int = SLICE,
    max_children: int | None = None,
    on_give_up: OnGiveUp | None = None,
    registry: Registry | None = None,
    rng: random.Random | None = None,
    on_exit: OnExit | None = None,
    on_restart: OnRestart | None = None,
    on_stubborn: OnStubborn | None = None,
    tracebacks: bool = True,
) -> AsyncIterator[Supervisor]:
    """Open a supervisor for the block; when the block ends, for any reason, all children are stopped first.

    Args:
        name: Prefix of the children's names.
        max_restarts: With `within`, the restart intensity of all static children together and of each dynamic child
            alone.
        within: Seconds.
        stop_budget: Seconds for all dynamic children together to end.
        slice_size: Dynamic children cancelled between two checkpoints.
        max_children: Maximum number of live children; None for no limit.
        on_give_up: Default of `ChildSpec.on_give_up`.
        registry: Registry in which children are registered by name from start to exit.
        rng: Source of the jitter of backoffs; pass a seeded one for a reproducible program.
        on_exit: Called with (ref, exit) at each child's final exit, in the exit step. Callbacks must not raise.
        on_restart: Called with (ref, exit, attempt) before each restart; `attempt` is the number of the next
            incarnation.
        on_stubborn: Called with (ref, stubborn) when a child has overrun its budget.
        tracebacks: Log each crash with its traceback, which may contain secrets. False: the callbacks log the errors.

    Raises:
        SupervisorGaveUp: A child exceeded its intensity and the policy was to escalate; the last crash is `__cause__`.
            The body has been cancelled; if the body raised an error, that error is raised instead, with a
            note.
        InvalidSpec: An argument has an invalid value.
        BaseException: The body's exception, bare.

    Cancellation: an outer cancellation reaches only the body, and leaves as one bare `Cancelled` after all children
    have ended.
    """
    options = Options(
        intensity=Intensity(max_restarts=max_restarts, within=within),
        stop_budget=stop_budget,
        slice_size=slice_size,
        max_children=max_children,
        on_give_up=on_give_up,
        registry=registry,
        rng=rng or random.Random(),  # noqa: S311 - jitter, not a secret
        on_exit=on_exit,
        on_restart=on_restart,
        on_stubborn=on_stubborn,
        tracebacks=tracebacks,
    )
    _note_interrupts()
    body_error: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            supervisor = Supervisor(name, options, nursery)
            try:
                with supervisor._body:
                    yield supervisor
            except BaseException as error:  # noqa: ASYNC103, BLE001 - raised below; the nursery would wrap or copy it
                body_error = error
            try:
                with trio.CancelScope(shield=True):  # the ring: bounded by the children's budgets
                    await supervisor._stop_all()
            except BaseException as error:  # noqa: ASYNC103, BLE001 - a KeyboardInterrupt; raised below
                supervisor._stop_at_once()
                body_error = _following(error, body_error)
    except BaseExceptionGroup as group:  # only exceptions that no actor may keep
        raise_bare(_following(unwrap(group), body_error))
    failure = supervisor._failed()
    if body_error is None:
        if failure is not None:
            raise failure
        return
    cancellation = sole_cancellation(body_error)
    if failure is not None:
        if cancellation is not None:
            raise failure
        body_error.add_note(str(failure))
    raise_bare(cancellation or body_error)
