"""Find secrets in a text: the spans that must not be shown.

Theory of operation. One search with the expression of `shapes` finds candidate places; the reader of each shape then
determines the span's beginning and end. Every step continues behind the text that it has read, or one character further
after a bounded look, so the time is linear in the text.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from binascii import Error
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import quote, quote_plus

from .shapes import CUT_MARKS, LONGEST_KEY, PARTS, SECRET_KEYS, TOKENS, expression

MASK: Final = "[redacted]"
HOME: Final = "[home]"
"""Replaces a home directory."""

NESTED: Final = 3
"""Levels of nested texts in which a named secret is searched, such as JSON in a repr in JSON."""
SHORTEST: Final = 6
"""Characters of the shortest text with a secret; all shapes and named secrets are at least as long."""

_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NAME: Final = re.compile(r"[A-Za-z0-9_.\-]")
_QUOTED_NAME: Final = re.compile(r"[A-Za-z0-9_.\- ]")
_LINE_KEYS: Final = re.compile(r"(?i)(?:authorization|cookie)\Z")
_ESCAPES: Final = 8
"""Backslashes read in front of a quote."""
_SEPARATOR: Final = re.compile(r"\s{0,8}(?:=>|[:=])\s{0,8}")
_OPENING: Final = re.compile(r"[bBrRuU]?(?P<backslashes>\\{0,8})(?P<quote>[\"'])")
_BARE: Final = re.compile(r"[^\s\"'&;,<>(){}\[\]\\…]*")
_LINE: Final = re.compile(r"[^\r\n\"'\\…]*")
_CODE: Final = re.compile(r"[A-Za-z_.]*|[0-9]{0,5}")
BRACKET: Final = re.compile(r"(?P<quoted>\\*[\"'])|(?P<opens>[{\[(])|[}\])]")
"""Opening and closing marks in a value in brackets."""
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_\-]{4,}={0,2}\Z")


class Span(NamedTuple):
    """A part of a text that must not be shown.

    Attributes:
        start, end: its place.
        shown: its replacement.
        since: where the context begins that makes it a secret, such as the name of a value.
        open: later text may extend it.
    """

    start: int
    end: int
    shown: str
    since: int
    open: bool


def spellings(secret: str) -> set[str]:
    """Return a secret's spellings: plain, inside JSON or Python text, and as part of a URL or a form.

    Texts nest: an error with the repr of a JSON text writes a quote or a non-ASCII letter in its own way. So each
    spelling is applied to the results of the others, `NESTED` times.
    """
    plain = secret.encode("utf-8", "replace").decode("utf-8")
    forms = newest = {secret, plain}
    for _ in range(NESTED):
        newest = {write(text) for text in newest for write in _WRITERS} - forms
        forms = forms | newest
    return forms | {write(text) for text in forms for write in _QUOTERS}


_WRITERS: Final[tuple[Callable[[str], str], ...]] = (
    lambda text: json.dumps(text)[1:-1],
    lambda text: json.dumps(text.encode("utf-8", "replace").decode("utf-8"), ensure_ascii=False)[1:-1],
    lambda text: repr(text)[1:-1],
    lambda text: repr('"' + text)[2:-1],  # as beside a double quote, where a single one gets a backslash
)

_QUOTERS: Final[tuple[Callable[[str], str], ...]] = (
    lambda text: quote(text, safe="", errors="replace"),
    lambda text: quote(text, errors="replace"),
    lambda text: quote_plus(text, errors="replace"),
)


def head_length(secret: str) -> int:
    """Return how many characters of a secret's beginning are hidden at a text's end: half, at most `SHORTEST`."""
    return min(SHORTEST, max(3, len(secret) // 2))


@lru_cache(maxsize=4096)
def hides(name: str) -> bool:
    """Return True if values under this name are never shown."""
    return SECRET_KEYS.search(_HUMP.sub("_", name)) is not None


def masked(text: str, spans: Iterable[Span]) -> str:
    """Return a text with each span replaced; the same object if nothing changes."""
    parts: list[str] = []
    at = 0
    for span in spans:
        if span.shown != text[span.start : span.end]:
            parts += (text[at : span.start], span.shown)
            at = span.end
    return "".join((*parts, text[at:])) if parts else text


class Finder:
    """Finds secrets in texts.

    Args:
        forms: spellings of the named secrets.
        shapes: also find texts with the shape of a secret.

    Attributes:
        search: the first candidate place from a position on; almost always None.
    """

    def __init__(self, forms: Iterable[str], *, shapes: bool = True) -> None:
        self._by_head: dict[str, list[str]] = {}
        for form in sorted(forms, key=lambda text: (-len(text), text)):
            self._by_head.setdefault(form[: head_length(form)], []).append(form)
        heads = sorted(self._by_head, key=lambda head: (-len(head), head))
        named = [(head[0], f"{re.escape(head[1:])}(?P<secret{n}>)") for n, head in enumerate(heads)]
        known = [shape for part in PARTS.values() for shape in part] if shapes else []
        self.search = re.compile(expression([*named, *known]) or r"(?!)").search

    def masked(self, text: str) -> str:
        """Return the text with secrets masked; the same object if there are none."""
        return masked(text, self.spans(text)) if self.search(text) is not None else text

    def spans(self, text: str) -> Iterator[Span]:
        """Yield the spans of a text, from its beginning to its end, without overlap."""
        at = position = 0
        while (match := self.search(text, position)) is not None:
            span = self._read(text, match, at)
            if span is None:  # it only looked like one
                position = match.start() + 1
                continue
            yield span
            at, position = span.end, max(span.end, match.start() + 1)

    def _read(self, text: str, match: re.Match[str], at: int) -> Span | None:
        """Return the span of a match of the expression. `at`: the end of the previous span."""
        kind = (match.lastgroup or "").rstrip("0123456789")
        if kind == "secret":
            return self._named(text, match.start())
        reader = _READERS.get(kind, _token if kind in TOKENS else _whole)
        return reader(text, match, at)

    @property
    def heads(self) -> Iterable[str]:
        """The beginnings by which named secrets are found."""
        return self._by_head.keys()

    def _named(self, text: str, start: int) -> Span | None:
        """Return a named secret, or its beginning if the text ends or was cut there."""
        forms = [form for head, forms in self._by_head.items() if text.startswith(head, start) for form in forms]
        size, partial_end, whole = len(text), start, start
        for form in forms:
            if text.startswith(form, start):
                whole = max(whole, start + len(form))
            else:
                end = _cut(text, start, len(form))
                partial_end = end if end - start < len(form) and form.startswith(text[start:end]) else partial_end
        end = whole if whole > start else partial_end
        return Span(start, end, MASK, start, partial_end == size) if end > start else None


# --- readers of the parts: (text, match, where the last span ended) -> what must go, None if nothing ------------------


def _whole(text: str, match: re.Match[str], _: int) -> Span:
    return Span(match.start(), match.end(), MASK, match.start(), match.end() == len(text))


def _token(text: str, match: re.Match[str], at: int) -> Span:
    """Read a token; the match begins with the last character of its head, if that is punctuation."""
    start, heads = match.start(), TOKENS[match.lastgroup or ""].heads
    if not heads[0][-1].isalnum():
        start = max(at, next(start + 1 - len(head) for head in heads if text.endswith(head, 0, start + 1)))
    return Span(start, match.end(), MASK, start, match.end() == len(text))


def _home(text: str, match: re.Match[str], _: int) -> Span:
    return Span(match.start(), match.end(), HOME, match.start(), match.end() == len(text))


def _windows(text: str, match: re.Match[str], at: int) -> Span:
    start = max(at, match.start() - 1)  # the drive's letter
    return Span(start, match.end(), HOME, start, match.end() == len(text))


def _web_token(text: str, match: re.Match[str], at: int) -> Span:
    """Read a JSON web token; the match begins with the dot after the first part, which no other match reads again."""
    start = match.start()
    while start > at and _is_word(text[start - 1]):
        start -= 1
    first = text.find("eyJ", start, match.start())
    start = match.start() if first < 0 else first
    return Span(start, match.end(), MASK, start, match.end() == len(text))


def _is_word(letter: str) -> bool:
    return letter.isascii() and (letter.isalnum() or letter in "_-")


def _basic(text: str, match: re.Match[str], _: int) -> Span | None:
    """Read basic credentials only if they hold a name and a password: "basic understanding" is prose."""
    start, end = match.span()
    word = _BASE64.search(text, start + len("basic "), end)
    pure = "" if word is None else word[0].rstrip("=").replace("-", "+").replace("_", "/")
    try:
        known = b":" in b64decode(pure + "=" * (-len(pure) % 4))
    except Error:
        known = False
    if known or (end == len(text) and len(pure) >= 2 * SHORTEST and any(map(str.isdigit, pure))):
        return Span(start, end, MASK, start, end == len(text))
    return Span(start, end, text[start:end], start, True) if end == len(text) else None


def _in_quotes(text: str, match: re.Match[str], _: int) -> Span | None:
    """Read the value after a quoted name, as JSON and Python write it."""
    place = match.start()
    since = name_before(text, place, quoted=True)
    separator = _SEPARATOR.match(text, place + 1)
    if separator is None or not hides(text[since:place].rstrip("\\")):
        return None
    start = separator.end()
    if start == len(text):
        return Span(start, start, "", since, True)
    if text[start] in "{[(":
        end, ended = _balanced(text, start)
        return Span(start, end, f'"{MASK}"', since, not ended)
    return _quoted_value(text, start, since) or _bare_value(text, start, since, _BARE, shown=f'"{MASK}"')


def _unquoted(text: str, match: re.Match[str], _: int) -> Span | None:
    """Read the value after a name and `=` or `:`, as settings, headers, URLs and source text write it."""
    place = match.start()
    since = name_before(text, place, quoted=False)
    name = text[since:place]
    separator = _SEPARATOR.match(text, place)
    if separator is None or not hides(name):
        return None
    start = separator.end()
    line = _LINE_KEYS.search(name) is not None
    span = _quoted_value(text, start, since)
    if span is not None:
        return span
    span = _bare_value(text, start, since, _LINE if line else _BARE, shown=MASK)
    if span is None or line:
        return span
    bare = text[span.start : span.end]
    if len(bare) >= SHORTEST and not _CODE.fullmatch(bare):
        return span
    return (
        span._replace(shown=bare) if span.open else None
    )  # a variable of source text, an annotation, a port: no secret


def _quoted_value(text: str, start: int, since: int) -> Span | None:
    """Return the text between the quotes of a value; to the end of the text without a closing quote."""
    opening = _OPENING.match(text, start)
    if opening is None:
        return None
    begin, closing = opening.end(), opening["backslashes"] + opening["quote"]
    end = text.find(closing, begin)
    while end > 0 and text[end - 1] == "\\":  # more backslashes than the opening quote has: it is part of the value
        end = text.find(closing, end + len(closing))
    if end == begin:
        return None
    return Span(begin, len(text), MASK, since, True) if end < 0 else Span(begin, end, MASK, since, False)


def _bare_value(text: str, start: int, since: int, value: re.Pattern[str], *, shown: str) -> Span | None:
    match = value.match(text, start)
    end = start if match is None else match.end()
    if end == start and 0 < len(text) - start <= _ESCAPES and not text[start:].strip("\\"):  # those of a quote to come
        return Span(start, len(text), text[start:], since, True)
    if text[start:end] in ("null", "None") or text.startswith(MASK, start) or (end == start and end < len(text)):
        return None
    return Span(start, end, shown if end > start else "", since, end == len(text))


def name_before(text: str, place: int, *, quoted: bool) -> int:
    """Return where the name begins that ends before a place, which may be that of a quote."""
    start, letter = place, _QUOTED_NAME if quoted else _NAME
    while start > 0 and text[start - 1] == "\\" and place - start < SHORTEST:
        start -= 1
    least = max(0, start - LONGEST_KEY)
    while start > least and letter.match(text, start - 1):
        start -= 1
    return start


def _balanced(text: str, start: int) -> tuple[int, bool]:
    """Return where a value in brackets ends, and whether it is closed. Brackets inside quotes do not count."""
    depth, inside = 0, ""
    for match in BRACKET.finditer(text, start):
        mark = match["quoted"]
        if mark is not None:
            inside = mark if not inside else "" if mark == inside else inside
        elif not inside:
            depth += 1 if match["opens"] else -1
            if depth == 0:
                return match.end(), True
    return len(text), False


def _cut(text: str, start: int, longest: int) -> int:
    """Return where a text ends or is marked as cut, within this many characters; else that many."""
    end = min(len(text), start + longest)
    marks = [place for mark in CUT_MARKS if (place := text.find(mark, start, end + len(mark) - 1)) >= 0]
    return min([end, *marks])


_READERS: Final[dict[str, Callable[[str, re.Match[str], int], Span | None]]] = {
    "home": _home,
    "windows": _windows,
    "jwt": _web_token,
    "basic": _basic,
    "quoted": _in_quotes,
    "named": _unquoted,
}
