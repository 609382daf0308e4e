"""The choke point for secrets: everything that leaves the private rows passes the redactor.

Theory of operation. Three filters in one pass: values under names such as `password` (in JSON data and in text), known
token shapes, and the secrets that the embedder names. Directories that reveal the host's user are shortened. Only
fields with foreign text are read; private rows stay unredacted. A large value is read in steps (`stepwise`). A text
may be the cut beginning of a longer one, so the beginning of a secret is hidden, too, where a text ends or is marked as
cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import lru_cache, partial
from types import NoneType
from typing import Any, Final
from weakref import WeakSet

import msgspec

from ..catalogue import FOREIGN, FOREIGN_SCHEMAS
from ..excerpt import Large, LargeText, showing
from ..plain import JSONObject
from ..sizes import measured
from ..stepwise import WINDOW, Steps, drained
from .hidden_values import (
    hidden_fields,
    hidden_keys,
    hidden_positions,
    hides_key,
    hides_position,
    hides_value,
    names_value,
)
from .named_secrets import check_learnable, checked
from .secret_readers import MASK, SHORTEST, Span, hides_items
from .shapes import LONGEST_KEY
from .spans import Finder, masked, spelling_steps, spellings

WORKSPACE: Final = "[workspace]"
"""Replaces the run's directory."""

WHOLE: Final = 1_048_576
"""Characters of a text that are read; the rest is left out, because a search holds the interpreter lock."""

_MARK: Final = 128
"""Characters kept free for the mark of a cut, so that a shortened text is not shortened again."""
_TOO_DEEP: Final = "[nested too deeply to be shown]"
_ABSOLUTE: Final = re.compile(r"(?:/|[A-Za-z]:[\\/])[^\\/]")


class Redactor:
    """Removes secrets from everything that people and clients see.

    Args:
        secrets: values that must never be shown, such as the values of secret environment variables; at least 6
            characters each, because masking shorter values would garble ordinary text.

    Raises:
        UsageError: a secret is too short to be masked safely, or longer than `LONGEST`.

    Attributes:
        finder: finds secrets in a text.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        values = checked(secrets)
        self._values, self._learned = frozenset[str](), frozenset[str]()
        self._forms = frozenset[str]()
        self._about = lru_cache(maxsize=4096)(self._judge_key)
        self._within = lru_cache(maxsize=256)(partial(_Within, self))
        self._followers = WeakSet[_Within]()
        self._find(values, set().union(*map(spellings, values)))

    def learn_steps(self, secrets: Iterable[str]) -> Steps[None]:
        """Hide further values from now on, also in the redactors that `within` has returned; in steps.

        What was shown before stays shown. A redactor learns `LEARNED` values of `LEARNED_CHARACTERS` together and
        forgets none.

        Raises:
            UsageError: As for the constructor, or the values are too many; none of them is learned.
        """
        values, forms = checked(secrets) - self._values, set[str]()
        check_learnable(self._learned | values)
        for value in values:
            forms |= yield from spelling_steps(value)
        new = values - self._values  # another task may have learned some between two steps
        if not new:
            return
        check_learnable(self._learned | new)
        self._learned |= new
        self._find(new, forms)

    def _find(self, values: AbstractSet[str], forms: AbstractSet[str]) -> None:
        """Find further values by their spellings."""
        self._values, self._forms = self._values | values, self._forms | forms
        self.finder = Finder(self._forms)
        self._search: Callable[[str], Any] = self.finder.search
        digits = any(not value.strip("0123456789.eE+-") for value in self._values)
        self._harmless = frozenset({bool, NoneType} if digits else {bool, NoneType, int, float})
        self._about.cache_clear()
        for follower in self._followers:
            follower.follow()

    def within(self, workspace: str | None) -> Redactor:
        """Return the redactor of a run: it also hides the run's directory, if `workspace` is an absolute path."""
        return self if workspace is None or _ABSOLUTE.match(workspace) is None else self._within(workspace)

    def text(self, value: str) -> str:
        """Return the text without secrets; the same object if nothing is hidden.

        Of a text longer than `WHOLE` only that many characters are read and shown; a mark gives the number left out.
        """
        if len(value) > WHOLE:
            return self._shortened(value)
        return value if self._search(value) is None else self._masked(value)

    def value(self, value: object) -> Any:
        """Return JSON data without secrets; the same object if nothing is hidden."""
        if type(value) is str:  # most fields of events: read once, as in `_dirty`
            return value if len(value) < SHORTEST else self.text(value)
        return self._clean(value) if self._dirty(value) else value

    def text_steps(self, value: str) -> Steps[str]:
        """Return the result of `text`, in steps of about `WINDOW` characters."""
        if len(value) <= WINDOW:
            return self.text(value)
        if len(value) > WHOLE:
            head = yield from self.text_steps(value[: WHOLE - _MARK])
            return _with_mark(head, value)
        spans = list[Span]()
        for span in self.pieces(value):
            if span is None:
                yield
            else:
                spans.append(span)
        yield  # the last of them may be long
        return masked(value, spans)

    def steps(self, value: object) -> Steps[Any]:
        """Return the result of `value`, in steps of about `WINDOW` characters and items."""
        return (yield from self._steps(value, [WINDOW]))

    def _steps(self, value: object, room: list[int]) -> Steps[Any]:
        """`room`: characters until the next pause, in a list, because all levels count together."""
        room[0] -= 1 + (len(value) if isinstance(value, str) else 0)
        if room[0] < 0:
            room[0] = WINDOW
            yield
        if isinstance(value, (Large, LargeText)):
            return (yield from showing(value, self.text_steps, MASK))
        if isinstance(value, Mapping):
            hidden_names, out = hidden_fields(value), {}
            for key, item in value.items():
                is_hidden = key in hidden_names or (isinstance(key, str) and hides_value(key, item))
                is_long = isinstance(key, str) and len(key) > WINDOW
                name = (yield from self.text_steps(key)) if is_long else self.key(key)
                room[0] -= len(name) if isinstance(name, str) else 1
                out[name] = MASK if is_hidden and item is not None else (yield from self._steps(item, room))
            return out
        if isinstance(value, (list, tuple)):
            items = []
            for place, item in enumerate(value):
                is_hidden = item is not None and hides_position(value, place)
                items.append(MASK if is_hidden else (yield from self._steps(item, room)))
            return items
        return (yield from self.text_steps(value)) if isinstance(value, str) else self._clean(value)

    def restored(self, value: object, raw: object) -> Any:
        """Return the result of `restored_steps`."""
        return drained(self.restored_steps(value, raw))

    def restored_steps(self, value: object, raw: object) -> Steps[Any]:
        """Return `value` with each part that equals the redacted form of a part of `raw` replaced by that raw part.

        People edit the redacted form: a mask that they leave in place means the value behind the mask.
        """
        return _restored(value, raw, (yield from self.steps(raw)))

    def schema(self, value: object) -> Any:
        """Return a JSON Schema without secrets: its texts are redacted, its keys name properties and hide no value."""
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
        """The beginnings of the named secrets."""
        return self.finder.heads

    def search(self, text: str) -> Any:
        """Return None if a text has neither a secret nor the beginning of one; else a match."""
        return self._search(text)

    def spans(self, text: str) -> Iterator[Span]:
        """Yield what `text` hides, from its beginning to its end."""
        return filter(None, self.pieces(text))

    def pieces(self, text: str) -> Iterator[Span | None]:
        """Yield what `text` hides, and None between two windows of the search."""
        return self.finder.pieces(text)

    def key(self, key: Any) -> Any:
        """Return a key of a mapping without secrets."""
        return (self._about(key) or (key, False))[0]

    def _shortened(self, text: str) -> str:
        """Return the beginning of a text that is too long to read. A secret at the cut is hidden as at any end."""
        return _with_mark(self.text(text[: WHOLE - _MARK]), text)

    def _masked(self, text: str) -> str:
        """Return a text that may have secrets in masked form; the same object if it has none."""
        return masked(text, self.spans(text))

    def _dirty(self, value: Any) -> bool:
        """Return whether a value has secrets. Most data is clean, so this is the hot path: it allocates nothing."""
        kind = type(value)
        if kind is str:
            return len(value) >= SHORTEST and self.text(value) is not value
        if kind in self._harmless:
            return False
        if kind is list or kind is tuple:
            return any(map(self._dirty, value)) or bool(hidden_positions(value))
        if kind is dict or isinstance(value, Mapping):
            return self._dirty_mapping(value)
        return self._clean(value) is not value

    def _dirty_mapping(self, value: JSONObject) -> bool:
        about, search, harmless = self._about, self._search, self._harmless
        for key, item in value.items():
            judgement = about(key)
            if judgement is not None and (
                judgement[0] != key or (item is not None and (judgement[1] or hides_value(key, item)))
            ):
                return True
            kind = type(item)
            if kind is str:  # inlined from _dirty: a call for each text is a quarter of an event's cost
                size = len(item)
                if size >= SHORTEST and (size > WHOLE or (search(item) is not None and self._masked(item) is not item)):
                    return True
            elif kind not in harmless and self._dirty(item):
                return True
        return names_value(value)

    def _clean(self, value: object) -> Any:
        if isinstance(value, (Large, LargeText)):
            return drained(showing(value, self.text_steps, MASK))
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            hidden_names = hidden_keys(value)
            return {self.key(key): self._clean_part(item, key in hidden_names) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            places = hidden_positions(value)
            return [self._clean_part(item, place in places) for place, item in enumerate(value)]
        if type(value) not in self._harmless and isinstance(value, (int, float)) and MASK in self.text(str(value)):
            return MASK
        return value

    def _clean_part(self, item: object, is_hidden: bool) -> Any:
        return MASK if is_hidden and item is not None else self._clean(item)

    def _judge_key(self, key: object) -> tuple[str, bool] | None:
        """Return None for an ordinary key, else (the key without secrets, whether its value is hidden).

        Of a key that may hide its value, which depends on the value, the second is False.
        """
        if not isinstance(key, str):
            return None
        name = key[-LONGEST_KEY:]
        clean, is_hidden = self.text(key), hides_key(key)
        return (clean, is_hidden) if is_hidden or clean != key or hides_items(name) else None

    def payload(self, payload: Any) -> Any:
        """Return an event's payload without secrets; the same object if nothing is hidden."""
        clean = self.small_payload(payload)
        return drained(self.payload_steps(payload)) if clean is None else clean

    def small_payload(self, payload: Any) -> Any:
        """Return the result of `payload`, or None if a field is so large that it must be read in steps."""
        changes: dict[str, object] | None = None
        kind, search = type(payload), self._search
        for name in FOREIGN[kind]:
            before = getattr(payload, name)
            form = type(before)
            if form is str:
                if len(before) <= WINDOW and (len(before) < SHORTEST or search(before) is None):
                    continue  # most texts: read once, without a call
            elif not before or form in self._harmless:
                continue
            if form is Large or measured(before, WINDOW) > WINDOW:
                return None
            try:
                after = self._clean(before) if self._dirty(before) else before
            except RecursionError:  # a model may nest its arguments without limit
                after = _too_deep(before)
            if after is not before:
                changes = {} if changes is None else changes
                changes[name] = after
        if kind in FOREIGN_SCHEMAS:  # few have one, and asking costs less than a loop over nothing
            changes = self._with_schemas(payload, changes)
        return payload if changes is None else msgspec.structs.replace(payload, **changes)

    def payload_steps(self, payload: Any) -> Steps[Any]:
        """Return the result of `payload`, in steps of about `WINDOW` characters and items."""
        changes, kind = dict[str, object](), type(payload)
        for name in FOREIGN[kind]:
            before = getattr(payload, name)
            if before is not None:
                try:
                    changes[name] = yield from self.steps(before)
                except RecursionError:
                    changes[name] = _too_deep(before)
        if kind in FOREIGN_SCHEMAS:
            changes = self._with_schemas(payload, changes) or changes
        return msgspec.structs.replace(payload, **changes)

    def _with_schemas(self, payload: object, changes: dict[str, object] | None) -> dict[str, object] | None:
        for name in FOREIGN_SCHEMAS[type(payload)]:
            before = getattr(payload, name)
            try:
                after = before if before is None else self.schema(before)
            except RecursionError:
                after = {_TOO_DEEP: None}
            if after is not before:
                changes = {name: after, **(changes or {})}
        return changes


def _restored(value: object, raw: Any, clean: Any) -> Any:
    """See `Redactor.restored`. Each part is compared as it was shown in its place, which may make it a secret."""
    if value == clean:
        return raw
    if isinstance(value, Mapping) and isinstance(raw, Mapping) and isinstance(clean, Mapping):
        shared_keys = raw.keys() & clean.keys()
        return {
            key: _restored(item, raw[key], clean[key]) if key in shared_keys else item for key, item in value.items()
        }
    lists = isinstance(raw, (list, tuple)) and isinstance(clean, (list, tuple))
    if lists and isinstance(value, list) and len(value) == len(raw):
        return [_restored(*parts) for parts in zip(value, raw, clean, strict=True)]
    return value


def _with_mark(head: str, text: str) -> str:
    """Return the redacted beginning of a text that is too long to read, with a mark of the rest."""
    left_out = len(text) - (WHOLE - _MARK)
    return f"{head}\n[... {left_out} of {len(text)} characters left out ...]\n"


def _too_deep(value: object) -> object:
    return {_TOO_DEEP: None} if isinstance(value, Mapping) else _TOO_DEEP


class _Within(Redactor):
    """A redactor that also hides the directory of a run. It shares the compiled expression of its base."""

    def __init__(self, base: Redactor, workspace: str) -> None:
        self._base = base
        self._roots = spellings(workspace.rstrip("/\\"))
        behind = "|".join(map(re.escape, sorted(self._roots, key=lambda text: (-len(text), text))))
        self._matches = re.compile(rf"(?:{behind})(?![\w\-])(?!\.\w)").finditer
        self._search = self._look
        self._about = lru_cache(maxsize=4096)(self._judge_key)
        self.follow()
        base._followers.add(self)

    def follow(self) -> None:
        """Find what the base finds now."""
        self.finder, self._harmless, self._base_search = self._base.finder, self._base._harmless, self._base._search
        self._about.cache_clear()

    def learn_steps(self, secrets: Iterable[str]) -> Steps[None]:
        """Let the base learn further values."""
        return self._base.learn_steps(secrets)

    def within(self, workspace: str | None) -> Redactor:
        """Return itself: a run has one directory."""
        return self

    @property
    def heads(self) -> Iterable[str]:
        """The base's beginnings and the run's whole directory, which is hidden only where it is complete."""
        return (*self.finder.heads, *(f"{root}/" for root in self._roots))

    def _look(self, text: str) -> Any:
        match = self._base_search(text)
        return match if match is not None else next((root for root in self._roots if root in text), None)

    def pieces(self, text: str) -> Iterator[Span | None]:
        """Yield what `text` hides, and None between two windows of the search.

        The directory may be below a home directory; then the directory's name wins.
        """
        at, size = 0, len(text)
        places = [Span(m.start(), m.end(), WORKSPACE, m.start(), m.end() == size) for m in self._matches(text)]
        for span in self.finder.pieces(text):
            if span is None:
                yield None
                continue
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
