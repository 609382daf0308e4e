"""The layout of `--help`: as written where it fits; in a narrow terminal, lines break only between words."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator
from textwrap import wrap
from typing import Final

_HANG: Final = 4
"""Indentation of continuation lines relative to the first line."""
_GAP: Final = re.compile(r"(?<=\S) {2,}(?=\S)")
"""The gap between an example and its description."""
_NUMBERED: Final = re.compile(r" +\d+ +")
"""The number before the description of an exit code."""


class Formatter(argparse.RawDescriptionHelpFormatter):
    """A formatter that keeps the lines of descriptions and examples, unless the terminal is too narrow."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(indent + line for line in _lines(text.splitlines(), max(20, width - len(indent))))


def _lines(lines: Iterable[str], width: int) -> Iterator[str]:
    """Yield the lines; an overlong one is split, an example before its description, which is indented."""
    for line in lines:
        if len(line) <= width:
            yield line
            continue
        numbered = _NUMBERED.match(line)
        begin = re.match(" *", line)
        assert begin is not None  # noqa: S101 - the pattern matches every string
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
