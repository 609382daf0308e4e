"""Excerpts: the form in which a model and the event log see a result: whole, or head, tail and size if it is large.

The model gets the text unredacted (`excerpt`). The event must be redacted before it is cut: no pattern recognises a
secret that the cut splits, and the text of a dict has lost its keys. So the event holds the whole value, marked as
large, until the redactor reads it; `showing` redacts first and cuts afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final

import attrs
import msgspec

from .secrets.hidden_values import hidden_fields, hides_position, hides_value
from .sizes import VALUE_LIMIT, too_large
from .stepwise import Steps

LARGE: Final = 262_144
"""Bytes of a result above which event and model get an excerpt; the row holds all of it."""
_EDGE: Final = 4_096
"""Characters of each end in an excerpt."""
_CONTEXT: Final = 65_536
"""Characters read beyond an end: a secret that reaches into the end is recognised by the text before it."""
_WHOLE: Final = LARGE
"""Characters of a text that is read whole before the cut; of a larger text, both ends are read with their context."""

_encode = msgspec.json.Encoder().encode
Clean = Callable[[str], Steps[str]]
"""Removes secrets from a text, in steps."""


class LargeText(str):
    """A text that an event shows as an excerpt."""

    __slots__ = ()


@attrs.frozen
class Large:
    """JSON data that an event shows as an excerpt."""

    value: Any


def is_large(text: str) -> bool:
    """Return True if `excerpt` cuts the text."""
    # cheap first: a character takes one to four bytes
    return len(text) > LARGE or (len(text) * 4 > LARGE and len(text.encode("utf-8", "surrogatepass")) > LARGE)


def excerpt(text: str) -> tuple[str, bool]:
    """Return the text and False, or head, tail and size and True if the text is large."""
    if not is_large(text):
        return text, False
    return _joined(text, len(text), text), True


def shown_value(value: object) -> tuple[str, bool]:
    """Return JSON data as the model's text, and whether it is an excerpt."""
    return excerpt(value if isinstance(value, str) else _encode(value).decode())


def shown_result(value: object) -> tuple[str, bool, int]:
    """Return a result as `shown_value` does, and its bytes as JSON.

    Raises:
        TooLarge: the result has more bytes than are stored.
    """
    data = _encode(value)
    if len(data) > VALUE_LIMIT:
        raise too_large(len(data))
    text, large = excerpt(value if isinstance(value, str) else data.decode())
    return text, large, len(data)


def showing(value: Large | LargeText, clean: Clean, mask: str) -> Steps[str]:
    """Return the redacted excerpt of a large value, in steps.

    Args:
        value: the value in the row.
        clean: removes secrets from a text.
        mask: replaces a hidden value.
    """
    if isinstance(value, LargeText) or isinstance(value.value, str):
        text = str(value if isinstance(value, LargeText) else value.value)
        if len(text) <= _WHOLE:
            clean_text = yield from clean(text)
            return _joined(clean_text, len(text), clean_text)
        clean_head = yield from clean(text[: _EDGE + _CONTEXT])
        return _joined(clean_head, len(text), (yield from clean(text[-_EDGE - _CONTEXT :])))
    size = len(_encode(value.value).decode())
    writer = _Writer(clean, mask)
    head = yield from _taken(writer.forward(value.value))
    tail = yield from _taken(writer.backward(value.value))
    return _joined("".join(head), size, "".join(reversed(tail)))


def _joined(head: str, size: int, tail: str) -> str:
    left_out = size - 2 * _EDGE
    if left_out <= 0:
        return head  # redaction has made the text short enough to show whole
    return f"{head[:_EDGE]}\n[... {left_out} of {size} characters left out ...]\n{tail[-_EDGE:]}"


def _taken(pieces: Iterable[str | None]) -> Steps[list[str]]:
    """Return as many pieces as fill one end; the other pieces are not created. None is the end of a step."""
    head, size = list[str](), 0
    for piece in pieces:
        if piece is None:
            yield
            continue
        head.append(piece)
        size += len(piece)
        if size >= _EDGE:
            break
    return head


@attrs.frozen
class _Writer:
    """Writes JSON data as text, piece by piece from either end, with each text and key redacted.

    Between the pieces comes None, where a step of the work ends.
    """

    clean: Clean
    mask: str

    def forward(self, value: object) -> Iterator[str | None]:
        """Yield the pieces from the beginning to the end."""
        if isinstance(value, Mapping):
            between, hidden_names = "{", hidden_fields(value)
            for key, item in value.items():
                yield f"{between}{yield from self._written(key)}:"
                yield from self.forward(self.mask if _hides(key, item, hidden_names) else item)
                between = ","
            yield "}" if between == "," else "{}"
        elif isinstance(value, (list, tuple)):
            between = "["
            for place, item in enumerate(value):
                yield between
                yield from self.forward(self.mask if item is not None and hides_position(value, place) else item)
                between = ","
            yield "]" if between == "," else "[]"
        else:
            yield (yield from self._leaf(value, slice(None, _EDGE + _CONTEXT)))

    def backward(self, value: object) -> Iterator[str | None]:
        """Yield the pieces from the end to the beginning; the pieces themselves are not reversed."""
        if isinstance(value, Mapping):
            between, hidden_names = "}", hidden_fields(value)
            for key, item in reversed(list(value.items())):
                yield between
                yield from self.backward(self.mask if _hides(key, item, hidden_names) else item)
                yield f"{yield from self._written(key)}:"
                between = ","
            yield "{" if between == "," else "{}"
        elif isinstance(value, (list, tuple)):
            between = "]"
            for place in reversed(range(len(value))):
                yield between
                item = value[place]
                yield from self.backward(self.mask if item is not None and hides_position(value, place) else item)
                between = ","
            yield "[" if between == "," else "[]"
        else:
            yield (yield from self._leaf(value, slice(-_EDGE - _CONTEXT, None)))

    def _leaf(self, value: object, end: slice) -> Steps[str]:
        if isinstance(value, str):
            return (yield from self._written(value[end] if len(value) > _WHOLE else value))
        text = _encode(value).decode()
        return text if (yield from self.clean(text)) == text else _encode(self.mask).decode()

    def _written(self, text: str) -> Steps[str]:
        return _encode((yield from self.clean(text))).decode()


def _hides(key: object, item: object, hidden_names: Collection[object]) -> bool:
    return item is not None and (key in hidden_names or (isinstance(key, str) and hides_value(key, item)))
