"""Find secrets in a text: the spans that must not be shown.

Theory of operation. One search with the expression of `shapes` finds candidate places; the reader of each shape then
determines the span's beginning and end. Every step continues behind the text that it has read, or one character further
after a bounded look, so the time is linear in the text. A long text is searched window by window. The secrets that a
program has named are found beside the shapes, by `named_secrets`; the expression holds their beginnings only to tell
the many texts without any secret apart.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final
from urllib.parse import quote, quote_plus

from ..stepwise import WINDOW, Steps, drained
from . import paired_readers
from .named_secrets import NamedSecrets
from .secret_readers import Span, reader_of
from .shapes import PARTS, expression

_OVERLAP: Final = 1_024
"""Characters read behind a window: no shape needs as many to show itself."""
NESTED: Final = 3
"""Levels of nested texts in which a named secret is searched, such as JSON in a repr in JSON."""


def spellings(secret: str) -> set[str]:
    """Return the result of `spelling_steps`."""
    return drained(spelling_steps(secret))


def spelling_steps(secret: str) -> Steps[set[str]]:
    """Return a secret's spellings: plain, inside JSON or Python text, and as part of a URL or a form.

    Texts nest: an error with the repr of a JSON text writes a quote or a non-ASCII letter in its own way. So each
    spelling is applied to the results of the others, `NESTED` times.
    """
    forms = newest = {secret, secret.encode("utf-8", "replace").decode("utf-8")}
    for _ in range(NESTED):
        results = set[str]()
        for text in newest:
            results.update(write(text) for write in _WRITERS)
            yield
        newest = results - forms
        forms = forms | newest
    addresses = set[str]()
    for text in forms:
        addresses.update(write(text) for write in _QUOTERS)
        yield
    return forms | addresses


_WRITERS: Final[tuple[Callable[[str], str], ...]] = (
    lambda text: json.dumps(text)[1:-1],
    lambda text: json.dumps(text.encode("utf-8", "replace").decode("utf-8"), ensure_ascii=False)[1:-1],
    lambda text: repr(text)[1:-1],
    lambda text: repr('"' + text)[2:-1],  # as beside a double quote, where a single one gets a backslash
)

_QUOTERS: Final[tuple[Callable[[str], str], ...]] = (
    lambda text: quote(text, safe="", errors="replace"),
    lambda text: quote(text, errors="replace"),
    lambda text: quote_plus(text, errors="replace"),
)


def masked(text: str, spans: Iterable[Span]) -> str:
    """Return a text with each span replaced; the same object if nothing changes."""
    parts: list[str] = []
    at = 0
    for span in spans:
        if span.shown != text[span.start : span.end]:
            parts += (text[at : span.start], span.shown)
            at = span.end
    return "".join((*parts, text[at:])) if parts else text


class Finder:
    """Finds secrets in texts.

    Args:
        forms: spellings of the named secrets.
        shapes: also find texts with the shape of a secret.

    Attributes:
        search: the first candidate place from a position on; almost always None.
    """

    def __init__(self, forms: Iterable[str], *, shapes: bool = True) -> None:
        self._named_secrets = NamedSecrets(forms)
        heads = [(head[0], f"{re.escape(head[1:])}") for head in self._named_secrets.heads]
        all_shapes = [shape for part in PARTS.values() for shape in part] if shapes else []
        self.search = re.compile(expression([*heads, *all_shapes]) or r"(?!)").search
        shape_pattern = re.compile(expression(all_shapes) or r"(?!)")
        self._search_shape, self._match_shape = shape_pattern.search, shape_pattern.match

    def masked(self, text: str) -> str:
        """Return the text with secrets masked; the same object if nothing is hidden."""
        return masked(text, self.spans(text)) if self.search(text) is not None else text

    def spans(self, text: str) -> Iterator[Span]:
        """Yield the spans of a text, from its beginning to its end, without overlap."""
        return filter(None, self.pieces(text))

    def pieces(self, text: str) -> Iterator[Span | None]:
        """Yield the spans of a text, and None between two windows of the search."""
        named_spans = iter((yield from self._named_secrets.pieces(text)))
        secret = next(named_spans, None)
        at = position = 0
        while True:
            stop = position + WINDOW
            while (match := self._first(text, position, stop)) is not None:
                while secret is not None and secret.start <= match.start():
                    if secret.end > at:
                        yield _behind(secret, at)
                        at = secret.end
                    secret = next(named_spans, None)
                if match.start() < at:
                    position = at
                    continue
                span = _read(text, match, at)
                if span is None or span.end < at:  # it only looked like one
                    position = match.start() + 1
                    continue
                yield _behind(span, at)
                at, position = span.end, max(span.end, match.start() + 1)
            position = max(position, stop)
            if position >= len(text):
                break
            yield None
        while secret is not None:
            if secret.end > at:
                yield _behind(secret, at)
                at = secret.end
            secret = next(named_spans, None)

    def _first(self, text: str, position: int, stop: int) -> re.Match[str] | None:
        """Return the first candidate that begins before `stop`."""
        if stop >= len(text):
            return self._search_shape(text, position)
        while (match := self._search_shape(text, position, stop + _OVERLAP)) is not None and match.start() < stop:
            # the end of the window may have cut the match, and was no end of the text
            whole = self._match_shape(text, match.start())
            if whole is not None:
                return whole
            position = match.start() + 1
        return None

    @property
    def heads(self) -> Iterable[str]:
        """The beginnings by which named secrets are found."""
        return self._named_secrets.heads


def _behind(span: Span, at: int) -> Span:
    """Return the part of a span behind a place."""
    return span if span.start >= at else span._replace(start=at, since=min(at, span.since))


def _read(text: str, match: re.Match[str], at: int) -> Span | None:
    """Return the span of a match of the expression. `at`: the end of the previous span."""
    kind = (match.lastgroup or "").rstrip("0123456789")
    reader = paired_readers.READERS.get(kind) or reader_of(kind)
    return reader(text, match, at)
