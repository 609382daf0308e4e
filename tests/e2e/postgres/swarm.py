"""Drives a swarm: starts its processes, strikes them, and restarts what has died.

with Swarm(folder, root, url, rng) as swarm:
    worker = swarm.node("worker-1", agents=True)
    worker.kill()
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import attrs

from ...support.ports import free_port
from .nodes import boottime
from .releases import Release

SHORT = {"lease": 1.0, "turn": 0.3, "margin": 0.2}
"""Options of a store that takes runs over after one second."""
CALM = {"lease": 3.0, "turn": 0.5, "margin": 1.0}
"""A lease that no process of a loaded machine loses, unless it is stopped."""
LONG = {"lease": 30.0, "turn": 3.0, "margin": 8.0}
"""The defaults."""
REPORTS = (
    "has run out: it ends its work",
    "the claims of this process are void",
    "the store does not answer",
    "the store answers again",
    "the store cannot be read",
    "no hint reaches",
)
"""Parts of what a process reports when it is stopped or cut off for longer than its lease."""
SLICE = 0.02
"""Seconds between two looks of a driver that waits."""


@attrs.define(eq=False)
class Process:
    """A process of the swarm.

    Attributes:
        pid: set once the process exists.
        code: of its end; None while it lives.
        words: what it has said.
        stopped_at: BOOTTIME of the SIGSTOP that holds it; None if it runs.
        release: that it runs; None: the present tree.
    """

    name: str
    order: dict[str, Any]
    pid: int = 0
    code: int | None = None
    words: list[str] = attrs.field(factory=list)
    stopped_at: float | None = None
    release: Release | None = None

    @property
    def alive(self) -> bool:
        """Whether the process has not ended."""
        return self.code is None


class Swarm:
    """The processes on one store.

    Attributes:
        folder: of their files.
        strikes: how often what was done to them.
        plants: bugs that nodes are born with.
        times: of the leases of nodes.
    """

    def __init__(self, folder: Path, root: Path, url: str, rng: random.Random) -> None:
        self.folder = folder
        self.url = url
        self.rng = rng
        self.strikes: Counter[str] = Counter()
        self.plants: list[str] = []
        self.times = SHORT
        self._root = root
        self._processes: dict[str, Process] = {}
        self._words: dict[str, list[str]] = defaultdict(list)
        self._nests: dict[Release | None, tuple[subprocess.Popen[str], threading.Thread]] = {}
        self._changed = threading.Condition()
        self._log = (folder / "strikes.log").open("a", buffering=1)

    def __enter__(self) -> Self:
        self.nest(None)
        return self

    def nest(self, release: Release | None) -> subprocess.Popen[str]:
        """The process whose forks are the processes of a release; started if it is not there."""
        if release in self._nests:
            return self._nests[release][0]
        with (self.folder / "errors").open("a") as errors:
            nest = subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.postgres.nodes", str(self.folder)],
                cwd=self._root if release is None else release.tests,
                env=None if release is None else release.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                bufsize=1,
            )
        reader = threading.Thread(target=self._read, args=(nest,), daemon=True)
        self._nests[release] = nest, reader
        reader.start()
        return nest

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes.values():
            if process.alive and process.pid:
                self._signal(process, signal.SIGKILL)
        for nest, reader in self._nests.values():
            assert nest.stdin is not None
            assert nest.stdout is not None
            nest.stdin.close()
            nest.wait(20)
            reader.join(20)
            nest.stdout.close()
        self._log.close()

    def _read(self, nest: subprocess.Popen[str]) -> None:
        assert nest.stdout is not None
        for line in nest.stdout:
            word, name, *rest = line.split()
            with self._changed:
                process = self._processes.get(name)
                if process is not None and word == "pid":
                    process.pid = int(rest[0])
                elif process is not None and word == "dead":
                    process.code = int(rest[0])
                    self._note("dead", process, code=process.code)
                elif process is not None:
                    process.words += [word, *rest]
                else:
                    self._words[word].append(name)
                self._changed.notify_all()

    def _note(self, what: str, process: Process, **more: Any) -> None:
        self._log.write(json.dumps({"what": what, "name": process.name, "pid": process.pid, "at": boottime(), **more}))
        self._log.write("\n")

    # --- processes ---------------------------------------------------------------------------------------------------

    def spawn(self, name: str, *, release: Release | None = None, **order: Any) -> Process:
        """Start a process; returns when it exists."""
        nest = self.nest(release)
        assert nest.stdin is not None
        process = self._processes[name] = Process(name, order, release=release)
        nest.stdin.write(json.dumps({"name": name, **order}) + "\n")
        self.wait(lambda: process.pid, f"{name} was not forked")
        return process

    def node(
        self, name: str, *, url: str | None = None, options: dict[str, Any] | None = None, **order: Any
    ) -> Process:
        """Start a node."""
        order["plants"] = [*self.plants]
        return self.spawn(name, store=url or self.url, options={**self.times, **(options or {})}, **order)

    def gateway(self, name: str, **order: Any) -> Process:
        """Start a node with a gateway and without agents, on a port of its own."""
        return self.node(name, port=order.pop("port", None) or free_port(self.rng), **order)

    def again(self, process: Process) -> Process:
        """Start a process like one that has ended, under the next name."""
        base, _, number = process.name.partition(".")
        return self.spawn(f"{base}.{int(number or 0) + 1}", release=process.release, **process.order)

    def wait(self, ready: Callable[[], object], otherwise: str, patience: float = 60.0) -> None:
        """Wait until `ready()` is true.

        Raises:
            AssertionError: it is not, after so many seconds.
        """
        with self._changed:
            until = time.monotonic() + patience
            while not ready():
                self._changed.wait(SLICE)
                assert time.monotonic() < until, f"{otherwise}\n{self.errors()[-4000:]}"

    def pause(self, seconds: float) -> None:
        """Wait for so long."""
        threading.Event().wait(seconds)

    def said(self, process: Process, word: str, patience: float = 60.0) -> None:
        """Wait until a process has said a word."""
        self.wait(lambda: word in process.words or not process.alive, f"{process.name} did not say {word}", patience)
        assert word in process.words, f"{process.name} ended with {process.code}\n{self.errors()[-4000:]}"

    def count(self, word: str) -> int:
        """How often a word was said about something that is no process."""
        return len(self._words[word])

    def errors(self) -> str:
        """What the processes have written to stderr."""
        return (self.folder / "errors").read_text()

    def surprises(self) -> list[str]:
        """The lines of `errors` that are no reports about leases and outages."""
        return [line for line in self.errors().splitlines() if not any(word in line for word in REPORTS)]

    # --- strikes -----------------------------------------------------------------------------------------------------

    def kill(self, process: Process) -> None:
        """SIGKILL; returns when the process has ended."""
        self.strikes["SIGKILL"] += 1
        self._signal(process, signal.SIGKILL)
        self.wait(lambda: not process.alive, f"{process.name} survived")

    def stop(self, process: Process) -> None:
        """SIGSTOP."""
        self.strikes["SIGSTOP"] += 1
        process.stopped_at = boottime()
        self._signal(process, signal.SIGSTOP)

    def resume(self, process: Process) -> None:
        """SIGCONT."""
        process.stopped_at = None
        self._signal(process, signal.SIGCONT)

    def terminate(self, process: Process, patience: float = 30.0) -> None:
        """SIGTERM; returns when the process has ended."""
        self.strikes["SIGTERM"] += 1
        self._signal(process, signal.SIGTERM)
        self.wait(lambda: not process.alive, f"{process.name} did not end", patience)

    def _signal(self, process: Process, number: signal.Signals) -> None:
        self._note(number.name, process)
        if process.alive:
            os.kill(process.pid, number)
