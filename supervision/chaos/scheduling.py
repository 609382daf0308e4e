"""Deterministic runs of a trio program: one integer decides the schedule, and no sleep takes real time."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from time import perf_counter
from typing import Final, TypeVar

import trio
import trio.testing
from attrs import define, field
from trio.abc import Instrument
from trio.lowlevel import Task

from ._internals import SYSTEM_TASKS, before_jump, deterministic, inject
from .sites import tree_report, waits_outside

T = TypeVar("T")

IO_BUDGET: Final = 1.0
"""Real seconds to wait for a thread, a socket or a process while no task can run."""
POLL: Final = 0.005
"""Real seconds between two checks for a result from a thread, a socket or a process."""


class DeadlockError(Exception):
    """Every task is parked and no event can wake one: no deadline is left, no thread works, no socket is awaited.

    Attributes:
        report: One line per task with its await site and operation.
        seed: The schedule that led to the deadlock.
    """

    def __init__(self, report: str, seed: int = 0) -> None:
        self.report = report
        self.seed = seed
        super().__init__(f"deadlock under seed {seed}: all tasks are parked and no deadline is left\n{report}")


def program_tasks(root: Task | None = None) -> Iterator[Task]:
    """Yield the tasks of the running program except trio's own. Call this inside of `trio.run`."""
    stack = [root or trio.lowlevel.current_root_task()]
    while stack:
        task = stack.pop()
        if task is None:
            continue
        if task.name not in SYSTEM_TASKS:
            yield task
        for nursery in task.child_nurseries:
            stack.extend(nursery.child_tasks)


@define(eq=False)
class _Watch(Instrument):
    """Decides, when all tasks are blocked, whether to wait for real work, advance virtual time or report a deadlock.

    A run that would hang is ended: first by a cancellation, then, for shielded tasks, by an error in every parked task.

    Attributes:
        report: One line per task with its await site and operation, if the program hung.
    """

    clock: trio.testing.MockClock
    scope: trio.CancelScope
    seed: int
    budget: float
    report: str | None = field(init=False, default=None)
    _since: float | None = field(init=False, default=None)
    _hopeless: set[Task] = field(init=False, factory=set)

    def before_task_step(self, task: Task) -> None:
        """Called by trio."""
        if self._since is not None and task.name not in SYSTEM_TASKS:
            self._since = None
            self.clock.autojump_threshold = 0
        self._hopeless.discard(task)

    def may_jump(self) -> bool:
        """Return True if the clock should jump to the next deadline; called when all tasks are blocked."""
        outside = [task for task in program_tasks() if task not in self._hopeless and waits_outside(task)]
        if outside and not self._used_up():
            return False
        self._hopeless.update(outside)  # a listening server: its wait stays without effect until its next step
        if trio.lowlevel.current_statistics().seconds_to_next_deadline < float("inf"):
            return True
        self._end_deadlock()
        return False

    def _used_up(self) -> bool:
        """Return True if the budget for real work is exhausted; otherwise make the loop poll."""
        now = perf_counter()
        if self._since is None:
            self._since = now
            self.clock.autojump_threshold = POLL
        return now - self._since >= self.budget

    def _end_deadlock(self) -> None:
        if self.report is None:
            self.report = tree_report(program_tasks())
            self.scope.cancel("deadlock")
            return
        self.clock.autojump_threshold = POLL  # an operation that cannot be aborted, such as a thread, ends on its own
        for task in list(program_tasks()):
            inject(task, DeadlockError(self.report, self.seed))


def run(
    async_fn: Callable[..., Awaitable[T]],
    *args: object,
    seed: int = 0,
    clock: trio.testing.MockClock | None = None,
    instruments: Sequence[Instrument] = (),
    io_budget: float = IO_BUDGET,
) -> T:
    """Run `async_fn` in `trio.run` under virtual time with the schedule of `seed`; the same seed gives the same steps.

    Threads, sockets and processes are outside of the determinism and are awaited in real time: while a task waits for
    one and no other task can run, virtual time does not advance for up to `io_budget` real seconds.

    Raises:
        DeadlockError: All tasks were parked without a way to wake one; the program was cancelled.
        BaseException: The exception of `async_fn`.
    """
    clock = clock or trio.testing.MockClock(autojump_threshold=0)
    scope = trio.CancelScope()
    watch = _Watch(clock, scope, seed, io_budget)
    before_jump(clock, watch.may_jump)
    results: list[T] = []

    @functools.wraps(async_fn)  # the main task is named after the program, not after the kit
    async def main() -> None:
        with scope:
            results.append(await async_fn(*args))

    with deterministic(seed):
        trio.run(main, clock=clock, instruments=[watch, *instruments])
    if watch.report is not None:
        raise DeadlockError(watch.report, seed)
    return results[0]
