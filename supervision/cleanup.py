"""The bounded clean-up helper: the only shield outside of a supervisor's ring.

    try:
        ...
    finally:
        with cleanup(2.0, what="close the session"):
            await session.close()

Without the shield, the first await in a `finally` of a cancelled task raises `Cancelled` again and the rest is skipped.
Without the bound, a clean-up that hangs blocks the stop of all other tasks. A clean-up that exceeds its budget is
cancelled and reported.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import trio
from attrs import frozen

from .reporting import report

logger = logging.getLogger("greenroom.supervision")


@frozen(kw_only=True)
class Overrun:
    """A clean-up that was cancelled because its budget was exhausted.

    Attributes:
        what: Description of the clean-up.
        budget: The budget, in seconds.
        task: Name of the task.
    """

    what: str
    budget: float
    task: str


brutally_stopped: ContextVar[Callable[[], bool] | None] = ContextVar("brutally_stopped", default=None)
"""Set by the wrapper of a child with `shutdown="brutal"`; returns True once the child has been asked to end."""


def report_overrun(overrun: Overrun) -> None:
    """Log one warning; the default of `on_overrun`."""
    what = f"clean-up overran its {overrun.budget} s in {overrun.task}: {overrun.what}"
    report(logger, logging.WARNING, what, task=overrun.task)


@contextmanager
def cleanup(
    budget: float, *, what: str = "clean-up", on_overrun: Callable[[Overrun], None] = report_overrun
) -> Iterator[trio.CancelScope]:
    """Run the block shielded for at most `budget` seconds (0 in a child that is being stopped brutally).

    Cancellation: an outer cancellation is not visible inside the block and takes effect at the next checkpoint after
    the block. On overrun the block is cancelled, `on_overrun` is called, and execution continues after the block.
    """
    brutal = brutally_stopped.get()
    if brutal is not None and brutal():
        budget = 0.0
    with trio.move_on_after(budget, shield=True) as scope:
        yield scope
    if scope.cancelled_caught:
        on_overrun(Overrun(what=what, budget=budget, task=trio.lowlevel.current_task().name))
