"""Whether many runs at once cost more each than few, and what Python's garbage collector has to do with it."""

from __future__ import annotations

from greenroom.transport.cli.collector import collect_rarely

from .harness import Benchmark, Case, Figure, Values, on_trio
from .run_overhead import at_once


def _case(count: int, *, rarely: bool = False) -> Case:
    async def main(quick: bool) -> Values:
        runs = count // 50 if quick else count
        if rarely:
            collect_rarely()  # as `greenroom serve` does
        cost = await at_once(runs)
        key = f"{count}_rarely" if rarely else str(count)
        return {f"cpu_ms_{key}": cost.cpu / runs * 1e3, f"wall_{key}": cost.wall}

    return on_trio(main)


BENCHMARK = Benchmark(
    name="run_linearity",
    about="one-tool runs in memory, all started together; ratios within one round",
    cases={
        "1000": _case(1_000),
        "5000": _case(5_000),
        "10000": _case(10_000),
        "1000, collected rarely": _case(1_000, rarely=True),
        "10000, collected rarely": _case(10_000, rarely=True),
    },
    derive=lambda values: {
        "linear_5000": values["cpu_ms_5000"] / values["cpu_ms_1000"],
        "linear_10000": values["cpu_ms_10000"] / values["cpu_ms_1000"],
        "linear_rarely": values["cpu_ms_10000_rarely"] / values["cpu_ms_1000_rarely"],
    },
    figures=(
        Figure(key="cpu_ms_1000", what="1,000 at once, CPU per run", unit="ms", digits=3),
        Figure(key="cpu_ms_10000", what="10,000 at once, CPU per run", unit="ms", digits=3),
        Figure(key="linear_5000", what="CPU per run, 5,000 against 1,000", unit="x", at_most=1.25),
        Figure(key="linear_10000", what="CPU per run, 10,000 against 1,000", unit="x", at_most=1.25),
        Figure(
            key="cpu_ms_1000_rarely",
            what="1,000 at once, collected rarely (as in serve), CPU per run",
            unit="ms",
            digits=3,
        ),
        Figure(key="cpu_ms_10000_rarely", what="10,000 at once, the same", unit="ms", digits=3),
        Figure(key="linear_rarely", what="CPU per run, 10,000 against 1,000, the same", unit="x", at_most=1.2),
    ),
)
