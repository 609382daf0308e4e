"""The screens, the only writers of output: a colour terminal with one live line, plain lines, or JSON lines.

Output only grows downwards. On a terminal (`rich_screen.py`) one last line shows the present activity; it is erased
before any other output. All foreign text has been cleaned by `text_format` before it arrives here.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal, TextIO

import attrs
from typing_extensions import override

from greenroom.actors.contract.envelope import Event, timestamp
from greenroom.actors.contract.plain import JSONObject

from . import text_format
from .timeline import Kind, Line

Style = Literal["", "strong", "dim", "good", "bad", "warn", "added", "removed"]

SIGNS: Final[Mapping[Kind, tuple[str, str, Style]]] = {
    "start": ("▸", "start", "dim"),
    "ok": ("✓", "ok", "good"),
    "bad": ("✗", "failed", "bad"),
    "wait": ("?", "waits", "warn"),
    "yes": ("✓", "yes", "good"),
    "no": ("✗", "no", "warn"),
    "text": ("“", "says", ""),
    "output": ("│", "|", "dim"),
    "note": ("•", "note", "warn"),
}
"""Kind -> its sign on a terminal, its word in plain text, its style."""

WHO: Final = 16
"""Columns for the name of an agent or tool: the longest name in the examples, and a little more."""
TOOK: Final = 8
"""Columns for a duration."""


def parts_of(line: Line) -> tuple[str, str, str]:
    """Return the parts of a line after its sign: name, duration, and the rest."""
    took = "" if line.seconds is None else text_format.duration(line.seconds)
    rest = f"{line.what} → {line.outcome}" if line.what and line.outcome else line.what or line.outcome
    return line.who, took, rest


class Screen:
    """Plain lines for pipes, files and dumb terminals: no colours, no overwriting."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = sys.stdout if out is None else out
        self._prompt = ""
        self._busy = False  # a long answer is being typed
        self._later: list[Line] = []

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    @property
    def width(self) -> int | None:
        """Columns of the terminal; None without a terminal."""
        return None

    def event(self, event: Event) -> None:
        """Accept an event of the run; not shown here."""

    def line(self, line: Line) -> None:
        """Write a line of the timeline."""
        who, took, rest = parts_of(line)
        self._catch_up()
        head = f"{line.at:7.1f}s  {SIGNS[line.kind][1]:<6}  {text_format.padded(who, WHO)} {took:>{TOOK}}  "
        for text in rest.split("\n"):
            self._write(f"{head}{text}".rstrip() + "\n")

    def row(self, text: str = "", style: Style = "") -> None:
        """Write a line of text."""
        del style
        self._catch_up()
        self._write(f"{text}\n")

    def prompt(self, text: str, *, long: bool = False) -> None:
        """Write a prompt; the answer is typed after it. `long`: an answer that takes a while to type."""
        self._catch_up()
        self._prompt, self._busy = text, long
        self._write(text)

    def above(self, line: Line) -> None:
        """Write a line of the timeline while a prompt is open, and repeat the prompt below it.

        While a long answer is being typed, the line is deferred until the answer is complete: partly typed input cannot
        be repeated below another line.
        """
        if self._busy:
            self._later.append(line)
            return
        self._make_room()
        self.line(line)
        self.prompt(self._prompt)

    def _make_room(self) -> None:
        """Leave the prompt's line."""
        self._write("\n")

    def _catch_up(self) -> None:
        """Write the lines that were deferred during a long answer."""
        self._busy = False
        later, self._later = self._later, []
        for line in later:
            self.line(line)

    def status(self, text: str) -> None:
        """Show the present activity; empty erases it. Only a terminal shows it."""

    def outcome(self, data: JSONObject) -> None:
        """Report the run's outcome to programs."""

    def close(self) -> None:
        """Restore the terminal."""
        self._catch_up()

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


class JsonScreen(Screen):
    """Events in their stored form, one JSON object per line, then one line with the outcome."""

    @override
    def event(self, event: Event) -> None:
        """Write an event."""
        self.outcome(wire(event))

    @override
    def line(self, line: Line) -> None:
        """Write nothing: the events already have this information."""

    @override
    def row(self, text: str = "", style: Style = "") -> None:
        """Write nothing: text for people is not for programs."""

    @override
    def outcome(self, data: JSONObject) -> None:
        """Write an object."""
        self._write(json.dumps(data, default=_plain) + "\n")


class HidingScreen(Screen):
    """A wrapper of another screen that hides secrets."""

    def __init__(self, screen: Screen, hide: Callable[[str], str]) -> None:
        super().__init__()
        self._screen, self._hide = screen, hide

    @property
    @override
    def width(self) -> int | None:
        return self._screen.width

    @override
    def event(self, event: Event) -> None:
        """Accept an event of the run; events contain no hidden text."""
        self._screen.event(event)

    @override
    def line(self, line: Line) -> None:
        self._screen.line(self._hidden_line(line))

    @override
    def above(self, line: Line) -> None:
        self._screen.above(self._hidden_line(line))

    def _hidden_line(self, line: Line) -> Line:
        return attrs.evolve(line, what=self._hide(line.what), outcome=self._hide(line.outcome))

    @override
    def row(self, text: str = "", style: Style = "") -> None:
        self._screen.row(self._hide(text), style)

    @override
    def prompt(self, text: str, *, long: bool = False) -> None:
        self._screen.prompt(self._hide(text), long=long)

    @override
    def status(self, text: str) -> None:
        self._screen.status(self._hide(text))

    @override
    def outcome(self, data: JSONObject) -> None:
        self._screen.outcome(self._hidden(json.loads(json.dumps(data, default=_plain))))

    @override
    def close(self) -> None:
        self._screen.close()

    def _hidden(self, data: object) -> Any:
        match data:
            case str():
                return self._hide(data)
            case dict():
                return {self._hide(key): self._hidden(value) for key, value in data.items()}
            case list():
                return [self._hidden(value) for value in data]
            case _:
                return data


def complain(text: str) -> None:
    """Write one line to standard error; on a terminal, long lines break between words."""
    line = f"greenroom: {text_format.one_line(text, 2000)}"
    if sys.stderr.isatty():
        begins = [0, *text_format.breaks(line, shutil.get_terminal_size().columns)]
        line = "\n".join(line[begin:end].rstrip() for begin, end in pairwise([*begins, len(line)]))
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def prepare_streams() -> None:
    """Make standard output and error accept any text: unencodable characters are escaped; closed streams discard it."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - stays open as long as the process
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _plain(value: object) -> str:
    return timestamp(value) if isinstance(value, datetime) else str(value)


def wire(event: Event) -> dict[str, Any]:
    """Return an event in its stored form."""
    fields = {
        "id": event.id,
        "sequence": event.sequence,
        "type": event.type,
        "version": event.version,
        "runId": event.run_id,
        "sessionId": event.session_id,
        "agentId": event.agent_id,
        "timestamp": timestamp(event.timestamp),
        "payload": event.payload,
    }
    return fields | {"excerpted": event.excerpted} if event.excerpted else fields
