"""One line about a run, for lists: its title, and what it asks. Redacted first, cut afterwards: never the other way."""

from __future__ import annotations

from typing import Final

from .redaction import Redactor

TITLE: Final = 80
"""Characters of a run's title."""
LINE: Final = 240
"""Characters of any other text in a list of runs."""


def title_of(text: str, redactor: Redactor) -> str:
    """The first line of a text that holds more than white space, without secrets, at most `TITLE` characters.

    The whole text is redacted, not its beginning: the beginning of a secret is no shape that the redactor knows.
    """
    return one_line(redactor.text(text), TITLE)


def one_line(text: str, most: int) -> str:
    """The first line of a text that holds more than white space, in printable characters, at most `most` of them.

    What a terminal or a browser acts on instead of showing (escape sequences, direction marks) becomes a space. A line
    that is cut ends with "…".
    """
    line = next((line for line in text.splitlines() if line.strip()), "")
    line = line[: 16 * most]  # so that a line of a megabyte costs what is shown of it
    line = " ".join("".join(one if one.isprintable() else " " for one in line).split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def searched(title: str, run_id: str) -> str:
    """What a search for text looks into."""
    return f"{title}\n{run_id}".casefold()


def shown_line(value: object, redactor: Redactor) -> str:
    """A text of foreign making as one line of a list; an empty one if there is none."""
    return one_line(redactor.text(str(value)), LINE) if value else ""
