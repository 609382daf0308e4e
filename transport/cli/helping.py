"""How `--help` is laid out: as it is written where it fits, and in a narrow terminal broken between words only."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator
from textwrap import wrap
from typing import Final

_HANG: Final = 4
"""Columns by which what goes on below stands further in than its beginning."""
_GAP: Final = re.compile(r"(?<=\S) {2,}(?=\S)")
"""Between an example and what it does."""
_NUMBERED: Final = re.compile(r" +\d+ +")
"""Before what an exit code says."""


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Keeps the lines of descriptions and examples, unless the terminal has no room for them."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(indent + line for line in _lines(text.splitlines(), max(20, width - len(indent))))


def _lines(given: Iterable[str], width: int) -> Iterator[str]:
    """The lines, each that is too long in several: an example first, then what it does, further in."""
    for line in given:
        if len(line) <= width:
            yield line
            continue
        numbered = _NUMBERED.match(line)
        begin = re.match(" *", line)
        assert begin is not None  # noqa: S101 - it matches everything
        if numbered is not None:
            yield from _wrapped(line, width, len(numbered[0]))
        elif not begin[0]:
            yield from _wrapped(line, width, 0)
        else:
            command, *words = _GAP.split(line.strip(), maxsplit=1)
            yield from _wrapped(begin[0] + command, width, len(begin[0]) + _HANG)
            for part in words:
                yield from _wrapped(" " * (len(begin[0]) + _HANG) + part, width, len(begin[0]) + _HANG)


def _wrapped(line: str, width: int, hang: int) -> list[str]:
    return wrap(line, width, subsequent_indent=" " * hang, break_long_words=False, break_on_hyphens=False)
