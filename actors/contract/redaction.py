"""The choke point for secrets: what leaves the private rows passes here.

Three nets, one pass: values under telling key names (in JSON data and in text), known token shapes, and the values of
secrets that the embedder names. Directories that say who runs the host take a short name. Only fields that hold
foreign text are read. Private rows stay as they are.

The end of a text may be the end of what was kept of a longer one. So the beginning of a secret is hidden, too, where
a text ends or says that it was cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from types import NoneType
from typing import Any, Final

import msgspec

from ..errors import UsageError
from .events import FOREIGN, FOREIGN_SCHEMAS
from .excerpt import Large, LargeText, shown_large
from .plain import JSONObject
from .shapes import LONGEST_KEY
from .spans import MASK, SHORTEST, Finder, Span, hides, masked, spellings

WORKSPACE: Final = "[workspace]"
"""In place of the directory of the run."""

LONGEST: Final = 16_384
"""Characters of the longest secret that can be named: what is held back of a stream must hold one."""

WHOLE: Final = 1_048_576
"""Characters of a text that are read; what follows them is left out, because a search holds the interpreter lock."""

_MARK: Final = 128
"""Characters that are kept free for that mark: a text that was shortened is not shortened again."""
_TOO_DEEP: Final = "[nested too deeply to be shown]"
_ABSOLUTE: Final = re.compile(r"(?:/|[A-Za-z]:[\\/])[^\\/]")


class Redactor:
    """Removes secrets from what people and clients see.

    Args:
        secrets: values that must never be shown, such as the values of secret environment variables; those shorter than
            6 characters are refused, because masking them would garble ordinary text.

    Raises:
        ValueError: a secret is too short to be masked safely, or longer than `LONGEST`.

    Attributes:
        finder: what finds secrets in a text.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        values = set(secrets)
        for value in values:
            if len(value) < SHORTEST:
                raise UsageError(f"a secret of {len(value)} characters would garble text; use {SHORTEST} or more")
            if len(value) > LONGEST:
                raise UsageError(f"a secret of {len(value)} characters is longer than {LONGEST}; name its parts")
        self.finder = Finder(set().union(*map(spellings, values)))
        self._search: Callable[[str], Any] = self.finder.search
        digits = any(not value.strip("0123456789.eE+-") for value in values)
        self._harmless = frozenset({bool, NoneType} if digits else {bool, NoneType, int, float})
        self._about = lru_cache(maxsize=4096)(self._judge_key)
        self._within = lru_cache(maxsize=256)(partial(_Within, self))

    def within(self, workspace: str | None) -> Redactor:
        """The redactor of a run: the run's own directory is hidden, too, if `workspace` is an absolute path."""
        return self if workspace is None or _ABSOLUTE.match(workspace) is None else self._within(workspace)

    def text(self, value: str) -> str:
        """The text without secrets; the same object if there are none.

        Of a text of more than `WHOLE` characters that many are read and shown, and a mark says how many are left out.
        """
        if len(value) > WHOLE:
            return self._shortened(value)
        return value if self._search(value) is None else self._masked(value)

    def value(self, value: object) -> Any:
        """JSON data without secrets; the same object if there are none."""
        if type(value) is str:  # most fields of events: read once, as in `_dirty`
            return value if len(value) < SHORTEST else self.text(value)
        return self._clean(value) if self._dirty(value) else value

    def restored(self, given: object, raw: object) -> Any:
        """`given`, with each part that is what the redactor shows of the same part of `raw` replaced by the raw part.

        People edit what they are shown: a mask that they leave in place stands for the value behind the mask.
        """
        if given == self.value(raw):
            return raw
        if isinstance(given, Mapping) and isinstance(raw, Mapping):
            return {key: self._restored_item(key, item, raw) for key, item in given.items()}
        if isinstance(given, list) and isinstance(raw, (list, tuple)) and len(given) == len(raw):
            return [self.restored(item, old) for item, old in zip(given, raw, strict=True)]
        return given

    def _restored_item(self, key: str, given: object, raw: JSONObject) -> Any:
        if key not in raw:
            return given
        if {key: given} == self.value({key: raw[key]}):  # with its key, which may say that the value is a secret
            return raw[key]
        return self.restored(given, raw[key])

    def schema(self, value: object) -> Any:
        """A JSON Schema without secrets: its texts are read, its keys name properties and hide nothing."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            pairs = [(self.text(key), self.schema(item)) for key, item in value.items()]
            same = all(a is c and b is d for (a, b), (c, d) in zip(value.items(), pairs, strict=True))
            return value if same else dict(pairs)
        if isinstance(value, (list, tuple)):
            items = [self.schema(item) for item in value]
            return value if all(a is b for a, b in zip(value, items, strict=True)) else items
        return self._clean(value)

    @property
    def heads(self) -> Iterable[str]:
        """How the texts begin that are hidden because they were named."""
        return self.finder.heads

    def search(self, text: str) -> Any:
        """None if a text has no secret, and no beginning of one that it would hide."""
        return self._search(text)

    def spans(self, text: str) -> Iterator[Span]:
        """What `text` hides, from the beginning of a text to its end."""
        return self.finder.spans(text)

    def about(self, key: str) -> tuple[str, bool]:
        """The key without secrets, and whether its value is to be hidden."""
        return self._about(key) or (key, False)

    def _shortened(self, text: str) -> str:
        """The beginning of a text that is too long to be read. What the cut goes through is hidden as at any end."""
        shown = WHOLE - _MARK
        return f"{self.text(text[:shown])}\n[... {len(text) - shown} of {len(text)} characters left out ...]\n"

    def _masked(self, text: str) -> str:
        """A text in which there may be secrets; the same object if there are none."""
        return masked(text, self.spans(text))

    def _dirty(self, value: Any) -> bool:
        """Whether anything in it must go. Most data is clean, so this is the hot path: it builds nothing."""
        kind = type(value)
        if kind is str:
            return len(value) >= SHORTEST and self.text(value) is not value
        if kind in self._harmless:
            return False
        if kind is list or kind is tuple:
            return any(map(self._dirty, value))
        if kind is dict or isinstance(value, Mapping):
            return self._dirty_mapping(value)
        return self._clean(value) is not value

    def _dirty_mapping(self, value: JSONObject) -> bool:
        about, search, harmless = self._about, self._search, self._harmless
        for key, item in value.items():
            judgement = about(key)
            if judgement is not None and (item is not None or judgement[0] != key):
                return True
            kind = type(item)
            if kind is str:  # as in _dirty; a call for each text is a quarter of an event's price
                size = len(item)
                if size >= SHORTEST and (size > WHOLE or (search(item) is not None and self._masked(item) is not item)):
                    return True
            elif kind not in harmless and self._dirty(item):
                return True
        return False

    def _clean(self, value: object) -> Any:
        if isinstance(value, (Large, LargeText)):
            return shown_large(value, self.text, self.about, MASK)
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return dict(map(self._clean_item, value.items()))
        if isinstance(value, (list, tuple)):
            return [self._clean(item) for item in value]
        if type(value) not in self._harmless and isinstance(value, (int, float)) and MASK in self.text(str(value)):
            return MASK
        return value

    def _clean_item(self, pair: tuple[str, object]) -> tuple[str, Any]:
        clean_key, hidden = self.about(pair[0])
        return clean_key, MASK if hidden and pair[1] is not None else self._clean(pair[1])

    def _judge_key(self, key: object) -> tuple[str, bool] | None:
        """None if the key is an ordinary one, else (the key without secrets, whether its value is to be hidden)."""
        if not isinstance(key, str):
            return None
        clean, hidden = self.text(key), hides(key[-LONGEST_KEY:])
        return (clean, hidden) if hidden or clean != key else None

    def payload(self, payload: Any) -> Any:
        """An event's payload without secrets; the same object if there are none."""
        changes: dict[str, Any] | None = None
        kind = type(payload)
        names = FOREIGN[kind]
        if not names and kind not in FOREIGN_SCHEMAS:
            return payload
        for name in names:
            before = getattr(payload, name)
            if before is None:
                continue
            try:
                after = self.value(before)
            except RecursionError:  # a model may nest its arguments as deep as it likes
                after = {_TOO_DEEP: None} if isinstance(before, Mapping) else _TOO_DEEP
            if after is not before:
                changes = {} if changes is None else changes
                changes[name] = after
        for name in FOREIGN_SCHEMAS.get(kind, ()):
            before = getattr(payload, name)
            try:
                after = before if before is None else self.schema(before)
            except RecursionError:
                after = {_TOO_DEEP: None}
            if after is not before:
                changes = {name: after, **(changes or {})}
        return payload if changes is None else msgspec.structs.replace(payload, **changes)


class _Within(Redactor):
    """A redactor that knows the directory of a run, too. It shares the expression with the one that it is made of."""

    def __init__(self, base: Redactor, workspace: str) -> None:
        self.finder, self._harmless = base.finder, base._harmless
        self._roots = spellings(workspace.rstrip("/\\"))
        behind = "|".join(map(re.escape, sorted(self._roots, key=lambda text: (-len(text), text))))
        self._found = re.compile(rf"(?:{behind})(?![\w\-])(?!\.\w)").finditer
        self._base_search = base._search
        self._search = self._look
        self._about = lru_cache(maxsize=4096)(self._judge_key)

    def within(self, workspace: str | None) -> Redactor:
        """Itself: a run has one directory."""
        return self

    @property
    def heads(self) -> Iterable[str]:
        """Those of the run's directory, too: all of it, since it is hidden only where it is whole."""
        return (*self.finder.heads, *(f"{root}/" for root in self._roots))

    def _look(self, text: str) -> Any:
        found = self._base_search(text)
        return found if found is not None else next((root for root in self._roots if root in text), None)

    def spans(self, text: str) -> Iterator[Span]:
        """What `text` hides. The directory may be below a home: then it is what is named."""
        at, size = 0, len(text)
        places = [Span(m.start(), m.end(), WORKSPACE, m.start(), m.end() == size) for m in self._found(text)]
        for span in self.finder.spans(text):
            while places and places[0].start <= span.start:
                place = places.pop(0)
                if place.start >= at:
                    yield place
                    at = place.end
            if span.start >= at:
                yield span
                at = span.end
            elif span.end > at:
                yield span._replace(start=at, since=min(at, span.since))
                at = span.end
        yield from (place for place in places if place.start >= at)
