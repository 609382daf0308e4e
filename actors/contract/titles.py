"""One-line texts for lists of runs: titles and questions.

Redacted first and cut afterwards, never in the other order.
"""

from __future__ import annotations

from typing import Final

from .redaction import Redactor

TITLE: Final = 80
"""Most characters of a run's title."""
LINE: Final = 240
"""Most characters of any other text in a list of runs."""


def title_of(text: str, redactor: Redactor) -> str:
    """Return the first non-blank line of a text, redacted, at most `TITLE` characters.

    The whole text is redacted before the cut, because the beginning of a secret has no shape that the redactor knows.
    """
    return one_line(redactor.text(text), TITLE)


def one_line(text: str, most: int) -> str:
    """Return the first non-blank line of a text in printable characters, at most `most` of them.

    Characters that a terminal or browser interprets (escape sequences, direction marks) become spaces. A cut line ends
    with "…".
    """
    line = next((line for line in text.splitlines() if line.strip()), "")
    line = line[: 16 * most]  # bounds the cost of a very long line
    if not line.isprintable():
        line = "".join(char if char.isprintable() else " " for char in line)
    line = " ".join(line.split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def searched(title: str, run_id: str) -> str:
    """Return the text in which a search looks."""
    return f"{title}\n{run_id}".casefold()


def shown_line(value: object, redactor: Redactor) -> str:
    """Return foreign text as one redacted line of a list; "" if there is none."""
    return one_line(redactor.text(str(value)), LINE) if value else ""
