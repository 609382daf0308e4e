"""What has to hold before a program works: it is there, can be executed, has a version that is known, is logged in."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs
import trio

from ..contract.codec import shortened
from ..errors import PreparationError
from .process import ProcessExit, ProgramCommand, ProgramNotStarted, open_program

Version = tuple[int, ...]

PROBE_LIMIT: Final = 60.0
"""Seconds for a program to say its version: programs of Node.js have taken 6 to 23 on a busy machine."""
OUTPUT_LIMIT: Final = 64 * 1024
"""Bytes of the answer that are kept."""
_SHOWN: Final = 300
_VERSION: Final = re.compile(r"(?<![\d.])(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?")


@attrs.frozen(kw_only=True)
class Releases:
    """The versions of a program and its dialect.

    Attributes:
        least: The least one that can work.
        tried: The first and the last one with which the dialect was tried.
    """

    least: Version
    tried: tuple[Version, Version]

    def doubt(self, program: str, version: Version) -> str | None:
        """Return the doubt about a version, or None.

        Raises:
            PreparationError: the version is too old.
        """
        if version < self.least:
            raise PreparationError(
                "runtime_unavailable",
                f"{program} {shown(version)} is too old; install {shown(self.least)} or newer",
                reason="incompatible",
            )
        first, last = self.tried
        if first <= version <= last:
            return None
        return f"{program} {shown(version)}: this release was tried with {shown(first)} to {shown(last)}"


def version_in(text: str) -> Version | None:
    """Return the first version in a text, such as "2.1.332 (Claude Code)"."""
    match = _VERSION.search(text)
    return None if match is None else tuple(int(part) for part in match.groups() if part is not None)


def shown(version: Version) -> str:
    """Return a version as a text."""
    return ".".join(map(str, version))


async def ask_program(argv: Sequence[str], environment: dict[str, str]) -> tuple[ProcessExit, str]:
    """Execute a program that answers and ends, such as `claude --version`; return its exit and its output.

    Cancellation: the program is stopped.

    Raises:
        PreparationError: the program is not started, or does not end in time.
    """
    name = Path(argv[0]).name
    command = ProgramCommand(argv=tuple(argv), folder=Path("/"), environment=environment)
    output = bytearray()
    try:
        with trio.move_on_after(PROBE_LIMIT):
            async with open_program(command) as program:
                await program.close_input()
                while data := await program.receive():
                    output += data[: OUTPUT_LIMIT - len(output)]
                end = await program.wait()
                return end, output.decode(errors="replace")
    except ProgramNotStarted as error:
        raise PreparationError("runtime_unavailable", str(error), reason="not_started") from error
    words = " ".join((name, *argv[1:]))
    raise PreparationError(
        "runtime_unavailable",
        f"`{shortened(words, _SHOWN)}` did not end within {PROBE_LIMIT:g} s; execute it in a terminal to see why",
        reason="silent",
    )


def refuse_failure(name: str, end: ProcessExit) -> None:
    """Refuse a program that could not say its version.

    Raises:
        PreparationError: the exit is not 0.
    """
    if end.code == 0:
        return
    how = f"exit {end.code}" if end.signal is None else f"signal {end.signal}"
    tail = shortened(end.errors.strip(), _SHOWN)
    reason = {126: "not_executable", 127: "missing"}.get(end.code or 0, "broken")
    raise PreparationError(
        "runtime_unavailable",
        f"{name} does not work, and said no version but {how}{f': {tail}' if tail else ''}; install it again",
        reason=reason,
    )
