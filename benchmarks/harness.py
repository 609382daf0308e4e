"""How everything here is measured: one fresh process per sample, rounds of all cases in turn, medians with ranges.

A benchmark is a module with `BENCHMARK`: named cases, each a function that does something and returns numbers, and the
figures that are shown of them. All cases of a round run one after the other before the next round begins, so that a
machine that changes its speed changes it for all of them, and `derive` can make ratios within one round. A quick round
measures nothing and stays in one process.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import attrs
import trio

ROUNDS = 5
"""Samples of each case. Fewer have no median worth the name."""
QUICK_ROUNDS = 1
SAMPLE_LIMIT = 600.0
"""Seconds after which one sample is given up."""
ROOT = Path(__file__).resolve().parent.parent

Values = dict[str, float]
Case = Callable[[bool], Values]
"""quick -> numbers by key. Runs in a process of its own."""


class Skipped(Exception):
    """A case cannot be measured here; the message says why. The other cases continue."""


@attrs.frozen(kw_only=True)
class Figure:
    """One line of the table.

    Attributes:
        key: of the value. what: in words. unit: of the value.
        at_most, at_least: the budget, if there is one.
        digits: behind the point.
    """

    key: str
    what: str
    unit: str
    at_most: float | None = None
    at_least: float | None = None
    digits: int = 2

    def budget(self) -> str:
        """The budget in words; empty if there is none."""
        if self.at_most is not None:
            return f"<= {self.at_most:,g}"
        return "" if self.at_least is None else f">= {self.at_least:,g}"

    def met(self, value: float) -> bool | None:
        """Whether a value is within the budget; None if there is none."""
        if self.at_most is not None:
            return value <= self.at_most
        return None if self.at_least is None else value >= self.at_least


@attrs.frozen(kw_only=True)
class Benchmark:
    """One idea, measured.

    Attributes:
        name: for the command line. about: what is measured, in a sentence.
        cases: what runs. derive: more values of one round, made of those of its cases.
        figures: what is shown. A value without a figure is only in the JSON file.
        quick: the cases that --quick plays; None: all.
    """

    name: str
    about: str
    cases: Mapping[str, Case]
    figures: Sequence[Figure]
    derive: Callable[[Values], Values] = lambda _: {}
    quick: Sequence[str] | None = None


@attrs.frozen(kw_only=True)
class Result:
    """What a benchmark came to: each key's values, one per round, and what else its cases said."""

    benchmark: Benchmark
    values: Mapping[str, Sequence[float]]
    notes: Sequence[str] = ()

    def lines(self) -> list[tuple[Figure, float, float, float]]:
        """Per figure that has values: median, lowest, highest."""
        samples = [(figure, self.values.get(figure.key, ())) for figure in self.benchmark.figures]
        return [(figure, statistics.median(runs), min(runs), max(runs)) for figure, runs in samples if runs]


def measure(benchmark: Benchmark, *, quick: bool, say: Callable[[str], None]) -> Result:
    """Take all samples of a benchmark.

    Raises:
        RuntimeError: a sample failed; the message is what it wrote.
    """
    values: dict[str, list[float]] = {}
    notes: dict[str, None] = {}
    rounds = QUICK_ROUNDS if quick else ROUNDS
    cases = tuple(benchmark.cases) if not quick or benchmark.quick is None else benchmark.quick
    for number in range(rounds):
        sample_values: Values = {}
        for case in cases:
            say(f"{benchmark.name}: round {number + 1} of {rounds}, {case}")
            case_values, case_notes = _here(benchmark, case) if quick else _sample(benchmark.name, case)
            sample_values |= case_values
            notes |= dict.fromkeys(case_notes)
        sample_values |= benchmark.derive(sample_values)
        for key, value in sample_values.items():
            values.setdefault(key, []).append(value)
    return Result(benchmark=benchmark, values=values, notes=tuple(notes))


def _here(benchmark: Benchmark, case: str) -> tuple[Values, Sequence[str]]:
    """One case in this process, which shows that the case runs and measures nothing: its values, and its notes."""
    before = len(_notes)
    values, notes = sample(benchmark, case, quick=True)
    return values, notes[before:]


def _sample(name: str, case: str) -> tuple[Values, Sequence[str]]:
    """One case in a fresh process: its values, and its notes."""
    command = [sys.executable, "-m", "benchmarks", "--sample", name, case]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SAMPLE_LIMIT, check=False)  # noqa: S603 - our own command
    if done.returncode != 0:
        raise RuntimeError(f"{name}, {case}: exit code {done.returncode}\n{done.stderr[-4000:]}")
    values, notes = json.loads(done.stdout.splitlines()[-1])
    return values, notes


def sample(benchmark: Benchmark, case: str, *, quick: bool) -> tuple[Values, Sequence[str]]:
    """What runs in that process."""
    try:
        values = benchmark.cases[case](quick)
    except Skipped as why:
        values = {}
        note(f"{case}: skipped: {why}")
    return values, _notes


# --- for the cases ---------------------------------------------------------------------------------------------------

_notes: list[str] = []


def note(text: str) -> None:
    """Say something that is below the table, such as the version of a peer. Once, however many rounds there are."""
    _notes.append(text)


class Spent:
    """CPU seconds of this process (all threads) and wall seconds of the last `with` block."""

    cpu = wall = 0.0

    def __enter__(self) -> Self:
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.cpu, self.wall = time.process_time() - self._cpu, time.perf_counter() - self._wall


def on_trio(main: Callable[[bool], Any]) -> Case:
    """A case whose body is async."""

    def case(quick: bool) -> Values:
        values: Values = trio.run(main, quick)
        return values

    return case


def resident() -> int:
    """Bytes of memory that this process has in RAM (Linux)."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all values do not exceed."""
    in_order = sorted(values)
    return in_order[min(len(in_order) - 1, max(0, -int(-share * len(in_order) // 1) - 1))]
