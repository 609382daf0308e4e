"""Readers of values that stand beside their names: fields, elements, options of a command line, statements of SQL."""

from __future__ import annotations

import re
from typing import Final

from .secret_readers import BARE, MASK, Reader, Span, bare_value, hides, name_before, quoted_value, reads_like_code
from .shapes import CUT, LONGEST_KEY

_SEPARATOR: Final = re.compile(r"\s{0,8}[:=]\s{0,8}")
_GAP: Final = 48
"""Characters read between a name and the field of its value: quotes, a comma, the indentation of a line."""
_BETWEEN: Final = " \t\r\n\"'\\,;-"
_SEPARATED: Final = 16
"""Characters read between a name and the field that holds the name."""
_FIRST_VALUE: Final = re.compile(
    r"(?P<quote>\\{0,8}[\"'])(?P<value>[^\"'\\\r\n]{1,512})(?P=quote)\s{0,8},\s{0,32}\\{0,8}[\"'](?i:[a-z]{0,16}?"
    r"(?:name|key|header|field|variable))\\{0,8}[\"']\s{0,8}:\s{0,8}\\{0,8}[\"'](?P<name>[A-Za-z0-9_.\-]{1,64})"
)
"""A value whose name follows in the next field."""
_OPTION: Final = re.compile(
    r"-(?P<name>[A-Za-z][A-Za-z0-9_\-]{0,63})(?:(?P<blank>[ \t]{1,8})|\\{0,8}[\"']\s{0,8},\s{0,8})"
)
_STATEMENT: Final = re.compile(rf"(?P<quote>[\"'])(?P<value>[^\"'\r\n]{{1,512}})(?:(?P=quote)|{CUT})")
_DATA: Final = "<![CDATA["
_TAG: Final = re.compile(r"(?:[\w.\-]+:)?(?P<name>[\w.\-]+)")
_KEY_END: Final = "</key>"
_IDENTIFIED: Final = "IDENTIFIED "
_ORACLE: Final = 12
"""Characters in front of the user of a data source: `:oracle:thin`."""


def _second_field(text: str, match: re.Match[str], at: int) -> Span | None:
    """Read the value of `"name": "DB_PASSWORD", "value": "..."`, of YAML and of attributes of XML alike."""
    place = match.start()
    quoted = text[place] in "\"'"
    separator = _SEPARATOR.match(text, place + quoted)
    if separator is None:
        return None
    field, start = name_before(text, place, quoted=quoted), separator.end()
    since = _named_before(text, field, at)
    if since is not None:
        return quoted_value(text, start, since) or bare_value(text, start, since, BARE, shown=MASK)
    first = _FIRST_VALUE.match(text, start)
    if first is None or not hides(first["name"]):
        return None
    return Span(first.start("value"), first.end("value"), MASK, field, False)


def _named_before(text: str, field: int, at: int) -> int | None:
    """Return where the field begins that names the value of the field at a place; None if that name tells nothing."""
    end, least = field, max(at, field - _GAP)
    while end > least and text[end - 1] in _BETWEEN:
        end -= 1
    since = name_before(text, end, quoted=False)
    if end == field or not hides(text[since:end]):
        return None
    end, least = since, max(0, since - _SEPARATED)
    while end > least and text[end - 1] in " \t\"'\\:=":
        end -= 1
    # A stream has shown the beginning of the field, perhaps all of it.
    has_separator = text[end:since].strip(" \t\"'\\") in (":", "=") or end == 0
    return name_before(text, end, quoted=False) if has_separator else None


def _element(text: str, match: re.Match[str], _: int) -> Span | None:
    """Read the content of an element of XML with a telling name."""
    place = match.start()
    since = name_before(text, place, quoted=False)
    if not hides(text[since:place]):
        return None
    begin = name_before(text, since - 1, quoted=False) if text[since - 1 : since] == ":" else since
    if text[begin - 1 : begin] != "<":
        return None
    return _content(text, place + 1, begin - 1)


def _tag(text: str, match: re.Match[str], _: int) -> Span | None:
    """Read the content of an element of XML with a telling name and attributes."""
    since, end = match.span()
    name = _TAG.match(text, since + 1)
    if name is None or not hides(name["name"]):
        return None
    if text[end - 1] != ">":
        return Span(len(text), len(text), "", since, True)
    return None if text[end - 2] == "/" else _content(text, end, since)


def _plist(text: str, match: re.Match[str], _: int) -> Span | None:
    """Read the text behind a telling key of a property list."""
    end = match.start() - len("<string")
    before = text[max(0, end - _GAP) : end].rstrip()
    if not before.endswith(_KEY_END):
        return None
    place = max(0, end - _GAP) + len(before) - len(_KEY_END)
    since = name_before(text, place, quoted=False)
    return _content(text, match.end(), since) if hides(text[since:place]) else None


def _content(text: str, start: int, since: int) -> Span | None:
    """Return the content of an element that begins at a place."""
    if text.startswith(_DATA, start):
        start, closing = start + len(_DATA), "]]>"
    else:
        closing = "<"
    end = text.find(closing, start)
    if end < 0 or (end == start and len(text) - start < len(_DATA) and _DATA.startswith(text[start:])):
        return Span(start, len(text), MASK if end < 0 and start < len(text) else text[start:], since, True)
    return Span(start, end, MASK, since, False) if text[start:end].strip() else None


def _option(text: str, match: re.Match[str], _: int) -> Span | None:
    """Read the value behind an option of a command line: `--password ...`, or the next word of a list of words."""
    since = match.start() - 1
    option = _OPTION.match(text, match.start())
    if option is None or not hides(option["name"][-LONGEST_KEY:]):
        return None
    start = option.end()
    if start == len(text):
        return Span(start, start, "", since, True)
    if text[start] == "-":
        return None
    span = quoted_value(text, start, since)
    if span is not None or option["blank"] is None:
        return None if span is None or text.startswith("-", span.start) else span
    span = bare_value(text, start, since, BARE, shown=MASK)
    if span is None:
        return None
    bare = text[span.start : span.end]
    if not reads_like_code(bare):
        return span
    return span._replace(shown=bare) if span.open else None


def _statement(text: str, match: re.Match[str], _: int) -> Span | None:
    """Read the password of a statement of SQL: `PASSWORD '...'`, `IDENTIFIED BY '...'`."""
    place = match.start()
    since = name_before(text, place - 1, quoted=False)
    word = text[since : place - 1]
    if word.upper() == "BY":
        if text[max(0, since - len(_IDENTIFIED)) : since].upper() != _IDENTIFIED:
            return None
    elif not hides(word):
        return None
    hit = _STATEMENT.match(text, place)
    if hit is None:
        return Span(place + 1, place + 1, "", since, True) if place + 1 == len(text) else None
    return Span(*hit.span("value"), MASK, since, hit.end() == len(text) and hit.end() == hit.end("value"))


def _user(text: str, match: re.Match[str], _: int) -> Span | None:
    """Read the password of `curl -u name:password`."""
    start, end = text.index(":", match.start()) + 1, match.end()
    since, is_last = max(0, match.start() - 1), end == len(text)
    if reads_like_code(text[start:end]):
        return Span(start, end, text[start:end], since, True) if is_last else None
    return Span(start, end, MASK, since, is_last)


def _jdbc(text: str, match: re.Match[str], _: int) -> Span | None:
    """Read the password of `jdbc:oracle:thin:user/password@host`."""
    since, is_last = max(0, match.start() - _ORACLE), match.end() == len(text)
    start, end = text.find("/", *match.span()) + 1, match.end() - (text[match.end() - 1] == "@")
    if start in {0, end}:
        return Span(match.end(), match.end(), "", since, True) if is_last else None
    return Span(start, end, MASK, since, is_last)


def _pgpass(text: str, match: re.Match[str], _: int) -> Span:
    """Read the password of a line of .pgpass."""
    start, end = match.span()
    size, is_last = len(text[start + 1 : end].split(":", 3)[3]), end == len(text)
    return Span(end - size, end, MASK if size else "", start, is_last)


READERS: Final[dict[str, Reader]] = {
    "value": _second_field,
    "element": _element,
    "option": _option,
    "statement": _statement,
    "user": _user,
    "tag": _tag,
    "plist": _plist,
    "jdbc": _jdbc,
    "pgpass": _pgpass,
}
