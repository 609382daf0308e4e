"""Lines from the keyboard without blocking the event loop: a prompt can be cancelled like any other wait."""

from __future__ import annotations

import os
import sys
import termios

import trio

_CHUNK = 4096
"""Bytes per read: the longest line that a terminal accepts."""


class Keyboard:
    """A reader of a terminal.

    `sys.stdin` is not used: a thread blocked in it could not be ended, and would delay the exit of the process.
    """

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor
        self._rest = b""

    def __repr__(self) -> str:
        return f"<Keyboard on descriptor {self._descriptor}>"

    def forget(self) -> None:
        """Drop input from before the prompt, which cannot be its answer."""
        self._rest = b""
        termios.tcflush(self._descriptor, termios.TCIFLUSH)

    async def line(self) -> str | None:
        """Return the next line without its end; None at the end of input (Ctrl-D).

        Cancellation: a cancelled call has consumed no input.
        """
        while b"\n" not in self._rest:
            await trio.lowlevel.wait_readable(self._descriptor)
            try:
                chunk = os.read(self._descriptor, _CHUNK)
            except OSError:  # the terminal was closed
                chunk = b""
            if not chunk:
                self._rest = b""
                return None
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode("utf-8", "replace").strip()


def is_interactive() -> bool:
    """Return True if prompts are possible: keyboard and screen are both a terminal."""
    return _is_terminal(sys.stdin) and _is_terminal(sys.stdout)


def _is_terminal(stream: object) -> bool:
    try:
        return bool(stream is not None and stream.isatty())  # type: ignore[attr-defined]
    except ValueError:  # closed
        return False
