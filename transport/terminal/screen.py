"""The one place that writes: to a terminal with colours and one live line, to a pipe as plain lines, or as JSON lines.

What is shown only ever grows downwards. On a terminal (module `colours`) one last line tells what goes on right now; it
is wiped before anything else is written. Everything foreign has been cleaned by `text_format` before it comes here.
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
"""Columns of the name of an agent or tool: the longest that our own examples have, and a little more."""
TOOK: Final = 8
"""Columns of a duration."""


def parts_of(line: Line) -> tuple[str, str, str]:
    """What stands behind a line's sign: who, how long, and the rest."""
    took = "" if line.seconds is None else text_format.duration(line.seconds)
    rest = f"{line.what} → {line.outcome}" if line.what and line.outcome else line.what or line.outcome
    return line.who, took, rest


class Screen:
    """Plain lines: for pipes, files and dumb terminals. No colours, nothing that is overwritten."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = sys.stdout if out is None else out
        self._prompt = ""
        self._busy = False  # somebody writes an answer
        self._later: list[Line] = []

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    @property
    def width(self) -> int | None:
        """Columns of the terminal; None if this is none."""
        return None

    def event(self, event: Event) -> None:
        """An event of the run has come."""

    def line(self, line: Line) -> None:
        """Write a line of the story."""
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
        """Write a question; the answer comes behind it. `long`: an answer that takes a while to be typed."""
        self._catch_up()
        self._prompt, self._busy = text, long
        self._write(text)

    def above(self, line: Line) -> None:
        """Write a line of the story while a question is open, and the question again below it.

        While somebody writes a long answer it waits until the answer is there: what is typed in a line can not be
        written again below another one.
        """
        if self._busy:
            self._later.append(line)
            return
        self._make_room()
        self.line(line)
        self.prompt(self._prompt)

    def _make_room(self) -> None:
        """Leave the line that the question is in."""
        self._write("\n")

    def _catch_up(self) -> None:
        """Write what has waited for a long answer."""
        self._busy = False
        later, self._later = self._later, []
        for line in later:
            self.line(line)

    def status(self, text: str) -> None:
        """Say what goes on right now, or nothing if empty. Only a terminal shows it."""

    def outcome(self, data: JSONObject) -> None:
        """The run's outcome for programs."""

    def close(self) -> None:
        """Leave the terminal as it was."""
        self._catch_up()

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


class JsonScreen(Screen):
    """Events as they are on the wire, one JSON object per line, then one line with the outcome. Nothing else."""

    def event(self, event: Event) -> None:
        """Write an event."""
        self.outcome(wire(event))

    def line(self, line: Line) -> None:
        """Say nothing: the events have said it."""

    def row(self, text: str = "", style: Style = "") -> None:
        """Say nothing: what is for people goes to no program."""

    def outcome(self, data: JSONObject) -> None:
        """Write an object."""
        self._write(json.dumps(data, default=_plain) + "\n")


class HidingScreen(Screen):
    """Another screen, on which some texts are not shown."""

    def __init__(self, screen: Screen, hide: Callable[[str], str]) -> None:
        super().__init__()
        self._screen, self._hide = screen, hide

    @property
    def width(self) -> int | None:
        """Columns of the terminal; None if this is none."""
        return self._screen.width

    def event(self, event: Event) -> None:
        """An event of the run has come; hidden texts are in none."""
        self._screen.event(event)

    def line(self, line: Line) -> None:
        """Write a line of the story."""
        self._screen.line(self._hidden_line(line))

    def above(self, line: Line) -> None:
        """Write a line of the story while a question is open."""
        self._screen.above(self._hidden_line(line))

    def _hidden_line(self, line: Line) -> Line:
        return attrs.evolve(line, what=self._hide(line.what), outcome=self._hide(line.outcome))

    def row(self, text: str = "", style: Style = "") -> None:
        """Write a line of text."""
        self._screen.row(self._hide(text), style)

    def prompt(self, text: str, *, long: bool = False) -> None:
        """Write a question; the answer comes behind it."""
        self._screen.prompt(self._hide(text), long=long)

    def status(self, text: str) -> None:
        """Say what goes on right now, or nothing if empty."""
        self._screen.status(self._hide(text))

    def outcome(self, data: JSONObject) -> None:
        """The run's outcome for programs."""
        self._screen.outcome(self._hidden(json.loads(json.dumps(data, default=_plain))))

    def close(self) -> None:
        """Leave the terminal as it was."""
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
    """One line on standard error; on a terminal it goes on below between words."""
    said = f"greenroom: {text_format.one_line(text, 2000)}"
    if sys.stderr.isatty():
        begins = [0, *text_format.breaks(said, shutil.get_terminal_size().columns)]
        said = "\n".join(said[begin:end].rstrip() for begin, end in pairwise([*begins, len(said)]))
    sys.stderr.write(f"{said}\n")
    sys.stderr.flush()


def prepare_streams() -> None:
    """Let standard output and error take anything: an escape for what their encoding lacks, all of it if closed."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - stays open as long as the process
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _plain(value: object) -> str:
    return timestamp(value) if isinstance(value, datetime) else str(value)


def wire(event: Event) -> dict[str, Any]:
    """An event in the form that it is stored in."""
    return {
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
