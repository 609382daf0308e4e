"""Faults at exact steps. A step is the code that a task runs between two yields; other tasks run only between steps.

The cancellations between steps k-1 and k, for every k, are therefore all cancellations possible in one schedule.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio
from attrs import define, field
from trio.abc import Instrument
from trio.lowlevel import Task

from ._internals import SYSTEM_TASKS, Injection, inject
from .scheduling import run
from .sites import site_of, waits_for_children


@define(eq=False)
class StepHook(Instrument):
    """An instrument that calls `hook(k, task)` before step k (0, 1, ...) of the program's tasks.

    Attributes:
        k: Number of steps so far.
    """

    hook: Callable[[int, Task], object]
    k: int = field(init=False, default=0)

    def before_task_step(self, task: Task) -> None:
        """Called by trio."""
        if task.name in SYSTEM_TASKS or task.parent_nursery is None:
            return
        self.hook(self.k, task)
        self.k += 1


def count_steps(async_fn: Callable[..., Awaitable[object]], *args: object, seed: int = 0) -> int:
    """Return the number of steps of the program under this seed without faults."""
    counter = StepHook(lambda _, __: None)
    run(async_fn, *args, seed=seed, instruments=[counter])
    return counter.k


class Fault(StepHook):
    """A StepHook that strikes at most once.

    Attributes:
        site: Await site of the task that was about to run at the strike; None before the strike.
        task: Name of that task.
        at: Virtual time of the strike.
        struck_at: The step before which the fault struck; -1 before the strike.
    """

    def __init__(self) -> None:
        super().__init__(self._look)
        self.site: str | None = None
        self.task: str | None = None
        self.at: float | None = None
        self.struck_at = -1

    @property
    def struck(self) -> bool:
        """True once the fault has happened."""
        return self.site is not None

    def _look(self, k: int, task: Task) -> None:
        raise NotImplementedError  # each subclass decides where to strike

    def _strike(self, task: Task, site: str) -> None:
        self.site, self.task, self.at, self.struck_at = site, task.name, trio.current_time(), self.k


class CancelAt(Fault):
    """Cancel `get_scope()` before step k; no effect if there is no scope yet."""

    def __init__(self, k: int, get_scope: Callable[[], trio.CancelScope | None]) -> None:
        super().__init__()
        self._at_step, self._get_scope = k, get_scope

    def _look(self, k: int, task: Task) -> None:
        if k == self._at_step:
            scope = self._get_scope()
            if scope is not None:
                self._strike(task, site_of(task))
                scope.cancel(f"chaos: cancelled before step {k}")


class CrashAt(Fault):
    """Raise `error` in the first matching task that is about to run at or after step k and can be crashed.

    A task that waits for its children at the end of a nursery's block is exempt: an error there would be an error of
    trio.

    Attributes:
        how: Result of the injection; None before an attempt.
    """

    def __init__(self, k: int, match_task: Callable[[Task], bool], error: BaseException) -> None:
        super().__init__()
        self._from_step, self._match, self._error = k, match_task, error
        self.how: Injection | None = None

    def _look(self, k: int, task: Task) -> None:
        if k < self._from_step or self.struck or waits_for_children(task) or not self._match(task):
            return
        site = site_of(task)
        self.how = inject(task, self._error)
        if self.how in ("aborted", "replaced"):
            self._strike(task, site)
