"""How much code is executed: counts of executed lines, which are the same on every machine, idle or busy."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import greenroom

HOUSE = str(Path(greenroom.__file__).parent)
"""Where the code of this project is; lines of libraries are not counted."""
PARTS = tuple(f"{HOUSE}/{part}/" for part in ("supervision", "actors", "transport"))


class Lines(Counter[str]):
    """Function -> its executed lines. An iteration of a loop or comprehension counts as a line."""

    @property
    def all(self) -> int:
        """The lines of all functions."""
        return sum(self.values())


@contextmanager
def lines() -> Iterator[Lines]:
    """Count the lines of this project's code that this thread executes inside."""
    counts, names = dict[Any, int](), dict[Any, bool]()

    def each(frame: FrameType, event: str, _: object) -> Any:
        if event == "line":
            counts[frame.f_code] += 1
        return each

    def enter(frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        code = frame.f_code
        ours = names.get(code)
        if ours is None:
            ours = names[code] = code.co_filename.startswith(PARTS)
            counts[code] = 0
        if not ours:
            return None
        counts[code] += 1
        return each

    found, before = Lines(), sys.gettrace()
    sys.settrace(enter)
    try:
        yield found
    finally:
        sys.settrace(before)
        for code, number in counts.items():
            if number:
                found[f"{code.co_filename.removeprefix(HOUSE + '/')}:{code.co_qualname}"] += number


EXCUSED = ("actors/plugins/history.py:", "actors/testing/")
"""A model reads the whole thread in each request, so each step looks through the history; scripts of models do, too."""


def quadratic_share(counts: tuple[int, int, int]) -> float:
    """The share of the largest count that grows with the square of the size, of counts at n, 2n and 4n.

    Of a + b n + c n^2 the term c n^2 is a sixth of count(4n) - 3 count(2n) + 2 count(n), and 16 times as much at 4n.
    """
    small, middle, large = counts
    return max(0.0, 16 / 6 * (large - 3 * middle + 2 * small) / max(1, large))


def counted(found: Lines) -> int:
    """The lines of a run without the excused ones."""
    return sum(number for name, number in found.items() if not name.startswith(EXCUSED))


def suspects(runs: tuple[Lines, Lines, Lines]) -> str:
    """The functions whose lines grow with the square, the worst first."""
    small, middle, large = runs
    cost = {name: quadratic_share((small[name], middle[name], large[name])) * large[name] for name in large}
    worst = sorted((name for name in cost if cost[name] > 0), key=lambda name: -cost[name])[:8]
    return "; ".join(f"{name} {small[name]} {middle[name]} {large[name]}" for name in worst)
