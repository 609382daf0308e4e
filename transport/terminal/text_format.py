"""Values as words for people: cleaned of control characters, shortened, with units. Pure."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from typing import Final

from greenroom.actors.contract.plain import JSONObject

_HIDING: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories of characters that are not seen, or that change how others are seen."""
_WIDE: Final = 1_000_000
"""From here on a number of bytes is given in MB."""

_OPENS: Final = "（【《「『〈〔“‘"  # noqa: RUF001 - these are meant
_CLOSES: Final = "，。、；：！？）】》」』〉〕”’…ー"  # noqa: RUF001 - these are meant
_IDEOGRAPHS: Final = "\u2e80-\u9fff\uf900-\ufaff\uff01-\uff60\U00020000-\U0003fffd"
_PIECE: Final = re.compile(rf"\s+|[{_OPENS}]*[{_IDEOGRAPHS}][{_CLOSES}]*\s*|[^\s{_IDEOGRAPHS}]+[{_CLOSES}]*\s*")
"""What a line may end behind: a word with its blanks, or a character of Chinese or Japanese, which put none between
words. No line begins with a mark that closes, none ends with one that opens."""


def clean(text: str) -> str:
    """The text with every invisible character spelled out, so that nothing in it can move the cursor or hide a word.

    Line ends and tabs stay; what came as CR LF becomes LF.
    """
    text = text.replace("\r\n", "\n")
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char if char in "\n\t" or unicodedata.category(char) not in _HIDING else spelled(char) for char in text
    )


def spelled(char: str) -> str:
    """An invisible character as it is written in Python."""
    return char.encode("unicode_escape", "backslashreplace").decode("ascii")


def one_line(text: str, width: int) -> str:
    """The text cleaned, in one line, with its blanks joined, cut at `width` columns."""
    return cut(" ".join(clean(text).split()), width)


def subject(tool: str, width: int = 64) -> str:
    """What a ticket is about: its tool, or the run itself if it belongs to no call."""
    return one_line(tool, width) or "the run"


def cut(text: str, width: int) -> str:
    """The text, or its beginning and an ellipsis: at most `width` columns of a terminal."""
    if columns(text) <= width:
        return text
    used = 1  # the ellipsis
    for at, char in enumerate(text):
        used += columns(char)
        if used > width:
            return f"{text[:at]}…"
    raise AssertionError("a text of more columns than its characters have")


def columns(text: str) -> int:
    """Columns that a terminal needs for a line of text: two for a character of Chinese, none for an accent."""
    return len(text) if text.isascii() else sum(map(_columns_of, text))


def _columns_of(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def padded(text: str, width: int) -> str:
    """The text with blanks behind it: at least `width` columns."""
    return text + " " * (width - columns(text))


def breaks(text: str, width: int) -> list[int]:
    """Where one line of text goes on below, so that no line needs more than `width` columns.

    Lines end between words, and between characters of scripts that put no blanks between words. A longer word is a
    line by itself, whole: a path or an address that is folded can not be copied. Linear in the length of the text.
    """
    found, used, in_word = list[int](), 0, False
    for piece in _PIECE.finditer(text):
        size, word = columns(piece[0]), piece[0].rstrip()
        if in_word and word and used + columns(word) > width:
            found.append(piece.start())
            used = 0
        used += size
        in_word = in_word or bool(word)
    return found


def value(data: object, width: int) -> str:
    """A JSON value in one line: texts that are long or have several lines are told by their size."""
    if isinstance(data, str):
        if "\n" in data or len(data) > max(width, 60):
            return f"{lines_of(data)}, {size(len(data.encode('utf-8', 'replace')))}"
        return one_line(json.dumps(data, ensure_ascii=False), width)
    return one_line(json.dumps(data, ensure_ascii=False, default=str), width)


def arguments(given: JSONObject, width: int = 60) -> str:
    """The arguments of a call in one line, at most `width` columns."""
    return cut(" ".join(f"{one_line(name, 30)}={value(data, 40)}" for name, data in given.items()), width)


def result(data: object, width: int) -> str:
    """A call's result in one line; of an object its `summary` if it has one."""
    if isinstance(data, Mapping) and isinstance(data.get("summary"), str):
        return one_line(data["summary"], width)
    if isinstance(data, str):
        return one_line(data, width)
    return "" if data is None else value(data, width)


def size(count: int) -> str:
    """A number of bytes: 900 bytes, 2.1 kB, 3.4 MB."""
    if count < 1000:
        return plural(count, "byte")
    return f"{count / 1000:.1f} kB" if count < _WIDE else f"{count / _WIDE:.1f} MB"


def lines_of(text: str) -> str:
    """How many lines a text has, in words."""
    return plural(len(text.splitlines()), "line")


def plural(count: int, noun: str) -> str:
    """1 line, 2 lines, 1,000 lines; for nouns whose plural is in -s."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def duration(seconds: float) -> str:
    """A length of time with two digits that matter: 7 ms, 1.4 s, 2 min 5 s, 3 h 10 min, 2 days."""
    if seconds < 1:
        return f"{max(0, round(seconds * 1000))} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else plural(hours // 24, "day")
