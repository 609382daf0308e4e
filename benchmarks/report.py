"""The results as a table for people and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .harness import Figure, Result

FOLDER = Path(__file__).resolve().parent / "results"
_HEAD = "| what | median | range | budget | |\n|---|---:|---:|---:|---|"

LATEST = "latest"


def table(result: Result, *, quick: bool) -> str:
    """One benchmark as Markdown."""
    rows = [_row(figure, middle, low, high, quick=quick) for figure, middle, low, high in result.lines()]
    about = result.benchmark.about
    notes = ["", *(f"- {note}" for note in result.notes)] if result.notes else []
    return "\n".join(
        [f"## {result.benchmark.name}", "", f"{about[0].upper()}{about[1:]}.", "", _HEAD, *rows, *notes, ""]
    )


def _row(figure: Figure, middle: float, low: float, high: float, *, quick: bool) -> str:
    def number(value: float) -> str:
        return f"{value:,.{figure.digits}f}"

    verdict = {True: "met", False: "**missed**", None: ""}[None if quick else figure.met(middle)]
    middle_text = f"{number(middle)} {figure.unit}".strip()
    return f"| {figure.what} | {middle_text} | {number(low)} to {number(high)} | {figure.budget()} | {verdict} |"


def document(facts: Mapping[str, str], results: Sequence[Result], *, quick: bool) -> str:
    """All results as one Markdown document."""
    verdicts = [figure.met(middle) for result in results for figure, middle, _, _ in result.lines()]
    lines = ["# Measured", ""]
    lines += [f"- {name}: {value}" for name, value in facts.items()]
    rounds = min((len(values) for result in results for values in result.values.values()), default=0)
    process = "one process" if quick else "a fresh process"
    lines += [f"- rounds: {rounds}, each case of a round in {process}; medians, and lowest to highest"]
    if quick:
        lines += ["- made with --quick: this shows that the benchmarks run, and measures nothing", ""]
    else:
        lines += [f"- budgets met: {verdicts.count(True)} of {verdicts.count(True) + verdicts.count(False)}", ""]
    return "\n".join([*lines, *(table(result, quick=quick) for result in results)])


def data(facts: Mapping[str, str], results: Sequence[Result], *, quick: bool) -> dict[str, Any]:
    """All values of all rounds."""
    return {
        "machine": dict(facts),
        "quick": quick,
        "benchmarks": {
            result.benchmark.name: {
                "values": {key: list(values) for key, values in result.values.items()},
                "notes": list(result.notes),
                "figures": [
                    {
                        "key": figure.key,
                        "what": figure.what,
                        "unit": figure.unit,
                        "median": middle,
                        "low": low,
                        "high": high,
                        "budget": figure.budget() or None,
                        "met": figure.met(middle),
                    }
                    for figure, middle, low, high in result.lines()
                ],
            }
            for result in results
        },
    }


def save(facts: Mapping[str, str], results: Sequence[Result], *, quick: bool, name: str = LATEST) -> tuple[Path, Path]:
    """Write `results/<date>.json` and `results/latest.md`. What was measured earlier on the same day stays.

    `name`: of the table, in place of "latest"; then it is part of the other file's name, too.
    """
    FOLDER.mkdir(exist_ok=True)
    date, earlier = facts["date"][:10] + ("" if name == LATEST else f"-{name}"), 1
    path = FOLDER / f"{date}.json"
    while path.exists():
        earlier += 1
        path = FOLDER / f"{date}-{earlier}.json"
    paths = path, FOLDER / f"{name}.md"
    write_json(paths[0], facts, results, quick=quick)
    paths[1].write_text(document(facts, results, quick=quick), encoding="utf-8")
    return paths


def write_json(path: Path, facts: Mapping[str, str], results: Sequence[Result], *, quick: bool) -> None:
    """Write the JSON to a path."""
    path.write_text(json.dumps(data(facts, results, quick=quick), indent=1) + "\n", encoding="utf-8")
