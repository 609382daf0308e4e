"""Faults at exact steps. A step is the code that a task runs between two yields; other tasks run only between steps.

The cancellations between steps k-1 and k, for every k, are therefore all cancellations possible in one schedule.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import trio
from attrs import define, field
from trio.abc import Instrument
from trio.lowlevel import Task

from ._internals import SYSTEM_TASKS, Injection, has_begun, inject
from .scheduling import run
from .sites import site_of, waits_for_children
from .statements import program_frames, statements


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

    @property
    def place(self) -> str | None:
        """The place of the strike in the program; None before the strike."""
        return self.site

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

    The operation that the task awaits returns its result, and the next statement of the program's own code raises: in
    the innermost frame that is the program's, or in its caller if that frame returns first. Clean-up and the headers of
    `try` and `with` are not struck (`statements`), nor is a task before its first step. A step without such a statement
    is passed over, and the crash waits for the next one.

    `before_task_step` may also be called for a task that is parked: its operation is then aborted, as by a
    cancellation, and raises the error.

    Attributes:
        how: Result of the injection; None before an attempt.
        statement: The statement that raised, as `file:line:function`; None before the strike, or for a parked task.
    """

    def __init__(
        self, k: int, match_task: Callable[[Task], bool], error: BaseException, *, inside: Sequence[str] | None = None
    ) -> None:
        super().__init__()
        self._from_step, self._match, self._error, self._inside = k, match_task, error, inside
        self._frames: dict[FrameType, object] = {}
        self._before: Any = None
        self._armed: tuple[Task, str, int] | None = None
        self.how: Injection | None = None
        self.statement: str | None = None

    @property
    def place(self) -> str | None:
        """The statement that raised, or the await site of a task that was parked."""
        return self.statement or self.site

    def _look(self, k: int, task: Task) -> None:
        if k < self._from_step or self.struck or self._armed is not None or not self._match(task):
            return
        if task is not trio.lowlevel.current_task():
            self._abort(task)
        elif has_begun(task):
            self._arm(task)

    def _abort(self, task: Task) -> None:
        if waits_for_children(task):  # an error there would be an error of trio
            return
        site = site_of(task)
        self.how = inject(task, self._error)
        if self.how == "aborted":
            self._strike(task, site)

    # --- one step with a trace function ------------------------------------------------------------------------------

    def _arm(self, task: Task) -> None:
        frames = program_frames(task, self._inside)
        if not frames:
            return
        self._armed, self._before = (task, site_of(task), self.k), sys.gettrace()
        self._frames = {frame: frame.f_trace for frame in frames}
        for frame in frames:
            frame.f_trace = self._line
        sys.settrace(self._call)

    def after_task_step(self, task: Task) -> None:
        """Called by trio."""
        if self._armed is None or self._armed[0] is not task:
            return
        sys.settrace(self._before)
        for frame, before in self._frames.items():
            frame.f_trace = before  # type: ignore[assignment]  # as it was read
        self._frames, self._armed, self._before = {}, None, None

    def _call(self, frame: FrameType, _: str, __: object) -> Callable[..., Any] | None:
        return self._line if frame in self._frames else None  # a frame that begins meanwhile is not traced

    def _line(self, frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        if event != "line" or self.struck or self._armed is None:
            return self._line
        code = frame.f_code
        if frame.f_lineno not in statements(code.co_filename):
            return self._line
        self.how, self.statement = "statement", f"{Path(code.co_filename).name}:{frame.f_lineno}:{code.co_name}"
        task, site, self.struck_at = self._armed
        self.site, self.task, self.at = site, task.name, trio.current_time()
        raise self._error
