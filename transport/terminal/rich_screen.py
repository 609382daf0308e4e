"""The screen of a terminal: colours, and one live line at the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import attrs
from rich.console import Console
from rich.live import Live
from rich.text import Text
from typing_extensions import override

from . import text_format
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
"""Columns that stay free at the end of the live line, because the terminal prints ^C there."""
NARROW: Final = 30
"""Columns that a text needs beside its head; with fewer, the text starts below the head."""
INDENT: Final = 9
"""Columns before a text that starts below its head."""
_FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class RichScreen(Screen):
    """A terminal with colours."""

    def __init__(self) -> None:
        super().__init__()

        self._console = Console(highlight=False, markup=False, emoji=False)
        self._live: Live | None = None
        self._frame = 0
        self._rows = 0  # lines of the prompt above its last one

    @property
    @override
    def width(self) -> int | None:
        return self._console.width

    @override
    def line(self, line: Line) -> None:
        """Write a line of the timeline; the status line shows starts."""
        if line.kind == "start":
            return

        self._catch_up()
        style = SIGNS[line.kind][2]
        rest = parts_of(line)[2]
        for number, text in enumerate(rest.split("\n")):
            head = self._head(line, first=not number)
            self._wipe()
            if line.kind == "output" or (line.kind == "ok" and self._console.width - head.cell_len >= NARROW):
                head.append_text(self._rest(_with_outcome(line, self._console.width - head.cell_len), text, style))
                head.truncate(self._console.width, overflow="ellipsis")
                self._console.print(head, soft_wrap=True)
            else:
                self._flow(head, self._rest(line, text, style))

    def _head(self, line: Line, *, first: bool) -> Text:
        """Return the head of a line; in a narrow terminal, streamed output has a shorter head."""
        sign, _, style = SIGNS[line.kind]
        who, took, _ = parts_of(line)
        head = Text(f"{line.at:6.1f}s ", style="dim")
        head.append(f" {sign if first else ' '} ", style=_COLOURS[style])
        if line.kind == "output" and self._console.width - head.cell_len - WHO - TOOK - 2 < NARROW:
            return head.append(f"{text_format.cut(who, WHO)}  ", style="dim")
        head.append(text_format.padded(who, WHO), style="dim" if line.kind == "output" else "bold")
        return head.append(f"{took:>{TOOK}}  ", style="dim")

    @staticmethod
    def _rest(line: Line, text: str, style: Style) -> Text:

        if line.what and line.outcome and "\n" not in line.what:
            return Text.assemble(
                (line.what, "dim"), (" → ", "dim"), (line.outcome, "" if style == "good" else _COLOURS[style])
            )
        return Text(text, style="" if line.kind == "yes" else _COLOURS[style])

    @override
    def row(self, text: str = "", style: Style = "") -> None:
        """Write a line of text; a long one continues below, under its own beginning."""
        self._catch_up()
        self._wipe()
        body = text.lstrip(" ")
        self._flow(Text(" " * (len(text) - len(body))), Text(body, style=_COLOURS[style]))

    @override
    def prompt(self, text: str, *, long: bool = False) -> None:
        self._catch_up()
        self._wipe()
        self._prompt, self._busy = text, long
        *lines, last = wrapped_lines(Text(text.rstrip(), style="bold"), max(8, self._console.width - 8))
        for line in lines:
            line.rstrip()
            self._console.print(line, soft_wrap=True)
        self._console.print(last.append(" "), end="", soft_wrap=True)
        self._console.file.flush()
        self._rows = len(lines)

    @override
    def above(self, line: Line) -> None:
        if line.kind != "start":
            super().above(line)

    @override
    def _make_room(self) -> None:
        """Erase the prompt, with the lines above its last one."""
        up = f"\x1b[{self._rows}A" if self._rows else ""
        self._console.file.write(f"\r{up}\x1b[J")

    def _flow(self, head: Text, body: Text) -> None:
        """Print a text after a head, in lines that break between words; an over-long word has a separate line."""
        width = self._console.width
        indent = head.cell_len if width - head.cell_len >= NARROW else min(head.cell_len, INDENT)
        if head.cell_len + body.cell_len <= width:
            self._console.print(head.append_text(body), soft_wrap=True)
            return
        if indent < head.cell_len:
            head.rstrip()
            self._console.print(head, soft_wrap=True)
            head = Text(" " * indent)
        for number, line in enumerate(wrapped_lines(body, width - indent)):
            line.rstrip()
            begin = head if not number else Text(" " * indent)
            if not begin.plain.strip():  # a word as long as the terminal is wide needs all columns
                begin = Text(" " * max(0, min(indent, width - text_format.columns(line.plain))))
            self._console.print(begin + line, soft_wrap=True)

    @override
    def status(self, text: str) -> None:
        """Replace or erase the live line."""
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

    @override
    def close(self) -> None:
        """Erase the live line and show the cursor again."""
        self._wipe()
        super().close()


def _with_outcome(line: Line, room: int) -> Line:
    """Return the line with its arguments cut so that its outcome is visible: completely, or up to half of the room."""
    arrow = 3
    least = min(text_format.columns(line.outcome), room // 2)
    return attrs.evolve(line, what=text_format.cut(line.what, room - arrow - least)) if line.outcome else line


def wrapped_lines(text: Text, width: int) -> Iterator[Text]:
    """Yield the text in lines of at most `width` columns.

    A longer word, which rich would fold, is a separate line.
    """
    for line in text.split("\n", allow_blank=True):
        yield from line.divide(text_format.breaks(line.plain, width))
