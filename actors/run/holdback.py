"""What may be shown of a text that is still coming.

Deltas are redacted one by one, so a secret that is cut into two of them would be seen by neither. Here the end of a
stream is held back as long as it could be the beginning of a secret; what follows settles it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

LONGEST: Final = 16_384
"""Characters that are held back at most: longer than any key, and small beside what may wait for the store."""

_HEADS: Final = (
    *("sk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-"),
    *("xoxa-", "xoxb-", "xoxp-", "xoxr-", "xoxs-", "AKIA", "ASIA", "AIza", "eyJ", "://", "-----BEGIN "),
    *("bearer ", "Bearer ", "BEARER "),
)
"""How the shapes begin that the redactor knows without being told."""

_OPEN: Final = re.compile(
    r"(?:sk-|gh[pousr]_|github_pat_|glpat-|xox[abprs]-|A(?:KIA|SIA)|AIza|eyJ)[A-Za-z0-9_.\-]*\Z"
    r"|[bB](?i:earer)\s+[A-Za-z0-9._~+/\-]*=*\Z"
    r"|://[^\s/@\"]*\Z"
    r"|-----BEGIN [A-Z ]{0,48}(?:-{1,5}(?:(?!-----END )[\s\S])*|-----[\s\S]*?-----END [A-Z ]{0,48}-{0,4})?\Z"
)
"""Such a shape that reaches to the end of the text: more of it may come."""


class HoldBack:
    """Knows where the safe part of a text ends.

    Args:
        secrets: the values that the embedder names, as for the redactor.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        spelled = [form for secret in secrets for form in _spellings(secret)]
        self._starts = tuple(sorted({*spelled, *_HEADS}, key=len))

    def settled(self, text: str) -> int:
        """How many characters of a text may be shown, whatever comes after it."""
        begin = max(0, len(text) - LONGEST)
        found = _OPEN.search(text, begin)
        end = len(text) if found is None else found.start()
        for start in self._starts:
            end = self._before(text, start, end)
        return end

    @staticmethod
    def _before(text: str, start: str, end: int) -> int:
        """`end`, or an earlier place where a proper beginning of `start` reaches to the end of the text."""
        place = text.find(start[0], max(0, len(text) - min(len(start) - 1, LONGEST)))
        while 0 <= place < end:
            if start.startswith(text[place:]):
                return place
            place = text.find(start[0], place + 1)
        return end


def _spellings(secret: str) -> set[str]:
    """The forms that the redactor looks for: as it stands, inside JSON or Python text, in a URL."""
    plain = secret.encode("utf-8", "replace").decode("utf-8")
    inside = {json.dumps(secret)[1:-1], json.dumps(plain, ensure_ascii=False)[1:-1], repr(secret)[1:-1]}
    return {form for form in {secret, plain, quote(plain, safe=""), *inside} if form}
