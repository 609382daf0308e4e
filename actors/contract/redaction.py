"""The choke point for secrets: what leaves the private rows passes here.

Three nets, one pass: values under telling key names, known token shapes, and the values of secrets that the embedder
names. Only fields that hold foreign text are read. Private rows stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from .events import FOREIGN

MASK: Final = "[redacted]"

SECRET_KEYS: Final = re.compile(
    r"(?i)(?:^|[_\-.])(?:password|passwd|secret|api[_-]?key|apikey|access[_-]?key|private[_-]?key|auth[_-]?token|access[_-]?token"
    r"|refresh[_-]?token|id[_-]?token|bearer|authorization|credentials?)$|^token$"
)
"""Names under which a value is never shown."""

_TOKEN_SHAPES: Final = (
    r"sk-[A-Za-z0-9_\-]{16,}",  # OpenAI, Anthropic and others that took over the form
    r"gh[pousr]_[A-Za-z0-9]{20,}",  # GitHub
    r"github_pat_[A-Za-z0-9_]{20,}",
    r"glpat-[A-Za-z0-9_\-]{16,}",  # GitLab
    r"xox[abprs]-[A-Za-z0-9\-]{10,}",  # Slack
    r"A(?:KIA|SIA)[0-9A-Z]{16}",  # AWS access key ids
    r"AIza[0-9A-Za-z_\-]{30,}",  # Google
    r"eyJ[A-Za-z0-9_\-]{8,}\.eyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{8,}",  # JSON web tokens
    r"(?i:bearer)\s+[A-Za-z0-9._~+/\-]{16,}=*",
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?-----END [A-Z ]*PRIVATE KEY-----",
)


class Redactor:
    """Removes secrets from what people and clients see.

    Args:
        secrets: values that must never be shown, such as the values of secret environment variables; those shorter than
            6 characters are refused, because masking them would garble ordinary text.

    Raises:
        ValueError: a secret is too short to be masked safely.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        values = sorted(set(secrets), key=len, reverse=True)
        for value in values:
            if len(value) < 6:
                raise ValueError(
                    f"a secret of {len(value)} characters can not be masked without garbling text; use 6 or more"
                )
        shapes = [re.escape(value) for value in values] + list(_TOKEN_SHAPES)
        self._search = re.compile("|".join(shapes)).search
        self._sub = re.compile("|".join(shapes)).sub

    def text(self, value: str) -> str:
        """The text without secrets; the same object if there are none."""
        return value if self._search(value) is None else self._sub(MASK, value)

    def value(self, value: Any) -> Any:
        """JSON data without secrets; the same object if there are none."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return self._mapping(value)
        if isinstance(value, (list, tuple)):
            items = [self.value(item) for item in value]
            return value if all(a is b for a, b in zip(items, value, strict=True)) else items
        return value

    def _mapping(self, value: Mapping[str, Any]) -> Mapping[str, Any]:
        changed: dict[str, Any] = {}
        for key, item in value.items():
            clean_key = self.text(key)
            hidden = item is not None and SECRET_KEYS.search(key) is not None
            clean = MASK if hidden else self.value(item)
            if clean is not item or clean_key is not key:
                changed[key] = (clean_key, clean)
        if not changed:
            return value
        return dict(changed.get(key, (key, item)) for key, item in value.items())

    def payload(self, payload: Any) -> Any:
        """An event's payload without secrets; the same object if there are none."""
        changes: dict[str, Any] = {}
        for name in FOREIGN[type(payload)]:
            before = getattr(payload, name)
            if before is not None:
                after = self.value(before)
                if after is not before:
                    changes[name] = after
        return msgspec.structs.replace(payload, **changes) if changes else payload
