"""What a model and the event log are shown of a result: all of it, or its head, tail and size if it is large."""

from __future__ import annotations

from typing import Any, Final

import msgspec

LARGE: Final = 262_144
"""Bytes of a result above which event and model get its head and tail; the row holds all of it."""
_EDGE: Final = 4_096
"""Characters of each end that are shown of a large result."""

_encode = msgspec.json.Encoder().encode


def excerpt(text: str) -> tuple[str, bool]:
    """The text and False, or its head, tail and size and True if it is large."""
    if len(text) * 4 <= LARGE or len(text.encode()) <= LARGE:  # a character takes up to four bytes
        return text, False
    cut = len(text) - 2 * _EDGE
    return f"{text[:_EDGE]}\n[... {cut} of {len(text)} characters left out ...]\n{text[-_EDGE:]}", True


def shown_value(value: Any) -> tuple[str, bool]:
    """JSON data as the text that a model gets, and whether it is an excerpt."""
    return excerpt(value if isinstance(value, str) else _encode(value).decode())
