"""One-line texts for lists of runs: titles and questions.

Redacted first and cut afterwards, never in the other order.
"""

from __future__ import annotations

from typing import Final

from .secrets.redaction import Redactor

TITLE: Final = 80
"""Most characters of a run's title."""
LINE: Final = 240
"""Most characters of any other text in a list of runs."""
_READ: Final = 16_384
"""Characters of a text that are read for one line, which shows 16 times `LINE` of them at most."""


def title_of(text: str, redactor: Redactor) -> str:
    """Return the first non-blank line of a text, redacted, at most `TITLE` characters.

    The text is redacted before the line is cut, because the beginning of a secret has no shape that the redactor knows.
    """
    return one_line(redactor.text(_beginning(text)), TITLE)


def _beginning(text: str) -> str:
    """Return the part of a text that is read for one line; a secret that its end cuts is hidden as at any end."""
    return text.lstrip()[:_READ] if len(text) > _READ else text


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
    """Return foreign text as one redacted line of a list, or ""."""
    return one_line(redactor.text(_beginning(str(value))), LINE) if value else ""
