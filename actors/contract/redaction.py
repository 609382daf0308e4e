"""The choke point for secrets: what leaves the private rows passes here.

Three nets, one pass: values under telling key names, known token shapes, and the values of secrets that the embedder
names. Only fields that hold foreign text are read. Private rows stay as they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import NoneType
from typing import Any, Final
from urllib.parse import quote

import msgspec

from .events import FOREIGN, FOREIGN_SCHEMAS

MASK: Final = "[redacted]"

SHORTEST: Final = 6
"""Characters of the shortest text that can hold a secret; all shapes and named secrets are longer or equal."""

SECRET_KEYS: Final = re.compile(
    r"(?i)(?:^|[_\-. ])(?:password|passwd|passphrase|pwd|secret|secret[_-]?key|api[_-]?key|apikey|access[_-]?key"
    r"|private[_-]?key|(?:api|auth|access|refresh|id|session|bearer|bot|user|security|github|gitlab|slack)[_-]?token"
    r"|bearer|authorization|cookie|credentials?)$|^token$"
)
"""Names under which a value is never shown; `clientSecret` is read as `client_Secret`."""

_TOKEN_SHAPES: Final = (
    r"sk-(?<![A-Za-z0-9]sk-)[A-Za-z0-9_\-]{16,}",  # OpenAI, Anthropic and others that took over the form; not task-...
    r"gh[pousr]_[A-Za-z0-9]{20,}",  # GitHub
    r"github_pat_[A-Za-z0-9_]{20,}",
    r"glpat-[A-Za-z0-9_\-]{16,}",  # GitLab
    r"xox[abprs]-[A-Za-z0-9\-]{10,}",  # Slack
    r"A(?:KIA|SIA)[0-9A-Z]{16}",  # AWS access key ids
    r"AIza[0-9A-Za-z_\-]{30,}",  # Google
    r"eyJ[A-Za-z0-9_\-]{8,}\.eyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{8,}",  # JSON web tokens
    r"b(?i:earer)\s+[A-Za-z0-9._~+/\-]{16,}=*",
    r"B(?i:earer)\s+[A-Za-z0-9._~+/\-]{16,}=*",
    r"://[^\s/:@\"]{1,256}:[^\s/@\"]{1,256}@",  # a URL with a password
    r"-----BEGIN [A-Z ]{0,32}PRIVATE KEY-----(?:[\s\S]*?-----END [A-Z ]{0,32}PRIVATE KEY-----|[\s\S]*)",
)
"""Each begins with a plain character: so the search can skip what begins none of them, and is twice as fast."""

_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_TOO_DEEP: Final = "[nested too deeply to be shown]"


def spellings(secret: str) -> set[str]:
    """A secret as it stands, as text inside JSON or Python text, and as part of a URL."""
    plain = secret.encode("utf-8", "replace").decode("utf-8")
    inside = {json.dumps(secret)[1:-1], json.dumps(plain, ensure_ascii=False)[1:-1], repr(secret)[1:-1]}
    return {secret, plain, quote(plain, safe=""), *inside}


class Redactor:
    """Removes secrets from what people and clients see.

    Args:
        secrets: values that must never be shown, such as the values of secret environment variables; those shorter than
            6 characters are refused, because masking them would garble ordinary text.

    Raises:
        ValueError: a secret is too short to be masked safely.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        values = set(secrets)
        for value in values:
            if len(value) < SHORTEST:
                raise ValueError(f"a secret of {len(value)} characters would garble text; use {SHORTEST} or more")
        named = sorted(set().union(*map(spellings, values)), key=lambda text: (-len(text), text))
        pattern = re.compile("|".join([*map(re.escape, named), *_TOKEN_SHAPES]))
        self._search, self._sub = pattern.search, pattern.sub
        digits = any(not value.strip("0123456789.eE+-") for value in values)
        self._harmless = frozenset({bool, NoneType} if digits else {bool, NoneType, int, float})
        self._about = lru_cache(maxsize=4096)(self._judge_key)

    def text(self, value: str) -> str:
        """The text without secrets; the same object if there are none."""
        return value if self._search(value) is None else self._sub(MASK, value)

    def value(self, value: Any) -> Any:
        """JSON data without secrets; the same object if there are none."""
        return self._clean(value) if self._dirty(value) else value

    def schema(self, value: Any) -> Any:
        """A JSON Schema without secrets: its texts are read, its keys name properties and hide nothing."""
        if value is None:
            return None
        text = msgspec.json.encode(value).decode()
        return value if self._search(text) is None else msgspec.json.decode(self._sub(MASK, text))

    def _dirty(self, value: Any) -> bool:
        """Whether anything in it must go. Most data is clean, so this is the hot path: it builds nothing."""
        kind = type(value)
        if kind is str:
            return len(value) >= SHORTEST and self._search(value) is not None
        if kind in self._harmless:
            return False
        if kind is list or kind is tuple:
            return any(map(self._dirty, value))
        if kind is dict or isinstance(value, Mapping):
            return self._dirty_mapping(value)
        return self._clean(value) is not value

    def _dirty_mapping(self, value: Mapping[str, Any]) -> bool:
        about, search, harmless = self._about, self._search, self._harmless
        for key, item in value.items():
            told = about(key)
            if told is not None and (item is not None or told[0] != key):
                return True
            kind = type(item)
            if kind is str:  # as in _dirty; a call for each text is a quarter of an event's price
                if len(item) >= SHORTEST and search(item) is not None:
                    return True
            elif kind not in harmless and self._dirty(item):
                return True
        return False

    def _clean(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return dict(map(self._clean_item, value.items()))
        if isinstance(value, (list, tuple)):
            return [self._clean(item) for item in value]
        if type(value) not in self._harmless and isinstance(value, (int, float)) and self._search(str(value)):
            return MASK
        return value

    def _clean_item(self, pair: tuple[str, Any]) -> tuple[str, Any]:
        key, item = pair
        clean_key, hidden = self._about(key) or (key, False)
        return clean_key, MASK if hidden and item is not None else self._clean(item)

    def _judge_key(self, key: Any) -> tuple[str, bool] | None:
        """None if the key is an ordinary one, else (the key without secrets, whether its value is to be hidden)."""
        if not isinstance(key, str):
            return None
        clean, hidden = self._sub(MASK, key), SECRET_KEYS.search(_HUMP.sub("_", key)) is not None
        return (clean, hidden) if hidden or clean != key else None

    def payload(self, payload: Any) -> Any:
        """An event's payload without secrets; the same object if there are none."""
        changes: dict[str, Any] | None = None
        for name in FOREIGN[type(payload)]:
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
        for name in FOREIGN_SCHEMAS.get(type(payload), ()):
            before, after = getattr(payload, name), self.schema(getattr(payload, name))
            if after is not before:
                changes = {name: after, **(changes or {})}
        return payload if changes is None else msgspec.structs.replace(payload, **changes)
