"""The tool `shell`: run a command in the worktree of a run, show what it prints, and leave no process behind."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Any, Final

import trio

from ..errors import ToolError
from ..tools.context import ToolContext
from ..tools.definition import Tool, tool
from ..workspaces.allowlist import parts_of
from ..workspaces.errors import OutsideWorkspace
from ..workspaces.tools.context import worktree_of
from .process import ProcessExit, ProgramCommand, ProgramNotStarted, environment, open_program

LIMIT: Final = 120.0
"""Seconds for which a command may run."""
GRACE: Final = 12.0
"""Seconds in which a program and its descendants end (`ProgramProcess.stop`)."""
SHOWN: Final = 64 * 1024
"""Bytes of the output that the model reads: half of them from the beginning, half from the end."""
STREAMED: Final = 1024 * 1024
"""Bytes of the output that followers of the run see."""
_NAMED: Final = 20
"""Removed files that an answer names."""
# One stream, so that people and models read errors where they occurred.
_JOINED: Final = ("/bin/sh", "-c", 'exec "$@" 2>&1', "sh")


def shell_tool() -> Tool[..., Any]:
    """Return the tool."""

    @tool(effect="shell", concurrency="ordered", grace=GRACE)
    async def shell(ctx: ToolContext, command: str | list[str], folder: str = ".") -> str:
        """Run a command in a folder of the workspace, for up to 120 seconds.

        `command` is a text for /bin/sh, or a list of a program and its arguments. The answer has the exit code and what
        the command has printed. The command gets no input.
        """
        worktree = worktree_of(ctx)
        if not await worktree.files.has_folder(folder):
            raise OutsideWorkspace(folder)
        removed_paths = sorted(await worktree.remove_withheld())
        place = worktree.path.joinpath(*parts_of(folder))
        program = ProgramCommand(argv=(*_JOINED, *_words(command)), folder=place, environment=environment())
        output, end = ShellOutput(), None
        try:
            with trio.move_on_after(LIMIT):
                end = await _run(ctx, program, output)
        except ProgramNotStarted as error:
            raise ToolError(str(error)) from error
        return f"{_removed(removed_paths)}{_ended(end)}\n{output.shown()}".rstrip()

    return shell


class ShellOutput:
    """The output of a program: all that came at first, and the end of what came later."""

    def __init__(self) -> None:
        self._head, self._tail, self._size = bytearray(), bytearray(), 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def __repr__(self) -> str:
        return f"<ShellOutput: {self._size} bytes>"

    def add(self, data: bytes) -> str:
        """Keep bytes, and return their text for followers; none beyond `STREAMED`."""
        half = SHOWN // 2
        new = data[max(0, half - len(self._head)) :]
        self._head += data[: len(data) - len(new)]
        self._tail += new
        del self._tail[:-half]
        before, self._size = self._size, self._size + len(data)
        if before >= STREAMED:
            return ""
        text = self._decoder.decode(data[: STREAMED - before])
        return f"{text}\n[more output is not shown here]\n" if self._size >= STREAMED else text

    def shown(self) -> str:
        """Return the beginning and the end, with a line about what is left out."""
        left_out = self._size - len(self._head) - len(self._tail)
        middle = f"\n[{left_out:,} bytes are left out]\n".encode() if left_out else b""
        return (self._head + middle + self._tail).decode("utf-8", "replace")


async def _run(ctx: ToolContext[Any], command: ProgramCommand, output: ShellOutput) -> ProcessExit:
    async with open_program(command) as program:
        await program.close_input()
        while data := await program.receive():
            if text := output.add(data):
                await ctx.output(text)
        return await program.wait()


def _words(command: str | list[str]) -> tuple[str, ...]:
    """Return a program and its arguments.

    Raises:
        ToolError: the command is empty, or no program can get it.
    """
    words = ("/bin/sh", "-c", command) if isinstance(command, str) else tuple(command)
    if not words or not words[-1 if isinstance(command, str) else 0].strip():
        raise ToolError("the command is empty; give a text for /bin/sh, or a list of a program and its arguments")
    try:
        is_usable = b"\0" not in b"".join(word.encode() for word in words)
    except UnicodeEncodeError as error:
        raise ToolError(f"the command has a lone surrogate: {error}; write characters") from error
    if not is_usable:
        raise ToolError("the command has a NUL character, which no program can get")
    return words


def _removed(paths: Sequence[str]) -> str:
    """Say what was removed before the start, because the settings of some programs make them run code."""
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return f"[removed, no run may have such files: {', '.join(paths[:_NAMED])}{more}]\n" if paths else ""


def _ended(end: ProcessExit | None) -> str:
    if end is None:
        return f"stopped after {LIMIT:g} seconds"
    return f"ended by signal {end.signal}" if end.signal is not None else f"exit code {end.code}"
