"""What the scripts of this folder share: `python on_dbos.py PORT MODE COUNT` prints one JSON object.

Modes: `one` plays a single run of COUNT steps, `many` COUNT runs of 20 steps each at once; a step has 500 bytes of
content and is durable before the next one begins (of ours in the modes that `ours.py` adds). `send` sends COUNT
decisions to 100 runs of another process. `jobs` works off COUNT empty jobs.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from typing import Any

PORT, MODE, COUNT = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
STEPS = 20
"""Of each of many runs."""
CONTENT = "m" * 500
LIVE = 100
"""Runs of the other process, in mode `send`."""
PAUSE = 0.015
"""Seconds between two decisions."""


def url(database: str = "postgres") -> str:
    """The address of the server that the benchmark has started."""
    return f"postgresql://greenroom@127.0.0.1:{PORT}/{database}"


class Spent:
    """CPU seconds of this process (all threads) and wall seconds of a `with` block."""

    cpu = wall = 0.0

    def __enter__(self) -> "Spent":  # noqa: PYI034, UP037 - for old Pythons
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.cpu, self.wall = time.process_time() - self._cpu, time.perf_counter() - self._wall


def share(values: Sequence[float], part: float) -> float:
    """A percentile, in the unit of the values."""
    in_order = sorted(values)
    return in_order[min(len(in_order) - 1, int(len(in_order) * part))]


def latencies(**found: Sequence[float]) -> dict[str, float]:
    """Medians and 99th percentiles in milliseconds."""
    return {f"{name}_p{part}": share(values, part / 100) * 1e3 for name, values in found.items() for part in (50, 99)}


def say(**found: Any) -> None:
    """Print what was measured."""
    print(json.dumps(found), flush=True)


def say_steps(cost: Spent, steps: int) -> None:
    """Print the pace of durable steps."""
    say(steps_per_second=steps / cost.wall, cpu_ms_per_step=cost.cpu / steps * 1e3)
