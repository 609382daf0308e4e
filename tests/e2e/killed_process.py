"""The shared parts of the processes that tests kill: the world outside, a word to the killer, tools, and their lives.

The scripts run from this folder, so they import this module by its bare name.
"""

import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import greenroom as gr


class Log:
    """A file to which whole lines are appended, on the disk before the next thing happens."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, **line: Any) -> None:
        """Append one line."""
        os.write(self._file, json.dumps(line).encode() + b"\n")
        os.fsync(self._file)


def say(word: str) -> None:
    """Print a word for the killer, unbuffered."""
    os.write(1, word.encode() + b"\n")


Works = Callable[[gr.ToolContext[Any], str], Awaitable[str]]


def tools(works: Works) -> list[gr.Tool]:
    """Return the tools `pay`, `post` and `scan`, whose bodies are `works(ctx, name)`."""

    @gr.tool(needs_approval=True, effect="write")
    async def pay(ctx: gr.ToolContext[Any], cents: int) -> str:
        """Needs an approval, and must not be repeated without asking."""
        return await works(ctx, "pay")

    @gr.tool
    async def post(ctx: gr.ToolContext[Any], to: str) -> str:
        """Needs no approval, and must not be repeated without asking."""
        return await works(ctx, "post")

    @gr.tool(replay="safe")
    async def scan(ctx: gr.ToolContext[Any], where: str) -> str:
        """May be repeated."""
        return await works(ctx, "scan")

    return [pay, post, scan]


def live(life: Callable[[str], None]) -> None:
    """Run `life(line)` in a new process for each line of stdin, and print how the process ended.

    A fork of this process has all imports already.
    """
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            say(f"pid {os.getpid()}")
            life(line)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        say(f"dead {os.waitstatus_to_exitcode(status)}")
