"""Values as text for people: cleaned of control characters, shortened, with units. Pure."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from typing import Any, Final

from greenroom.actors.contract.messages import Usage
from greenroom.actors.contract.plain import JSONObject

_HIDING: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories of invisible characters, and of characters that change how others are displayed."""
_WIDE: Final = 1_000_000
"""Number of bytes from which on sizes are given in MB."""

_OPENS: Final = "（【《「『〈〔“‘"  # noqa: RUF001 - these are meant
_CLOSES: Final = "，。、；：！？）】》」』〉〕”’…ー"  # noqa: RUF001 - these are meant
_IDEOGRAPHS: Final = "\u2e80-\u9fff\uf900-\ufaff\uff01-\uff60\U00020000-\U0003fffd"
_PIECE: Final = re.compile(rf"\s+|[{_OPENS}]*[{_IDEOGRAPHS}][{_CLOSES}]*\s*|[^\s{_IDEOGRAPHS}]+[{_CLOSES}]*\s*")
"""Possible ends of a line: after a word with its blanks, or after a character of Chinese or Japanese, which put no
blanks between words. No line begins with a closing mark or ends with an opening one.
"""


def clean(text: str) -> str:
    """Return the text with every invisible character spelled out, so that no text can move the cursor or hide a word.

    Line ends and tabs stay; CR LF becomes LF.
    """
    text = text.replace("\r\n", "\n")
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char if char in "\n\t" or unicodedata.category(char) not in _HIDING else spelled(char) for char in text
    )


def spelled(char: str) -> str:
    """Return an invisible character as a Python escape."""
    return char.encode("unicode_escape", "backslashreplace").decode("ascii")


def one_line(text: str, width: int) -> str:
    """Return the cleaned text in one line, with blanks joined, cut at `width` columns."""
    return cut(" ".join(clean(text).split()), width)


def subject(tool: str, width: int = 64) -> str:
    """Return the subject of a ticket: its tool, or the run itself for a ticket without a call."""
    return one_line(tool, width) or "the run"


def cut(text: str, width: int) -> str:
    """Return the text, or its beginning and an ellipsis: at most `width` columns of a terminal."""
    if columns(text) <= width:
        return text
    width_used = 1  # the ellipsis
    for at, char in enumerate(text):
        width_used += columns(char)
        if width_used > width:
            return f"{text[:at]}…"
    raise AssertionError("a text of more columns than its characters have")


def columns(text: str) -> int:
    """Return the terminal columns of a line of text: two for a Chinese character, none for a combining accent."""
    return len(text) if text.isascii() else sum(map(_columns_of, text))


def _columns_of(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def padded(text: str, width: int) -> str:
    """Return the text padded with blanks to at least `width` columns."""
    return text + " " * (width - columns(text))


def breaks(text: str, width: int) -> list[int]:
    """Return the positions at which a line of text breaks, so that no line needs more than `width` columns.

    Lines break between words, and between characters of scripts without blanks between words. A longer word is a line
    of its own, because a folded path or address cannot be copied. Linear in the length of the text.
    """
    places, used, in_word = list[int](), 0, False
    for piece in _PIECE.finditer(text):
        size, word = columns(piece[0]), piece[0].rstrip()
        if in_word and word and used + columns(word) > width:
            places.append(piece.start())
            used = 0
        used += size
        in_word = in_word or bool(word)
    return places


def value(data: object, width: int) -> str:
    """Return a JSON value in one line; a long or multi-line text is described by its size."""
    if isinstance(data, str):
        if "\n" in data or len(data) > max(width, 60):
            return f"{lines_of(data)}, {size(len(data.encode('utf-8', 'replace')))}"
        return one_line(json.dumps(data, ensure_ascii=False), width)
    return one_line(json.dumps(data, ensure_ascii=False, default=str), width)


def arguments(values: JSONObject, width: int = 60) -> str:
    """Return the arguments of a call in one line, at most `width` columns."""
    return cut(" ".join(f"{one_line(name, 30)}={value(data, 40)}" for name, data in values.items()), width)


def result(data: object, width: int) -> str:
    """Return a call's result in one line; of an object, its `summary` if present."""
    if isinstance(data, Mapping) and isinstance(data.get("summary"), str):
        return one_line(data["summary"], width)
    if isinstance(data, str):
        return one_line(data, width)
    items: list[Any] = data if isinstance(data, list) else [data]
    if any(map(_is_part, items)):
        return cut(", ".join(attached(one) if _is_part(one) else value(one, width) for one in items), width)
    return "" if data is None else value(data, width)


def _is_part(data: object) -> bool:
    return (
        isinstance(data, Mapping) and data.get("type") in ("image", "file") and isinstance(data.get("media_type"), str)
    )


def attached(part: JSONObject) -> str:
    """Return the facts of an image or a file in a few words: image/png 2.1 kB, text/csv 9 bytes sales.csv."""
    count, name = part.get("size"), part.get("name")
    facts = size(count) if isinstance(count, int) else one_line(str(part.get("url", "")), 80)
    named = one_line(name, 40) if isinstance(name, str) else ""
    media_type = part.get("mediaType") or part.get("media_type")  # as an event of its own has it; in a result
    return " ".join(filter(None, (one_line(str(media_type), 60), facts, named)))


def published(artifact: JSONObject) -> str:
    """Return the facts of an artifact, as they are on the wire, in a few words: file a.md, text/markdown 2 kB."""
    facts = [one_line(str(artifact["mediaType"]), 60)]
    facts += [size(artifact["size"])] if artifact.get("size") else []
    facts += [one_line(str(artifact[place]), 120) for place in ("path", "url") if artifact.get(place)]
    return f"{artifact['kind']} {one_line(str(artifact['name']), 80)}, {' '.join(facts)}"


def size(count: int) -> str:
    """Format a number of bytes: 900 bytes, 2.1 kB, 3.4 MB."""
    if count < 1000:
        return plural(count, "byte")
    return f"{count / 1000:.1f} kB" if count < _WIDE else f"{count / _WIDE:.1f} MB"


def lines_of(text: str) -> str:
    """Format the number of lines of a text."""
    return plural(len(text.splitlines()), "line")


def plural(count: int, noun: str) -> str:
    """Format a count: 1 line, 2 lines, 1,000 lines; for nouns whose plural ends in -s."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def tokens(usage: Usage) -> str:
    """Format the tokens of a run: 1,000 tokens in (800 of them cached), 20 out."""
    hits = f" ({usage.cached:,} of them cached)" if usage.cached else ""
    return f"{usage.input:,} tokens in{hits}, {usage.output:,} out"


def duration(seconds: float) -> str:
    """Format a duration with two significant digits: 7 ms, 1.4 s, 2 min 5 s, 3 h 10 min, 2 days."""
    if seconds < 1:
        return f"{max(0, round(seconds * 1000))} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else plural(hours // 24, "day")
