"""On what it was measured: processor, versions, file system, commit, and how busy the machine was."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
import tempfile
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from .harness import ROOT

LIBRARIES = ("trio", "attrs", "cattrs", "msgspec", "jsonschema", "rich", "h11", "trio-websocket", "wsproto")


def facts() -> dict[str, str]:
    """What a reader must know to compare the figures with his own."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "pace": pace(),
        "load": load(),
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "libraries": ", ".join(f"{name} {version(name)}" for name in LIBRARIES),
        "sqlite": sqlite3.sqlite_version,
        "databases": _file_system(Path(tempfile.gettempdir())),
    }


def load() -> str:
    """Processes that wanted to run, on average of the last 1, 5 and 15 minutes."""
    return " ".join(f"{number:.1f}" for number in os.getloadavg())


def plain_python() -> int:
    """A fixed piece of plain Python: what the processor makes of it tells how fast it is just now."""
    total = 0
    for number in range(1_000):
        total += number
    return total


def pace() -> str:
    """CPU time of 1,000 additions, median of many: by it, the figures of a busy and of an idle hour compare."""
    loops = []
    for _ in range(301):
        began = time.process_time()
        for _ in range(10):
            plain_python()
        loops.append((time.process_time() - began) / 10)
    return f"{sorted(loops)[150] * 1e6:.1f} us for 1,000 additions"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _commit() -> str:
    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()  # noqa: S603, S607 - our own command

    changes = git("status", "--porcelain", "--", "actors", "supervision", "transport", "src")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + (" with uncommitted changes" if changes else "")


def _file_system(folder: Path) -> str:
    """The type of the mount that holds a folder (Linux)."""
    try:
        lines = Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "unknown"
    mounts = [(line.split()[1], line.split()[2]) for line in lines]
    holders = [(place, kind) for place, kind in mounts if folder.is_relative_to(place)]
    return max(holders, key=lambda mount: len(mount[0]))[1] if holders else "unknown"
