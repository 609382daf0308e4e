"""Work on large texts and values in steps, so that a loop may turn between two of them.

Theory of operation. The work is one generator, which yields after about `WINDOW` characters and returns its result.
A driver that may wait puts a checkpoint between the steps (`services/stepping.py`); others take all steps one after the
other (`drained`). Small values, nearly all, are read without a generator.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, TypeVar

T = TypeVar("T")
Steps = Generator[None, None, T]
"""Yields between steps and returns the result."""

WINDOW: Final = 32_768
"""Characters (and items) that are read in one step: 1 to 4 ms for ordinary texts."""


def drained(steps: Steps[T]) -> T:
    """Take all steps without a pause and return the result."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: T = end.value
        return result
