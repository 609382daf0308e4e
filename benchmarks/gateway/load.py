"""Starts a server and the C client, lets them work, and brings home what both say."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..harness import ROOT, Skipped

HERE = Path(__file__).resolve().parent
LIMIT = 120.0
"""Seconds after which a server or client is killed. A case takes a tenth of that."""
FILES = 8_192
"""Open files that a process may need: a socket per client."""
CALM_STEP, CALM_CPU, CALM_LIMIT = 0.1, 0.015, 10.0
"""A server is calm when it takes so many CPU seconds in so many seconds; it is given the third number to become so."""
TOKEN = "a-token-for-the-benchmarks"  # noqa: S105 - of a server on loopback that lives for seconds

Told = dict[str, Any]


@contextmanager
def client() -> Iterator[Path]:
    """The compiled client.

    Raises:
        Skipped: there is no C compiler.
    """
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise Skipped("no C compiler (cc, gcc or clang) for the client")
    with TemporaryDirectory(prefix="greenroom-bench-") as folder:
        path = Path(folder) / "client"
        command = [compiler, "-O2", "-o", str(path), str(HERE / "client.c")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)  # noqa: S603 - our own
        if done.returncode != 0:
            raise Skipped(f"{compiler} cannot compile the client: {done.stderr[-500:]}")
        yield path


class Measured:
    """A process that we have started: it says JSON lines, and is killed if it overstays."""

    def __init__(self, command: Sequence[str], *, stdin: int, keep: Sequence[int] = ()) -> None:
        self.name = " ".join(command)[:200]
        self.process = subprocess.Popen(  # noqa: S603 - our own
            command, cwd=ROOT, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, pass_fds=keep
        )
        self._limit = threading.Timer(LIMIT, self.process.kill)
        self._limit.daemon = True
        self._limit.start()

    def line(self) -> str:
        """The next line of its output.

        Raises:
            RuntimeError: it has ended; with what it said last.
        """
        assert self.process.stdout is not None
        line: str = self.process.stdout.readline()
        if not line:
            _, errors = self.process.communicate()
            raise RuntimeError(f"{self.name}: exit code {self.process.returncode}\n{errors[-3000:]}")
        return line

    def data(self) -> Told:
        """The next line, read."""
        report: Told = json.loads(self.line())
        return report

    def end(self) -> str:
        """Wait for it, but not long: what it costs has been read, and a peer may be slow on its way out.

        Returns:
            What it has written to standard error.
        """
        try:
            _, errors = self.process.communicate(timeout=1)
        except subprocess.TimeoutExpired:
            self.process.kill()
            _, errors = self.process.communicate()
        finally:
            self._limit.cancel()
        return str(errors)


class Bench:
    """A server that waits for its orders.

    Attributes:
        announcement: its announcement at the start (`port`...). orders: where its orders are written.
    """

    def __init__(self, command: Sequence[str], arguments: Mapping[str, Any]) -> None:
        pipe_end, self.orders = os.pipe()
        self._server = Measured([*command, json.dumps(arguments)], stdin=pipe_end)
        os.close(pipe_end)
        try:
            self.announcement = self._server.data()
        except BaseException:  # a server that did not start well must not outlive its benchmark
            self.close()
            raise

    def order(self, letter: bytes) -> None:
        """Say `g` (publish) or `q` (end)."""
        os.write(self.orders, letter)

    def report(self) -> Told:
        """Tell it to end, and hear what it has to say."""
        self.order(b"q")
        return self._server.data()

    def cpu(self) -> float:
        """CPU seconds of the server, of all its threads, so far; seen from outside, to 10 ms (Linux)."""
        stat = Path(f"/proc/{self._server.process.pid}/stat").read_text(encoding="ascii")
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def calm(self) -> None:
        """Wait until the server does next to nothing: who has just come may still be looked up."""
        before, now, limit = -1.0, self.cpu(), time.monotonic() + CALM_LIMIT
        while now - before > CALM_CPU and time.monotonic() < limit:
            time.sleep(CALM_STEP)  # noqa: TID251 - no event loop here
            before, now = now, self.cpu()

    def peak(self) -> int:
        """Bytes of memory that the server had in RAM at most (Linux)."""
        status = Path(f"/proc/{self._server.process.pid}/status").read_text(encoding="ascii")
        line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024

    def close(self) -> str:
        """End the server; returns what it has written to standard error."""
        os.close(self.orders)
        return self._server.end()


@contextmanager
def bench(command: Sequence[str], arguments: Mapping[str, Any]) -> Iterator[Bench]:
    """A server for the time of the block, in a process of its own."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(FILES, hard), hard))
    server = Bench(command, arguments)
    try:
        yield server
    except BaseException as error:  # whatever ended the benchmark, the server's last words say more
        error.add_note(f"the server's standard error ends with:\n{server.close()[-2000:]}")
        raise
    server.close()


def gateway(**options: Any) -> tuple[list[str], Mapping[str, Any]]:
    """How our own server is started, and what it is asked for."""
    return [sys.executable, "-m", "benchmarks.gateway.server"], options


@contextmanager
def play(
    server: Bench, arguments: Sequence[str], *, at_once: bool = False, program: Sequence[str] = ()
) -> Iterator[Told]:
    """Let the client do what the arguments say.

    Args:
        server: whom it talks to. arguments: of the client.
        at_once: the server's order to begin goes out before the client comes; else when the client is ready.
        program: another client in place of the one in C.

    Yields:
        What the client says, with `joining_cpu_s` and `server_cpu_s`: of the server before its order, and from there to
        the client's end. The connections are open for the time of the block.
    """
    with client() if not program else nullcontext() as binary:
        if at_once:
            server.order(b"g")
        one = Measured([*(program or (str(binary),)), *arguments], stdin=subprocess.PIPE, keep=[server.orders])
        try:
            before, joining = server.cpu(), 0.0
            line = one.line()
            if line.strip() == "ready":
                if not at_once:
                    if program or arguments[0] == "follow":
                        server.calm()
                    joining, before = server.cpu() - before, server.cpu()
                    server.order(b"g")
                line = one.line()
            report: Told = json.loads(line)
            report |= {"server_cpu_s": server.cpu() - before, "joining_cpu_s": joining}
            yield report
        finally:
            one.end()


def follower(
    server: Bench, *, clients: int, last: int, after: int | None = None, more: Sequence[str] = ()
) -> list[str]:
    """The client's arguments to follow the run of our server.

    Args:
        server: ours. clients: how many. last: sequence at which they are done.
        after: where they begin; None: behind what is there already. more: arguments.
    """
    place = server.announcement
    begin = place["last"] if after is None else after
    where = ["--port", str(place["port"]), "--run", place["run"], "--token", TOKEN]
    return ["follow", *where, "--clients", str(clients), "--after", str(begin), "--last", str(last), *more]


def check(report: Told, *, delivered: int | None = None) -> None:
    """Hold what the client has seen to the gateway's promise; `delivered`: how many events it must be in all.

    Raises:
        AssertionError: an event came twice or not at all, or not with the same bytes, or a connection ended.
    """
    faults = ("duplicates", "gaps", "sizes_differ", "closed", "problem")
    faults_found = {name: report[name] for name in faults if report[name]}
    if faults_found or not report["delivered"] or delivered not in (None, report["delivered"]):
        raise AssertionError(f"{faults_found or 'too few'}: {report}")
