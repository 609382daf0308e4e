"""What a model and the event log are shown of a result: all of it, or its head, tail and size if it is large.

The model gets the text as it is (`excerpt`). The event must not: no pattern knows a secret that the cut goes through,
and the text of a dict has no keys that tell. So the event holds the whole value, marked as large, until the redactor
reads it; `shown_large` redacts first and cuts what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import attrs
import msgspec

LARGE: Final = 262_144
"""Bytes of a result above which event and model get its head and tail; the row holds all of it."""
_EDGE: Final = 4_096
"""Characters of each end that are shown of a large result."""
_CONTEXT: Final = 65_536
"""Characters beyond an end that are read with it: a secret that reaches into the end is known by what precedes it."""
_WHOLE: Final = 1_048_576
"""Characters of a text that is read as a whole, before it is cut; of a larger one both ends are, with their context."""

_encode = msgspec.json.Encoder().encode
Clean = Callable[[str], str]
Judge = Callable[[str], tuple[str, bool]]


class LargeText(str):
    """A text of which an event shows an excerpt."""

    __slots__ = ()


@attrs.frozen
class Large:
    """JSON data of which an event shows an excerpt."""

    value: Any


def is_large(text: str) -> bool:
    """True if `excerpt` cuts the text."""
    return len(text) * 4 > LARGE and len(text.encode()) > LARGE  # a character takes up to four bytes


def excerpt(text: str) -> tuple[str, bool]:
    """The text and False, or its head, tail and size and True if it is large."""
    if not is_large(text):
        return text, False
    return _joined(text, len(text), text), True


def shown_value(value: object) -> tuple[str, bool]:
    """JSON data as the text that a model gets, and whether it is an excerpt."""
    return excerpt(value if isinstance(value, str) else _encode(value).decode())


def shown_large(value: Large | LargeText, clean: Clean, judge: Judge, mask: str) -> str:
    """The excerpt of a large value without secrets.

    Args:
        value: what the row holds.
        clean: removes secrets from a text.
        judge: says of a key what may be shown of the key, and whether its value is to be hidden.
        mask: in place of such a value.
    """
    if isinstance(value, LargeText) or isinstance(value.value, str):
        text = str(value if isinstance(value, LargeText) else value.value)
        if len(text) <= _WHOLE:
            shown = clean(text)
            return _joined(shown, len(text), shown)
        return _joined(clean(text[: _EDGE + _CONTEXT]), len(text), clean(text[-_EDGE - _CONTEXT :]))
    size = len(_encode(value.value).decode())
    writer = _Writer(clean, judge, mask)
    head = _taken(writer.forward(value.value))
    tail = _taken(writer.backward(value.value))
    return _joined("".join(head), size, "".join(reversed(tail)))


def _joined(head: str, size: int, tail: str) -> str:
    left_out = size - 2 * _EDGE
    if left_out <= 0:
        return head  # all of it
    return f"{head[:_EDGE]}\n[... {left_out} of {size} characters left out ...]\n{tail[-_EDGE:]}"


def _taken(pieces: Iterable[str]) -> list[str]:
    """As many pieces as make up an end: the rest is not even made."""
    taken, size = [], 0
    for piece in pieces:
        taken.append(piece)
        size += len(piece)
        if size >= _EDGE:
            break
    return taken


@attrs.frozen
class _Writer:
    """Writes JSON data as text, piece by piece from either end, each text and each key without secrets."""

    clean: Clean
    judge: Judge
    mask: str

    def forward(self, value: object) -> Iterator[str]:
        """From the beginning to the end."""
        if isinstance(value, Mapping):
            between = "{"
            for key, item in value.items():
                shown, hidden = self.judge(key)
                yield f"{between}{_encode(shown).decode()}:"
                yield from self.forward(self.mask if hidden and item is not None else item)
                between = ","
            yield "}" if between == "," else "{}"
        elif isinstance(value, (list, tuple)):
            between = "["
            for item in value:
                yield between
                yield from self.forward(item)
                between = ","
            yield "]" if between == "," else "[]"
        elif isinstance(value, str) and len(value) > _WHOLE:
            yield self._leaf(value[: _EDGE + _CONTEXT])
        else:
            yield self._leaf(value)

    def backward(self, value: object) -> Iterator[str]:
        """From the end to the beginning; the pieces themselves are not reversed."""
        if isinstance(value, Mapping):
            between = "}"
            for key, item in reversed(list(value.items())):
                shown, hidden = self.judge(key)
                yield between
                yield from self.backward(self.mask if hidden and item is not None else item)
                yield f"{_encode(shown).decode()}:"
                between = ","
            yield "{" if between == "," else "{}"
        elif isinstance(value, (list, tuple)):
            between = "]"
            for item in reversed(value):
                yield between
                yield from self.backward(item)
                between = ","
            yield "[" if between == "," else "[]"
        elif isinstance(value, str) and len(value) > _WHOLE:
            yield self._leaf(value[-_EDGE - _CONTEXT :])
        else:
            yield self._leaf(value)

    def _leaf(self, value: object) -> str:
        if isinstance(value, str):
            return _encode(self.clean(value)).decode()
        text = _encode(value).decode()
        return text if self.clean(text) == text else _encode(self.mask).decode()
