"""The screen of a terminal: colours, and one live line at the end."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from rich.cells import cell_len
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
NARROW: Final = 30
"""Columns that a text needs beside its head; with fewer it goes below the head."""
INDENT: Final = 9
"""Columns before a text that goes below its head."""
_FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class RichScreen(Screen):
    """A terminal with colours."""

    def __init__(self) -> None:
        super().__init__()

        self._console = Console(highlight=False, markup=False, emoji=False)
        self._live: Live | None = None
        self._frame = 0

    @property
    def width(self) -> int | None:
        """Columns of the terminal."""
        return self._console.width

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
            self._wipe()
            if cut:
                head.append_text(self._rest(line, text, style))
                head.truncate(self._console.width, overflow="ellipsis")
                self._console.print(head, soft_wrap=True)
            else:
                self._flow(head, self._rest(line, text, style))

    @staticmethod
    def _rest(line: Line, text: str, style: Style) -> Text:

        if line.what and line.outcome and "\n" not in line.what:
            return Text.assemble(
                (line.what, "dim"), (" → ", "dim"), (line.outcome, "" if style == "good" else _COLOURS[style])
            )
        return Text(text, style="" if line.kind == "yes" else _COLOURS[style])

    def row(self, text: str = "", style: Style = "") -> None:
        """Write a line of text; one that is too long goes on below, under its own beginning."""
        self._wipe()
        body = text.lstrip(" ")
        self._flow(Text(" " * (len(text) - len(body))), Text(body, style=_COLOURS[style]))

    def prompt(self, text: str) -> None:
        """Write a question; the answer comes behind it."""
        self._wipe()
        self._prompt = text
        *lines, last = lines_of(Text(text.rstrip(), style="bold"), max(8, self._console.width - 8))
        for line in lines:
            line.rstrip()
            self._console.print(line, soft_wrap=True)
        self._console.print(last.append(" "), end="", soft_wrap=True)
        self._console.file.flush()

    def above(self, line: Line) -> None:
        """Write a line of the story while a question is open, and the question again below it."""
        if line.kind == "start":
            return
        self._console.file.write("\r\x1b[K")
        self.line(line)
        self.prompt(self._prompt)

    def _flow(self, head: Text, body: Text) -> None:
        """Print a text behind a head, in lines that end between words; an over-long word has a line of its own."""
        width = self._console.width
        indent = head.cell_len if width - head.cell_len >= NARROW else min(head.cell_len, INDENT)
        if head.cell_len + body.cell_len <= width:
            self._console.print(head.append_text(body), soft_wrap=True)
            return
        if indent < head.cell_len:
            head.rstrip()
            self._console.print(head, soft_wrap=True)
            head = Text(" " * indent)
        for number, line in enumerate(lines_of(body, width - indent)):
            line.rstrip()
            self._console.print(head + line if not number else Text(" " * indent) + line, soft_wrap=True)

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


def lines_of(text: Text, width: int) -> Iterator[Text]:
    """The text in lines of at most so many columns that end between words; a longer word is a line by itself, whole.

    Rich's own wrapping folds such a word, and a path or an address that is folded can not be copied.
    """
    for line in text.split("\n", allow_blank=True):
        breaks, used = list[int](), 0
        for word in re.finditer(r"\s*\S+\s*", line.plain):
            if used and used + cell_len(word[0].rstrip()) > width:
                breaks.append(word.start())
                used = 0
            used += cell_len(word[0])
        yield from line.divide(breaks)
