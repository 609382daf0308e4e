"""Growth: runs that are large in a dimension drawn by lot cost in proportion to their size, in lines of code."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final

from tests.support.big_runs import MODES, SHAPES, Big, Shape
from tests.support.growth import Lines, counted, lines, quadratic_share, suspects

import greenroom as gr

from .core import Dice, must, virtual

SMALLEST: Final = (8, 16, 24)
"""Sizes of the smallest of three runs; the largest one is four times as large."""
MOST: Final = 0.3
"""Share of the lines of the largest run that may grow with the square of the size."""


def played(shape: Shape, n: int, mode: str, kind: str, seed: str) -> Lines:
    """The lines of one run of this size."""

    async def scene(out: list[Lines]) -> None:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "runs.db"
            store: Any = gr.MemoryStore() if kind == "memory" else gr.SQLiteStore(path, writer="inline")
            with lines() as counts:
                await shape(Big(store=store, n=n, mode=mode, dice=Random(seed)))  # noqa: S311 - reproducible on purpose
            out.append(counts)

    results = list[Lines]()
    virtual(partial(scene, results))
    return results[0]


def growth(dice: Dice) -> None:
    """Many calls, tickets, tasks, tools, handoffs, child runs, messages and decisions: the cost is linear in each."""
    name, mode, kind = dice.choice(list(SHAPES)), dice.choice(MODES), dice.choice(("memory", "sqlite"))
    n, seed = dice.choice(SMALLEST), str(dice.random())
    played(SHAPES[name], 3, mode, kind, seed)  # what is made once is made now
    small, middle, large = (played(SHAPES[name], n * times, mode, kind, seed) for times in (1, 2, 4))
    share = quadratic_share((counted(small), counted(middle), counted(large)))
    must(share < MOST, f"{name}, {mode}, {kind}, {n}: {share:.2f} is quadratic: {suspects((small, middle, large))}")
