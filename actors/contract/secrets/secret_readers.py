"""Readers of the shapes: from a match of the expression in `shapes` to the span that must not be shown.

Theory of operation. The expression finds candidates; a reader looks around the match, within a bounded distance or in
text that the search skips afterwards, and determines the beginning and end of the secret. A reader gets the text, the
match, and where the previous span ended; None means that the candidate is not a secret.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error
from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

from .shapes import LINE_KEYS, LONGEST_KEY, PLURAL_KEYS, SECRET_KEYS, TOKENS

MASK: Final = "[redacted]"
HOME: Final = "[home]"
"""Replaces a home directory."""
SHORTEST: Final = 6
"""Characters of the shortest text with a secret; all shapes and named secrets are at least as long."""

_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NAME: Final = re.compile(r"[A-Za-z0-9_.\-]")
_QUOTED_NAME: Final = re.compile(r"[A-Za-z0-9_.\- ]")
_ESCAPES: Final = 8
"""Backslashes read in front of a quote."""
_INDENT: Final = 64
"""Blanks read between a name and its `=` in a column of settings."""
_SEPARATOR: Final = re.compile(r"\s{0,8}(?:=>|:=|=|::(?=[ \t]|\Z)|:(?!:))\s{0,8}")
"""Two colons are those of LDIF in front of a blank, else those of a path: `token::read`."""
_SUBSCRIPT: Final = re.compile(r"\]\s{0,8}(?:=(?![=~>])\s{0,8}|\Z)")
FORM_NAME: Final = 'name="'
"""In front of the name of a field of a form."""
_FORM: Final = re.compile(r"\r?\n\r?\n(?P<value>[^\r\n]*)|\r?\n?\r?\Z")
"""Behind the name of a field of a form."""
_TYPE: Final = re.compile(
    r"[ \t]{0,4}&?[A-Za-z_][\w.]{0,40}(?:\[[\w.,| ]{0,60}\])?(?:[ \t]{0,2}\|[ \t]{0,2}[A-Za-z_][\w.]{0,40}){0,2}"
    r"[ \t]{0,8}=(?![=~>])[ \t]{0,8}(?=[bBfFrRuU]?\\{0,8}[\"'])"
)
"""The type of a variable, in front of its value in quotes."""
_TYPE_BEGUN: Final = re.compile(
    r"[ \t]{0,4}&?[A-Za-z_][\w.]{0,40}(?:\[[\w.,| ]{0,60}\]?)?(?:[ \t]{0,2}\|[ \t]{0,2}[\w.]{0,41}){0,2}"
    r"[ \t]{0,8}(?:=[ \t]{0,8}[bBfFrRuU]?\\{0,8})?\Z"
)
_COMMA: Final = re.compile(r"\s{0,8},\s{0,8}(?=[bBrRuU]?\\{0,8}[\"'])")
_PROPERTIES: Final = re.compile(r"(?:[&!][\w!.\-]{0,64}[ \t]{1,4}){1,2}")
"""The anchor and the tag in front of a value of YAML."""
_PROPERTY_BEGUN: Final = re.compile(r"[&!][\w!.\-]{0,64}\Z")
_OPENING: Final = re.compile(r"[bBfFrRuU]?(?P<backslashes>\\{0,8})(?P<quote>\"\"\"|'''|[\"'])")
_OPENING_BEGUN: Final = re.compile(r"[bBfFrRuU]?\\{0,8}\Z")
_TYPOGRAPHIC: Final = {
    "\u201c": re.compile("\u201d"),
    "\u201e": re.compile("[\u201c\u201d]"),
    "\u2018": re.compile("\u2019"),
    "\u00ab": re.compile("\u00bb"),
}
"""Opening quote of printed text -> what closes it."""
BARE: Final = re.compile(r"[^\s\"'&;,<>(){}\[\]\\…]*")
_PART_OF_URL: Final = re.compile(r"(?:[^\s\"'&;,<>(){}\[\]\\…%]|%(?!26|3[bB]))*")
_LINE: Final = re.compile(r"[^\r\n\"'\\…]*")
_CODE: Final = re.compile(r"[A-Za-z_.]*|[0-9]{0,5}")
_BLOCK: Final = re.compile(r"[ \t]{0,8}[|>][+\-0-9]{0,2}[ \t]{0,8}(?:#[^\r\n]{0,80})?(?P<end>\r?\n|\Z)")
"""The head of a block of YAML."""
_SEQUENCE: Final = re.compile(r"[ \t]{0,8}(?P<end>\r?\n)(?=[ \t]{0,64}- )")
"""The end of a line in front of a sequence of YAML."""
_ITEM: Final = re.compile(r"(?P<indent>[ \t]*)- +(?P<text>[\"']?[^\s\"']{6,}[\"']?)[ \t]*(?:\r?\n|\Z)")
"""An item of a sequence of YAML that may be a secret: one word."""
_ITEM_BEGUN: Final = 96
"""Characters of a line at a text's end that may become an item."""
_SHORT_LINE: Final = 40
"""Characters of a line at a text's end that may be something else than a line of base64."""
_LINE_OF_BLOCK: Final = re.compile(r"(?P<indent>[ \t]*)(?P<text>[^\r\n]*)(?:\r?\n|\Z)")
BRACKET: Final = re.compile(r"(?P<quoted>\\*[\"'])|(?P<opens>[{\[(])|[}\])]")
"""Opening and closing marks in a value in brackets."""
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_\-]{4,}={0,2}\Z")


Reader = Callable[[str, re.Match[str], int], "Span | None"]
"""(text, match, where the last span ended) -> the span that must go; None if the match is not a secret."""


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


@lru_cache(maxsize=4096)
def hides(name: str) -> bool:
    """Return True if values under this name are never shown."""
    return SECRET_KEYS.search(_HUMP.sub("_", name)) is not None


@lru_cache(maxsize=4096)
def hides_items(name: str) -> bool:
    """Return True if a list under this name is never shown: `passwords`, `apiKeys`."""
    return PLURAL_KEYS.search(_HUMP.sub("_", name)) is not None


def reads_like_code(value: str) -> bool:
    """Return True for a value that may be a variable, a word or a port rather than a secret."""
    return len(value) < SHORTEST or _CODE.fullmatch(value) is not None


def _whole(text: str, match: re.Match[str], _: int) -> Span:
    return Span(match.start(), match.end(), MASK, match.start(), match.end() == len(text))


def _token(text: str, match: re.Match[str], at: int) -> Span:
    """Read a token; the match begins with the last character of its head, if that is punctuation."""
    start, heads = match.start(), TOKENS[match.lastgroup or ""].heads
    if not heads[0][-1].isalnum():
        start = max(at, next(start + 1 - len(head) for head in heads if text.endswith(head, 0, start + 1)))
    return Span(start, match.end(), MASK, start, match.end() == len(text))


def _private_key(text: str, match: re.Match[str], at: int) -> Span:
    """Read a private key; the match begins with the last dash before BEGIN."""
    start = max(at, match.start() - 4)
    return Span(start, match.end(), MASK, start, match.end() == len(text))


def _key_text(text: str, match: re.Match[str], _: int) -> Span:
    """Read a private key in base64; at a text's end its last line may be a line of the key that has just begun."""
    start, end = match.span()
    line = text.rfind("\n", start, end) if end == len(text) else -1
    rest = text[line:] if line >= 0 and len(text) - line <= _SHORT_LINE else ""
    return Span(start, end, MASK + rest, start, end == len(text))


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
        has_colon = b":" in b64decode(pure + "=" * (-len(pure) % 4))
    except Error:
        has_colon = False
    if has_colon or (end == len(text) and len(pure) >= 2 * SHORTEST and any(map(str.isdigit, pure))):
        return Span(start, end, MASK, start, end == len(text))
    return Span(start, end, text[start:end], start, True) if end == len(text) else None


def _in_quotes(text: str, match: re.Match[str], _: int) -> Span | None:
    """Read the value after a quoted name, as JSON and Python write it."""
    place = match.start()
    since = name_before(text, place, quoted=True)
    name = text[since:place].rstrip("\\")
    if not hides(name) and not hides_items(name):
        return None
    separator = _SEPARATOR.match(text, place + 1)
    if separator is None:
        return _behind_quote(text, place, since, name)
    start = separator.end()
    if start == len(text):
        return Span(start, start, "", since, True)
    if text[start] in "{[(":
        end, is_whole = _balanced(text, start)
        return Span(start, end, f'"{MASK}"', since, not is_whole)
    if not hides(name):
        return None
    return quoted_value(text, start, since) or bare_value(text, start, since, BARE, shown=f'"{MASK}"')


def _behind_quote(text: str, place: int, since: int, name: str) -> Span | None:
    """Read the value behind a quoted name without a separator; `place` is that of the quote behind the name."""
    if not hides(name):
        return None
    subscript = _SUBSCRIPT.match(text, place + 1)
    if subscript is not None:  # headers["Authorization"] = "..."
        if _OPENING_BEGUN.match(text, subscript.end()):
            return Span(len(text), len(text), "", since, True)
        return quoted_value(text, subscript.end(), since)
    form = _FORM.match(text, place + 1)
    if form is not None and text.endswith(FORM_NAME, 0, since):
        is_last = form.end() == len(text)
        if not form["value"]:
            return Span(len(text), len(text), "", since, True) if is_last else None
        return Span(*form.span("value"), MASK, since, is_last)
    return _second_of_pair(text, place, since, name)


def _second_of_pair(text: str, place: int, since: int, name: str) -> Span | None:
    """Read the value of `["Authorization", "..."]`, or of a tuple; `place` is that of the quote behind the name."""
    begin, least = since, max(0, since - _ESCAPES)
    while begin > least and text[begin - 1] in "\\\"'":
        begin -= 1
    begin -= 1
    if begin < 0 or text[begin] not in "[(":
        return None
    comma = _COMMA.match(text, place + 1)
    if comma is None:
        rest = text[place + 1 : place + 1 + 2 * _ESCAPES]
        is_last = place + 1 + len(rest) == len(text) and not rest.strip(" ,")
        return Span(len(text), len(text), "", begin, True) if is_last else None
    span = quoted_value(text, comma.end(), begin)
    if span is None or span.open:
        return span
    line = LINE_KEYS.search(name) is not None
    return span if line or not reads_like_code(text[span.start : span.end]) else None


def _unquoted(text: str, match: re.Match[str], _: int) -> Span | None:
    """Read the value after a name and `=` or `:`, as settings, headers, URLs and source text write it."""
    place = match.start()
    return _setting(text, name_before(text, place, quoted=False), place, place)


def _spaced(text: str, match: re.Match[str], at: int) -> Span | None:
    """Read the value of a setting with blanks between its name and the `=`."""
    place = end = match.start()
    least = max(at, place - _INDENT)
    while end > least and text[end - 1] in " \t":
        end -= 1
    return _setting(text, name_before(text, end, quoted=False), end, place)


def _numbered(text: str, match: re.Match[str], at: int) -> Span | None:
    """Read the value after a name with a number: PASSWORD_1=..."""
    return (_in_quotes if text[match.start()] in "\"'" else _spaced)(text, match, at)


def _percent(text: str, match: re.Match[str], _: int) -> Span | None:
    """Read the value after a name and the `=` of a form inside a URL."""
    since = name_before(text, match.start(), quoted=False)
    if not hides(text[since : match.start()]):
        return None
    return _unless_code(text, bare_value(text, match.end(), since, _PART_OF_URL, shown=MASK))


def _setting(text: str, since: int, end: int, place: int) -> Span | None:
    """Read the value of a setting: its name is from `since` to `end`, its separator at `place`."""
    name = text[since:end]
    separator = _SEPARATOR.match(text, place)
    if separator is None or not (hides(name) or hides_items(name)):
        return None
    block = _block(text, place + 1, since) if text[place] == ":" else None
    if block is not None:
        return block
    annotation = _TYPE.match(text, place + 1) if text[place] == ":" else None
    start = separator.end() if annotation is None else annotation.end()
    properties = _PROPERTIES.match(text, start)
    start = start if properties is None else properties.end()
    if _PROPERTY_BEGUN.match(text, start):
        return Span(len(text), len(text), "", since, True)
    if not hides(name):
        if text[start : start + 1] not in ("{", "["):
            is_last = len(text) - start <= _ESCAPES and not text[start:].strip("- ")
            return Span(len(text), len(text), "", since, True) if is_last else None
        stop, is_whole = _balanced(text, start)
        return Span(start, stop, MASK, since, not is_whole)
    return quoted_value(text, start, since) or _bare_setting(text, name, start, since) or _type(text, place, since)


def _type(text: str, place: int, since: int) -> Span | None:
    """Return the end of a text that may be the type of a variable, in front of its value."""
    is_last = text[place] == ":" and _TYPE_BEGUN.match(text, place + 1) is not None
    return Span(len(text), len(text), "", since, True) if is_last else None


def _bare_setting(text: str, name: str, start: int, since: int) -> Span | None:
    if LINE_KEYS.search(name) is not None:
        return bare_value(text, start, since, _LINE, shown=MASK)
    return _unless_code(text, bare_value(text, start, since, BARE, shown=MASK))


def _unless_code(text: str, span: Span | None) -> Span | None:
    """Return the span of a bare value, unless it reads like code."""
    bare = "" if span is None else text[span.start : span.end]
    if span is None or not reads_like_code(bare):
        return span
    # a variable of source text, an annotation, a port: no secret
    return span._replace(shown=bare) if span.open else None


def _block(text: str, begin: int, since: int) -> Span | None:
    """Read a block of YAML behind `name:`: the indented lines behind `|` or `>`, or a sequence of plain items."""
    head = _BLOCK.match(text, begin)
    sequence = None if head is not None else _SEQUENCE.match(text, begin)
    if head is None and sequence is None:
        rest = text[begin : begin + _ITEM_BEGUN]
        is_last = begin + len(rest) == len(text) and "\n" in rest and not rest.strip("- \t\r\n")
        return Span(begin, len(text), text[begin:], since, True) if is_last else None
    first = at = end = (head or sequence).end("end")  # type: ignore[union-attr]  # one of them matches
    lines, least = _LINE_OF_BLOCK if head is not None else _ITEM, 0
    while at < len(text) and (line := lines.match(text, at)) is not None:
        if line["text"]:
            indent = len(line["indent"])
            if head is not None and (indent == 0 or indent < least):
                break
            least = least or indent
            end = line.end("text")
        at = line.end()
    rest = text[at : at + _ITEM_BEGUN]  # the line may become one of the block
    is_last = at + len(rest) == len(text) and "\n" not in rest and rest.lstrip(" \t")[:1] in ("", "-")
    if end == first:
        return Span(first, len(text), text[first:], since, True) if is_last else None
    end = len(text) if rest.strip() and is_last else end
    return Span(first + least, end, MASK, since, is_last)


def quoted_value(text: str, start: int, since: int) -> Span | None:
    """Return the text between the quotes of a value; to the end of the text without a closing quote."""
    opening = _OPENING.match(text, start)
    if opening is None:
        return _printed_value(text, start, since)
    begin, closing = opening.end(), opening["backslashes"] + opening["quote"]
    end = text.find(closing, begin)
    while end > 0 and text[end - 1] == "\\":  # more backslashes than the opening quote has: it is part of the value
        end = text.find(closing, end + len(closing))
    if end == begin:
        # the first two of three quotes, perhaps
        return Span(begin, len(text), text[begin:], since, True) if begin + len(closing) == len(text) else None
    return Span(begin, len(text), MASK, since, True) if end < 0 else Span(begin, end, MASK, since, False)


def _printed_value(text: str, start: int, since: int) -> Span | None:
    """Return the text between typographic quotes."""
    closing = _TYPOGRAPHIC.get(text[start : start + 1])
    if closing is None:
        return None
    end = closing.search(text, start + 1)
    return Span(start + 1, len(text) if end is None else end.start(), MASK, since, end is None)


def bare_value(text: str, start: int, since: int, value: re.Pattern[str], *, shown: str) -> Span | None:
    """Return the value without quotes; None for nothing, `null`, and what is masked already."""
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
    # an escape of a URL, such as %26, is no part of the name
    return start + 2 if text[start - 1 : start] == "%" and place - start > 2 else start


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


READERS: Final[dict[str, Reader]] = {
    "pem": _private_key,
    "home": _home,
    "windows": _windows,
    "jwt": _web_token,
    "basic": _basic,
    "keytext": _key_text,
    "quoted": _in_quotes,
    "named": _unquoted,
    "spaced": _spaced,
    "numbered": _numbered,
    "npmrc": _unquoted,
    "percent": _percent,
}


def reader_of(kind: str) -> Reader:
    """Return the reader for a part of the expression."""
    return READERS.get(kind, _token if kind in TOKENS else _whole)
