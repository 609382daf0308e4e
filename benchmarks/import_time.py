"""What `import greenroom` costs a fresh process, beside `import trio` alone."""

from __future__ import annotations

import subprocess
import sys

from .harness import Benchmark, Figure, Values

_PROGRAM = """
import time
wall, cpu = time.perf_counter(), time.process_time()
import {module}
wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
with open("/proc/self/statm") as file:
    pages = int(file.read().split()[1])
import os
print(wall, cpu, pages * os.sysconf("SC_PAGE_SIZE"))
"""


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True)  # noqa: S603 - our own command


def _import(module: str) -> object:
    def case(_: bool) -> Values:
        wall, cpu, memory = map(float, _python("-c", _PROGRAM.format(module=module)).stdout.split())
        return {f"{module}_wall": wall, f"{module}_cpu": cpu, f"{module}_mb": memory / 1e6}

    return case


def _importtime(_: bool) -> Values:
    """The total of -X importtime, in which measuring is included."""
    last = _python("-X", "importtime", "-c", "import greenroom").stderr.splitlines()[-1]
    return {"importtime": int(last.split("|")[1]) / 1e6}


BENCHMARK = Benchmark(
    name="import_time",
    about="a fresh process imports the facade; files cached by the system",
    cases={"trio": _import("trio"), "greenroom": _import("greenroom"), "importtime": _importtime},
    figures=(
        Figure(key="greenroom_cpu", what="import greenroom, CPU", unit="s", at_most=0.5, digits=3),
        Figure(key="greenroom_wall", what="import greenroom, wall", unit="s", digits=3),
        Figure(key="importtime", what="import greenroom, total of -X importtime", unit="s", digits=3),
        Figure(key="trio_cpu", what="import trio alone, CPU", unit="s", digits=3),
        Figure(key="greenroom_mb", what="memory of a process that has imported greenroom", unit="MB", digits=1),
        Figure(key="trio_mb", what="memory of one that has imported trio", unit="MB", digits=1),
    ),
)
