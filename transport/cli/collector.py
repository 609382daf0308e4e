"""How often Python's garbage collector runs in the programs of the command line.

Each run that works holds some hundred objects, and the collector goes through all that are alive again and again. With
ten thousand concurrent runs that takes half of the CPU time. Almost nothing of a run is part of a reference cycle:
counts of references free it, and a rare collection is enough for the rest.
"""

from __future__ import annotations

import gc
from typing import Final

THRESHOLDS: Final = (50_000, 20, 20)
"""New objects between two collections of the youngest generation, and how many of those come before one of the next
generation. Python's own are 700, 10, 10; 50,000 objects are a few megabytes."""


def collect_rarely() -> None:
    """Set `THRESHOLDS`, and keep all present objects out of every collection. For programs, not for libraries."""
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
