"""Where tasks wait: await sites as `file:line:function`, the coverage measure of a sweep."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import define, field
from trio.abc import Instrument
from trio.lowlevel import Task

from greenroom.supervision.chaos._internals import SYSTEM_TASKS

_FOREIGN = ("/site-packages/trio/", "/contextlib.py", "/supervision/nursery.py")


def site_of(task: Task) -> str:
    """The innermost frame of user code in which the task waits; "start" before its first step."""
    best = "start"
    for frame, line in task.iter_await_frames():
        code = frame.f_code
        if not any(part in code.co_filename for part in _FOREIGN):
            best = f"{code.co_filename.rsplit('/', 1)[-1]}:{line}:{code.co_name}"
    return best


def operation_of(task: Task) -> str:
    """The innermost function of all, trio's bare traps excepted: the primitive that the task waits in."""
    traps = {"wait_task_rescheduled", "_real_async_yield", "cancel_shielded_checkpoint", "checkpoint_if_cancelled"}
    names = [frame.f_code.co_name for frame, _ in task.iter_await_frames() if frame.f_code.co_name not in traps]
    return names[-1] if names else "?"


def tree_report(tasks: Iterable[Task]) -> str:
    """One line per task: who waits where in what."""
    return "\n".join(f"  {task.name}: {site_of(task)} in {operation_of(task)}" for task in tasks)


@define(eq=False)
class SiteRecorder(Instrument):
    """Records the await site at the end of every step.

    Attributes:
        steps: (task name, site) in order of the steps; a task that has ended has no site and no entry.
        sites: The distinct sites.
    """

    steps: list[tuple[str, str]] = field(init=False, factory=list)
    sites: set[str] = field(init=False, factory=set)

    def after_task_step(self, task: Task) -> None:
        """Called by trio."""
        if task.name in SYSTEM_TASKS or task.parent_nursery is None:
            return
        if task.coro.cr_frame is None:
            return
        site = site_of(task)
        self.steps.append((task.name, site))
        self.sites.add(site)
