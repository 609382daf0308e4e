"""Find the secrets that a program has named, and the beginning of one where a text ends or was cut.

Theory of operation. A whole spelling is found by `str.find`, whose time is linear in the text whatever both are. The
beginning of a spelling counts only in front of a cut, so only the text before each cut is compared, with the automaton
of Knuth, Morris and Pratt (SIAM J. Comput. 6, 1977): it reads each character once, however the spelling repeats itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Final

from ...errors import UsageError
from ..stepwise import WINDOW, Steps
from .secret_readers import MASK, SHORTEST, Span
from .shapes import CUT_MARKS

LONGEST: Final = 16_384
"""Characters of the longest secret that can be named: the held-back part of a stream must be able to hold one."""

LEARNED: Final = 128
"""Most secrets that a redactor learns after its construction."""
LEARNED_CHARACTERS: Final = 65_536
"""Characters of all learned secrets."""

_CUTS: Final = re.compile("|".join(map(re.escape, CUT_MARKS)))


def searchable(value: str) -> bool:
    """Return True for a value that can be a secret of a `Redactor`: neither too short nor too long."""
    return SHORTEST <= len(value) <= LONGEST


def checked(secrets: Iterable[str]) -> frozenset[str]:
    """Return the secrets.

    Raises:
        UsageError: A secret is too short to be masked safely, or longer than `LONGEST`.
    """
    values = frozenset(secrets)
    for value in values:
        if len(value) < SHORTEST:
            raise UsageError(f"a secret of {len(value)} characters would garble text; use {SHORTEST} or more")
        if len(value) > LONGEST:
            raise UsageError(f"a secret of {len(value)} characters is longer than {LONGEST}; name its parts")
    return values


def check_learnable(values: AbstractSet[str]) -> None:
    """Check the secrets that a redactor is to have learned.

    Raises:
        UsageError: They are more than `LEARNED`, or have more than `LEARNED_CHARACTERS` together.
    """
    size = sum(map(len, values))
    if len(values) > LEARNED or size > LEARNED_CHARACTERS:
        raise UsageError(
            f"{len(values)} secrets of {size:,} characters are learned late; at most {LEARNED} of "
            f"{LEARNED_CHARACTERS:,} can be; name them when the runtime is opened"
        )


def head_length(secret: str) -> int:
    """Return how many characters of a secret's beginning are hidden at a text's end: half, at most `SHORTEST`."""
    return min(SHORTEST, max(3, len(secret) // 2))


class NamedSecrets:
    """Finds spellings in texts.

    Args:
        forms: the spellings.

    Attributes:
        heads: the beginnings of the spellings; a text without any of them holds none.
    """

    def __init__(self, forms: Iterable[str]) -> None:
        self._forms = sorted(forms, key=lambda text: (-len(text), text))
        self._longest = len(self._forms[0]) if self._forms else 0
        self.heads = sorted({form[: head_length(form)] for form in self._forms}, key=lambda head: (-len(head), head))
        self._search_head = re.compile("|".join(map(re.escape, self.heads)) or r"(?!)").search

    def pieces(self, text: str) -> Steps[list[Span]]:
        """Return the spans of a text in order; where two overlap, the later one begins behind the earlier one.

        Yields after each window, and after each spelling that was searched in a long text.
        """
        if not (yield from self._begins(text)):
            return []
        spans: list[Span] = []
        for form in self._forms:
            spans += _whole(form, text)
            if len(text) > WINDOW:
                yield
        spans += yield from self._cut(text)
        spans.sort(key=lambda span: (span.start, -span.end))
        joined_spans: list[Span] = []
        for span in spans:
            last = joined_spans[-1] if joined_spans else None
            if last is None or span.start >= last.end:
                joined_spans.append(span)
            elif span.end > last.end:
                joined_spans[-1] = last._replace(end=span.end, open=span.open)
        return joined_spans

    def _begins(self, text: str) -> Steps[bool]:
        """Return whether the text has the beginning of a spelling."""
        if not self._forms:
            return False
        for start in range(0, max(1, len(text)), WINDOW):
            if start:
                yield
            if self._search_head(text, start, start + WINDOW + SHORTEST) is not None:
                return True
        return False

    def _cut(self, text: str) -> Steps[list[Span]]:
        """Return the beginnings of spellings in front of cuts."""
        begin, size, last_pause = 0, len(text), 0
        spans: list[Span] = []
        for cut, behind in _cuts(text):
            least = max(begin, cut - self._longest)
            first = self._search_head(text, least, cut)
            if first is not None:
                length = self._overlap(text[first.start() : cut])
                if length:
                    spans.append(Span(cut - length, cut, MASK, cut - length, cut == size))
            begin = behind
            if cut - last_pause > WINDOW:
                last_pause = cut
                yield
        return spans

    def _overlap(self, window: str) -> int:
        """Return the length of the longest beginning of a spelling, short of the whole, with which a text ends."""
        longest = 0
        for form in self._forms:
            least = head_length(form)
            if form[:least] in window:
                length = _suffix(form, window[-len(form) + 1 :])
                longest = max(longest, length if length >= least else 0)
        return longest


def _whole(form: str, text: str) -> Iterator[Span]:
    start = text.find(form)
    while start >= 0:
        end = start + len(form)
        yield Span(start, end, MASK, start, False)
        start = text.find(form, end)


def _cuts(text: str) -> Iterator[tuple[int, int]]:
    """Yield where text was cut, and where it continues; at last its end."""
    for mark in _CUTS.finditer(text):
        yield mark.span()
    yield len(text), len(text)


@lru_cache(maxsize=256)
def _failures(form: str) -> Sequence[int]:
    """Return for each length of a beginning the length of the longest shorter beginning with which that one ends."""
    table, length = [0, 0], 0
    for letter in form[1:]:
        while length and form[length] != letter:
            length = table[length]
        length += form[length] == letter
        table.append(length)
    return table


def _suffix(form: str, window: str) -> int:
    """Return the length of the longest beginning of `form` with which `window` ends; `window` is shorter."""
    if form.startswith(window):
        return len(window)
    table, length = _failures(form), 0
    for letter in window:
        while length and form[length] != letter:
            length = table[length]
        length += form[length] == letter
    return length
