"""The command line in processes of its own, forked: with pipes, or in a terminal that the test plays the person of."""

import contextlib
import fcntl
import io
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.casing import cased
from tests.support.warm_start import begun

from greenroom.transport.cli import main

PATIENCE = 30.0
"""Seconds until a test gives up on a process: only a hanging one takes so long."""
COMMAND = (sys.executable, "-m", "greenroom.transport.cli")


class Cli:
    """Runs `greenroom` in a folder, with a state folder of its own, where warnings are errors."""

    def __init__(self, folder: Path, state: Path, command: Sequence[str] = COMMAND) -> None:
        self.folder = folder
        self.command = command
        self.env = {**os.environ, "XDG_STATE_HOME": str(state), "PYTHONWARNINGS": "error", "TERM": "xterm-256color"}
        for name in ("NO_COLOR", "COLUMNS", "LINES"):  # of the terminal that the tests run in
            self.env.pop(name, None)

    def __call__(self, *arguments: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run it to its end, with pipes."""
        with self._process(
            *arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                out, err = process.communicate(stdin, PATIENCE)
            finally:
                process.kill()
        return _checked(subprocess.CompletedProcess(process.args, process.returncode, out, err))

    def _process(self, *arguments: str | Path, **options: Any) -> "subprocess.Popen[Any]":
        words = [str(argument) for argument in arguments]
        if self.command == COMMAND:
            return begun(words, cwd=self.folder, env=self.env, **options)
        return subprocess.Popen([*self.command, *words], cwd=self.folder, env=self.env, **options)

    @contextmanager
    def started(self, *arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
        """Start it with pipes; it is killed at the end of the block if it is still there."""
        process = self._process(
            *arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        with process:
            try:
                yield process
            finally:
                process.kill()

    @contextmanager
    def terminal(self, *arguments: str | Path, columns: int = 100) -> Iterator["Terminal"]:
        """Start it in a terminal."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 40, columns, 0, 0))
        process = begun(
            [str(argument) for argument in arguments],
            controls=True,
            cwd=self.folder,
            env=self.env,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        try:
            with process:
                try:
                    yield Terminal(process, ours)
                finally:
                    process.kill()
        finally:
            os.close(ours)


class Inside:
    """Runs `greenroom` in a folder inside this process: fast, for everything that is neither killed nor interrupted."""

    def __init__(self, folder: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        monkeypatch.setenv("XDG_STATE_HOME", str(state))
        monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))

    def __call__(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = main([str(argument) for argument in arguments])
            except SystemExit as end:
                code = int(end.code or 0)
        return _checked(subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue()))


def _checked(done: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    """What came of a command; with --json no key of it is in snake_case."""
    for line in done.stdout.splitlines() if "--json" in done.args else ():
        if line.startswith("{"):
            cased(json.loads(line))
    return done


class Terminal:
    """What a person sees and types."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self.process, self._descriptor = process, descriptor
        self.seen = ""
        self._read = 0

    def sees(self, text: str) -> str:
        """Wait until a text appears behind what has been seen before; returns what came up to it."""
        end = time.monotonic() + PATIENCE
        while (at := self.seen.find(text, self._read)) < 0:
            ready, _, _ = select.select([self._descriptor], [], [], max(0.0, end - time.monotonic()))
            chunk = self._chunk() if ready else b""
            assert chunk, f"{text!r} did not come; what came: {self.seen[self._read :]}"
            self.seen += chunk.decode("utf-8", "replace")
        before, self._read = self.seen[self._read : at], at + len(text)
        return before

    def types(self, text: str) -> None:
        """Type something."""
        os.write(self._descriptor, text.encode())

    def ends(self) -> int:
        """Read to the end and return the exit code."""
        end = time.monotonic() + PATIENCE
        while select.select([self._descriptor], [], [], max(0.0, end - time.monotonic()))[0]:
            chunk = self._chunk()
            if not chunk:
                return self.process.wait(PATIENCE)
            self.seen += chunk.decode("utf-8", "replace")
        raise AssertionError(f"it does not end; what came: {self.seen[self._read :]}")

    def _chunk(self) -> bytes:
        try:
            return os.read(self._descriptor, 65536)
        except OSError:  # the other end is closed
            return b""


def lines_of(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """The JSON lines of a process, as they come."""
    assert process.stdout is not None
    for line in process.stdout:
        yield cased(json.loads(line))


def wait_for(process: subprocess.Popen[str], event_type: str, count: int = 1) -> list[dict[str, Any]]:
    """Read JSON lines until an event has come so many times."""
    seen: list[dict[str, Any]] = []
    for one in lines_of(process):
        seen.append(one)
        count -= one["type"] == event_type
        if not count:
            return seen
    raise AssertionError(f"{event_type} did not come; what came: {[one['type'] for one in seen]}")


def interrupt(process: subprocess.Popen[str]) -> tuple[int, list[dict[str, Any]], str]:
    """Ctrl-C; returns the exit code, the JSON lines that still came, and what was said on standard error."""
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, [cased(json.loads(line)) for line in out.splitlines()], err


def one_line(error: str) -> str:
    """What was said on standard error, which has to be one line of ours."""
    assert error.startswith("greenroom: "), error
    assert error.count("\n") == 1, error
    assert "Traceback" not in error
    return error.removeprefix("greenroom: ").strip()
