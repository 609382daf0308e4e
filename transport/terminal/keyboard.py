"""Lines from the keyboard, without holding up the event loop: the question can be cancelled like everything else."""

from __future__ import annotations

import os
import sys
import termios

import trio

_CHUNK = 4096
"""Bytes that a terminal hands over at once: the longest line it takes."""


class Keyboard:
    """Reads a terminal. Not `sys.stdin`: a thread that hangs in it could not be ended, and would hold up the exit."""

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor
        self._rest = b""

    def __repr__(self) -> str:
        return f"<Keyboard on descriptor {self._descriptor}>"

    def forget(self) -> None:
        """Drop what was typed before the question was seen: it can not be its answer."""
        self._rest = b""
        termios.tcflush(self._descriptor, termios.TCIFLUSH)

    async def line(self) -> str | None:
        """The next line without its end; None when there is no more (Ctrl-D). Cancelled, it has taken nothing."""
        while b"\n" not in self._rest:
            await trio.lowlevel.wait_readable(self._descriptor)
            try:
                chunk = os.read(self._descriptor, _CHUNK)
            except OSError:  # the terminal has gone
                chunk = b""
            if not chunk:
                self._rest = b""
                return None
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode("utf-8", "replace").strip()


def is_interactive() -> bool:
    """Whether questions can be asked: keyboard and screen are both a terminal."""
    return _is_terminal(sys.stdin) and _is_terminal(sys.stdout)


def _is_terminal(stream: object) -> bool:
    try:
        return bool(stream is not None and stream.isatty())  # type: ignore[attr-defined]
    except ValueError:  # closed
        return False
