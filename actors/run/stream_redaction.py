"""What may be shown of a text that is still coming.

Deltas are redacted one by one, so a secret that is cut into two of them would be seen by neither. Here the end of a
stream is held back as long as it could be the beginning of a secret; what follows settles it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from ..contract.redaction import LONGEST, Redactor
from ..contract.shapes import KEY_ENDS, SECRET_NAMES, TOKENS
from ..contract.spans import BRACKET, Span, hides, name_before

REACH: Final = 96
"""Characters at the end of a text in which a beginning is looked for; none is longer before it is known."""
_URL: Final = 520
"""Characters of name and password in a URL, which are known by what follows them."""
_KEPT: Final = 4_096
"""Characters of each end of a secret that are kept while its middle is dropped; its context and brackets among them."""
_FILLER: Final = "00000000"
"""In place of what was dropped: part of every token, of base64 and of every text, and no name of source text."""
_ROUNDS: Final = 8
"""How often the end may move: what precedes a beginning may itself be one."""
_WORD: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-."
_URL_ENDS: Final = re.compile(r"[\s/@\"]")
_NAME: Final = re.compile(rf"(?i:{'|'.join((*KEY_ENDS, 'ization'))})(?P<end>\\{{0,8}}[\"']?\s{{0,8}})\Z")


class StreamRedactor:
    """Knows where the safe part of a text ends.

    Args:
        redactor: what the parts of the text pass, one by one.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._within = lru_cache(maxsize=64)(StreamRedactor)
        self._spans, self._search = redactor.spans, redactor.search
        self._begun = re.compile(rf"(?:{'|'.join(_alternatives(redactor.heads))})\Z").search

    def within(self, workspace: str | None) -> StreamRedactor:
        """That of a run: the run's own directory may be beginning, too."""
        redactor = self._redactor.within(workspace)
        return self if redactor is self._redactor else self._within(redactor)

    def settled(self, text: str) -> int:
        """How many characters of a text may be shown, whatever comes after it; all but `LONGEST` at least."""
        return max(self._end(text, self._known(text)), len(text) - LONGEST, 0)

    def hold(self, text: str) -> tuple[int, str]:
        """How many characters of a text may be shown, whatever comes after it, and what is to be kept of the rest.

        That is the rest itself, except for a secret that is longer than what may be held back: the middle of one whose
        end has not come is dropped, since it will be masked as a whole. What is kept has `LONGEST` characters at most.
        """
        known = self._known(text)
        end, least = self._end(text, known), len(text) - LONGEST
        if end >= least:
            return end, text[end:]
        last = known[-1] if known else None
        if last is None or not _is_open(last, text) or len(text) - last.start <= 3 * _KEPT:
            return least, text[least:]
        end = end if last.since - end <= _URL else last.since
        kept = text[end : last.since] + _without_middle(text, last)
        again = self._known(kept)
        if len(kept) > LONGEST or not again or not _is_open(again[-1], kept):  # one that was named: it is not longer
            return least, text[least:]
        return end, kept

    def _end(self, text: str, known: tuple[Span, ...]) -> int:
        """Where the part begins that something may follow which makes it a secret."""
        end = len(text)
        for _ in range(_ROUNDS):
            part = text if end == len(text) else text[:end]
            start = self._open(part, known if part is text else (*known, *self._known(part)))
            if start == end:
                break
            end = start
        return end

    def _known(self, text: str) -> tuple[Span, ...]:
        return tuple(self._spans(text)) if self._search(text) is not None else ()

    def _open(self, text: str, spans: tuple[Span, ...]) -> int:
        """Where something begins that reaches to the end of a text and may be a secret, or become one."""
        size = len(text)
        open_start = self._begun(text, max(0, size - REACH))
        end = size if open_start is None else open_start.start()
        name = _NAME.search(text, max(0, size - REACH))
        if name is not None:
            since = name_before(text, name.start("end"), quoted="'" in name["end"] or '"' in name["end"])
            if hides(text[since : name.start("end")]):
                end = min(end, since)
        end = min(end, _open_web_token(text), _open_url(text))
        for span in reversed(spans):
            if span.since < end < span.end or (span.open and span.end == size):
                end = min(end, span.since)
        return end


def _is_open(span: Span, text: str) -> bool:
    """True for a secret, masked, of which more may follow."""
    return span.open and span.end == len(text) and span.shown != text[span.start : span.end]


def _without_middle(text: str, span: Span) -> str:
    """A secret that is open at the end of a text, with as much of its middle dropped that it fits; still as open."""
    if text[span.start : span.start + 1] in ("{", "[", "("):
        return text[span.since : span.start] + _still_open(text, span.start)
    head = span.start + _KEPT
    tail = len(text) - _KEPT
    tail -= (tail - head - len(_FILLER)) % 4  # base64 is read in groups of four
    while text[tail - 1] == "\\" and tail > len(text) - 2 * _KEPT:  # the quote behind a backslash does not close
        tail -= 4
    return text[span.since : head] + _FILLER + text[tail:]


def _still_open(text: str, start: int) -> str:
    """What is as open as a value in brackets that began there: as many brackets, and the quote of a text in it."""
    depth, inside = 0, ""
    for found in BRACKET.finditer(text, start):
        mark = found["quoted"]
        if mark is None:
            depth += 0 if inside else 1 if found["opens"] else -1
        elif not inside or mark == inside:
            inside = "" if inside else mark
    backslashes = len(text) - len(text.rstrip("\\"))  # they may belong to a quote that comes next
    return "[" * min(depth, _KEPT) + inside + _FILLER + "\\" * min(backslashes, _KEPT)


def _open_web_token(text: str) -> int:
    """Where a JSON web token may have begun: its first part has no length."""
    if "eyJ" not in text:
        return len(text)
    found = text.find("eyJ", len(text.rstrip(_WORD)))
    return len(text) if found < 0 else found


def _open_url(text: str) -> int:
    """Where the name and the password in a URL may have begun."""
    found = text.rfind("://", max(0, len(text) - _URL))
    return len(text) if found < 0 or _URL_ENDS.search(text, found + 3) else found


def _alternatives(heads: Iterable[str]) -> Iterator[str]:
    """Expressions for all that may be the beginning of a secret at the end of a text."""
    plain = [head for head in heads if not head.startswith(("sk-", "/"))]
    yield _beginnings((*plain, *_HEADS))
    yield rf"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbf])){_beginnings(['sk-'])}"
    yield rf"(?:(?<![\w.\-~])|(?<=\\[nrt]))(?:{_beginnings(['/home/', '/Users/', '/root'])})"
    yield r"(?<![A-Za-z])[A-Za-z]:(?:[\\/]{1,2}(?i:u(?:s(?:e(?:r(?:s[\\/]{0,2})?)?)?)?)?)?"
    yield rf"(?:(?<![A-Za-z0-9])|(?<=[a-z0-9])(?=[A-Z]))(?i:{_beginnings(SECRET_NAMES)})"
    for token in TOKENS.values():
        for head in token.heads:
            before = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbf]))" if head == "sk-" else ""
            yield f"{before}{re.escape(head)}[{token.letters}]{{0,{token.least}}}"
    yield r"[bB](?i:earer)\s{0,8}[A-Za-z0-9._~+/\-]{0,16}"
    yield r"[bB](?i:asic)\s{0,8}[A-Za-z0-9+/_\-]{0,8}=?"
    yield r"-----BEGIN [A-Z \-]{0,60}"


_HEADS: Final = (
    *(head for token in TOKENS.values() for head in token.heads if head != "sk-"),
    *("eyJ", "://", "-----BEGIN ", "bearer", "Bearer", "BEARER", "basic", "Basic", "BASIC"),
)
"""How the shapes begin that the redactor knows without being told."""


def _beginnings(starts: Iterable[str]) -> str:
    """An expression for every proper beginning of every start, the longest match first."""
    following: dict[str, list[str]] = {}
    for start in starts:
        if len(start) > 1:
            following.setdefault(start[0], []).append(start[1:])
    return "|".join(
        re.escape(first) + (f"(?:{more})?" if (more := _beginnings(rest)) else "") for first, rest in following.items()
    )
