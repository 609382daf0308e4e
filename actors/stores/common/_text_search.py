"""The search for a text in what a run was asked and what came of it.

A search reads the first event of a run, which has its title and input, and the last event of a run that is done, which
has its output or the reason of its failure. Events are stored redacted, so a search finds no secret that the writer of
the run knew. The reader may know more secrets: a hit counts only if the text is still there after the reader's
redaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import attrs
import msgspec

Shown = Callable[[str], str]
"""Redacts a text as a reader may see it."""


class _Payload(msgspec.Struct, frozen=True):
    title: Any = None
    input: Any = None
    output: Any = None
    detail: Any = None


class _Said(msgspec.Struct, frozen=True):
    payload: _Payload = _Payload()


_decode: Final = msgspec.json.Decoder(_Said).decode
_encode: Final = msgspec.json.Encoder().encode


def _as_shown(text: str) -> str:
    return text


def _folded(text: str) -> str:
    return text.casefold()


@attrs.frozen(kw_only=True)
class TextSearch:
    """A search for a text in runs.

    Attributes:
        text: The text in lower case (`str.casefold`).
        shown: The reader's redaction.
    """

    text: str = attrs.field(converter=_folded)
    shown: Shown = _as_shown

    @classmethod
    def of(cls, text: str | None, shown: Shown | None) -> TextSearch | None:
        """Return the search of a query; None for a query without a text."""
        return None if text is None else cls(text=text, shown=shown or _as_shown)

    def finds(self, run_id: str, first: bytes | None, last: bytes | None) -> bool:
        """Return True if the text is in the id, or in the first or the last event of a run.

        Linear in the size of the events. An event that is missing or unreadable has no text.
        """
        if self.text in run_id.casefold():
            return True
        return any(
            self.text in text.casefold() and self.text in self.shown(text).casefold()
            for frame in (first, last)
            if frame is not None
            for text in _texts(frame)
        )


def _texts(frame: bytes) -> Iterator[str]:
    try:
        payload = _decode(frame).payload
    except msgspec.DecodeError:
        return
    for value in (payload.title, payload.input, payload.output, payload.detail):
        if isinstance(value, str):
            yield value
        elif value is not None:
            yield _encode(value).decode()
