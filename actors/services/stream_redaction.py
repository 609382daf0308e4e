"""Redact streamed text: how much of an unfinished text may be shown.

Theory of operation. Deltas are redacted one by one, so a secret that is split over two of them would be found in
neither. Therefore the end of a stream is held back as long as it may be the beginning of a secret; later text decides.
The amount held back is bounded: the middle of an open secret is dropped, because the whole will be masked anyway.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from ..contract.secrets.named_secrets import LONGEST
from ..contract.secrets.redaction import Redactor
from ..contract.secrets.secret_readers import BRACKET, FORM_NAME, Span, hides, hides_items, name_before
from ..contract.secrets.shapes import KEY_ENDS, KEY_TEXTS, PLURAL_ENDS, SECRET_NAMES, TOKENS

REACH: Final = 96
"""Characters at the end of a text that are searched for a beginning; a longer beginning is recognised as a secret."""
_URL: Final = 520
"""Characters of name and password in a URL; such a secret is recognised by the text after it."""
_KEPT: Final = 4_096
"""Characters kept of each end of a secret whose middle is dropped, including its context and brackets."""
_FILLER: Final = 40 * "0"
"""Replaces dropped text: valid in every token, as a line of base64 and in every text, and not a name in source text."""
_ROUNDS: Final = 8
"""How often the end may move back: the text before a beginning may itself be a beginning."""
_WORD: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-."
_URL_ENDS: Final = re.compile(r"[\s/\"]")
_ENDS: Final = "|".join((*KEY_ENDS, *PLURAL_ENDS, "ization"))
_NAME: Final = re.compile(
    rf"(?i:{_ENDS})(?P<number>_?[0-9]{{0,2}})"
    r"(?P<end>\\{0,8}[\"']?\]?\s{0,8}|%3?|</?k?e?y?>?\s{0,32}<?[string]{0,6})\Z"
)
"""A telling name, with the characters that may stand between the name and its value."""
_FIELD: Final = re.compile(
    rf"(?i:{_ENDS})(?P<end>\\{{0,8}}[\"']?[\s,;]{{1,48}}(?:- )?\\{{0,8}}[\"']?"
    r"[A-Za-z]{0,16}\\{0,8}[\"']?\s{0,8})\Z"
)
"""A telling name in a field, and the beginning of the next field, which may be that of its value."""
_FIELD_NAME: Final = 24
"""Characters of the field that names a value: `"variableName": "`."""


class StreamRedactor:
    """Finds where the safe part of a text ends.

    Args:
        redactor: the redactor for the parts of the text.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._within = lru_cache(maxsize=64)(StreamRedactor)
        self._spans, self._search = redactor.spans, redactor.search
        self._follow()

    def _follow(self) -> None:
        """Find the beginnings of what the redactor finds now."""
        self._finder = self._redactor.finder
        self._search_head = re.compile(rf"(?:{'|'.join(_alternatives(self._redactor.heads))})\Z").search

    def within(self, workspace: str | None) -> StreamRedactor:
        """Return the redactor of a run, which also knows the run's workspace directory."""
        redactor = self._redactor.within(workspace)
        return self if redactor is self._redactor else self._within(redactor)

    def settled(self, text: str) -> int:
        """Return how many characters may be shown whatever follows; at least all but `LONGEST`."""
        return max(self._end(text, self._known(text)), len(text) - LONGEST, 0)

    def split(self, text: str) -> tuple[int, str]:
        """Return the number of characters that may be shown before any continuation, and the part of the rest to keep.

        The rest is kept whole, except for a secret longer than the held-back limit: the middle of a secret whose end
        has not come is dropped, because the whole will be masked. The kept text has at most `LONGEST` characters.
        """
        spans = self._known(text)
        end, least = self._end(text, spans), len(text) - LONGEST
        if end >= least:
            return end, text[end:]
        last = spans[-1] if spans else None
        if last is None or not _is_open(last, text) or len(text) - last.start <= 3 * _KEPT:
            return least, text[least:]
        end = end if last.since - end <= _URL else last.since
        tail = text[end : last.since] + _without_middle(text, last)
        again = self._known(tail)
        if len(tail) > LONGEST or not again or not _is_open(again[-1], tail):  # a named secret: it is not longer
            return least, text[least:]
        return end, tail

    def _end(self, text: str, spans: tuple[Span, ...]) -> int:
        """Return where the part begins that later text may turn into a secret."""
        end = len(text)
        for _ in range(_ROUNDS):
            part = text if end == len(text) else text[:end]
            start = self._open(part, spans if part is text else (*spans, *self._known(part)))
            if start == end:
                break
            end = start
        return end

    def _known(self, text: str) -> tuple[Span, ...]:
        return tuple(self._spans(text)) if self._search(text) is not None else ()

    def _open(self, text: str, spans: tuple[Span, ...]) -> int:
        """Return where something begins that reaches the end of the text and is, or may become, a secret."""
        if self._finder is not self._redactor.finder:  # the redactor has learned secrets
            self._follow()
        size = len(text)
        open_start = self._search_head(text, max(0, size - REACH))
        end = size if open_start is None else open_start.start()
        name = _NAME.search(text, max(0, size - REACH))
        if name is not None:
            since = name_before(text, name.start("number"), quoted="'" in name["end"] or '"' in name["end"])
            name_text = text[since : name.start("number")]
            if hides(name_text) or hides_items(name_text):
                end = min(end, since)
        field = _FIELD.search(text, max(0, size - REACH))
        if field is not None and hides(text[name_before(text, field.start("end"), quoted=False) : field.start("end")]):
            end = min(end, max(0, name_before(text, field.start("end"), quoted=False) - _FIELD_NAME))
        if "eyJ" in text:  # the first part of a JSON web token has no fixed length
            token = text.find("eyJ", len(text.rstrip(_WORD)))
            end = min(end, token) if token >= 0 else end
        url = text.rfind("://", max(0, size - _URL))
        if url >= 0 and _URL_ENDS.search(text, url + 3) is None:  # name and password of a URL may follow
            end = min(end, url)
        for span in reversed(spans):
            if span.since < end < span.end or (span.open and not text[span.end :].strip()):
                end = min(end, span.since)
        return end


def _is_open(span: Span, text: str) -> bool:
    """Return True for a masked secret that later text may extend."""
    return span.open and span.end == len(text) and span.shown != text[span.start : span.end]


def _without_middle(text: str, span: Span) -> str:
    """Return a secret that is open at the end of a text, shortened in the middle and still open in the same way."""
    if text[span.start : span.start + 1] in ("{", "[", "("):
        return text[span.since : span.start] + _still_open(text, span.start)
    head = span.start + _KEPT
    tail = len(text) - _KEPT
    tail -= (tail - head - len(_FILLER)) % 4  # base64 is read in groups of four
    while text[tail - 1] == "\\" and tail > len(text) - 2 * _KEPT:  # a quote after a backslash does not close
        tail -= 4
    return text[span.since : head] + _FILLER + text[tail:]


def _still_open(text: str, start: int) -> str:
    """Return a text as open as the bracketed value that begins at `start`: its brackets, and the quote of a string."""
    depth, inside = 0, ""
    for match in BRACKET.finditer(text, start):
        mark = match["quoted"]
        if mark is None:
            depth += 0 if inside else 1 if match["opens"] else -1
        elif not inside or mark == inside:
            inside = "" if inside else mark
    backslashes = len(text) - len(text.rstrip("\\"))  # they may belong to a quote that comes next
    return "[" * min(depth, _KEPT) + inside + _FILLER + "\\" * min(backslashes, _KEPT)


def _alternatives(heads: Iterable[str]) -> Iterator[str]:
    """Yield expressions for everything at the end of a text that may be the beginning of a secret."""
    plain = [head for head in heads if not head.startswith(("sk-", "/"))]
    yield _beginnings((*plain, *_HEADS))
    yield rf"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbf])){_beginnings(['sk-'])}"
    yield rf"(?:(?<![\w.\-~])|(?<=\\[nrt]))(?:{_beginnings(['/home/', '/Users/', '/root'])})"
    yield r"(?<![A-Za-z])[A-Za-z]:(?:[\\/]{1,2}(?i:u(?:s(?:e(?:r(?:s[\\/]{0,2})?)?)?)?)?)?"
    yield rf"(?:(?<![A-Za-z0-9])|(?<=[a-z0-9])(?=[A-Z])|(?<=%[0-9A-F][0-9A-F]))(?i:{_beginnings(SECRET_NAMES)})"
    for token in TOKENS.values():
        for head in token.heads:
            before = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbf]))" if head == "sk-" else ""
            yield f"{before}{re.escape(head)}[{token.letters}]{{0,{token.least}}}"
    yield r"[bB](?i:earer)\s{0,8}[A-Za-z0-9._~+/\-]{0,16}"
    yield r"[bB](?i:asic)\s{0,8}[A-Za-z0-9+/_\-]{0,8}=?"
    yield r"-----BEGIN [A-Z0-9 \-]{0,60}"
    yield r"<[A-Za-z0-9_.\-:]{0,64}"  # an element
    yield r"[\[(]\\{0,8}(?:[\"'][A-Za-z0-9_.\- ]{0,64}\\{0,8}(?:[\"'][\s,]{0,8})?)?"  # a pair
    yield r"(?:[\s\"'`(\[,]|\A)--?[A-Za-z0-9_\-]{0,64}(?:\\{0,8}[\"'][\s,]{0,8}|[ \t]{1,8})?"  # an option
    yield r"(?:[\s\"']|\A)(?:-u|--user)[=\"',\s]{0,4}[^\s:=\"']{0,64}(?::[^\s\"']{0,8})?"
    yield rf"(?i:{_beginnings(['identified by __'])})"
    yield r"%[0-9A-Fa-f]?"  # an escape in front of a name
    yield r":543[0-9](?::[^\s:]{0,40}){0,2}"  # of .pgpass


_HEADS: Final = (
    *(head for token in TOKENS.values() for head in token.heads if head != "sk-"),
    *("_auth=_", f"{FORM_NAME}_", ":oracle:thin:_", ":oracle:oci:_", ":543_"),
    *(f"{head}_" for head in KEY_TEXTS),
    *("eyJ", "://", "-----BEGIN ", "bearer", "Bearer", "BEARER", "basic", "Basic", "BASIC"),
)
"""How the shapes begin that the redactor knows without configuration."""


def _beginnings(starts: Iterable[str]) -> str:
    """Return an expression for every proper beginning of every start, the longest match first."""
    following: dict[str, list[str]] = {}
    for start in starts:
        if len(start) > 1:
            following.setdefault(start[0], []).append(start[1:])
    return "|".join(
        re.escape(first) + (f"(?:{more})?" if (more := _beginnings(rest)) else "") for first, rest in following.items()
    )
