"""Whether many runs at once cost more each than few: 1,000, 5,000 and 10,000 in memory."""

from __future__ import annotations

from .harness import Benchmark, Case, Figure, Values, on_trio
from .run_overhead import at_once


def _case(count: int) -> Case:
    async def main(quick: bool) -> Values:
        runs = count // 50 if quick else count
        spent = await at_once(runs)
        return {f"cpu_ms_{count}": spent.cpu / runs * 1e3, f"wall_{count}": spent.wall}

    return on_trio(main)


BENCHMARK = Benchmark(
    name="run_linearity",
    about="one-tool runs in memory, all started together; ratios within one round",
    cases={"1000": _case(1_000), "5000": _case(5_000), "10000": _case(10_000)},
    derive=lambda values: {
        f"linear_{count}": values[f"cpu_ms_{count}"] / values["cpu_ms_1000"] for count in (5_000, 10_000)
    },
    figures=(
        Figure(key="cpu_ms_1000", what="1,000 at once, CPU per run", unit="ms", digits=3),
        Figure(key="cpu_ms_10000", what="10,000 at once, CPU per run", unit="ms", digits=3),
        Figure(key="linear_5000", what="CPU per run, 5,000 against 1,000", unit="x", at_most=1.25),
        Figure(key="linear_10000", what="CPU per run, 10,000 against 1,000", unit="x", at_most=1.25),
    ),
)
