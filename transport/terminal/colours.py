"""The screen of a terminal: colours, and one live line at the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.text import Text

from .screen import SIGNS, TOOK, WHO, Screen, Style, parts_of
from .timeline import Line

_COLOURS: Final[Mapping[Style, str]] = {
    "": "",
    "strong": "bold",
    "dim": "dim",
    "good": "green",
    "bad": "bold red",
    "warn": "yellow",
    "added": "green",
    "removed": "red",
}
_ECHO: Final = 3
"""Columns that stay free at the end of the live line: there the terminal writes ^C."""
_FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class RichScreen(Screen):
    """A terminal with colours."""

    def __init__(self) -> None:
        super().__init__()

        self._console = Console(highlight=False, markup=False, emoji=False)
        self._live: Live | None = None
        self._frame = 0

    def line(self, line: Line) -> None:
        """Write a line of the story; a start is told by the status line."""
        if line.kind == "start":
            return

        sign, _, style = SIGNS[line.kind]
        who, took, rest = parts_of(line)
        cut = line.kind in ("ok", "output")
        for number, text in enumerate(rest.split("\n")):
            head = Text(f"{line.at:6.1f}s ", style="dim")
            head.append(f" {sign if not number else ' '} ", style=_COLOURS[style])
            head.append(f"{who:<{WHO}}", style="dim" if line.kind == "output" else "bold")
            head.append(f"{took:>{TOOK}}  ", style="dim")
            head.append_text(self._rest(line, text, style))
            self._wipe()
            if cut:
                head.truncate(self._console.width, overflow="ellipsis")
            self._console.print(head, soft_wrap=True)

    @staticmethod
    def _rest(line: Line, text: str, style: Style) -> Text:

        if line.what and line.outcome and "\n" not in line.what:
            return Text.assemble(
                (line.what, "dim"), (" → ", "dim"), (line.outcome, "" if style == "good" else _COLOURS[style])
            )
        return Text(text, style="" if line.kind == "yes" else _COLOURS[style])

    def row(self, text: str = "", style: Style = "") -> None:
        """Write a line of text."""
        self._wipe()
        self._console.print(Text(text, style=_COLOURS[style]), soft_wrap=True)

    def prompt(self, text: str) -> None:
        """Write a question; the answer comes behind it."""
        self._wipe()
        self._console.print(Text(text, style="bold"), end="")
        self._console.file.flush()

    def status(self, text: str) -> None:
        """Replace the live line, or take it away."""
        if not text:
            self._wipe()
            return

        self._frame = (self._frame + 1) % len(_FRAMES)
        shown = Text(f"         {_FRAMES[self._frame]} {text}", style="cyan")
        shown.truncate(self._console.width - _ECHO, overflow="ellipsis")
        if self._live is None:
            self._live = Live(shown, console=self._console, transient=True, auto_refresh=False)
            self._live.start()
        self._live.update(shown, refresh=True)

    def _wipe(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def close(self) -> None:
        """Take the live line away and show the cursor again."""
        self._wipe()
