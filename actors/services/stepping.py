"""Drive work in steps (`contract.stepwise`) with a checkpoint after each."""

from __future__ import annotations

from typing import TypeVar

import trio

from ..contract.stepwise import Steps

T = TypeVar("T")


async def in_steps(steps: Steps[T]) -> T:
    """Take all steps, let other tasks run between them, and return the result.

    Cancellation: none is raised here; the work is done to its end, which is less than a second for the largest value.
    """
    try:
        while True:
            next(steps)
            await trio.lowlevel.cancel_shielded_checkpoint()
    except StopIteration as end:
        result: T = end.value
        return result
