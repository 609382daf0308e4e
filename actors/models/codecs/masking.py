"""The mask of a provider's keys: a service may echo a key in an error, a header or even an answer.

The mask works on everything that a service sends, before it becomes an error, a delta or a response. So a key is in no
event and in no row, which the runtime's redactor alone would not guarantee: rows are stored unredacted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from ...contract.plain import JSONValue
from ...contract.secrets.secret_readers import MASK
from ...contract.secrets.spans import spellings

SHORTEST_KEY: Final = 8
"""Characters of the shortest key that is masked; shorter ones are placeholders such as "none" or "ollama"."""


class KeyMask:
    """Replaces keys by "[redacted]".

    Args:
        keys: the values to mask; those with fewer than `SHORTEST_KEY` characters are ignored.
    """

    def __init__(self, keys: Iterable[str] = ()) -> None:
        texts = {text for key in keys if len(key) >= SHORTEST_KEY for text in spellings(key)}
        self._spellings = sorted(texts, key=lambda text: (-len(text), text))
        self._keys = re.compile("|".join(map(re.escape, self._spellings))) if texts else None

    def __repr__(self) -> str:
        return f"<KeyMask {'of a key' if self._keys else 'of nothing'}>"

    def text(self, text: str) -> str:
        """Return the text without keys."""
        return text if self._keys is None else self._keys.sub(MASK, text)

    def beginning(self, text: str, size: int) -> str:
        """Return at most the first `size` characters of a text, without keys and without one that the cut divides."""
        cut = text[:size]
        return self.text(cut[: len(cut) - self.unfinished(cut)] if len(cut) < len(text) else cut)[:size]

    def value(self, value: JSONValue) -> JSONValue:
        """Return JSON data without keys, names of fields included."""
        if self._keys is None:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(name): self.value(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        return value

    def unfinished(self, text: str) -> int:
        """Return how many characters at the end of a text may be the beginning of a key."""
        longest = 0
        for key in self._spellings:
            at = text.find(key[0], max(0, len(text) - len(key) + 1))
            while at >= 0 and len(text) - at > longest:
                if key.startswith(text[at:]):
                    longest = len(text) - at
                    break
                at = text.find(key[0], at + 1)
        return longest


class StreamMask:
    """Masks one streamed text; the end of what has come is held back while it may be the beginning of a key."""

    def __init__(self, mask: KeyMask) -> None:
        self._mask = mask
        self._tail = ""

    def feed(self, text: str) -> str:
        """Return the part of the text so far that can be shown."""
        text = self._mask.text(self._tail + text)
        size = len(text) - self._mask.unfinished(text)
        self._tail = text[size:]
        return text[:size]

    def end(self) -> str:
        """Return the rest: the text has ended, so it begins no key."""
        rest, self._tail = self._tail, ""
        return rest
