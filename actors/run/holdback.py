"""What may be shown of a text that is still coming.

Deltas are redacted one by one, so a secret that is cut into two of them would be seen by neither. Here the end of a
stream is held back as long as it could be the beginning of a secret; what follows settles it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from ..contract.redaction import spellings

LONGEST: Final = 16_384
"""Characters that are held back at most: longer than any key, and small beside what may wait for the store."""

_HEADS: Final = (
    *("sk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-"),
    *("xoxa-", "xoxb-", "xoxp-", "xoxr-", "xoxs-", "AKIA", "ASIA", "AIza", "eyJ", "://", "-----BEGIN "),
    *("bearer ", "Bearer ", "BEARER "),
)
"""How the shapes begin that the redactor knows without being told."""

_OPEN_WORD: Final = re.compile(
    r"(?:sk-|gh[pousr]_|github_pat_|glpat-|xox[abprs]-|A(?:KIA|SIA)|AIza|eyJ)[A-Za-z0-9_.\-]*\Z|://[^\s/@\"]*\Z"
)
"""Such a shape that reaches to the end of the text: more of it may come. These hold no white space."""
_OPEN_BEARER: Final = re.compile(r"[bB](?i:earer)\s+[A-Za-z0-9._~+/\-]*=*\Z")
_OPEN_KEY: Final = re.compile(
    r"-----BEGIN [A-Z ]{0,48}(?:-{1,5}(?:(?!-----END )[\s\S])*|-----[\s\S]*?-----END [A-Z ]{0,48}-{0,4})?\Z"
)
_GAP: Final = 64
"""Characters before the last word in which "Bearer" is looked for."""
_DEEPEST: Final = 100
"""Characters of a beginning that are matched as one expression; what is longer is compared by hand."""


class HoldBack:
    """Knows where the safe part of a text ends.

    Args:
        secrets: the values that the embedder names, as for the redactor.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        starts = {*_HEADS, *(form for secret in secrets for form in spellings(secret))}
        short = [start for start in starts if len(start) <= _DEEPEST]
        self._long = tuple(start for start in starts if len(start) > _DEEPEST)
        self._begun = re.compile(rf"(?:{_beginnings(short)})\Z").search
        self._reach = max(map(len, short)) - 1

    def settled(self, text: str) -> int:
        """How many characters of a text may be shown, whatever comes after it."""
        size = len(text)
        begun = self._begun(text, max(0, size - self._reach))
        end = size if begun is None else begun.start()
        for start in self._long:
            end = _before(text, start, end)
        end = min(end, _open_shape(text))
        return end if end == size else min(end, _open_shape(text[:end]))  # the rest may end a shape that began before


def _open_shape(text: str) -> int:
    """Where a known shape begins that reaches to the end of the text."""
    size = len(text)
    least = max(0, size - LONGEST)
    word = least
    if text and text[-1].isspace():
        word = size
    elif (parts := text[least:].rsplit(None, 1)) and len(parts) == 2:
        word = size - len(parts[1])
    found = _OPEN_WORD.search(text, word)
    end = size if found is None else found.start()
    if "earer" in text[max(0, word - _GAP) : word].lower() and (
        found := _OPEN_BEARER.search(text, max(0, word - _GAP))
    ):
        end = min(end, found.start())
    key = text.rfind("-----BEGIN ", least)
    if key >= 0 and _OPEN_KEY.match(text, key):
        end = min(end, key)
    return end


def _beginnings(starts: Iterable[str]) -> str:
    """An expression for every proper beginning of every start, the longest match first."""
    following: dict[str, list[str]] = {}
    for start in starts:
        if len(start) > 1:
            following.setdefault(start[0], []).append(start[1:])
    return "|".join(
        re.escape(first) + (f"(?:{more})?" if (more := _beginnings(rest)) else "") for first, rest in following.items()
    )


def _before(text: str, start: str, end: int) -> int:
    """`end`, or an earlier place where a proper beginning of `start` reaches to the end of the text."""
    place = text.find(start[0], max(0, len(text) - min(len(start) - 1, LONGEST)))
    while 0 <= place < end:
        if start.startswith(text[place:]):
            return place
        place = text.find(start[0], place + 1)
    return end
