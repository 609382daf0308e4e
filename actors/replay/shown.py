"""Entries of a record in words: for people, and redacted."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ..contract.envelope import timestamp
from ..contract.recording import Taken
from ..contract.redaction import Redactor

SHOWN: Final = 300
"""Characters of an entry that a line shows."""


def shown(number: int, taken: Taken, redactor: Redactor) -> str:
    """An entry as one line: its number, its time, its name and the fields that do not have their default."""
    entry: Any = taken.entry
    values = ((field, getattr(entry, field.name)) for field in msgspec.structs.fields(type(entry)))
    parts = ", ".join(f"{field.name}={value!r}" for field, value in values if value != field.default)
    text = redactor.text(f"input {number} at {timestamp(taken.at)}: {type(entry).__name__}({parts})")
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
