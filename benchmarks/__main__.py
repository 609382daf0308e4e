"""`python -m benchmarks [names] [--quick] [--json FILE] [--save]`, from the repository's root."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from . import machine, report
from .harness import Benchmark, Result, measure, sample

NAMES = (
    "run_overhead",
    "run_linearity",
    "run_durable",
    "durable_steps",
    "import_time",
    "waiting_memory",
    "waiting_open",
    "decision_latency",
    "cancelling",
    "engine",
    "permission",
    "dialects",
    "workspaces",
    "mcp_client",
    "doors",
    "console",
    "kernel",
    "gateway_fanout",
    "gateway_stalled",
    "gateway_replay",
    "gateway_http",
    "gateway_asgi",
    "asyncio_roads",
    "gateway_peers",
    "loop_peers",
    "postgres",
)


def _load(name: str) -> Benchmark:
    benchmark: Benchmark = importlib.import_module(f"benchmarks.{name}").BENCHMARK
    return benchmark


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure against the budgets. All benchmarks together are saved in benchmarks/results/.",
        epilog=f"names: {', '.join(NAMES)}. Example: python -m benchmarks run_overhead import_time",
    )
    parser.add_argument("names", nargs="*", metavar="name", help="which ones, or how their names begin (default: all)")
    parser.add_argument("--quick", action="store_true", help="small and once: shows that they run, measures nothing")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all values to a file")
    parser.add_argument(
        "--save", nargs="?", const=report.LATEST, metavar="TABLE", help="save a selection, too; the name of its table"
    )
    parser.add_argument("--sample", nargs=2, metavar=("NAME", "CASE"), help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    options.names = [name if name in NAMES else _begun(name) for name in options.names]
    unknown = sorted(set(options.names) - set(NAMES))
    if unknown:
        parser.error(f"there is no benchmark {', '.join(unknown)}; there are {', '.join(NAMES)}")
    return options


def _begun(part: str) -> str:
    """Return the one name that begins so; the part itself if there is none, or several."""
    names = [name for name in NAMES if name.startswith(part)]
    return names[0] if len(names) == 1 else part


def main(argv: Sequence[str]) -> int:
    """Run what was asked for."""
    options = _arguments(argv)
    if options.sample is not None:
        name, case = options.sample
        print(json.dumps(sample(_load(name), case, quick=options.quick)))
        return 0
    began, facts = time.monotonic(), machine.facts()
    results: list[Result] = []
    for name in options.names or NAMES:
        results.append(measure(_load(name), quick=options.quick, say=_say))
        _say("")
        print(report.table(results[-1], quick=options.quick), flush=True)
    facts |= {"pace at the end": machine.pace(), "load at the end": machine.load()}
    facts["took"] = f"{time.monotonic() - began:.0f} s"
    if options.json is not None:
        report.write_json(options.json, facts, results, quick=options.quick)
    if options.save or not (options.names or options.quick):
        for path in report.save(facts, results, quick=options.quick, name=options.save or report.LATEST):
            print(f"written: {path}")
    return 0


def _say(text: str) -> None:
    """What continues, in one line of a terminal."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
