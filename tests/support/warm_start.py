"""Processes of the command line without the time that Python takes to start: forks of one that has imported everything.

    with begun([*arguments], stdout=subprocess.PIPE, text=True, env=env, cwd=folder) as process: ...

A `WarmProcess` is a `subprocess.Popen` whose process begins at `main` of the command line. Everything else is its own:
its id, its folder, environment, streams, limit of open files, session, signals, and its measured coverage. A session of
tests starts hundreds of them; each saves half a second of CPU. `python warm_start.py` is the process that forks. Tests
about the start itself start a Python of their own, and so does `begun` where there is no pidfd (macOS).
"""

import atexit
import contextlib
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import resource
import select
import socket
import subprocess
import sys
import termios
from functools import cache
from pathlib import Path
from typing import Any

MOST = 1 << 16
"""Bytes of a request: the arguments and the environment."""
STREAMS = (0, 1, 2)
COLD_PIPED = "import sys; from greenroom.transport.cli import main; sys.argv[0] = 'greenroom'; sys.exit(main())"
COLD = f"import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); {COLD_PIPED}"


# --- in the tests ----------------------------------------------------------------------------------------------------


@cache
def forking() -> socket.socket:
    """The connection to the process that forks; it ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    with theirs:
        process = subprocess.Popen(
            [sys.executable, Path(__file__), str(theirs.fileno())],
            env={**environment, "PYTHONWARNINGS": "error"},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def begun(arguments: list[str], *, controls: bool = False, **options: Any) -> "subprocess.Popen[Any]":
    """Start `greenroom ARGUMENTS` as a fork, or as a Python of its own where the system cannot wait for forks.

    `controls` makes the terminal at its standard input its own, so that Ctrl-C in it is an interrupt.
    """
    if hasattr(os, "pidfd_open"):
        return WarmProcess(arguments, controls=controls, **options)
    return subprocess.Popen([sys.executable, "-c", COLD if controls else COLD_PIPED, *arguments], **options)


class WarmProcess(subprocess.Popen[Any]):
    """`greenroom ARGUMENTS`, forked; the parameters are those of Popen, `args` has no program.

    `controls` makes the terminal at its standard input its own, so that Ctrl-C in it is an interrupt.
    """

    def __init__(self, args: list[str], *, controls: bool = False, **options: Any) -> None:
        self._controls = controls
        self._status: socket.socket | None = None
        super().__init__(args, **options)

    def _execute_child(self, args: Any, *rest: Any) -> None:
        """Called by Popen with its parameters and the ends of its pipes."""
        cwd, env, pipes, session = rest[4], rest[5], rest[9:15], rest[20]
        streams = [own if end == -1 else end for own, end in zip(STREAMS, (pipes[0], pipes[3], pipes[5]), strict=True)]
        self._status, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        asked = {
            "arguments": [os.fspath(argument) for argument in args],
            "folder": os.fspath(cwd or Path.cwd()),
            "environment": dict(env if env is not None else os.environ),
            "files": resource.getrlimit(resource.RLIMIT_NOFILE),
            "session": session,
            "controls": self._controls,
        }
        with theirs:
            socket.send_fds(forking(), [json.dumps(asked).encode()], [*streams, theirs.fileno()])
        self.pid = int(self._status.recv(64))
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        """Called by Popen: the id and status of the process, or zeros while it runs."""
        assert self._status is not None
        if wait_flags & os.WNOHANG and not select.select([self._status], [], [], 0)[0]:
            return 0, 0
        status = int(self._status.recv(64))
        self._status.close()
        return self.pid, status

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        """Called by Popen."""
        if self.returncode is None and self._status is not None and self._waitpid_lock.acquire(blocking=False):
            try:
                pid, status = self._try_wait(os.WNOHANG) if self.returncode is None else (0, 0)
                if pid == self.pid:
                    self._handle_exitstatus(status)
            finally:
                self._waitpid_lock.release()
        return self.returncode


# --- in the process that forks ---------------------------------------------------------------------------------------


def serve(requests: socket.socket) -> dict[str, Any] | None:
    """Fork for each request; returns twice: in each fork its request, and None when the tests have ended."""
    running: dict[int, tuple[int, socket.socket]] = {}
    while True:
        for ready in select.select([requests, *running], [], [])[0]:
            if ready is not requests:
                pid, status = running.pop(ready)
                os.close(ready)
                with status, contextlib.suppress(OSError):  # the test did not wait for the end
                    status.send(str(os.waitpid(pid, 0)[1]).encode())
                continue
            asked, descriptors, _, _ = socket.recv_fds(requests, MOST, 4)
            if not asked:
                return None
            pid = os.fork()
            if not pid:
                for stream, descriptor in zip(STREAMS, descriptors[:3], strict=True):
                    os.dup2(descriptor, stream)
                os.closerange(3, max(descriptors) + len(running) + 64)
                for connection in (requests, *(status for _, status in running.values())):
                    connection.detach()  # closed above
                request: dict[str, Any] = json.loads(asked)
                return request
            for descriptor in descriptors[:3]:
                os.close(descriptor)
            status = socket.socket(fileno=descriptors[3])
            status.send(str(pid).encode())
            running[os.pidfd_open(pid)] = (pid, status)


def begin(request: dict[str, Any]) -> int:
    """Become the process that was asked for, and run the command line."""
    if request["session"]:
        os.setsid()
    if request["controls"]:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    resource.setrlimit(resource.RLIMIT_NOFILE, tuple(request["files"]))
    sys.argv[:] = ["greenroom", *request["arguments"]]
    sys.path[0] = request["folder"]
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - as Python opens them
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
    if "COVERAGE_PROCESS_CONFIG" in os.environ:
        import coverage

        coverage.process_startup(force=True)
    from greenroom.transport.cli import main

    return main()


def prepare() -> None:
    """Import everything that a command may need."""
    import coverage  # noqa: F401

    import greenroom

    for module in pkgutil.walk_packages(greenroom.__path__, "greenroom."):
        if not module.name.endswith(("__main__", "pytest_plugin")):
            importlib.import_module(module.name)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    prepare()
    wanted = serve(socket.socket(fileno=int(sys.argv[1])))
    if wanted is not None:
        sys.exit(begin(wanted))
