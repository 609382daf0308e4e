"""Run a trio program so that one integer decides its schedule and nothing takes real time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeVar

import trio
import trio.testing
from attrs import define, field
from trio.abc import Instrument
from trio.lowlevel import Task

from greenroom.supervision.chaos._internals import SYSTEM_TASKS, deterministic, inject
from greenroom.supervision.chaos.sites import tree_report

T = TypeVar("T")


class DeadlockError(Exception):
    """Every task is parked and no deadline is left: nobody will ever wake anybody. Names who waits where."""

    def __init__(self, report: str) -> None:
        self.report = report
        super().__init__(f"deadlock: all tasks are parked and no deadline is left\n{report}")


def program_tasks(root: Task | None = None) -> Iterator[Task]:
    """The tasks of the running program, trio's own excepted; call it inside of `trio.run`."""
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
class _DeadlockWatch(Instrument):
    """Ends a run that would hang: first by a cancel, then, for what is shielded, by an error in every parked task."""

    scope: trio.CancelScope
    report: str | None = field(init=False, default=None)
    _idle_passes: int = field(init=False, default=0)

    def before_task_step(self, task: Task) -> None:
        self._idle_passes = 0

    def before_io_wait(self, timeout: float) -> None:
        self._idle_passes += 1
        # three passes of the loop without a step: nothing was runnable, and the clock had its chance to jump
        if self._idle_passes < 3 or trio.lowlevel.current_statistics().seconds_to_next_deadline < float("inf"):
            return
        self._idle_passes = 0
        if self.report is None:
            self.report = tree_report(program_tasks())
            self.scope.cancel("deadlock")
        else:
            for task in list(program_tasks()):
                inject(task, DeadlockError(self.report))


def run(
    async_fn: Callable[..., Awaitable[T]],
    *args: object,
    seed: int = 0,
    clock: trio.testing.MockClock | None = None,
    instruments: Sequence[Instrument] = (),
) -> T:
    """`trio.run` under virtual time with the schedule that `seed` chooses; the same seed gives the same steps.

    Only for programs of nothing but tasks: threads, sockets and processes are outside of the determinism, and the
    clock would jump past their work.

    Raises:
        DeadlockError: All tasks were parked for ever; the program was cancelled.
        BaseException: What `async_fn` raised.
    """
    clock = clock or trio.testing.MockClock(autojump_threshold=0)
    scope = trio.CancelScope()
    watch = _DeadlockWatch(scope)
    results: list[T] = []

    async def main() -> None:
        with scope:
            results.append(await async_fn(*args))

    with deterministic(seed):
        trio.run(main, clock=clock, instruments=[watch, *instruments])
    if watch.report is not None:
        raise DeadlockError(watch.report)
    return results[0]
