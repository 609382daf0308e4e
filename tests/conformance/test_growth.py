"""What a run costs is in proportion to its size, in every dimension: counted in lines of code, and in bytes.

A run that is large in one dimension is played in three sizes. Lines that grow with the square of the size would show as
a share of the largest run; the shares are those of a parabola through the three counts.
"""

import os
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

import greenroom as gr

from ..support.big_runs import BATCH, MODES, SEQUENTIAL, SHAPES, Big, Shape
from ..support.growth import Lines, counted, lines, quadratic_share, suspects

FULL = os.environ.get("GREENROOM_CHAOS") == "full"

pytestmark = [pytest.mark.slow, pytest.mark.no_cover]

SMALL = 20
"""Each run is played with so many, twice and four times as many."""
IN_THE_ROW = frozenset({"background_tasks", "decided_early"})
"""Live tasks, the messages of ended ones and early decisions are in the run's row, which each commit writes whole."""
TOLERANCE = 0.15
"""Share of the lines, or of the bytes, of the largest run that may grow with the square of its size."""
TRIES = 3
"""The order of tasks is drawn by lot, and now and then one of the runs meets a costly one; growth shows each time."""


async def play(shape: Shape, n: int, mode: str, kind: str, folder: Path) -> tuple[Lines, int]:
    """The lines and the written bytes of one run."""
    made = (
        gr.MemoryStore() if kind == "memory" else gr.SQLiteStore(Path(mkdtemp(dir=folder)) / "runs.db", writer="inline")
    )
    with lines() as found:
        await shape(Big(store=made, n=n, mode=mode))
    return found, made.statistics().bytes_written


@pytest.mark.parametrize(
    ("mode", "kind"),
    [(mode, kind) for mode in MODES for kind in ("memory", "sqlite")]
    if FULL
    else [(SEQUENTIAL, "sqlite"), (BATCH, "memory")],
)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
async def test_the_cost_of_a_run_is_linear_in_its_size(
    shape: Shape, mode: str, kind: str, tmp_path: Path, autojump_clock: Any
) -> None:
    await play(shape, 4, mode, kind, tmp_path)  # what is made once is made now
    for _ in range(TRIES):
        faults = await faults_of(shape, mode, kind, tmp_path)
        if not faults:
            return
    pytest.fail(faults)


async def faults_of(shape: Shape, mode: str, kind: str, folder: Path) -> str:
    small, middle, large = [await play(shape, SMALL * times, mode, kind, folder) for times in (1, 2, 4)]
    runs = small[0], middle[0], large[0]
    counts = counted(runs[0]), counted(runs[1]), counted(runs[2])
    if quadratic_share(counts) >= TOLERANCE:
        return f"lines {counts}: {suspects(runs)}"
    written = small[1], middle[1], large[1]
    if quadratic_share(written) >= TOLERANCE and shape.__name__ not in IN_THE_ROW:
        return f"bytes {written}"
    return ""


def test_a_loop_over_all_pairs_would_be_seen() -> None:
    counts = tuple(1_000 + 50 * n + n * n for n in (20, 40, 80))
    assert quadratic_share((counts[0], counts[1], counts[2])) > 2 * TOLERANCE
    assert quadratic_share((1_000, 2_000, 4_000)) == 0
    with lines() as found:
        assert sum(1 for _ in range(10)) == 10
    assert found.all == 0, "lines of tests and libraries do not count"
