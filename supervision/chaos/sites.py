"""Await sites of tasks as `file:line:function`, the coverage measure of a sweep."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

import trio
from attrs import define, field
from trio.abc import Instrument
from trio.lowlevel import Task

from ._internals import SYSTEM_TASKS

_TRIO: Final = f"{Path(trio.__file__).parent}/"  # with the slash: trio_websocket is another package
_HERE: Final = Path(__file__).parent
# Both spellings: the package's folder may be a symbolic link.
_KIT: Final = tuple({str(folder) for here in (_HERE, _HERE.resolve()) for folder in (here, here.parent / "nursery.py")})
FOREIGN: Final = (_TRIO, contextlib.__file__, *_KIT)
"""Files whose frames are not await sites: trio, the context managers of the standard library, and the kit itself."""

_TRAPS: Final = frozenset(
    {"wait_task_rescheduled", "_real_async_yield", "cancel_shielded_checkpoint", "checkpoint_if_cancelled"}
)
_REAL: Final = frozenset(
    {"to_thread_run_sync", "wait_readable", "wait_writable", "_epoll_wait", "wait_kevent", "monitor_kevent"}
)
"""Functions of trio in which a task waits for an event from outside of the program: a thread, a socket, a process."""


def site_of(task: Task) -> str:
    """Return the innermost frame of user code in which the task waits; "start" before its first step."""
    best = "start"
    for frame, line in task.iter_await_frames():
        code = frame.f_code
        if not code.co_filename.startswith(FOREIGN):
            best = f"{code.co_filename.rsplit('/', 1)[-1]}:{line}:{code.co_name}"
    return best


def operation_of(task: Task) -> str:
    """Return the operation of trio that user code awaits, such as `Event.wait`; or "?"."""
    operation = "?"
    for frame, _ in task.iter_await_frames():
        code = frame.f_code
        if not code.co_filename.startswith(FOREIGN):
            operation = "?"  # the next trio frame is called from here
        elif operation == "?" and code.co_filename.startswith(_TRIO) and code.co_name not in _TRAPS:
            owner = frame.f_locals.get("self")
            operation = code.co_name if owner is None else f"{type(owner).__name__}.{code.co_name}"
    return operation


def waits_for_children(task: Task) -> bool:
    """Return True if the task waits at the end of a nursery's block, where none of its code runs that could crash."""
    return any(
        frame.f_code.co_name == "_nested_child_finished" and frame.f_code.co_filename.startswith(_TRIO)
        for frame, _ in task.iter_await_frames()
    )


def waits_outside(task: Task) -> bool:
    """Return True if the task waits for a thread, a socket, a pipe or a process; no other task can wake it."""
    return any(
        frame.f_code.co_name in _REAL and frame.f_code.co_filename.startswith(_TRIO)
        for frame, _ in task.iter_await_frames()
    )


def tree_report(tasks: Iterable[Task]) -> str:
    """Return one line per task: its name, its await site, and the operation that it waits for."""
    return "\n".join(f"  {task.name}: {site_of(task)} waits for {operation_of(task)}" for task in tasks)


def _is_trios(task: Task) -> bool:
    return task.name in SYSTEM_TASKS or task.parent_nursery is None


@define(eq=False)
class SiteRecorder(Instrument):
    """An instrument that records the await site at the end of every step.

    Attributes:
        steps: (task name, site) in order of the steps; a task that has ended has no site and no entry.
        sites: The distinct sites.
    """

    steps: list[tuple[str, str]] = field(init=False, factory=list)
    sites: set[str] = field(init=False, factory=set)

    def after_task_step(self, task: Task) -> None:
        """Called by trio."""
        if _is_trios(task) or task.coro.cr_frame is None:
            return
        site = site_of(task)
        self.steps.append((task.name, site))
        self.sites.add(site)


class TraceStep(NamedTuple):
    """One step of a trace: step number, name of the task, and the task's await site afterwards ("ended" if none)."""

    k: int
    task: str
    site: str

    def __str__(self) -> str:
        return f"{self.k:>5}  {self.task}: {self.site}"


@define(eq=False)
class TraceRecorder(Instrument):
    """An instrument that records every step of the program's tasks, numbered as the faults count them.

    Attributes:
        steps: The steps, in order.
        order: The number of the task of each step; tasks are numbered as they are spawned.
    """

    steps: list[TraceStep] = field(init=False, factory=list)
    order: list[int] = field(init=False, factory=list)
    _numbers: dict[Task, int] = field(init=False, factory=dict)

    def task_spawned(self, task: Task) -> None:
        """Called by trio."""
        self._numbers[task] = len(self._numbers)

    def after_task_step(self, task: Task) -> None:
        """Called by trio."""
        if _is_trios(task):
            return
        site = "ended" if task.coro.cr_frame is None else site_of(task)
        self.steps.append(TraceStep(len(self.steps), task.name, site))
        self.order.append(self._numbers[task])
