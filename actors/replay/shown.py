"""Entries of a record as redacted text for people."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ..contract.envelope import timestamp
from ..contract.recording import RecordEntry
from ..contract.redaction import Redactor

SHOWN: Final = 300
"""Most characters of an entry's text."""


def shown(number: int, taken: RecordEntry, redactor: Redactor) -> str:
    """Return an entry as one line: its number, its time, and its content."""
    return f"input {number} at {timestamp(taken.at)}: {struct_text(taken.entry, redactor)}"


def struct_text(value: Any, redactor: Redactor) -> str:
    """Return a struct's name and the fields that differ from their default, redacted and cut."""
    values = ((field, getattr(value, field.name)) for field in msgspec.structs.fields(type(value)))
    parts = ", ".join(f"{field.name}={given!r}" for field, given in values if given != field.default)
    text = redactor.text(f"{type(value).__name__}({parts})")
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
